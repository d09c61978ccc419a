"""ShardedDataset: the records of shards, of which each comes once an epoch, whichever rank and worker reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...readers.data import (
    AbstractDataReader,
    ArchiveDataReader,
    FileListDataReader,
    ImageFolderDataReader,
    Mode,
    Shard,
    shards_of,
)
from ...readers.data.base import OnError, check_on_error
from ...readers.data.factory import reader_of
from ...readers.data.files import Location
from ...readers.data.order import Epoch, EpochOrder, Interval, RandomOrder
from ...readers.data.parquet import ParquetDataReader
from ...readers.data.tokens import Format, TokenDataReader, WindowLayout
from ...readers.epochs.content import OrderContent
from ...readers.epochs.packing import Packing
from ...readers.epochs.plan import PassPlan
from ...readers.epochs.reading import EpochReader, EpochRecords, EpochRows, EpochWindows, joined
from ...readers.prefetch import SharedThreads
from .datasets import Base, EpochDataset, SamplePlace, Transform, record_numbers

if TYPE_CHECKING:
    import pyarrow.compute as pc

MAX_BYTES = 64 << 20
WINDOW = 16
_ONE_BY_ONE = (ArchiveDataReader, FileListDataReader, ImageFolderDataReader)
"""Readers whose records are read by themselves."""


class ShardedDataset(EpochDataset):
    """The records of a data reader's shards: `dataset[n]` is record n, and a `Loader` reads epochs of them.

    Args:
        source: a data reader (`fsabs.readers.data`), a directory of RecordIO, tar, zip, MDS or Parquet shards, or a
            pattern: `"s3://bucket/data/*.parquet"`.
        transform: makes a sample of a record, in the worker.
        seed: shuffles the shards, and their records within a buffer, anew in each epoch; None leaves the order alone.
        buffer_size: how many records are shuffled among each other; all of them are in memory at once. 0 shuffles only
            the shards.
        block_size: shards are cut into blocks of so many records for the shuffle of shards: smaller ones mix better and
            read shorter runs. None leaves shards whole.
        mode: of the shards: "training", "evaluation", "prediction".
        max_bytes: so much is read ahead by a thread of each worker; None reads when asked. By default, 64 MiB where the
            shards are in a store, and None where they are on a local disk or made by a reader of your own.
        columns, filters: of Parquet files, see `ParquetDataReader`: what is read of their rows.
        window: how many row groups of Parquet files are shuffled among each other, row by row; they are in memory
            together. `buffer_size` and `block_size` are not for Parquet files.
        batch_size: of Parquet files: a sample is a `pyarrow.RecordBatch` of so many rows, which `transform` gets, and
            the loader takes `batch_size=None`. None gives dicts.
        packing: makes windows of tokens of the records, which are the samples then; see `Packing`.
        on_error: "raise" a `CorruptFileError` for a record that is damaged, or "skip" it; `skipped` counts them. A data
            reader that was made with "skip" skips, too.
        max_skipped: of records in a pass; one more raises. None skips any number.

    An iteration is an epoch, read by this process alone; the next one is the next epoch. Give it to a `Loader`, or to
    any `DataLoader` with `EpochBatches`, for batches that ranks and workers share and that resume.
    """

    def __init__(
        self,
        source: AbstractDataReader | Location,
        transform: Transform | None = None,
        *,
        seed: int | None = None,
        buffer_size: int = 0,
        block_size: int | None = None,
        mode: str = Mode.TRAINING,
        max_bytes: int | Literal["auto"] | None = "auto",
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | pc.Expression | None = None,
        window: int = WINDOW,
        batch_size: int | None = None,
        packing: Packing | None = None,
        on_error: OnError = "raise",
        max_skipped: int | None = None,
    ) -> None:
        check_on_error(on_error)
        super().__init__(transform, batch_size, packing, max_skipped)
        self.reader = reader_of(source, on_error, columns, filters)
        self._shards = shards_of(self.reader, mode)
        self._seed, self._window = seed, window
        self._buffer_size, self._block_size = buffer_size, block_size
        if max_bytes == "auto":
            max_bytes = MAX_BYTES if self.reader.reads_ahead else None
        self._orders: dict[Any, EpochOrder] = {}  # by the number of shards and of lanes
        self._epochs: dict[Any, Epoch] = {}  # the last one that was asked for
        order = self._order_of(len(self._shards), 1)
        self.ranks_share_blocks = not isinstance(order, RandomOrder) and not isinstance(self.reader, _ONE_BY_ONE)
        self._starts = np.cumsum([0, *(shard.count for shard in self._shards)])
        # Records of a shard that is a run of a file are numbered from there.
        self._numbers = self._starts[:-1] - np.array([shard.start for shard in self._shards], np.int64)
        self._reading = self._reader_of([shard.name for shard in self._shards], max_bytes)
        described = [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in self._shards]
        self._content = OrderContent(described, [*order.settings, *([] if packing is None else packing.settings)])

    def _reader_of(self, names: Sequence[str], max_bytes: int | None) -> EpochReader[Any]:
        batch_size = None if self.packing is not None else self.batch_size
        if isinstance(self.reader, ParquetDataReader):
            return EpochRows(self.reader, names, max_bytes, batch_size)
        if isinstance(self.reader, TokenDataReader):
            return EpochWindows(self.reader, names, max_bytes, batch_size)
        if batch_size is not None:
            raise TypeError(f"batch_size is for Parquet files and tokens, and not for {type(self.reader).__name__}")
        return EpochRecords(self.reader, names, self.reader.on_error == "skip", max_bytes)

    # ---- orders: a base is how many shards there were when the epoch began, and how many lanes share the window

    def _order_of(self, count: int, divided: int) -> EpochOrder:
        """Return the orders of the epochs over the first so many shards."""
        key = (count, divided)
        if key not in self._orders:
            self._orders[key] = self._made_order(self._shards[:count], divided)
        return self._orders[key]

    def _made_order(self, shards: Sequence[Shard], divided: int) -> EpochOrder:
        window = max(1, self._window // divided) if self._window > 0 else self._window
        found = self.reader.order(shards, self._seed, window)
        if found is not None:
            if self._buffer_size or self._block_size is not None:
                raise TypeError(
                    f"window= shuffles the rows of a {type(self.reader).__name__}, and not buffer_size or block_size"
                )
            return found
        if isinstance(self.reader, TokenDataReader) and self._block_size is None and not self._buffer_size:
            return RandomOrder(shards, self._seed)
        buffer_size = max(1, self._buffer_size // divided) if self._buffer_size > 0 else self._buffer_size
        return EpochOrder(shards, self._seed, self._block_size, buffer_size)

    def first_base(self, divided: int) -> Base:
        """Return the numbers of shards and of lanes."""
        return {"shards": len(self._shards), "divided": divided}

    def shape(self, epoch: int, base: Base) -> tuple[int, tuple[int, ...]]:
        """Return the number of records of an epoch."""
        return int(self._starts[base["shards"]]), ()

    def order(self, epoch: int, base: Base) -> Epoch:
        """Return the order of an epoch."""
        key = (epoch, base["shards"], base["divided"])
        if key not in self._epochs:
            self._epochs = {key: self._order_of(base["shards"], base["divided"]).epoch(epoch)}
        return self._epochs[key]

    def numbers(self, order: Epoch, intervals: Iterable[Interval]) -> list[int]:
        """Return the numbers of the records at positions."""
        return record_numbers(order, intervals, self._numbers)

    def described(self, base: Base) -> dict[str, Any]:
        """Return what a state says of the content."""
        return self._content.described(base["shards"])

    def check(self, content: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a state's content is another one."""
        self._content.check(content)

    def set_order(self, plan: PassPlan) -> None:
        """Hand the shards that this rank's workers read together to a cache below the reader."""
        slots = range(plan.grid.slots * plan.rank // plan.ranks, -(-plan.grid.slots * (plan.rank + 1) // plan.ranks))
        lanes = [lane for number, lane in enumerate(plan.plan.lanes) if number % plan.grid.slots in slots]
        following = self.following(plan.epoch, plan.base, plan.base["divided"])
        self.reader.set_order(
            self._shards[number].name
            for epoch, base in ((plan.epoch, plan.base), (plan.epoch + 1, following))
            for number in self.order(epoch, base).shards_in_turn(lanes)
        )

    # ---- records

    @property
    def total(self) -> int:
        """The number of records."""
        return int(self._starts[-1])

    @property
    def name(self) -> str:
        """The name of the first shard."""
        return self._shards[0].name if self._shards else type(self.reader).__name__

    def fetch(self, numbers: Sequence[int]) -> list[Any]:
        """Return records by their numbers."""
        wanted = np.asarray(numbers, np.int64)
        shards = self._starts.searchsorted(wanted, side="right") - 1
        return self._reading.at(shards, wanted - self._numbers[shards])

    def records(self, order: Epoch, intervals: Iterable[Interval], threads: SharedThreads | None) -> Iterator[Any]:
        """Yield the records at positions, read ahead."""
        return self._reading.read(order, joined(order, intervals), threads)

    def places(self, order: Epoch, intervals: Iterable[Interval]) -> list[SamplePlace]:
        """Return where the records at positions come from."""
        found = []
        for piece in order.pieces(intervals):
            for shard, record in zip(*(one.tolist() for one in order.locate(*piece)), strict=True):
                name = self._shards[shard].name
                if isinstance(self.reader, TokenDataReader):
                    record = self.reader.offset_of(name, record)
                found.append(SamplePlace("", name, record))
        return found

    def close(self) -> None:
        """Free what the reader holds in this process."""
        self._steps.close()
        self.reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epochs": {}, "_orders": {}}


class TokenDataset(ShardedDataset):
    """Windows of `sequence_length` + 1 tokens: `dataset[n]` is window n, and a `Loader` reads epochs of them.

    Without `tokenize`, `source` is files of token ids, as `TokenDataReader` reads them (`layout`, `overlap`, `format`,
    `dtype` and `pad` are its own). Every window has a random place in an epoch; or every block of `block_size` windows
    has one, and the windows within each buffer of `buffer_size` are shuffled, which reads longer runs from a store.
    With `tokenize`, the source is documents: Parquet files, JSON lines, RecordIO or a data reader, and windows are
    packed of them as `Packing` has it.

    Args:
        source: a URL, a path, a pattern, a directory, an FS or a data reader.
        sequence_length: tokens of a model's input.
        transform: makes a sample of a window, or of a batch of them.
        tokenize: makes token ids of a document; of a list of documents with `batched`.
        columns, window: of Parquet files, as `ShardedDataset` has them.
        batch_size: a sample is a batch of so many windows, and the loader takes `batch_size=None`: faster than batches
            that are collated of single windows.

    Else as `ShardedDataset`.
    """

    def __init__(
        self,
        source: AbstractDataReader | Location,
        sequence_length: int,
        transform: Transform | None = None,
        *,
        tokenize: Callable[[Any], Sequence[Any]] | None = None,
        batched: bool = False,
        layout: WindowLayout = "stream",
        overlap: bool = True,
        format: Format | None = None,
        dtype: str | None = None,
        pad: int = 0,
        columns: Sequence[str] | None = None,
        window: int = WINDOW,
        seed: int | None = None,
        block_size: int | None = None,
        buffer_size: int = 0,
        batch_size: int | None = None,
        max_bytes: int | Literal["auto"] | None = "auto",
    ) -> None:
        packing = None
        if tokenize is not None:
            if layout != "stream" or format is not None or dtype is not None:
                raise TypeError("layout, format and dtype are of files of token ids, and not of tokenized documents")
            packing = Packing(tokenize, sequence_length, overlap, batched, pad, batch_size)
        elif not isinstance(source, AbstractDataReader):
            source = TokenDataReader(
                source, sequence_length, layout=layout, overlap=overlap, format=format, dtype=dtype, pad=pad
            )
        super().__init__(
            source,
            transform,
            seed=seed,
            block_size=block_size,
            buffer_size=buffer_size,
            columns=columns,
            window=window,
            batch_size=None if packing is not None else batch_size,
            packing=packing,
            max_bytes=max_bytes,
        )
