"""The blobs of `CachedFS`: a small file whole in memory, a large one by blocks, from the cache or from its store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import errors, process
from ..blobs import Blob, BytesBlob, Origin
from .tiers import Part, Tiers

MOST_AT_ONCE = 16
"""Blocks that are fetched, and held in memory, by one read of the store."""


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
        return Part(b"%b\0%d/%d" % (self._name, number, self.block_size), self._url)

    def range(self, number: int) -> tuple[int, int]:
        """The block's `(size, offset)` in the file."""
        offset = number * self.block_size
        return min(self.block_size, self.size - offset), offset


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
    ) -> None:
        super().__init__(origin, key, blocks.size, version)
        self.blocks = blocks
        self._tiers = tiers  # asked for at each use: a forked child has its own
        self._open_inner = open_inner
        self._keep = keep
        self._inner: Blob | None = None
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

    def fill(self, numbers: Sequence[int]) -> int:
        """Fetch those of the blocks that aren't kept; returns how many bytes that were."""
        tiers = self._tiers()
        missing = [number for number in numbers if not tiers.has(self.blocks.part(number).name)]
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
