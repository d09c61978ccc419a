"""Data sets by record number whose epochs are orders, and `StepReader`, which reads a worker's steps ahead.

An `EpochDataset` is map-style. What its epochs are is arithmetic, so that a worker that gets one batch of a pass knows
which ones it gets next.
"""

from __future__ import annotations

import abc
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import Dataset, get_worker_info

from ...core import errors, process
from ...readers.data.base import LOST, check_skipped
from ...readers.data.order import Epoch, Interval, drop
from ...readers.epochs.packing import PackedLane, Packing
from ...readers.epochs.plan import Grid, PassPlan, Stop
from ...readers.epochs.reading import CountedBatch
from ...readers.prefetch import SharedThreads

Transform = Callable[..., Any]
Base = Mapping[str, Any]
"""What the order of an epoch follows from besides the data set and the number of the epoch: plain data in a state."""


class SamplePlace(NamedTuple):
    """Where a sample comes from."""

    source: str
    """Of a mixture: the name of its source, `a/b` of one within another; else empty."""
    shard: str
    """Of a map-style data set: the name of its class."""
    record: int
    """The number of the record in its shard; of a window of tokens, that of its first token in the file."""


class PlannedStep(NamedTuple):
    """One batch of a pass, as it is sent to a worker: what it reads, and all that comes after it, is arithmetic."""

    plan: PassPlan
    number: int


class Batch(list[int]):
    """The record numbers of a batch, for any loader, which may slice them; and which step of a pass they are."""

    def __init__(self, numbers: Iterable[int], step: PlannedStep) -> None:
        super().__init__(numbers)
        self.step = step

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (list(self), self.step)


def guarded(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a user's function returns; its `StopIteration` becomes a `RuntimeError`, and ends no loop."""
    try:
        return function(*arguments)
    except StopIteration as exc:
        raise RuntimeError(f"{getattr(function, '__qualname__', function)} raised StopIteration") from exc


def _samples_from(dataset: EpochDataset, step: PlannedStep, stride: int, taken: int) -> Iterator[Any]:
    """Return the samples of each `stride`-th batch from a step on, without those that were taken before a fork."""
    plan = step.plan
    dataset.set_order(plan)
    intervals = _PositionsFrom(step, stride, taken * (dataset.batch_size or 1))
    return dataset.read(dataset.order(plan.epoch, plan.base), intervals)


class _PositionsFrom(Iterable[Interval]):
    """The positions of each `stride`-th batch from a step on; computed anew in each iteration."""

    def __init__(self, step: PlannedStep, stride: int, taken: int) -> None:
        self._step, self._stride, self._taken = step, stride, taken

    def __iter__(self) -> Iterator[Interval]:
        return drop(self._step.plan.coming(self._step.number, self._stride), self._taken)


class StepReader:
    """The steps of passes as this process gets them, read ahead by the pass's plan."""

    def __init__(self, dataset: EpochDataset) -> None:
        self._dataset = dataset
        self._last: PlannedStep | None = None
        self._stream: process.Resumable[Any] | None = None

    def read(self, step: PlannedStep) -> tuple[list[Any], int]:
        """Return the samples of a step, and how many are missing since their records are damaged."""
        info = get_worker_info()
        stride = info.num_workers if info else 1
        last, self._last = self._last, step
        if last is None or step.number <= last.number or not (step.plan is last.plan or step.plan == last.plan):
            self.close()  # another pass
        elif step.number != last.number + stride:
            raise RuntimeError(
                f"the batches {last.number} and {step.number} of a pass came to one of {stride} workers: they were "
                "sharded or skipped once more (as accelerate does with a batch_sampler): give the loop a Loader"
            )
        if self._stream is None:
            if max(1, step.plan.workers) != stride and step.plan.grid.turns > 1:
                _warn_of_workers(step.plan.workers, stride)
            self._stream = self._dataset.stream(step, stride)
        try:
            # The last batch of a pass alone may have fewer, and the stream ends with it.
            items = self._stream.take(1 if self._dataset.batch_size else step.plan.batch_size // step.plan.ranks)
        except BaseException:
            self.close()  # the batch after it begins anew
            raise
        return without_lost(items)

    def close(self) -> None:
        """End reading ahead."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stream": None, "_last": None}


def without_lost(items: Sequence[Any]) -> tuple[list[Any], int]:
    """Return the samples that are there, and how many damaged records are missing."""
    if items and type(items[0]) is CountedBatch:
        return [one.sample for one in items if one.sample is not LOST], sum(one.lost for one in items)
    there = [item for item in items if item is not LOST]
    return there, len(items) - len(there)


@functools.lru_cache(1)
def _warn_of_workers(workers: int, stride: int) -> None:
    warnings.warn(
        f"the order was made for {workers} workers, and there are {stride}: blocks are read by several of them "
        "(EpochBatches(workers=) tells their number)",
        stacklevel=2,
    )


class EpochDataset(Dataset[Any], abc.ABC):
    """A map-style data set: `dataset[n]` is record n, and an iteration is an epoch, read by this process alone.

    Each iteration is of the next epoch. `Loader` and `EpochBatches` divide epochs into batches, for ranks and workers.
    Subclasses say what the orders of the epochs are, and read records at positions and by number.
    """

    ranks_share_blocks = False
    """True if positions that are near each other are read together: by default, each worker then has its own lane."""

    def __init__(
        self, transform: Transform | None, batch_size: int | None, packing: Packing | None, max_skipped: int | None
    ) -> None:
        if packing is not None and batch_size is not None:
            raise TypeError("batch_size is given to Packing, and not to the data set, where documents are packed")
        batch_size = packing.batch_size if packing is not None else batch_size
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is at least 1, or None for single samples, not {batch_size}")
        if packing is not None and packing.sequence_length < 1:
            raise ValueError(f"sequence_length must be at least 1, not {packing.sequence_length}")
        self.transform = transform
        self.batch_size = batch_size
        self.packing = packing
        self.max_skipped = max_skipped
        self.skipped = 0
        """How many damaged records were skipped: of a `Loader`, in its last pass, by all workers."""
        self._steps = StepReader(self)
        self._epoch = 0  # of the next iteration

    # ---- orders

    @abc.abstractmethod
    def first_base(self, divided: int) -> Base:
        """Return the base of epochs that follow from no state, for so many lanes that share the window's blocks."""

    def following(self, epoch: int, base: Base, divided: int) -> Base:
        """Return the base of the epoch after one."""
        return self.first_base(divided)

    def rebased(self, epoch: int, base: Base, stops: Sequence[Stop]) -> Base | None:
        """Return a base for what the data set is now, of what some stops have left; None where it is the same."""
        return None

    @abc.abstractmethod
    def shape(self, epoch: int, base: Base) -> tuple[int, tuple[int, ...]]:
        """Return how many positions an epoch has, and where all lanes go from one stretch to the next one together."""

    @abc.abstractmethod
    def order(self, epoch: int, base: Base) -> Any:
        """Return the order of an epoch."""

    @abc.abstractmethod
    def numbers(self, order: Any, intervals: Iterable[Interval]) -> list[int]:
        """Return the numbers of the records at positions."""

    @abc.abstractmethod
    def described(self, base: Base) -> dict[str, Any]:
        """Return what a state says of the content."""

    @abc.abstractmethod
    def check(self, content: Mapping[str, Any]) -> None:
        """Raise `ValueError` if a state's content is another one."""

    @abc.abstractmethod
    def places(self, order: Any, intervals: Iterable[Interval]) -> list[SamplePlace]:
        """Return where the samples at positions come from."""

    def set_order(self, plan: PassPlan) -> None:
        """Receive what all workers read in a pass, so that a cache below knows what to keep."""
        return

    def stream(self, step: PlannedStep, stride: int) -> process.Resumable[Any]:
        """Return the samples of each `stride`-th batch of a pass from one on, read ahead."""
        return process.Resumable(functools.partial(_samples_from, self, step, stride))

    # ---- records

    @property
    @abc.abstractmethod
    def total(self) -> int:
        """The number of records."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The name of the data set in errors."""

    @abc.abstractmethod
    def fetch(self, numbers: Sequence[int]) -> list[Any]:
        """Return records, not transformed, or a batch of them; `LOST` for a damaged one that is skipped."""

    @abc.abstractmethod
    def records(self, order: Any, intervals: Iterable[Interval], threads: SharedThreads | None) -> Iterator[Any]:
        """Yield the records at positions, read ahead."""

    @abc.abstractmethod
    def close(self) -> None:
        """Free what is held in this process."""

    def read(self, order: Any, intervals: Iterable[Interval], threads: SharedThreads | None = None) -> Iterator[Any]:
        """Yield the samples at positions; `LOST` for a skipped one.

        Only records are read ahead: `transform` is called by whoever takes the sample, so that its error is that of the
        batch that is being made.
        """
        return self._transformed(self.records(order, intervals, threads))

    def _transformed(self, records: Iterator[Any]) -> Iterator[Any]:
        # Not by a method: `process` keeps what is read from, and it must not hold the data set.
        return records if self.transform is None else _transformed(self.transform, records)

    # ---- as a map-style data set

    def __len__(self) -> int:
        """Return the number of samples: of batches, where the data set makes them."""
        if self.packing is not None:
            raise TypeError("the number of packed windows is not known before their documents are read")
        return -(-self.total // (self.batch_size or 1))

    def __getitem__(self, index: Any) -> Any:
        """Return a sample by its number; the batch of a list of record numbers, where the data set makes them."""
        if isinstance(index, list):
            return self.__getitems__(index)[0]
        size = self.batch_size or 1
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return self.__getitems__(list(range(at * size, min(self.total, at * size + size))))[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Return the samples of a batch; those of `EpochBatches` are read ahead."""
        if self.packing is not None:
            raise TypeError("packed windows have no numbers: iterate the data set, or give it to a Loader with steps=")
        if isinstance(numbers, Batch):
            found, lost = self._steps.read(numbers.step)
        else:
            found, lost = without_lost(list(self._transformed(iter(self.fetch(numbers)))))
        if lost:
            self.skip(lost)
            if not found:
                raise errors.corrupt(self.name, "all records of a batch are damaged", "read_records")
        return found

    def skip(self, count: int) -> None:
        """Count damaged records; `CorruptFileError` if more were skipped than may be."""
        self.skipped += count
        check_skipped(self.skipped, self.max_skipped, self.name)

    # ---- as an iterable of epochs

    def set_epoch(self, epoch: int) -> None:
        """Iterate over epoch `epoch` next; a `Loader` has epochs of its own."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch, self.skipped = self._epoch, self._epoch + 1, 0
        return self._samples(epoch) if self.packing is None else self._windows(epoch)

    def _samples(self, epoch: int) -> Iterator[Any]:
        base = self.first_base(1)
        order, total = self.order(epoch, base), self.shape(epoch, base)[0]
        for sample in self.read(order, [(0, total)] if total else []):
            if sample is not LOST and type(sample) is not CountedBatch:  # nearly always
                yield sample
                continue
            found, lost = without_lost([sample])
            if lost:
                self.skip(lost)
            yield from found

    # ---- packed documents

    def lane(
        self, number: int, grid: Grid, place: Sequence[Any] | None = None, threads: SharedThreads | None = None
    ) -> Any:
        """Return a lane of the windows that are packed of the documents, from a place on."""
        if self.packing is None:
            raise TypeError(f"{self.name} packs no windows")
        documents = functools.partial(self._untransformed, number, grid, threads)
        return PackedLane(self.packing, documents, place or ())

    def _windows(self, epoch: int) -> Iterator[Any]:
        windows: Iterator[Any] = self.lane(0, Grid(1, 1), (epoch, 0, 0)).epoch()
        return self._transformed(batched_windows(windows, self.batch_size) if self.batch_size else windows)

    def documents(self, *lane: Any) -> Iterator[Any]:
        """Return the samples of a lane: of a number in a grid, read by threads, of an epoch, from a number on."""
        return self._transformed(self._untransformed(*lane))

    def _untransformed(
        self, number: int, grid: Grid, threads: SharedThreads | None, epoch: int, first: int
    ) -> Iterator[Any]:
        base = self.first_base(1)
        lane = lane_of(self.shape(epoch, base)[0], number, grid.lanes)
        return self.records(self.order(epoch, base), list(drop([lane], first)), threads)


def _transformed(transform: Transform, records: Iterator[Any]) -> Iterator[Any]:
    """Yield what a function makes of records; a `StopIteration` of it becomes a `RuntimeError`, as in any generator."""
    for record in records:
        if record is LOST:
            yield record
        elif type(record) is CountedBatch:
            there = record.sample is not LOST
            yield record._replace(sample=transform(record.sample)) if there else record
        else:
            yield transform(record)


def lane_of(total: int, number: int, lanes: int) -> Interval:
    """Return the positions of one of some lanes of an epoch."""
    return total * number // lanes, total * (number + 1) // lanes


def batched_windows(windows: Iterable[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
    """Yield batches of packed windows, the last one of fewer."""
    group: list[dict[str, Any]] = []
    for window in windows:
        group.append(window)
        if len(group) == size:
            yield stacked(group)
            group = []
    if group:
        yield stacked(group)


def stacked(windows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return packed windows as one batch."""
    return {key: np.stack([window[key] for window in windows]) for key in windows[0]}


def record_numbers(order: Epoch, intervals: Iterable[Interval], starts: Any) -> list[int]:
    """Return the numbers of the records at positions; `starts` are the numbers of the shards' first ones."""
    found = [
        starts[shards] + records for shards, records in (order.locate(*piece) for piece in order.pieces(intervals))
    ]
    numbers: list[int] = np.concatenate(found).tolist() if found else []
    return numbers
