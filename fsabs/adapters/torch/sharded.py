"""ShardedDataset: shards as an iterable data set that ranks and workers share, and that resumes exactly mid-epoch.

What is read when is a function of (shards, seed, epoch): `readers.data.order`. What remains is a plan: `plan`. A
`Loader` draws the batches in the main process and tells each worker which positions it reads; under a plain
`DataLoader`, each worker iterates over its own share.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from torch.utils.data import IterableDataset, default_collate, default_convert, get_worker_info

from ...core import errors, process
from ...readers.data import AbstractDataReader, Mode, shards_of
from ...readers.data.base import LOST, OnError
from ...readers.data.files import Location
from ...readers.data.order import EpochOrder, Interval, drop, length
from ...readers.data.parquet import ParquetDataReader
from ...readers.data.tokens import TokenDataReader
from ...readers.data.windows import RandomOrder
from .counted import Counted
from .epochs import Epochs, RankOf
from .files import Transform
from .packing import UNIT, PackedPass, Packing
from .plan import EpochPlan, Intervals, Pass, Uneven, WorkerPlace
from .reading import EpochRecords
from .rows import EpochRows
from .shared import EpochNotice, WorkerCounts
from .source import reader_of
from .states import Content, Remainder, plan_of_worker, remainders, state_of
from .tags import Samples, Tag, Tagged
from .windows import EpochWindows

MAX_BYTES = 64 << 20
WINDOW = 16


class ShardedDataset(IterableDataset[Any]):
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
        uneven: "keep" every sample, so that a rank may have one more than another; or "drop" the last ones of the epoch
            so that all ranks have as many.
        mode: of the shards: "training", "evaluation", "prediction".
        max_bytes: so much is read ahead by a thread of each worker; None reads when asked. By default, 64 MiB where the
            shards are in a store, and None where they are on a local disk or made by a reader of your own.
        columns, filters: of Parquet files, see `ParquetDataReader`: what is read of their rows.
        window: how many row groups of Parquet files are shuffled among each other, row by row; they are in memory
            together. `buffer_size` and `block_size` are not for Parquet files.
        batch_size: of Parquet files: a sample is a `pyarrow.RecordBatch` of so many rows, which `transform` gets, and
            the loader takes `batch_size=None`; the last one of each worker has fewer. None gives dicts.
        packing: makes windows of tokens of the records, which are the samples then; see `Packing`.
        on_error: "raise" a `CorruptFileError` for a record that is damaged, or "skip" it; `skipped` counts them.
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
        mode: str = Mode.TRAINING,
        max_bytes: int | Literal["auto"] | None = "auto",
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | None = None,
        window: int = WINDOW,
        batch_size: int | None = None,
        packing: Packing | None = None,
        on_error: OnError = "raise",
        max_skipped: int | None = None,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is 'raise' or 'skip', not {on_error!r}")
        self.reader = reader_of(source, on_error, columns, filters)
        self.transform = transform
        shards = shards_of(self.reader, mode)
        if max_bytes == "auto":
            max_bytes = MAX_BYTES if self.reader.reads_ahead else None
        self._skips = on_error == "skip"
        names = [shard.name for shard in shards]
        if packing is not None and batch_size is not None:
            raise TypeError("batch_size is given to Packing, and not to the data set, where documents are packed")
        self._order: EpochOrder
        self._records: EpochRecords | EpochRows | EpochWindows
        if isinstance(self.reader, ParquetDataReader):
            if buffer_size or block_size is not None:
                raise TypeError("window= shuffles rows of Parquet files, and not buffer_size or block_size")
            self._order = self.reader.order(shards, seed, window)
            self._records = EpochRows(self.reader, names, max_bytes, batch_size)
        elif isinstance(self.reader, TokenDataReader):
            if buffer_size:
                raise TypeError("tokens are shuffled by block_size, and not by buffer_size")
            self._order = RandomOrder(shards, seed) if block_size is None else EpochOrder(shards, seed, block_size)
            self._records = EpochWindows(self.reader, names, max_bytes, batch_size)
        else:
            if batch_size is not None:
                raise TypeError(f"batch_size is for Parquet files, and not for {type(self.reader).__name__}")
            self._order = EpochOrder(shards, seed, block_size, buffer_size)
            self._records = EpochRecords(self.reader, names, self._skips, max_bytes)
        self.packing = packing
        self._unit = 1 if packing is None else UNIT  # positions of a record
        self.batch_size = batch_size
        """Records of a sample that is a batch; None for single ones, and for packed windows."""
        self.max_skipped = max_skipped
        self._skipped = WorkerCounts()
        self._notice = EpochNotice()
        described = [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in shards]
        settings = [*self._order.settings, *([] if packing is None else packing.settings)]
        content = Content(described, settings, self._order.fingerprint())
        total = self._order.total * self._unit
        publish = functools.partial(self._notice.publish, total=total)
        self.epochs = Epochs(content, total, RankOf(rank, ranks), uneven, publish)
        if packing is not None:
            self.epochs.pass_type = PackedPass
        self._samples: _Samples | None = None  # the last ones that were begun in this process
        self._counted = -1  # the serial number of the plan whose batches are counted by `consumed`
        self._consuming: Pass | None = None  # the pass of `consumed` that is beginning
        self._own: EpochPlan | None = None  # of this worker, from a state that it was given
        self._served = -1  # the serial number of the plan of which this worker has begun a pass

    # ---- epochs and states

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        return self.epochs.epoch

    @property
    def skipped(self) -> int:
        """The number of damaged records that the last pass has skipped, in all workers."""
        return self._skipped.total

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        if self._uncounted() and epoch >= 0:
            self.epochs.skip_to(epoch)
        else:
            self.epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return which samples this rank has still to consume: plain data, for JSON, `torch.save`, or pickle.

        In a worker it is the worker's, as torchdata's `StatefulDataLoader` asks for it. `RuntimeError` in the main
        process of a plain `DataLoader` with workers, where it is not known which of their batches were used.
        """
        info = get_worker_info()
        if info is not None:
            return self._state_of_worker(self._place(info))
        if self._uncounted():
            raise RuntimeError(
                "which batches of a plain DataLoader's workers were used is not known: use a Loader, or a DataLoader "
                "with collate_fn=dataset.tagged(...), iterated by dataset.consumed(loader)"
            )
        return self.epochs.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state: this rank's own, or a list of those of all ranks, whose number may have been another.

        States of torchdata's `StatefulDataLoader` are taken, too, if they are of the last batch that was handed out.
        Raises `ValueError` for a state of other shards, another seed or another shuffle, and for states that are not
        all of a job's.
        """
        info = get_worker_info()
        if info is None:
            self.epochs.load_state_dict(state_dict)
            return
        left = remainders(state_dict, self.epochs.content, self.epochs.total)
        self._own = plan_of_worker(left, self._place(info))
        self._samples = None

    def _uncounted(self) -> bool:
        """Return whether workers have begun a pass whose batches are not counted here."""
        return self._counted != self.epochs.serial and self._notice.passes > 0

    def _state_of_worker(self, place: WorkerPlace) -> dict[str, Any]:
        running = self._samples
        if running is not None:
            plan, left = running.plan, running.remaining()
        else:
            plan = self._own or self._plan_that_was_set()
            left = plan.of_worker(place, self.uneven)
        if plan.later:
            raise RuntimeError(
                "the states that were loaded are of different epochs: a worker alone has no state; use a Loader"
            )
        return state_of(self.epochs.content, Remainder(place, plan.epoch, [left], []), in_worker=True)

    def _place(self, info: Any) -> WorkerPlace:
        return self.epochs.place._replace(worker=info.id, workers=info.num_workers)

    # ---- samples

    def __len__(self) -> int:
        """Return the number of samples that this rank has in a whole epoch, or of rows where they come in batches."""
        if self.packing is not None:
            raise TypeError("the number of packed windows is not known before their documents are read")
        return self.epochs.whole_length()

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        if info is not None:
            place, plan = self._place(info), self._plan_of_worker(info)
            self._samples = _Samples(self, plan, place)
        else:
            self._skipped.clear()
            running = self._consuming
            if running is not None:
                self._samples = _Samples(self, running.plan, running.place)
                return self._samples
            if self._uncounted():
                self.epochs.skip_to(self.epochs.epoch + 1)
            running = self.epochs.begin()
            self._samples = _Samples(self, running.plan, running.place, running)
        return self._samples

    def _plan_of_worker(self, info: Any) -> EpochPlan:
        """Return the plan of the pass that this worker of a plain `DataLoader` begins."""
        passes = self._notice.passes
        if not info.id:
            self._notice.begin_pass()
        own, self._own = self._own, None
        if own is not None:
            return own
        plan, serial = self._plan_that_was_set(), self._notice.serial
        again = self._served == serial or (passes and not info.id)
        self._served = serial
        if again and plan != EpochPlan.whole(plan.epoch, self.epochs.total):
            raise RuntimeError(f"the rest of epoch {plan.epoch} was read before: call set_epoch before each pass")
        if again and not info.id and self._order.seed is not None:
            warnings.warn(
                f"epoch {plan.epoch} is read once more, in the same order: call set_epoch before each pass of a plain "
                "DataLoader, or use a Loader",
                stacklevel=2,
            )
        return plan

    def _plan_that_was_set(self) -> EpochPlan:
        if self._notice.serial == self.epochs.serial:
            return self.epochs.plan
        epoch = self._notice.epoch
        if epoch is None:
            raise RuntimeError("a state was loaded while the workers were running: make a new DataLoader, or a Loader")
        return EpochPlan.whole(epoch, self.epochs.total)

    @property
    def uneven(self) -> Uneven:
        """The handling of ranks with different numbers of samples."""
        return self.epochs.uneven

    def samples(self, plan: EpochPlan, place: WorkerPlace, intervals: list[Interval], start: int) -> Iterator[Any]:
        """Yield the samples at these positions of a plan's epoch, which are a worker's, from number `start` on.

        `LOST` stands for one that is damaged and skipped.
        """
        self.reader.set_order(self._shards_of_all(plan, place))
        return self._read(plan.epoch, intervals, start)

    def _read(self, epoch: int, intervals: list[Interval], start: int = 0) -> Iterator[Any]:
        order = self._order.epoch(epoch)
        if self.packing is not None:
            read = functools.partial(self._records.read, order, start=0)
            records: Iterator[Any] = self.packing.windows(read, intervals, start)
        else:
            records = self._records.read(order, intervals, start)
        transform = self.transform
        return records if transform is None else (_transformed(transform, record) for record in records)

    def _shards_of_all(self, plan: EpochPlan, place: WorkerPlace) -> Iterator[str]:
        """Yield the names of the shards that this rank's workers read together, in this epoch and the next one."""
        unit = self._unit
        for one in (plan, plan.of_epoch(plan.epoch + 1, self.epochs.total)):
            workers = [place._replace(worker=number) for number in range(place.workers)]
            positions = [one.of_worker(worker, self.uneven) for worker in workers]
            parts = [[(start // unit, -(-end // unit)) for start, end in intervals] for intervals in positions]
            for number in self._order.epoch(one.epoch).shards_in_turn(parts):
                yield self._order.shards[number].name

    # ---- for a DataLoader

    def tagged(self, collate_fn: Callable[[Any], Any] | None = None) -> Callable[[Any], Tagged]:
        """Return a `collate_fn` for a `DataLoader` (torch's own if None) that tags batches for `consumed`."""
        return _TaggingCollate(self, collate_fn)

    def consumed(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of a `DataLoader` made with `collate_fn=dataset.tagged(...)`, one epoch.

        `state_dict()` is then what remains after the batches that came out of here.
        """
        if self._uncounted():
            self.epochs.skip_to(self.epochs.epoch + 1)
        size, drop_last = getattr(loader, "batch_size", None) or 1, getattr(loader, "drop_last", False)
        running = self.epochs.begin(max(1, getattr(loader, "num_workers", 0)), size, drop_last)
        self._counted = running.serial
        self._skipped.clear()
        self._consuming = running
        try:
            batches = iter(loader)
        finally:
            self._consuming = None
        for batch in batches:
            if not isinstance(batch, Tagged):
                raise TypeError("the DataLoader must be made with collate_fn=dataset.tagged(...)")
            self.epochs.consumed(running, batch.tag)
            yield batch.data
        self.epochs.end(running)

    def tag(self) -> Tag:
        """Return the tag of the samples that this process has taken since it was asked for one."""
        if self._samples is None:
            raise RuntimeError("a batch is tagged, and no sample was taken from the data set in this process")
        return self._samples.tag(self._notice.serial)

    # ---- for a Loader

    def drawn(self, running: Pass, workers: int) -> Iterator[tuple[Tag, BatchPositions]]:
        """Yield the tags and the positions of the batches of a pass, for a loader with so many workers."""
        announced: set[int] = set()
        while (drawn := running.draw()) is not None:
            (tag, positions), share = drawn, None
            if tag.part not in announced:
                announced.add(tag.part)
                share = Share(running.plan, running.place._replace(worker=tag.part), running.parts[tag.part])
            yield tag, BatchPositions(running.plan.epoch, positions, share)

    def one_batch(self, batch: BatchPositions) -> Iterator[Any]:
        """Yield the samples of a batch, without those that follow."""
        return self._read(batch.epoch, list(batch.positions))

    def begin_counting(self) -> None:
        """Count the records that are skipped from here on."""
        self._skipped.clear()

    @property
    def counts_positions(self) -> bool:
        """True if a sample stands for several positions, and is `Counted`: of batches, and of packed windows."""
        return self.batch_size is not None or self.packing is not None

    def batch_reader(self) -> BatchReader:
        """Return what reads the batches of a `Loader` in a worker."""
        return BatchReader(self)

    def without_lost(self, samples: list[Any]) -> list[Any]:
        """Return the samples without those that are damaged, which are counted."""
        if not (self._skips and any(sample is LOST for sample in samples)):
            return samples
        for sample in samples:
            if sample is LOST:
                self.skip()
        return [sample for sample in samples if sample is not LOST]

    def skip(self, count: int = 1) -> None:
        """Count damaged records; `CorruptFileError` if a pass has skipped more than it may."""
        self._skipped.add(count)
        skipped = self.skipped
        if self.max_skipped is not None and skipped > self.max_skipped:
            reason = f"{skipped} damaged records were skipped, and {self.max_skipped} may be (max_skipped)"
            raise errors.corrupt(self._order.shards[0].name, reason, "read_records")

    def close(self) -> None:
        """Free what the reader holds in this process."""
        self.reader.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_samples": None}


class _Samples(Iterator[Any]):
    """The samples of one pass, which counts what it gave.

    An error costs no sample: the next step tries for the same one again, and does not end the epoch. torchdata's
    `StatefulDataLoader` asks for the state of this iterator, too: its pass is what the state left, even nothing.
    """

    def __init__(
        self, dataset: ShardedDataset, plan: EpochPlan, place: WorkerPlace, running: Pass | None = None
    ) -> None:
        self._dataset = dataset
        self.plan = plan
        self._running = running  # of the main process
        self._counts = None if running is None else running.taken
        self._place = place
        self._intervals = plan.of_worker(place, dataset.uneven)
        self._taken = self._tagged = 0
        self._position = _Position()
        self._samples = self._started()

    def tag(self, serial: int) -> Tag:
        """Return the tag of the samples since the last one."""
        first, self._tagged = self._tagged, self._taken
        return Tag(serial, self._place.worker, first, self._taken - first)

    def _started(self) -> process.Resumable[Any]:
        position = self._position
        start = functools.partial(_continued, self._dataset, self.plan, self._place, self._intervals, position)
        return process.Resumable(start)

    def __next__(self) -> Any:
        while True:
            try:
                sample = next(self._samples)
            except StopIteration:
                if self._running is not None:
                    self._dataset.epochs.end(self._running)
                raise
            except BaseException:
                self._samples.close()
                self._samples = self._started()
                raise
            if type(sample) is Counted:
                positions, lost, sample = sample
            else:  # one position, nearly always
                positions, lost = 1, sample is LOST
            self._taken += positions
            self._position.number = self._taken
            if self._counts is not None:
                self._counts[0] += positions
            if lost:
                self._dataset.skip(int(lost))
            if sample is not LOST:
                return sample

    def remaining(self) -> list[Interval]:
        """Return what is still to be taken."""
        return list(drop(self._intervals, self._taken))

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the data set."""
        return self._dataset.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make this pass what the state left, which may be nothing."""
        if get_worker_info() is not None:
            return  # the worker's data set has loaded it before this pass began
        epochs = self._dataset.epochs
        epochs.load_state_dict(state_dict)
        epochs.set_epoch(state_dict["epoch"])
        self._running = epochs.begin()
        self.__init__(self._dataset, self._running.plan, self._running.place, self._running)  # type: ignore[misc]


class _Position:
    """How many positions of a pass were taken.

    What an iterator reads from is registered with the process, and must not refer to the iterator.
    """

    number = 0


def _continued(
    dataset: ShardedDataset, plan: EpochPlan, place: WorkerPlace, intervals: list[Interval], at: _Position, _: int
) -> Iterator[Any]:
    """Return the samples from a position on: a process that continues counts positions, and not samples."""
    return dataset.samples(plan, place, intervals, at.number)


def _transformed(transform: Transform, record: Any) -> Any:
    if type(record) is Counted:
        return record if record.sample is LOST else record._replace(sample=transform(record.sample))
    return record if record is LOST else transform(record)


class _TaggingCollate:
    """A `collate_fn` around another, which adds the tag of the samples that the worker took last."""

    def __init__(self, dataset: ShardedDataset, collate_fn: Callable[[Any], Any] | None) -> None:
        self._dataset = dataset  # in a worker, that which the samples come from, pickled with it
        self._collate = collate_fn

    def __call__(self, samples: Any) -> Tagged:
        collate = self._collate
        if collate is None:  # a list of samples, or one sample where there are no batches
            collate = default_collate if isinstance(samples, list) else default_convert
        return Tagged(collate(samples), self._dataset.tag())


class Share(NamedTuple):
    """What a worker reads in a pass."""

    plan: EpochPlan
    place: WorkerPlace
    intervals: list[Interval]


class BatchPositions(NamedTuple):
    """The positions of a batch, which is sent to a worker."""

    epoch: int
    positions: Intervals
    share: Share | None
    """In the first batch of a part: all that is to be read of the part."""


class BatchReader:
    """Reads batches by their positions, ahead of those of one part."""

    def __init__(self, dataset: ShardedDataset) -> None:
        self._dataset = dataset
        self._share: Share | None = None
        self._of = (-1, -1)  # the pass and the part that `_share` is of
        self._samples: process.Resumable[Any] | None = None
        self._at = _Position()  # of `_samples`

    def read(self, tag: Tag, batch: BatchPositions) -> Samples:
        """Return the samples of a batch, with its tag."""
        if batch.share is not None:
            self.close()
            self._share, self._of, self._at.number = batch.share, (tag.serial, tag.part), 0
        if self._share is None or self._of != (tag.serial, tag.part):  # another worker reads that part
            items = list(self._dataset.one_batch(batch))
        else:
            try:
                items, tag = self._next(self._share, tag)
            except BaseException:
                self.close()
                raise
        if self._dataset.counts_positions:
            self._dataset.skip(sum(item.lost for item in items))
            return Samples([item.sample for item in items if item.sample is not LOST], tag)
        return Samples(self._dataset.without_lost(items), tag)

    def _next(self, share: Share, tag: Tag) -> tuple[list[Any], Tag]:
        """Return what the part that this worker reads has next, and the tag of that."""
        known = self._dataset.packing is None
        first = tag.first if known else self._at.number
        if self._samples is None or self._at.number != first:
            self.close()
            self._at.number = first
            self._samples = process.Resumable(functools.partial(_continued, self._dataset, *share, self._at))
        if not self._dataset.counts_positions:
            items = self._samples.take(tag.count)
            self._at.number += len(items)
            return items, tag
        items = self._samples.take(1 if known else tag.count)
        count = sum(item.positions for item in items)
        if not known and len(items) < tag.count:  # documents without tokens may be left
            count = length(share.intervals) - first
        if known and count != tag.count:
            raise RuntimeError(f"{count} rows were read, and not {tag.count}")
        self._at.number = first + count
        return items, Tag(tag.serial, tag.part, first, count)

    def close(self) -> None:
        """End reading ahead."""
        samples, self._samples = self._samples, None
        if samples is not None:
            samples.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_samples": None}
