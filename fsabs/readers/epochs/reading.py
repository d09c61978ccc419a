"""The samples at positions of an epoch, read ahead of their use where that pays: records, rows, windows of tokens.

`EpochRecords` reads any data reader, shard by shard; `EpochRows` the rows of Parquet files, as dicts or record batches;
`EpochWindows` windows of tokens. Each makes lists of samples that are read together, more of them where they come from
a store, and hands these over by weight.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from ...core.threads import in_threads
from ..data import AbstractDataReader
from ..data.base import LOST, exactly
from ..data.order import Epoch, Interval, Numbers, gathered
from ..data.parquet import Chunk, ParquetDataReader, assembled, rows_of
from ..data.tokens import TokenDataReader, samples_of, widened
from ..prefetch import Ahead, SharedThreads, in_lists

if TYPE_CHECKING:
    import pyarrow as pa


D = TypeVar("D", bound=AbstractDataReader)

_CHUNK = 256  # records that are handed from the thread that reads ahead at once
_CHUNK_BYTES = 1 << 20
_SHARDS_AT_ONCE = 8
_JOINED = 4096  # positions of a block that are read together


class CountedBatch(NamedTuple):
    """A batch that a data set makes itself, and how many damaged records are missing in it."""

    lost: int
    sample: Any
    """`LOST` where nothing is left."""


class _Weighted(list[Any]):
    """Samples that are handed over together, and the size of them in memory, in bytes, about."""

    def __init__(self, samples: Iterable[Any], nbytes: int) -> None:
        super().__init__(samples)
        self.nbytes = nbytes


class EpochReader(abc.ABC, Generic[D]):
    """The base of what reads the samples of a data reader's shards, by their positions in an epoch.

    `max_bytes` of them are read ahead by a thread; None reads them when they are asked for. With `batch_size`, a sample
    is a batch of so many rows, the last one of a pass fewer: a `CountedBatch`.
    """

    def __init__(self, reader: D, names: Sequence[str], max_bytes: int | None, batch_size: int | None = None) -> None:
        """`names`: of the shards."""
        self._reader = reader
        self._names = names
        self._max_bytes = max_bytes
        self._batch_size = batch_size

    @abc.abstractmethod
    def read(self, order: Epoch, intervals: Iterable[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the samples at the positions of `intervals`, which may be many; `LOST` for a skipped one.

        With `threads`, they are read ahead by these and no others, of which many such readers have a part each.
        """

    @abc.abstractmethod
    def at(self, shards: Numbers, records: Numbers) -> list[Any]:
        """Return records by the numbers of their shards, and their own in these; or one batch of them."""


def joined(order: Epoch, intervals: Iterable[Interval]) -> Iterator[Interval]:
    """Yield the intervals, cut as the order cuts them, and those that follow each other within a piece as one.

    A worker that has a few positions of each step then reads all that it has of a buffer at once.
    """
    held: Interval | None = None
    for interval in intervals:
        for piece in order.pieces([interval]):
            if held is not None and held[1] == piece[0] and _is_piece(order, (held[0], piece[1])):
                held = (held[0], piece[1])
                continue
            if held is not None:
                yield held
            held = piece
    if held is not None:
        yield held


def _is_piece(order: Epoch, interval: Interval) -> bool:
    if not order.shuffles_buffers and interval[1] - interval[0] > _JOINED:
        return False
    return next(order.pieces([interval])) == interval


def _ahead(
    lists: Callable[[], Iterable[_Weighted]], waiting: int, threads: SharedThreads | None
) -> Generator[Any, None, None]:
    """Yield the samples of the lists, which a thread (one of `threads`) reads while fewer bytes than `waiting` wait."""
    shared = None if threads is None else threads.threads
    return in_lists(Ahead(lists, max(1, waiting), operator.attrgetter("nbytes"), shared=shared))


# ---- records


class EpochRecords(EpochReader[AbstractDataReader]):
    """The records of any data reader's shards.

    A buffer is read in the order of its shards and given in that of its shuffle. From a store, several buffers are read
    together: twice as many each time, up to a share of the bytes that may be held.
    """

    def __init__(self, reader: AbstractDataReader, names: Sequence[str], skips: bool, max_bytes: int | None) -> None:
        super().__init__(reader, names, max_bytes)
        self._skips = skips
        self._at_once = _SHARDS_AT_ONCE if max_bytes is not None and reader.reads_ahead else 1

    def read(self, order: Epoch, intervals: Iterable[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the records at the positions of `intervals`; `LOST` for a skipped one."""
        pieces = order.pieces(intervals)
        if self._max_bytes is None:
            read = self._buffer if order.shuffles_buffers else self._run
            return chain.from_iterable(read(order, piece) for piece in pieces)
        most = self._max_bytes if threads is None else threads.most
        chunks = functools.partial(self._buffers if order.shuffles_buffers else self._runs, order, pieces, most)
        return _ahead(chunks, most - most // 4, threads)  # the rest is for what is being read

    def at(self, shards: Numbers, records: Numbers) -> list[Any]:
        """Return records by the numbers of their shards, and their own in these."""
        return gathered(shards, records, self._of_shard, self._at_once)

    def _run(self, order: Epoch, piece: Interval) -> Iterator[Any]:
        """Yield the records of a piece that lies in one shard, in its order."""
        first, last = piece
        shards, records = order.locate(first, first + 1)
        start = int(records[0])
        return self._of_shard(int(shards[0]), range(start, start + last - first))

    def _runs(self, order: Epoch, pieces: Iterator[Interval], most: int) -> Iterator[_Weighted]:
        chunk: list[Any] = []
        size = 0
        try:
            for record in chain.from_iterable(self._run(order, piece) for piece in pieces):
                chunk.append(record)
                size += _size(record)
                if len(chunk) >= _CHUNK or size >= _CHUNK_BYTES:
                    yield _Weighted(chunk, size)
                    chunk, size = [], 0
        except Exception:  # a data reader of the user's may raise anything
            yield _Weighted(chunk, size)  # the error comes after what is before it
            raise
        if chunk:
            yield _Weighted(chunk, size)

    def _buffer(self, order: Epoch, piece: Interval) -> list[Any]:
        return self._records_of([order.locate(*piece)])

    def _buffers(self, order: Epoch, pieces: Iterator[Interval], most: int) -> Iterator[_Weighted]:
        """Yield the records of buffers in lists, of which several are read together."""
        count, largest = 1, 1
        while group := list(islice(pieces, count)):
            try:
                parts: Iterator[list[Any]] = iter([self._records_of([order.locate(*piece) for piece in group])])
            except Exception:  # a data reader of the user's may raise anything
                if len(group) == 1:
                    raise
                parts = (self._buffer(order, piece) for piece in group)  # the error comes after what is before it
            for records in parts:
                sizes = [*map(_size, records)]
                largest = max(largest, *sizes)
                size = max(1, min(_CHUNK, _CHUNK_BYTES // largest))
                for at in range(0, len(records), size):
                    yield _Weighted(records[at : at + size], sum(sizes[at : at + size]))
            buffer = largest * max(last - first for first, last in group)
            count = max(1, min(2 * count, most // 4 // buffer))

    def _records_of(self, located: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]) -> list[Any]:
        """Return the records of buffers, given by the shards and numbers of each: read in the order of the shards."""
        shards, records = (np.concatenate(one) for one in zip(*located, strict=True))
        return self.at(shards, records)

    def _of_shard(self, shard: int, numbers: Sequence[int]) -> Iterator[Any]:
        name = self._names[shard]
        read = self._reader.read_available if self._skips else self._reader.read_at
        # No reader is trusted to give as many as it was asked for: a sample lost in silence is what this is against.
        return exactly(read(name, numbers), name, numbers)


def _size(record: Any) -> int:
    """Return the size of a record in memory, in bytes, about."""
    if isinstance(record, bytes):
        return len(record)
    if isinstance(record, Mapping):
        return sum(map(_size, record.values()))
    if isinstance(record, tuple | list):
        return sum(map(_size, record))
    return int(getattr(record, "nbytes", 0)) or sys.getsizeof(record)


# ---- rows


_ROWS = 256  # dicts that are made and handed over at once
_CHUNKS_AT_ONCE = 8
_AS_OBJECTS = 4  # times as large as in Arrow's form are rows as Python's objects, about


class _Piece(NamedTuple):
    """The rows of a window, and the chunks that hold them."""

    chunks: list[Chunk]
    which: Numbers
    """The number of each row's chunk."""
    within: Numbers
    """The number of each row in its chunk."""

    @property
    def partial(self) -> bool:
        """True if the chunks have other rows, too, which this process may want soon."""
        return len(self.within) < sum(chunk.rows for chunk in self.chunks)


class EpochRows(EpochReader[ParquetDataReader]):
    """The rows of Parquet files: dicts, or `pyarrow.RecordBatch`es; `max_bytes` counts what is decoded."""

    def read(self, order: Epoch, intervals: Iterable[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the rows at the positions of `intervals`; `LOST` for a skipped one."""
        width = 1
        if threads is None and self._max_bytes is not None and self._reader.reads_ahead:
            width = max(1, min(_CHUNKS_AT_ONCE, self._max_bytes // 4 // self._reader.largest_chunk))
        items = functools.partial(self._items, order, intervals, width)
        if self._max_bytes is None:
            return (item for chunk in items() for item in chunk)
        return _ahead(items, (self._max_bytes if threads is None else threads.most) // 2, threads)

    def at(self, shards: Numbers, records: Numbers) -> list[Any]:
        """Return rows by the numbers of their shards, and their own in these; or one batch of them."""
        table, places = self._reader.take(self._names, shards, records)
        if self._batch_size is None:
            return list(rows_of(table, places))
        return list(batches_of(iter([(table, places)]), len(places)))

    def _items(self, order: Epoch, intervals: Iterable[Interval], width: int) -> Iterator[_Weighted]:
        """Yield the rows or batches in lists."""
        tables = self._in_order(order, intervals)
        if order.shuffles_buffers or width > 1:
            located = (order.locate(*piece) for piece in order.pieces(intervals))
            pieces = (_Piece(*self._reader.locate(self._names, shards, rows)) for shards, rows in located)
            tables = self._tables(pieces, width)
        if self._batch_size is not None:
            for batch in batches_of(tables, self._batch_size):
                yield _Weighted([batch], 0 if batch.sample is LOST else batch.sample.nbytes)
            return
        for table, places in tables:
            for at in range(0, len(places), _ROWS):
                part = places[at : at + _ROWS]
                there = part[part >= 0]
                rows = table.slice(int(there[0]), len(there)) if len(there) else None
                yield _Weighted(rows_of(rows, part), 0 if rows is None else _AS_OBJECTS * rows.nbytes)

    def _in_order(self, order: Epoch, intervals: Iterable[Interval]) -> Iterator[tuple[Any, Numbers]]:
        """Yield rows that are not shuffled, decoded by this thread."""
        for shard, first, last in self._spans(order, intervals):
            for table, count in self._reader.run(self._names[shard], first, last, self._batch_size or _ROWS):
                yield table, np.full(count, -1) if table is None else np.arange(count)

    def _spans(self, order: Epoch, intervals: Iterable[Interval]) -> Iterator[tuple[int, int, int]]:
        """Yield runs of rows that follow each other: the number of the shard, the first row, the one after the last."""
        shard, first, last = -1, 0, 0
        for begin, end in order.pieces(intervals):
            shards, rows = order.locate(begin, begin + 1)
            if (int(shards[0]), int(rows[0])) != (shard, last):
                if first < last:
                    yield shard, first, last
                shard, first = int(shards[0]), int(rows[0])
            last = int(rows[0]) + end - begin
        if first < last:
            yield shard, first, last

    def _tables(self, pieces: Iterator[_Piece], width: int) -> Iterator[tuple[Any, Numbers]]:
        """Yield the rows of each piece in order: a table, and for each row its number there or -1."""
        tables: list[Any] = []
        for piece, table in self._decoded(((one, chunk) for one in pieces for chunk in one.chunks), width):
            tables.append(table())
            if len(tables) == len(piece.chunks):
                found = assembled(tables, piece.which, piece.within)
                tables.clear()
                yield found

    def _decoded(
        self, jobs: Iterator[tuple[_Piece, Chunk]], width: int
    ) -> Iterator[tuple[_Piece, Callable[[], pa.Table | None]]]:
        """Yield a function for each chunk that returns its rows, which may have been decoded by another thread."""
        if width == 1:
            return ((piece, functools.partial(self._decode_of(piece), chunk)) for piece, chunk in jobs)
        return in_threads(self._decode, jobs, width)

    def _decode(self, job: tuple[_Piece, Chunk]) -> tuple[_Piece, Callable[[], pa.Table | None]]:
        piece, chunk = job
        decode = self._decode_of(piece)
        if not chunk.whole:  # parts of a row group are decoded one after the other
            return piece, functools.partial(decode, chunk)
        table = decode(chunk)
        return piece, lambda: table

    def _decode_of(self, piece: _Piece) -> Callable[[Chunk], pa.Table | None]:
        """Return what decodes chunks: where a piece has some rows of each, these are kept, within 64 MiB."""
        return self._reader.decoded if piece.partial else self._reader.decode


def batches_of(tables: Iterator[tuple[Any, Numbers]], size: int) -> Iterator[CountedBatch]:
    """Yield record batches of the rows at `size` positions each; the last one of fewer, and each without lost rows."""
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


def _first(rest: Any, lost: Numbers) -> tuple[CountedBatch, Any]:
    """Return the batch of the first positions, of which some are lost, and the table of the other rows."""
    missing = int(lost.sum())
    rows = len(lost) - missing
    if not rows:
        return CountedBatch(missing, LOST), rest
    batches = rest.slice(0, rows).combine_chunks().to_batches()
    if len(batches) != 1:  # Arrow leaves a column in chunks whose offsets don't fit into 32 bits
        raise ValueError(f"a column of a batch of {rows} rows has more than 2 GiB: give a smaller batch_size")
    return CountedBatch(missing, batches[0]), rest.slice(rows)


# ---- windows of tokens


_LEAST, _MOST = 64, 4096  # windows that are read together


class EpochWindows(EpochReader[TokenDataReader]):
    """The windows of token files; a batch is an array with a row for each, or a dict of such arrays."""

    def read(self, order: Epoch, intervals: Iterable[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the windows at the positions of `intervals`."""
        if self._max_bytes is None:
            return self._samples(item for group in self._items(order, intervals, 0) for item in group)
        most = self._max_bytes if threads is None else threads.most
        items = functools.partial(self._items, order, intervals, most)
        return self._samples(_ahead(items, most // 2, threads))

    def at(self, shards: Numbers, records: Numbers) -> list[Any]:
        """Return windows by the numbers of their shards, and their own in these; or one batch of them."""
        found = self._reader.take(self._names, shards, records)
        if self._batch_size is not None:
            return [CountedBatch(0, widened(found))]
        return [widened(sample) for sample in samples_of(found)]

    def _samples(self, items: Generator[Any, None, None]) -> Iterator[Any]:
        with contextlib.closing(items):
            for item in items:
                sample = widened(item)
                yield sample if self._batch_size is None else CountedBatch(0, sample)

    def _items(self, order: Epoch, intervals: Iterable[Interval], most: int) -> Iterator[_Weighted]:
        """Yield windows or batches, as they are in the files, in lists that are read together."""
        size = self._batch_size or 1
        together = max(size, min(_MOST, most // 8 // (8 * self._reader.length)))
        located = (order.locate(*piece) for piece in order.pieces(intervals))
        for shards, windows in _regrouped(located, _LEAST, together, size):
            found = self._reader.take(self._names, shards, windows)
            items = samples_of(found) if self._batch_size is None else _batches(found, size)
            yield _Weighted(items, _nbytes(found))


def _regrouped(
    located: Iterator[tuple[Numbers, Numbers]], least: int, most: int, size: int
) -> Iterator[tuple[Numbers, Numbers]]:
    """Yield the same numbers of shards and windows, a multiple of `size` at once; the rest last.

    At first these are `least` or more, then twice as many each time, up to `most` or more: what was located together,
    as a shuffled buffer, is nearly all read together.
    """
    waiting: list[tuple[Numbers, Numbers]] = []
    count = 0
    for one in located:
        waiting.append(one)
        count += len(one[0])
        if count >= least and (whole := count // size * size):
            shards, windows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
            yield shards[:whole], windows[:whole]
            waiting = [(shards[whole:], windows[whole:])]
            count -= whole
            least = min(2 * least, max(least, most))
    if count:
        shards, windows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
        yield shards, windows


def _batches(found: Any, size: int) -> Iterator[Any]:
    for at in range(0, _rows(found), size):
        rows = slice(at, at + size)
        yield {key: values[rows] for key, values in found.items()} if isinstance(found, dict) else found[rows]


def _rows(batch: Any) -> int:
    return len(batch["tokens"] if isinstance(batch, dict) else batch)


def _nbytes(found: Any) -> int:
    return sum(values.nbytes for values in found.values()) if isinstance(found, dict) else int(found.nbytes)
