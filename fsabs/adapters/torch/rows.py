"""EpochRows: the rows of Parquet files at positions of an epoch, as dicts or record batches, decoded ahead.

The chunks (row groups) of coming windows are fetched together from a store, as many as the bound on bytes allows; a
window's rows are put in order by one `take` of pyarrow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.threads import in_threads
from ...readers.ahead import Ahead, SharedThreads, in_lists
from ...readers.data.base import LOST
from ...readers.data.order import Epoch, Interval
from ...readers.data.parquet import Chunk, ParquetDataReader, assembled, rows_of
from .counted import Counted, Weighted, weight

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

_ROWS = 256  # dicts that are made and handed over at once
_CHUNKS_AT_ONCE = 8
_AS_OBJECTS = 4  # times as large as in Arrow's form are rows as Python's objects, about


class _Piece(NamedTuple):
    """The rows of a window, and the chunks that hold them."""

    chunks: list[Chunk]
    which: Numbers | None
    """The number of each row's chunk; None for a run of rows of one chunk."""
    within: Numbers
    """The number of each row in its chunk; of a run, the first and the last one, exclusive."""


class EpochRows:
    """The rows of a reader's shards, by their positions in an epoch.

    `max_bytes` of decoded rows are read ahead by a thread; None reads them when they are asked for. With `batch_size`,
    `pyarrow.RecordBatch`es of so many rows, the last one of a pass fewer.
    """

    def __init__(
        self, reader: ParquetDataReader, names: list[str], max_bytes: int | None, batch_size: int | None
    ) -> None:
        self._reader = reader
        self._names = names
        self._max_bytes = max_bytes
        self._batch_size = batch_size

    def read(
        self, order: Epoch, intervals: list[Interval], start: int, threads: SharedThreads | None = None
    ) -> Iterator[Any]:
        """Yield the rows at the positions of `intervals`, from number `start` on; `LOST` for a skipped one."""
        width = 1
        if threads is None and self._max_bytes is not None and self._reader.reads_ahead:
            width = max(1, min(_CHUNKS_AT_ONCE, self._max_bytes // 4 // self._reader.largest_chunk))
        items = functools.partial(self._items, order, intervals, start, width)
        if self._max_bytes is None:
            return (item for chunk in items() for item in chunk)
        most, shared = (self._max_bytes, None) if threads is None else (threads.most, threads.threads)
        return in_lists(Ahead(items, max(1, most // 2), weight, shared=shared))

    def _items(self, order: Epoch, intervals: list[Interval], start: int, width: int) -> Iterator[Weighted]:
        """Yield the rows or batches in lists."""
        tables = self._in_order(order, intervals, start)
        if order.shuffles_buffers or width > 1:
            tables = self._tables((self._piece(order, piece) for piece in order.pieces(intervals, start)), width)
        if self._batch_size is not None:
            for batch in batches_of(tables, self._batch_size):
                yield Weighted([batch], 0 if batch.sample is LOST else batch.sample.nbytes)
            return
        for table, places in tables:
            for at in range(0, len(places), _ROWS):
                part = places[at : at + _ROWS]
                there = part[part >= 0]
                rows = table.slice(int(there[0]), len(there)) if len(there) else None
                yield Weighted(rows_of(rows, part), 0 if rows is None else _AS_OBJECTS * rows.nbytes)

    def _in_order(self, order: Epoch, intervals: list[Interval], start: int) -> Iterator[tuple[Any, Numbers]]:
        """Yield rows that are not shuffled, decoded by this thread."""
        import numpy as np

        for shard, first, last in self._spans(order, intervals, start):
            for table, count in self._reader.run(self._names[shard], first, last, self._batch_size or _ROWS):
                yield table, np.full(count, -1) if table is None else np.arange(count)

    def _spans(self, order: Epoch, intervals: list[Interval], start: int) -> Iterator[tuple[int, int, int]]:
        """Yield runs of rows that follow each other: the number of the shard, the first row, the one after the last."""
        shard, first, last = -1, 0, 0
        for begin, end in order.pieces(intervals, start):
            shards, rows = order.locate(begin, begin + 1)
            if (int(shards[0]), int(rows[0])) != (shard, last):
                if first < last:
                    yield shard, first, last
                shard, first = int(shards[0]), int(rows[0])
            last = int(rows[0]) + end - begin
        if first < last:
            yield shard, first, last

    def _piece(self, order: Epoch, piece: Interval) -> _Piece:
        import numpy as np

        first, last = piece
        if order.shuffles_buffers:
            return _Piece(*self._reader.locate(self._names, *order.locate(first, last)))
        shards, rows = order.locate(first, first + 1)
        chunk = self._reader.chunk_of(self._names[int(shards[0])], int(rows[0]))
        start = int(rows[0]) - chunk.first
        return _Piece([chunk], None, np.array([start, start + last - first]))

    def _tables(self, pieces: Iterator[_Piece], width: int) -> Iterator[tuple[Any, Numbers]]:
        """Yield the rows of each piece in order: a table, and for each row its number there or -1."""
        import numpy as np

        tables: list[Any] = []
        for piece, table in self._decoded(((one, chunk) for one in pieces for chunk in one.chunks), width):
            tables.append(table())
            if len(tables) == len(piece.chunks):
                if piece.which is None:
                    start, stop = piece.within.tolist()
                    yield _run(tables.pop(), start, stop - start, np)
                    continue
                found = assembled(tables, piece.which, piece.within, np)
                tables.clear()
                yield found

    def _decoded(
        self, jobs: Iterator[tuple[_Piece, Chunk]], width: int
    ) -> Iterator[tuple[_Piece, Callable[[], pa.Table | None]]]:
        """Yield a function for each chunk that returns its rows, which may have been decoded by another thread."""
        if width == 1:
            return ((piece, functools.partial(self._reader.decode, chunk)) for piece, chunk in jobs)
        return in_threads(self._decode, jobs, width)

    def _decode(self, job: tuple[_Piece, Chunk]) -> tuple[_Piece, Callable[[], pa.Table | None]]:
        piece, chunk = job
        if not chunk.whole:  # parts of a row group are decoded one after the other
            return piece, functools.partial(self._reader.decode, chunk)
        table = self._reader.decode(chunk)
        return piece, lambda: table


def _run(table: pa.Table | None, start: int, count: int, np: Any) -> tuple[Any, Numbers]:
    return (None, np.full(count, -1)) if table is None else (table.slice(start, count), np.arange(count))


def batches_of(tables: Iterator[tuple[Any, Numbers]], size: int) -> Iterator[Counted]:
    """Yield record batches of the rows at `size` positions each; the last one of fewer, and each without lost rows."""
    import numpy as np
    import pyarrow as pa

    rest: Any = None
    lost: Numbers = np.empty(0, bool)
    for table, places in tables:
        lost = np.concatenate([lost, places < 0])
        if table is not None:
            rest = table if rest is None or not rest.num_rows else pa.concat_tables([rest, table])
        at = 0
        while len(lost) - at >= size:
            batch, rest = _first(rest, lost[at : at + size])
            yield batch
            at += size
        lost = lost[at:]
    if len(lost):
        yield _first(rest, lost)[0]


def _first(rest: Any, lost: Numbers) -> tuple[Counted, Any]:
    """Return the batch of the first positions, of which some are lost, and the table of the other rows."""
    missing = int(lost.sum())
    rows = len(lost) - missing
    if not rows:
        return Counted(len(lost), missing, LOST), rest
    batches = rest.slice(0, rows).combine_chunks().to_batches()
    return Counted(len(lost), missing, batches[0]), rest.slice(rows)
