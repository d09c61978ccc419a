"""The blobs of `CachedFS`: a small file whole in memory, a large one by blocks, from the cache or from its store."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import errors, identity, process
from ..blobs import Blob, BytesBlob, Origin
from .tiers import Part, Tiers

MOST_AT_ONCE = 16
"""Blocks that are fetched, and held in memory, by one read of the store."""
AHEAD = 8 * 1024 * 1024
"""Bytes that a reader from front to back fetches at once where the store has no stream."""


class WholeBlob(BytesBlob):
    """A small file, in memory; it pickles without its content."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Blob.__reduce__(self)


class Blocks:
    """How one version of a large file is cut: its parts in the cache, and where they lie in the file."""

    __slots__ = ("_name", "_url", "block_size", "size")

    def __init__(self, name: bytes, url: str, size: int, block_size: int) -> None:
        self._name = name
        self._url = url
        self.size = size
        self.block_size = block_size

    def __len__(self) -> int:
        return -(-self.size // self.block_size)

    def part(self, number: int) -> Part:
        """The block's name in the cache."""
        return Part(b"%b%b" % (self._name, identity.encode(number, self.block_size)), self._url)

    def range(self, number: int) -> tuple[int, int]:
        """The block's `(size, offset)` in the file."""
        offset = number * self.block_size
        return min(self.block_size, self.size - offset), offset


class _Source:
    """A stream of a large file's store, of which blocks are taken in order; for one thread."""

    def __init__(self, blob: BlockBlob) -> None:
        self._blob = blob
        self._pieces: Iterator[memoryview] | None = None
        self._next = 0  # where the stream stands
        self._rest = memoryview(b"")
        self._has_stream: bool | None = None

    def has_stream(self) -> bool:
        """Whether the store has one; asked when the first block is missing."""
        if self._has_stream is None:
            pieces = self._blob._store()._stream(0)  # begins when something is taken of it
            self._has_stream = pieces is not None
            _end(pieces)
        return self._has_stream

    def take(self, number: int, _: Sequence[int]) -> list[bytes]:
        """A block; blocks that others have fetched meanwhile are passed over, or begun anew behind."""
        size, offset = self._blob.blocks.range(number)
        if self._pieces is None or not self._next <= offset <= self._next + AHEAD:
            self.close()
            self._pieces, self._next = self._blob._store()._stream(offset), offset
        self._read(offset - self._next)
        return [self._read(size)]

    def _read(self, size: int) -> bytes:
        found, missing = [], size
        while missing:
            if not self._rest:
                piece = next(self._pieces, None) if self._pieces is not None else None
                if piece is None:
                    self.close()
                    raise errors.corrupt(self._blob.url, f"{size - missing} bytes at offset {self._next}, not {size}")
                self._rest = piece
            found.append(self._rest[:missing])
            self._rest = self._rest[missing:]
            missing -= len(found[-1])
        self._next += size
        return b"".join(found)

    def close(self) -> None:
        """End the stream."""
        pieces, self._pieces = self._pieces, None
        self._rest = memoryview(b"")
        _end(pieces)


def _end(pieces: Iterator[memoryview] | None) -> None:
    if pieces is not None and hasattr(pieces, "close"):
        pieces.close()


class BlockBlob(Blob):
    """A large file, read by whole blocks. The store is opened by the first read that the cache can't answer."""

    __slots__ = ("_inner", "_keep", "_lock", "_open_inner", "_tiers", "blocks")

    def __init__(
        self,
        origin: Origin,
        key: str,
        version: str | None,
        blocks: Blocks,
        tiers: Callable[[], Tiers],
        open_inner: Callable[[str], Blob],
        keep: bool,
        opened: Blob | None = None,
    ) -> None:
        super().__init__(origin, key, blocks.size, version)
        self.blocks = blocks
        self._tiers = tiers  # asked for at each use: a forked child has its own
        self._open_inner = open_inner
        self._keep = keep
        self._inner = opened
        self._lock = process.Lock()

    def _pread(self, size: int, offset: int) -> bytes:
        step = self.blocks.block_size
        first, end = offset // step, (offset + size - 1) // step + 1
        pieces: list[bytes | memoryview] = []
        for start in range(first, end, MOST_AT_ONCE):
            numbers = range(start, min(start + MOST_AT_ONCE, end))
            for number, data in zip(numbers, self._contents(numbers), strict=True):
                begin = max(0, offset - number * step)
                stop = min(len(data), offset + size - number * step)
                pieces.append(data if stop - begin == len(data) else memoryview(data)[begin:stop])
        return bytes(pieces[0]) if len(pieces) == 1 else b"".join(pieces)

    def _contents(self, numbers: Sequence[int]) -> list[bytes]:
        """Whole blocks: from the cache, and what it hasn't got from the store."""
        parts = [self.blocks.part(number) for number in numbers]
        found = [self._known(part, number) for part, number in zip(parts, numbers, strict=True)]
        missing = [at for at, data in enumerate(found) if data is None]
        if missing:
            fetch = self._fetcher([numbers[at] for at in missing])
            fresh = self._tiers().fill([parts[at] for at in missing], fetch, self._keep)
            for at, data in zip(missing, fresh, strict=True):
                found[at] = data
        return [data for data in found if data is not None]

    def _known(self, part: Part, number: int) -> bytes | None:
        data = self._tiers().get(part)
        return data if data is not None and len(data) == self.blocks.range(number)[0] else None

    def _fetcher(self, numbers: Sequence[int]) -> Callable[[Sequence[int]], Iterator[bytes]]:
        def fetch(chosen: Sequence[int]) -> Iterator[bytes]:
            return self._fetch([numbers[at] for at in chosen])

        return fetch

    def _fetch(self, numbers: Sequence[int]) -> Iterator[bytes]:
        """Blocks of the store, those that follow one another by one range."""
        runs: list[list[int]] = []
        for number in numbers:
            if runs and runs[-1][-1] == number - 1:
                runs[-1].append(number)
            else:
                runs.append([number])
        ranges = []
        for run in runs:
            (_, offset), (size, last) = self.blocks.range(run[0]), self.blocks.range(run[-1])
            ranges.append((last + size - offset, offset))
        for run, data in zip(runs, self._store().pread_many(ranges), strict=True):
            if len(run) == 1:
                yield data
                continue
            view, step = memoryview(data), self.blocks.block_size
            for at in range(len(run)):
                yield bytes(view[at * step : (at + 1) * step])

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return self._in_order(start)

    def _in_order(self, start: int) -> Iterator[memoryview]:
        """Block after block, what is missing by a stream of the store, or several blocks at once where it has none."""
        step = self.blocks.block_size
        ahead = max(1, min(MOST_AT_ONCE, AHEAD // step))
        number, skip = start // step, start % step
        with contextlib.closing(_Source(self)) as source:
            while number < len(self.blocks):
                part = self.blocks.part(number)
                data = self._known(part, number)
                if data is not None:
                    found = [data]
                elif source.has_stream():
                    found = self._tiers().fill([part], functools.partial(source.take, number), self._keep)
                else:
                    found = self._contents(range(number, min(number + ahead, len(self.blocks))))
                for content in found:
                    yield memoryview(content)[skip:]
                    skip = 0
                number += len(found)

    def fill(self, numbers: Sequence[int]) -> int:
        """Fetch those of the blocks that aren't kept; returns how many bytes that were."""
        tiers = self._tiers()
        missing = [number for number in numbers if not tiers.has(self.blocks.part(number))]
        for start in range(0, len(missing), MOST_AT_ONCE):
            self._contents(missing[start : start + MOST_AT_ONCE])
        return sum(self.blocks.range(number)[0] for number in missing)

    def _store(self) -> Blob:
        """The file where it lies, of this blob's version."""
        inner = self._inner
        if inner is None:
            with self._lock:
                inner = self._inner
                if inner is None:
                    inner = self._open_inner(self._key)
                    if (inner.size, inner.version) != (self.size, self.version):
                        inner.close()
                        raise errors.stale(self.url)
                    self._inner = inner
        return inner

    def fileno(self) -> int:
        """As of the file where it lies."""
        return self._store().fileno()

    def _close(self) -> None:
        if self._inner is not None:
            self._inner.close()
