"""EpochDataset: samples in an order that ranks and workers share, and that resumes exactly mid-epoch.

What is read when is a function of the data set and the epoch: `readers.data.order`. What remains is a plan: `plan`. A
`Loader` draws the batches in the main process and tells each worker which positions it reads; under a plain
`DataLoader`, each worker iterates over its own share.
"""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice, repeat
from typing import Any, NamedTuple, Protocol

from torch.utils.data import IterableDataset, default_collate, default_convert, get_worker_info

from ...core import process
from ...readers.data.base import LOST, check_skipped
from ...readers.data.order import Interval, between, drop, length, wrapped
from ...readers.prefetch import SharedThreads
from .epochs import (
    Content,
    Epochs,
    PlanOfAll,
    RankOf,
    Remainder,
    StateDict,
    first_of,
    plan_of_worker,
    remainders,
    state_of,
)
from .map_style import Transform
from .packing import UNIT, PackedPass, Packing
from .plan import EpochPlan, EpochShape, Intervals, Pass, ShapeOf, Sharing, Uneven, WorkerPlace
from .tags import Counted, EpochNotice, Samples, Tag, Tagged, WorkerCounts


class Records(Protocol):
    """What reads the samples at positions of an epoch."""

    def read(self, order: Any, intervals: list[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the samples at the positions of `intervals`; `LOST` for a skipped one.

        With `threads`, they are read ahead by these and no others, of which many such readers have a part each.
        """


class SamplePlace(NamedTuple):
    """Where a sample, or a part of a packed window, comes from."""

    source: str
    """Of a mixture: the name of its source, `a/b` of one within another; else empty."""
    shard: str
    record: int
    """The number of the record in its shard; of a window of tokens, that of its first token in the file."""
    offset: int = 0
    """Of a packed document: the number of its first token in the window."""


class EpochDataset(IterableDataset[Any], abc.ABC):
    """Samples of which each comes once an epoch, whichever rank and worker it falls to.

    Subclasses say what the orders of the epochs are. A plan's `base` is what an order follows from besides the data set
    itself, and besides the epoch: plain data, which a state has.
    """

    def __init__(
        self,
        records: Records,
        content: Content,
        transform: Transform | None,
        *,
        rank: int | None,
        ranks: int | None,
        uneven: Uneven,
        padding: Any,
        batch_size: int | None,
        packing: Packing | None,
        skips: bool,
        max_skipped: int | None,
        base: Any = None,
    ) -> None:
        if uneven == "pad" and padding is None and packing is None:
            raise TypeError("uneven='pad' needs a sample to pad with: padding=")
        if uneven == "pad" and batch_size is not None:
            raise TypeError("uneven='pad' is for single samples, and not for batches that the data set makes")
        if packing is not None and batch_size is not None:
            raise TypeError("batch_size is given to Packing, and not to the data set, where documents are packed")
        _check_sizes(batch_size, packing)
        self._records = records
        self.transform = transform
        self.uneven: Uneven = uneven
        """The handling of ranks with different numbers of samples."""
        self._padding = padding
        self.packing = packing
        self._unit = 1 if packing is None else UNIT  # positions of a record
        self.batch_size = batch_size
        """Records of a sample that is a batch; None for single ones, and for packed windows."""
        self.skips = skips
        """True if damaged records are left out."""
        self.base = base
        """That of plans which follow from no state."""
        self.max_skipped = max_skipped
        self._skipped = WorkerCounts()
        self._notice = EpochNotice()
        self.epochs = Epochs(
            content,
            # The number of windows is not known before they are read: `Loader` makes ranks even.
            Sharing(uneven if packing is None else "keep", self._shape_of, self.pruned),
            RankOf(rank, ranks),
            self._notice.publish,
            self.rebased,
            base,
        )
        if packing is not None:
            self.epochs.pass_type = PackedPass
        self._taken: WorkerShare | None = None  # of the last iteration that was begun in this process
        self._counted = -1  # the serial number of the plan whose batches are counted by `consumed`
        self._consuming: Pass | None = None  # the pass of `consumed` that is beginning
        self._own: EpochPlan | None = None  # of this worker, from a state that it was given
        self._served = -1  # the serial number of the plan of which this worker has begun a pass

    # ---- what a data set is

    shuffles = True
    """True if epochs have different orders."""

    @abc.abstractmethod
    def order(self, epoch: int, base: Any) -> Any:
        """Return the order of an epoch, for `Records.read`."""

    @abc.abstractmethod
    def shape(self, epoch: int, base: Any) -> EpochShape:
        """Return the shape of an epoch, in records."""

    @abc.abstractmethod
    def total_of(self, shards: int) -> int:
        """Return the number of records of an epoch when there were so many shards."""

    @abc.abstractmethod
    def places(self, epoch: int, base: Any, start: int, end: int) -> list[SamplePlace]:
        """Return where the records at positions of an epoch come from."""

    @abc.abstractmethod
    def rebased(self, plan: EpochPlan, of_all: PlanOfAll, state: StateDict) -> EpochPlan:
        """Return a plan from a state, which may be of another base, for what the data set is now.

        `of_all(shape_of)` is the plan of all ranks, for the shapes that epochs had then; `ValueError` if their states
        are not there.
        """

    def pruned(self, base: Any, epoch: int) -> Any:
        """Return a base without what matters only for epochs before one."""
        return base

    def set_order(self, plans: Iterable[tuple[EpochPlan, list[list[Interval]]]]) -> None:
        """Receive what this rank's workers read next, so that a cache below knows what to keep."""

    def _shape_of(self, epoch: int, base: Any) -> EpochShape:
        total, cuts = self.shape(epoch, base)
        return EpochShape(total * self._unit, tuple(cut * self._unit for cut in cuts))

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
            self.begin_counting()
        else:
            self.epochs.set_epoch(epoch)

    def state_dict(self, held: int = 0) -> dict[str, Any]:
        """Return which samples this rank has still to consume: plain data, for JSON, `torch.save`, or pickle.

        The last `held` batches that a `Loader` handed out, up to 8, do not count as consumed: see `Loader.held`.
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
        return self.epochs.state_dict(held)

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
        left, base = remainders(state_dict, self.epochs.content, self.epochs.sharing)
        plan = plan_of_worker(left, base, self._place(info))

        def alone(shape_of: ShapeOf) -> EpochPlan:
            raise ValueError("a worker's state alone")

        try:
            changed = self.rebased(plan, alone, first_of(state_dict)) is not plan
        except ValueError:
            changed = True
        if changed:
            raise ValueError(
                "weights were changed or shards were added since the state was saved: load it into the data set in the "
                "main process, or into a Loader"
            )
        self._own = plan
        self._taken = None

    def _uncounted(self) -> bool:
        """Return whether workers have begun a pass whose batches are not counted here."""
        return self._counted != self.epochs.serial and self._notice.passes > 0

    def _state_of_worker(self, place: WorkerPlace) -> dict[str, Any]:
        taken = self._taken
        if taken is not None:
            plan, left = taken.plan, taken.remaining()
        else:
            plan = self._own or self._plan_that_was_set()
            left = plan.of_worker(place, self.epochs.sharing)
        if plan.later:
            raise RuntimeError(
                "the states that were loaded are of different epochs: a worker alone has no state; use a Loader"
            )
        remainder = Remainder(place, plan.epoch, [left], [])
        return state_of(self.epochs.content, remainder, in_worker=True, base=plan.base)

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
            return _Samples(self, self._plan_of_worker(info), self._place(info))
        self.begin_counting()
        if self._consuming is not None:
            return _Samples(self, self._consuming.plan, self._consuming.place)
        if self._uncounted():
            self.epochs.skip_to(self.epochs.epoch + 1)
        running = self.epochs.begin()
        return _Samples(self, running.plan, running.place, running)

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
        if again and plan != self.epochs.whole(plan.epoch):
            raise RuntimeError(f"the rest of epoch {plan.epoch} was read before: call set_epoch before each pass")
        if again and not info.id and self.shuffles:
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
        return self.epochs.whole(epoch)

    def samples(self, plan: EpochPlan, place: WorkerPlace, intervals: list[Interval]) -> Iterator[Any]:
        """Yield the samples at these positions of a plan's epoch, which are a worker's.

        `LOST` stands for one that is damaged and skipped.
        """
        self.set_order(self._of_all_workers(plan, place))
        return self.read(plan.epoch, plan.base, intervals)

    def read(
        self, epoch: int, base: Any, intervals: list[Interval], threads: SharedThreads | None = None
    ) -> Iterator[Any]:
        """Yield the samples at positions of an epoch."""
        order = self.order(epoch, base)
        if self.packing is not None:
            documents = functools.partial(self._records.read, order, threads=threads)
            return self._made(self.packing.windows(documents, intervals))
        runs = self._runs(intervals, self.shape(epoch, base).total)
        found = (
            repeat(self._padding, length(run)) if padding else self._made(self._records.read(order, run, threads))
            for padding, run in runs
        )
        return next(found) if len(runs) == 1 else chain.from_iterable(found)

    def _runs(self, intervals: Iterable[Interval], total: int) -> list[tuple[bool, list[Interval]]]:
        """Return runs of intervals, and of each whether it is of padding."""
        if self.uneven != "pad":
            return [(False, list(wrapped(intervals, total)))]
        cut = (piece for one in intervals for piece in (between([one], 0, total) + between([one], total, one[1])))
        return [(padding, list(run)) for padding, run in groupby(cut, lambda one: one[0] >= total)]

    def _made(self, records: Iterator[Any]) -> Iterator[Any]:
        transform = self.transform
        return records if transform is None else (_transformed(transform, record) for record in records)

    def _of_all_workers(self, plan: EpochPlan, place: WorkerPlace) -> Iterator[tuple[EpochPlan, list[list[Interval]]]]:
        """Yield what this rank's workers read together, in records, in this epoch and the next one."""
        unit = self._unit
        for one in (plan, plan.of_epoch(plan.epoch + 1, self.epochs.sharing)):
            total = self.shape(one.epoch, one.base).total
            workers = [place._replace(worker=number) for number in range(place.workers)]
            positions = [one.of_worker(worker, self.epochs.sharing) for worker in workers]
            parts = [[(start // unit, -(-end // unit)) for start, end in part] for part in positions]
            yield one, [between(part, 0, total) for part in parts]

    # ---- the ledger

    def _places_of(self, plan: EpochPlan, intervals: Iterable[Interval]) -> list[SamplePlace]:
        """Return where the samples at positions come from; padding comes from nowhere."""
        runs = self._runs(intervals, self.shape(plan.epoch, plan.base).total)
        found = (one for padding, run in runs for one in run if not padding)
        return [place for one in found for place in self.places(plan.epoch, plan.base, *one)]

    def ledger(self, running: Pass, step: int) -> list[SamplePlace]:
        """Return where the samples of one step of a pass come from.

        What is not known from counts is read: windows that are packed, from where the pass begins; and of a data set
        that skips damaged records, those of the step.
        """
        if running.skips(step):
            return []
        if isinstance(running, PackedPass):
            return self._packed_ledger(running, step)
        positions = running.positions_of(step)
        if not self.skips:
            return self._places_of(running.plan, positions)
        found: list[SamplePlace] = []
        singles = [(at, at + 1) for start, end in positions for at in range(start, end)]
        for one in singles:
            record = next(self.read(running.plan.epoch, running.plan.base, [one]))
            if record is not LOST and not (type(record) is Counted and record.sample is LOST):
                found += self._places_of(running.plan, [one])
        return found

    def _place_of(self, plan: EpochPlan, intervals: list[Interval], number: int) -> list[SamplePlace]:
        """Return where a document comes from, whose token at one of the positions is the first one in a window."""
        document, offset = divmod(next(drop(intervals, number))[0], UNIT)
        found = self.places(plan.epoch, plan.base, document, document + 1)
        return [place._replace(offset=offset) for place in found]

    def _packed_ledger(self, running: PackedPass, step: int) -> list[SamplePlace]:
        plan = running.plan
        workers = [running.place._replace(worker=number) for number in range(running.place.workers)]
        reading = [self.samples(plan, worker, part) for worker, part in zip(workers, running.parts, strict=True)]
        at = plan.batches
        while True:
            ended = True
            for number, windows in enumerate(reading):
                group = list(islice(windows, running.batch_size))
                ended = ended and not group
                if not any(one.sample is not LOST for one in group):
                    continue
                if at == step:
                    parts = [part for one in group for part in one.parts]
                    own = running.parts[number]
                    return [place for part in parts for place in self._place_of(plan, own, part)]
                at += 1
            if ended:
                raise LookupError(f"step {step} is none of the steps {plan.batches} to {at} of this pass")

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
        self.begin_counting()
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
        if self._taken is None:
            raise RuntimeError("a batch is tagged, and no sample was taken from the data set in this process")
        return self._taken.tag(self._notice.serial)

    # ---- for a Loader

    def drawn(self, running: Pass, workers: int) -> Iterator[tuple[Tag, BatchPositions]]:
        """Yield the tags and the positions of the batches of a pass, for a loader with so many workers."""
        announced: set[int] = set()
        while (drawn := running.draw()) is not None:
            (tag, positions), share = drawn, None
            if tag.part not in announced:
                announced.add(tag.part)
                share = WorkerShare(running.plan, running.place._replace(worker=tag.part), running.parts[tag.part])
            yield tag, BatchPositions(running.plan.epoch, running.plan.base, positions, share)

    def begin_counting(self) -> None:
        """Count the records that are skipped from here on."""
        self._skipped.clear()

    @property
    def counts_positions(self) -> bool:
        """True if a sample stands for several positions, and is `Counted`: of batches, and of packed windows."""
        return self.batch_size is not None or self.packing is not None

    def skip(self, count: int = 1) -> None:
        """Count damaged records; `CorruptFileError` if a pass has skipped more than it may."""
        self._skipped.add(count)
        check_skipped(self.skipped, self.max_skipped, self.name)

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the data set in errors."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what is held in this process."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_taken": None}


def _check_sizes(batch_size: int | None, packing: Packing | None) -> None:
    """Raise `ValueError` for sizes with which a pass would not end, or have no samples."""
    for size in (batch_size, packing and packing.batch_size):
        if size is not None and size < 1:
            raise ValueError(f"batch_size is at least 1, or None for single samples, not {size}")
    if packing is not None and packing.sequence_length < 1:
        raise ValueError(f"sequence_length must be at least 1, not {packing.sequence_length}")


class WorkerShare:
    """What a worker reads in a pass, and its progress through that: all that a data set keeps of an iteration."""

    def __init__(self, plan: EpochPlan, place: WorkerPlace, intervals: list[Interval]) -> None:
        self.plan = plan
        self.place = place
        self.intervals = intervals
        self.number = 0
        """How many positions were taken."""
        self._tagged = 0

    def reading(self, dataset: EpochDataset) -> process.Resumable[Any]:
        """Return the samples that are still to be taken; a process that continues counts positions, not samples."""
        # What an iterator reads from is registered with the process, and must not refer to the iterator.
        return process.Resumable(functools.partial(_continued, dataset, self))

    def tag(self, serial: int) -> Tag:
        """Return the tag of the samples since the last one."""
        first, self._tagged = self._tagged, self.number
        return Tag(serial, self.place.worker, first, self.number - first)

    def remaining(self) -> list[Interval]:
        """Return what is still to be taken."""
        return list(drop(self.intervals, self.number))


class _Samples(Iterator[Any]):
    """The samples of one pass, which counts what it gave.

    An error costs no sample: the next step tries for the same one again, and does not end the epoch. torchdata's
    `StatefulDataLoader` asks for the state of this iterator, too: its pass is what the state left, even nothing.
    """

    def __init__(self, dataset: EpochDataset, plan: EpochPlan, place: WorkerPlace, running: Pass | None = None) -> None:
        self._dataset = dataset
        self._begin(plan, place, running)

    def _begin(self, plan: EpochPlan, place: WorkerPlace, running: Pass | None) -> None:
        self._running = running  # of the main process
        self._share = WorkerShare(plan, place, plan.of_worker(place, self._dataset.epochs.sharing))
        self._dataset._taken = self._share
        self._samples = self._share.reading(self._dataset)

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
                self._samples = self._share.reading(self._dataset)
                raise
            if type(sample) is Counted:
                positions, lost, sample, _ = sample
            else:  # one position, nearly always
                positions, lost = 1, sample is LOST
            self._share.number += positions
            if self._running is not None:
                self._running.taken[0] += positions
            if lost:
                self._dataset.skip(int(lost))
            if sample is not LOST:
                return sample

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
        running = epochs.begin()
        self._begin(running.plan, running.place, running)


def _continued(dataset: EpochDataset, share: WorkerShare, _: int) -> Iterator[Any]:
    return dataset.samples(share.plan, share.place, share.remaining())


def _transformed(transform: Transform, record: Any) -> Any:
    if type(record) is Counted:
        return record if record.sample is LOST else record._replace(sample=transform(record.sample))
    return record if record is LOST else transform(record)


class _TaggingCollate:
    """A `collate_fn` around another, which adds the tag of the samples that the worker took last."""

    def __init__(self, dataset: EpochDataset, collate_fn: Callable[[Any], Any] | None) -> None:
        self._dataset = dataset  # in a worker, that which the samples come from, pickled with it
        self._collate = collate_fn

    def __call__(self, samples: Any) -> Tagged:
        collate = self._collate
        if collate is None:  # a list of samples, or one sample where there are no batches
            collate = default_collate if isinstance(samples, list) else default_convert
        return Tagged(collate(samples), self._dataset.tag())


class BatchPositions(NamedTuple):
    """The positions of a batch, which is sent to a worker."""

    epoch: int
    base: Any
    positions: Intervals
    share: WorkerShare | None
    """In the first batch of a part: all that is to be read of the part."""


class BatchReader:
    """Reads batches by their positions, ahead of those of one part."""

    def __init__(self, dataset: EpochDataset) -> None:
        self._dataset = dataset
        self._share: WorkerShare | None = None
        self._of = (-1, -1)  # the pass and the part that `_share` is of
        self._samples: process.Resumable[Any] | None = None

    def read(self, tag: Tag, batch: BatchPositions) -> Samples:
        """Return the samples of a batch, with its tag."""
        if batch.share is not None:
            self.close()
            self._share, self._of = batch.share, (tag.serial, tag.part)
        if tag.skipped and self._dataset.packing is None:
            return Samples([], tag)
        if self._share is None or self._of != (tag.serial, tag.part):  # another worker reads that part
            items = list(self._dataset.read(batch.epoch, batch.base, list(batch.positions)))
        else:
            try:
                items, tag = self._next(self._share, tag)
            except BaseException:
                self.close()
                raise
        lost = 0
        if self._dataset.counts_positions:
            lost, items = sum(item.lost for item in items), [item.sample for item in items]
        elif self._dataset.skips:
            lost = sum(item is LOST for item in items)
        if lost:
            self._dataset.skip(lost)
            items = [item for item in items if item is not LOST]
        return Samples(items, tag)

    def _next(self, share: WorkerShare, tag: Tag) -> tuple[list[Any], Tag]:
        """Return what the part that this worker reads has next, and the tag of that."""
        known = self._dataset.packing is None
        first = tag.first if known else share.number
        if self._samples is None or share.number != first:
            self.close()
            share.number = first
            self._samples = share.reading(self._dataset)
        items = self._samples.take(tag.count if self._dataset.batch_size is None else 1)
        count = sum(item.positions for item in items) if self._dataset.counts_positions else len(items)
        if not known and len(items) < tag.count:  # documents without tokens may be left
            count = length(share.intervals) - first
        if known and count != tag.count:
            raise RuntimeError(f"{count} samples were read, and not {tag.count}")
        share.number = first + count
        return items, Tag(tag.serial, tag.part, first, count)

    def close(self) -> None:
        """End reading ahead."""
        samples, self._samples = self._samples, None
        if samples is not None:
            samples.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_samples": None}
