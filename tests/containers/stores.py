"""A store that notes what is read of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fsabs import FS, Memory
from fsabs.core.blobs import Blob
from fsabs.spi import LayerFS


class CountingFS(LayerFS):
    """Notes every read of the store: a `(size, offset)`, or a list of them for a read of several ranges.

    `failure` is what reads raise while it is set. With `streams=True` it can have more under way than is asked for.
    """

    failure: BaseException | None = None

    def __init__(self, inner: FS, streams: bool = False) -> None:
        super().__init__(inner)
        self.reads: list[Any] = []
        self.streams: list[int] = []
        self.under_way = 0
        self.kind = _StreamingBlob if streams else _CountingBlob

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return self.kind(self, key, self.inner._open_blob(key, *how))

    def taken(self) -> list[Any]:
        """The reads since the last call."""
        found, self.reads = self.reads, []
        return found

    @property
    def fetched(self) -> int:
        """The bytes that were read since then."""
        return sum(size for read in self.reads for size, _ in (read if isinstance(read, list) else [read]))


class _CountingBlob(Blob):
    def __init__(self, origin: CountingFS, key: str, inner: Blob) -> None:
        super().__init__(origin, key, inner.size, inner.version)
        self._fs, self._inner = origin, inner

    def _pread(self, size: int, offset: int) -> bytes:
        self._note((size, offset))
        return self._inner.pread(size, offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._note(list(ranges))
        return self._inner.pread_many(ranges)

    def _note(self, read: Any) -> None:
        self._fs.reads.append(read)
        if self._fs.failure is not None:
            raise self._fs.failure

    def _close(self) -> None:
        self._inner.close()


class _StreamingBlob(_CountingBlob):
    streams = True

    def _stream(self, start: int) -> Iterator[memoryview]:
        self._fs.streams.append(start)
        return self._pieces(start)

    def _pieces(self, start: int) -> Iterator[memoryview]:
        self._fs.under_way += 1
        try:
            for at in range(start, self.size, 300_001):
                yield memoryview(self._inner.pread(300_001, at))
        finally:
            self._fs.under_way -= 1


def counting(data: bytes, name: str = "a.zip", streams: bool = False) -> CountingFS:
    """A store in memory that counts, with this archive."""
    parent = Memory()
    parent.write_bytes(name, data)
    return CountingFS(parent, streams)
