"""The blobs of `CachedFS`: a small file whole in memory, a large one by blocks, from the cache or from its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core import process
from ..core.blobs import Blob, BytesBlob, Origin
from ..core.identity import encode
from ..core.readahead import ReadAhead
from .content import ContentCache
from .disk import EntryKey

MOST_AT_ONCE = 16
"""Blocks that are fetched, and held in memory, by one read of the store."""
LARGE = 64 * 1024 * 1024
"""Bytes of a file; the blocks of a larger one are fetched by one process for all."""
AHEAD = 8 * 1024 * 1024
"""Bytes that a reader from front to back fetches at once; so many cached ones it reads over, unless a file is large."""


class WholeBlob(BytesBlob):
    """A small file, in memory; it pickles without its content."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return Blob.__reduce__(self)


class Blocks:
    """The blocks of one version of a large file: their cache entries, and their ranges of the file."""

    __slots__ = ("_name", "_url", "block_size", "size")

    def __init__(self, name: bytes, url: str, size: int, block_size: int) -> None:
        self._name = name
        self._url = url
        self.size: int = size
        self.block_size: int = block_size

    def __len__(self) -> int:
        return -(-self.size // self.block_size)

    def entry(self, number: int) -> EntryKey:
        """Return the name of a block in the cache."""
        return EntryKey.of(b"%b%b" % (self._name, encode(number, self.block_size)), self._url)

    def place(self, number: int) -> tuple[int, int]:
        """Return size and offset of a block in the file."""
        offset = number * self.block_size
        return min(self.block_size, self.size - offset), offset

    def touched_by(self, size: int, offset: int) -> range:
        """Return the numbers of the blocks that a range lies in."""
        return range(offset // self.block_size, -(-(offset + size) // self.block_size) if size else 0)

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the blocks of which `data`, from the start of one, consists."""
        if len(data) <= self.block_size:
            yield data
            return
        for at in range(0, len(data), self.block_size):
            yield data[at : at + self.block_size]


class BlockBlob(Blob):
    """A large file, read by whole blocks. The store is opened by the first read that the cache can't answer."""

    __slots__ = ("_admit", "_cache", "_inner", "_lock", "_open_inner", "blocks")
    streams = True

    def __init__(
        self,
        origin: Origin,
        key: str,
        version: str | None,
        blocks: Blocks,
        cache: Callable[[], ContentCache],
        open_inner: Callable[[str], Blob],
        admit: bool,
        opened: Blob | None = None,
    ) -> None:
        super().__init__(origin, key, blocks.size, version)
        self.blocks: Blocks = blocks
        self._cache = cache  # called at each use: a forked child has its own
        self._open_inner = open_inner
        self._admit = admit
        self._inner = opened
        self._lock = process.Lock()

    def _pread(self, size: int, offset: int) -> bytes:
        return self._pread_many([(size, offset)])[0]

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read the blocks of all ranges, as many together as fit into memory."""
        touching: dict[int, list[int]] = {}  # the ranges that each block is in
        for at, (size, offset) in enumerate(ranges):
            for number in self.blocks.touched_by(size, offset):
                touching.setdefault(number, []).append(at)
        pieces: list[list[bytes]] = [[] for _ in ranges]
        touched = sorted(touching)
        for start in range(0, len(touched), MOST_AT_ONCE):
            for number, data in self._contents(touched[start : start + MOST_AT_ONCE]).items():
                for at in touching[number]:
                    size, offset = ranges[at]
                    begin = offset - number * self.blocks.block_size
                    pieces[at].append(data[max(0, begin) : begin + size])
        return [found[0] if len(found) == 1 else b"".join(found) for found in pieces]

    def _contents(self, numbers: Sequence[int], source: ReadAhead | None = None) -> dict[int, bytes]:
        """Return whole blocks: from the cache, and what is missing from the store, by `source` if it is given."""
        found = {number: self._lookup(number) for number in numbers}
        missing = [number for number, data in found.items() if data is None]
        if missing:
            admit = self._admit and not self._cache().refuses()
            fresh = self._cache().fetch(
                [self.blocks.entry(number) for number in missing],
                lambda chosen: self._fetch([missing[at] for at in chosen], source, admit),
                admit,
                self.blocks.size > LARGE,
            )
            found.update(zip(missing, fresh, strict=True))
        return {number: data for number, data in found.items() if data is not None}

    def _lookup(self, number: int) -> bytes | None:
        data = self._cache().lookup(self.blocks.entry(number))
        return data if data is not None and len(data) == self.blocks.place(number)[0] else None

    def _fetch(self, numbers: Sequence[int], source: ReadAhead | None, admit: bool) -> Iterator[bytes]:
        """Yield blocks of the store, those that follow one another by one range; what lies between two is admitted."""
        inner = self._inner_blob()
        wanted = set(numbers)
        runs: list[list[int]] = []
        for number in numbers:
            if runs and 0 <= (number - runs[-1][-1] - 1) * self.blocks.block_size <= inner.max_gap_bytes:
                runs[-1] += range(runs[-1][-1] + 1, number + 1)
            else:
                runs.append([number])
        ranges = []
        for run in runs:
            (_, offset), (size, last) = self.blocks.place(run[0]), self.blocks.place(run[-1])
            ranges.append((last + size - offset, offset))
        contents = inner.pread_many(ranges) if source is None else [source.pread(*one) for one in ranges]
        for run, data in zip(runs, contents, strict=True):
            for number, block in zip(run, self.blocks.cut(data), strict=True):
                if number in wanted:
                    yield block
                elif admit:
                    self._cache().admit([(self.blocks.entry(number), block)])

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return self._in_order(start)

    def _in_order(self, start: int) -> Iterator[memoryview]:
        """Yield block after block, some at once; what is missing is read ahead of, where the store can do so."""
        ahead = max(1, min(MOST_AT_ONCE, AHEAD // self.blocks.block_size))
        number, skip = divmod(start, self.blocks.block_size)
        source: ReadAhead | None = None
        try:
            while number < len(self.blocks):
                numbers = range(number, min(number + ahead, len(self.blocks)))
                if source is None and not all(self._cache().contains(self.blocks.entry(one)) for one in numbers):
                    source = ReadAhead(self._inner_blob(), 0 if self.blocks.size > LARGE else AHEAD)
                for content in self._contents(numbers, source).values():
                    yield memoryview(content)[skip:]
                    skip = 0
                number += len(numbers)
        finally:
            if source is not None:
                source.close()

    def warm(self) -> int:
        """Fetch the blocks that are not cached; returns their bytes."""
        missing = [n for n in range(len(self.blocks)) if not self._cache().contains(self.blocks.entry(n))]
        for start in range(0, len(missing), MOST_AT_ONCE):
            self._contents(missing[start : start + MOST_AT_ONCE])
        return sum(self.blocks.place(number)[0] for number in missing)

    def _inner_blob(self) -> Blob:
        """Return the file in its store, of this blob's version."""
        inner = self._inner
        if inner is None:
            with self._lock:
                inner = self._inner
                if inner is None:
                    inner = self._inner = self._open_inner(self._key)
        return inner

    def fileno(self) -> int:
        """As of the file where it lies."""
        return self._inner_blob().fileno()

    def _close(self) -> None:
        if self._inner is not None:
            self._inner.close()
