"""EpochRecords: the records at positions of an epoch, read shard by shard, and ahead of their use where that pays.

A buffer is read in the order of its shards and given in that of its shuffle. From a store, several buffers are read
together: twice as many each time, up to a share of the bytes that may be held.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from ...core.threads import in_threads
from ...readers.ahead import Ahead, SharedThreads, in_lists
from ...readers.data import AbstractDataReader
from ...readers.data.base import exactly
from ...readers.data.order import Epoch, Interval

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_CHUNK = 256  # records that are handed from the thread that reads ahead at once
_CHUNK_BYTES = 1 << 20
_SHARDS_AT_ONCE = 8


class EpochRecords:
    """The records of a reader's shards, by their positions in an epoch.

    `max_bytes` of them are read ahead by a thread; None reads them when they are asked for.
    """

    def __init__(self, reader: AbstractDataReader, names: Sequence[str], skips: bool, max_bytes: int | None) -> None:
        self._reader = reader
        self._names = names
        self._skips = skips
        self._max_bytes = max_bytes
        self._at_once = _SHARDS_AT_ONCE if max_bytes is not None and reader.reads_ahead else 1

    def read(
        self, order: Epoch, intervals: list[Interval], start: int, threads: SharedThreads | None = None
    ) -> Iterator[Any]:
        """Yield the records at the positions of `intervals`, from number `start` on; `LOST` for a skipped one."""
        pieces = order.pieces(intervals, start)
        if self._max_bytes is None:
            read = self._buffer if order.shuffles_buffers else self._run
            return chain.from_iterable(read(order, piece) for piece in pieces)
        most, shared = (self._max_bytes, None) if threads is None else (threads.most, threads.threads)
        chunks = functools.partial(self._buffers if order.shuffles_buffers else self._runs, order, pieces, most)
        waiting = max(1, most - most // 4)  # the rest is for what is being read
        return in_lists(Ahead(chunks, waiting, _weigh, shared=shared))

    def _run(self, order: Epoch, piece: Interval) -> Iterator[Any]:
        """Yield the records of a piece that lies in one shard, in its order."""
        first, last = piece
        shards, records = order.locate(first, first + 1)
        start = int(records[0])
        return self._of_shard((int(shards[0]), range(start, start + last - first)))

    def _runs(self, order: Epoch, pieces: Iterator[Interval], most: int) -> Iterator[list[Any]]:
        chunk: list[Any] = []
        size = 0
        try:
            for record in chain.from_iterable(self._run(order, piece) for piece in pieces):
                chunk.append(record)
                size += _size(record)
                if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
                    yield chunk
                    chunk, size = [], 0
        except Exception:
            yield chunk  # the error comes after what is before it
            raise
        if chunk:
            yield chunk

    def _buffer(self, order: Epoch, piece: Interval) -> list[Any]:
        return self._shuffled([order.locate(*piece)])

    def _buffers(self, order: Epoch, pieces: Iterator[Interval], most: int) -> Iterator[list[Any]]:
        """Yield the records of buffers in lists, of which several are read together."""
        count, largest = 1, 1
        while group := list(islice(pieces, count)):
            try:
                parts: Iterator[list[Any]] = iter([self._shuffled([order.locate(*piece) for piece in group])])
            except Exception:
                if len(group) == 1:
                    raise
                parts = (self._buffer(order, piece) for piece in group)  # the error comes after what is before it
            for records in parts:
                largest = max(largest, *map(_size, records))
                size = max(1, min(_CHUNK, _CHUNK_BYTES // largest))
                yield from (records[at : at + size] for at in range(0, len(records), size))
            buffer = largest * max(last - first for first, last in group)
            count = max(1, min(2 * count, most // 4 // buffer))

    def _shuffled(self, located: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> list[Any]:
        """Return the records of buffers, given by the shards and numbers of each: read in the order of the shards."""
        import numpy as np

        shards, records = (np.concatenate(one) for one in zip(*located, strict=True))
        by_place = np.lexsort((records, shards))
        ends = np.flatnonzero(np.diff(shards[by_place], append=-1)) + 1
        parts = [(int(shards[slots[0]]), records[slots].tolist()) for slots in np.split(by_place, ends[:-1])]
        width = min(self._at_once, len(parts))
        if width > 1:
            contents: Iterator[Any] = in_threads(lambda part: list(self._of_shard(part)), parts, width)
        else:
            contents = map(self._of_shard, parts)
        found: list[Any] = [None] * len(by_place)
        for slot, record in zip(by_place.tolist(), chain.from_iterable(contents), strict=True):
            found[slot] = record
        return found

    def _of_shard(self, part: tuple[int, Sequence[int]]) -> Iterator[Any]:
        shard, numbers = part
        name = self._names[shard]
        read = self._reader.read_available if self._skips else self._reader.read_at
        # No reader is trusted to give as many as it was asked for: a sample lost in silence is what this is against.
        return exactly(read(name, numbers), name, numbers)


def _weigh(chunk: list[Any]) -> int:
    """Return the size of records in memory, in bytes, about."""
    return sum(map(_size, chunk))


def _size(record: Any) -> int:
    if isinstance(record, bytes):
        return len(record)
    if isinstance(record, Mapping):
        return sum(map(_size, record.values()))
    if isinstance(record, tuple | list):
        return sum(map(_size, record))
    return int(getattr(record, "nbytes", 0)) or sys.getsizeof(record)
