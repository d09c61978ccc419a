"""ShardedDataset: the records of shards as a data set that ranks and workers share, and that resumes exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...readers.data import AbstractDataReader, Mode, Shard, shards_of
from ...readers.data.base import OnError, check_on_error
from ...readers.data.factory import reader_of
from ...readers.data.files import Location
from ...readers.data.order import Epoch, EpochOrder, Interval, JoinedEpoch, RandomOrder, between, union
from ...readers.data.parquet import ParquetDataReader
from ...readers.data.tokens import Format, TokenDataReader, WindowLayout
from .epochs import Content, PlanOfAll, StateDict
from .map_style import Transform
from .packing import Packing
from .plan import EpochPlan, EpochShape, Uneven
from .reading import EpochRecords, EpochRows, EpochWindows
from .resumable import EpochDataset, Records, SamplePlace

if TYPE_CHECKING:
    import pyarrow.compute as pc

MAX_BYTES = 64 << 20
WINDOW = 16


class ShardedDataset(EpochDataset):
    """The records of a data reader's shards, each once an epoch, whichever rank and worker it falls to.

    Args:
        source: a data reader (`fsabs.readers.data`), a directory of RecordIO, tar, zip, MDS or Parquet shards, or a
            pattern: `"s3://bucket/data/*.parquet"`.
        transform: makes a sample of a record, in the worker.
        seed: shuffles the shards, and their records within a buffer, anew in each epoch; None leaves the order alone.
        buffer_size: how many records are shuffled among each other; all of them are in memory at once. 0 shuffles only
            the shards.
        block_size: shards are cut into blocks of so many records for the shuffle of shards: smaller ones mix better and
            read shorter runs. None leaves shards whole.
        rank, ranks: which of how many training processes this is. By default, as torch.distributed has it once it is
            initialized, else as the environment has it (`RANK`, `WORLD_SIZE`), asked for when a pass begins.
        uneven: "keep" every sample, so that a rank may have one more than another; or, so that all ranks have as many,
            "drop" the last ones of the epoch, "repeat" its first ones at its end, or "pad" it with `padding`.
        padding: a sample, for `uneven="pad"`; `transform` is not applied to it.
        mode: of the shards: "training", "evaluation", "prediction".
        max_bytes: so much is read ahead by a thread of each worker; None reads when asked. By default, 64 MiB where the
            shards are in a store, and None where they are on a local disk or made by a reader of your own.
        columns, filters: of Parquet files, see `ParquetDataReader`: what is read of their rows.
        window: how many row groups of Parquet files are shuffled among each other, row by row; they are in memory
            together. `buffer_size` and `block_size` are not for Parquet files.
        batch_size: of Parquet files: a sample is a `pyarrow.RecordBatch` of so many rows, which `transform` gets, and
            the loader takes `batch_size=None`; the last one of each worker has fewer. None gives dicts.
        packing: makes windows of tokens of the records, which are the samples then; see `Packing`.
        on_error: "raise" a `CorruptFileError` for a record that is damaged, or "skip" it; `skipped` counts them. A data
            reader that was made with "skip" skips, too.
        max_skipped: of records in a pass; one more raises. None skips any number.

    Iterate it, or give it to a `Loader`. An iteration is one epoch, or what a loaded state left of it; the next one is
    the next epoch. `state_dict()` costs some microseconds: it is which positions of the epoch's order remain. A state
    that was made after the last batch continues with the next epoch. It can be loaded with any number of workers, and
    the states of all ranks with any number of ranks; with the same numbers, the samples come in the very order in which
    they would have come. After an error of an iteration, the next sample is the one that failed.

    The workers of a plain `DataLoader` read the epoch that was set: call `set_epoch` before each pass, as with torch's
    `DistributedSampler`.
    """

    def __init__(
        self,
        source: AbstractDataReader | Location,
        transform: Transform | None = None,
        *,
        seed: int | None = None,
        buffer_size: int = 0,
        block_size: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        padding: Any = None,
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
        self.reader = reader_of(source, on_error, columns, filters)
        self._shards = shards_of(self.reader, mode)
        self._seed, self._window = seed, window
        self.shuffles = seed is not None
        self._buffer_size, self._block_size = buffer_size, block_size
        if max_bytes == "auto":
            max_bytes = MAX_BYTES if self.reader.reads_ahead else None
        self._order = self._order_of(self._shards)
        self._orders: dict[Any, Epoch] = {}  # the last one of an epoch that was asked for
        names = [shard.name for shard in self._shards]
        records: Records
        if isinstance(self.reader, ParquetDataReader):
            records = EpochRows(self.reader, names, max_bytes, batch_size)
        elif isinstance(self.reader, TokenDataReader):
            records = EpochWindows(self.reader, names, max_bytes, batch_size)
        elif batch_size is not None and packing is None:
            raise TypeError(f"batch_size is for Parquet files and tokens, and not for {type(self.reader).__name__}")
        else:
            records = EpochRecords(self.reader, names, self.reader.on_error == "skip", max_bytes)
        described = [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in self._shards]
        settings = [*self._order.settings, *([] if packing is None else packing.settings)]
        super().__init__(
            records,
            Content(described, settings, self._order.fingerprint()),
            transform,
            rank=rank,
            ranks=ranks,
            uneven=uneven,
            padding=padding,
            batch_size=batch_size,
            packing=packing,
            skips=self.reader.on_error == "skip",
            max_skipped=max_skipped,
        )

    def _order_of(self, shards: Sequence[Shard]) -> EpochOrder:
        """Return the orders of the epochs over some of the shards."""
        found = self.reader.order(shards, self._seed, self._window)
        if found is not None:
            if self._buffer_size or self._block_size is not None:
                raise TypeError(
                    f"window= shuffles the rows of a {type(self.reader).__name__}, and not buffer_size or block_size"
                )
            return found
        if isinstance(self.reader, TokenDataReader) and self._block_size is None and not self._buffer_size:
            return RandomOrder(shards, self._seed)
        return EpochOrder(shards, self._seed, self._block_size, self._buffer_size)

    # ---- orders: a base is `[[shards, epoch], ...]`, so many shards there were at first, until the end of an epoch

    def order(self, epoch: int, base: Any) -> Epoch:
        """Return the order of an epoch, at whose end shards come that were added meanwhile."""
        counts = _generations(epoch, base, len(self._shards))
        key = (epoch, *counts)
        if key not in self._orders:
            if len(counts) == 1:
                found = self._order.epoch(epoch)
            else:
                starts = [0, *counts[:-1]]
                parts = [self._order_of(self._shards[first:last]) for first, last in zip(starts, counts, strict=True)]
                sizes = [last - first for first, last in zip(starts, counts, strict=True)]
                found = JoinedEpoch([one.epoch(epoch) for one in parts], sizes, [one.total for one in parts])
            self._orders = {key: found}
        return self._orders[key]

    def shape(self, epoch: int, base: Any) -> EpochShape:
        """Return the shape of an epoch: of all shards, whenever they were added."""
        return EpochShape(self._order.total)

    def pruned(self, base: Any, epoch: int) -> Any:
        """Return a base without what matters only for epochs before one."""
        return [one for one in base or [] if one[1] >= epoch] or None

    def total_of(self, shards: int) -> int:
        """Return the number of records of the first so many shards."""
        return sum(shard.count for shard in self._shards[:shards])

    def rebased(self, plan: EpochPlan, of_all: PlanOfAll, state: StateDict) -> EpochPlan:
        """Return the plan with the shards that were added since the state was saved."""
        known = len(self._shards) if state["format"] == 1 else state["content"]["shards"]
        if known == len(self._shards):
            return plan
        before, total = self.total_of(known) * self._unit, self._order.total * self._unit
        plan = of_all(lambda epoch, base: EpochShape(before))
        last = max([plan.epoch, *(epoch for epoch, _ in plan.later)])

        def grown(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
            return (*between(intervals, 0, before), (before, total))  # without what made ranks even

        return plan._replace(
            parts=(grown(union(plan.parts)),),
            scope="all",
            later=tuple((epoch, grown(one)) for epoch, one in plan.later),
            base=[*(plan.base or []), [known, last]],
        )

    # ---- the rest of the interface

    def places(self, epoch: int, base: Any, start: int, end: int) -> list[SamplePlace]:
        """Return where the records at positions of an epoch come from."""
        order, found = self.order(epoch, base), []
        for piece in order.pieces([(start, end)]):
            for shard, record in zip(*(one.tolist() for one in order.locate(*piece)), strict=True):
                name = self._shards[shard].name
                if isinstance(self.reader, TokenDataReader):
                    record = self.reader.offset_of(name, record)
                found.append(SamplePlace("", name, record))
        return found

    def set_order(self, plans: Iterable[tuple[EpochPlan, list[list[Interval]]]]) -> None:
        """Hand the shards that this rank's workers read together to a cache below the reader."""
        self.reader.set_order(
            self._shards[number].name
            for plan, parts in plans
            for number in self.order(plan.epoch, plan.base).shards_in_turn(parts)
        )

    @property
    def name(self) -> str:
        """The name of the first shard."""
        return self._shards[0].name if self._shards else type(self.reader).__name__

    def close(self) -> None:
        """Free what the reader holds in this process."""
        self.reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_orders": {}}


def _generations(epoch: int, base: Any, shards: int) -> list[int]:
    """Return the numbers of shards that the parts of an epoch's order end with."""
    return sorted({count for count, last in base or [] if epoch <= last} | {shards})


class TokenDataset(ShardedDataset):
    """Windows of `sequence_length` + 1 tokens, each once an epoch, whichever rank and worker it falls to.

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
        uneven, padding: as `ShardedDataset` has them; windows of documents and packed ones need no `padding`.
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
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
        padding: Any = None,
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
        if uneven == "pad" and padding is None and layout != "stream":
            length = sequence_length + 1
            padding = {"tokens": np.full(length, pad, np.int64)}
            if layout == "documents":
                padding["mask"] = np.zeros(length, bool)
            else:
                padding["segments"] = np.full(length, -1, np.int64)
            padding = padding if transform is None else transform(padding)
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
            rank=rank,
            ranks=ranks,
            uneven=uneven,
            padding=padding,
            max_bytes=max_bytes,
        )
