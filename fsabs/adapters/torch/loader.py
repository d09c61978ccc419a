"""Loader: torch's DataLoader for a data set of this package or your own, with a state.

`_Steps` is the batch sampler: it gives the steps of a pass, each of which torch sends to a worker. There `_Read` stands
for the data set: its `StepReader` takes the samples of the step from what is read ahead of this worker's steps, which
are known by arithmetic. `Collate` makes the batch, with which the number of the step comes back (`Given`). `_Handed`
counts the step when it hands its batch to the training loop, and nothing else counts.

Below `StepReader`, of shards: `process.Resumable`, which begins anew after a fork; the data set's `transform`;
`readers.epochs.reading`, with a thread that reads ahead where requests take time; a data reader; the blob of the shard.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    default_collate,
    default_convert,
    get_worker_info,
)

from ...core import errors, hooks
from ...readers.data.base import check_skipped
from ...trace import session
from .batches import EpochBatches, Skip
from .datasets import EpochDataset, SamplePlace, StepReader, guarded
from .map_style import ordered
from .packing import PackedBatches, PackedReader

if TYPE_CHECKING:
    from ...readers.epochs.plan import Uneven
    from .tasks import TaskDataset


LENGTH_CHANGED = "the length of the epoch was asked for before a state was loaded"


class Loader(DataLoader[Any]):
    """A `DataLoader` that can be stopped after any batch and continues exactly there.

    `dataset` is a `ShardedDataset`, a `Mixture`, a `TaskDataset`, or a map-style data set of this package or your own.
    An iteration is one epoch, or what a loaded state left of it; the next one is the next epoch. `state_dict()` is what
    was done up to the last batch that was handed out, however many were fetched ahead, and `load_state_dict` takes that
    of any rank, with any number of ranks and workers and any batch size. After an error in a batch, the iterator
    continues with the next one; the batch that failed is still to be done in the state of this rank, and comes first
    where that is loaded.

    The ranks have equal parts of each batch of all of them. Lightning and accelerate recognize this, and leave the
    loader as it is: in accelerate's `prepare`, too, which then moves no batches to the device.

    Args:
        dataset: what is read, ahead by each worker. A `ShardedDataset` shuffles by itself.
        batch_size: samples of a batch of each rank; None gives single samples, or the batches that a data set makes.
        seed, rank, ranks, drop_last, uneven, lanes, skip: of `EpochBatches`.
        steps: of packed windows: how many batches an epoch has.
        gather: of packed windows: `state_dict()` returns the states of all ranks in one. All ranks must call it
            together, as Lightning does.
        collate_fn: makes a batch of a list of samples; torch's own if None.
        options: the `DataLoader`'s others.
    """

    marks_steps = True
    """For `fsabs.trace.steps`: each batch is marked as a step already."""
    _is_accelerate_prepared = True  # accelerate would split the batches over ranks once more

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        seed: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        drop_last: bool = False,
        uneven: Uneven = "drop",
        lanes: tuple[int, int] | None = None,
        skip: Skip = (),
        steps: int | None = None,
        gather: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        if options.get("in_order") is False:
            raise ValueError(
                "a Loader hands batches out in order: in_order=False would leave its state without meaning"
            )
        for name in ("shuffle", "sampler", "batch_sampler"):
            if options.pop(name, None):
                raise TypeError(
                    f"a Loader takes no {name}=: seed= shuffles (of the data set, if it is an EpochDataset); "
                    f"a sampler of yours goes with torch's DataLoader"
                )
        self._counted_on: int | None = None  # the length that was asked for before a state was loaded
        self.tasks: TaskDataset | None = None
        """The data set, if it is that of a job's tasks; it counts them itself."""
        self._batches: Any  # EpochBatches, PackedBatches or the tasks
        self.skipped = 0
        """How many damaged samples the batches of the last pass lack, of those that were handed out."""
        if collate_fn is None:
            collate_fn = default_convert if batch_size is None else default_collate
        if callable(getattr(dataset, "of_batches", None)):
            if (seed, rank, ranks, uneven, lanes, steps) != (None, None, None, "drop", None, None):
                raise TypeError(
                    "a job's dispatcher divides its tasks: seed, rank, ranks, uneven, lanes, steps are none"
                )
            self.tasks = self._batches = dataset
            collate_fn = dataset.tagged(collate_fn, batched=batch_size is not None)
            super().__init__(dataset, batch_size, collate_fn=collate_fn, drop_last=drop_last, **options)
            return
        if batch_size is None and drop_last:
            raise ValueError("drop_last=True needs a batch_size")
        source = ordered(dataset, seed)
        workers = options.get("num_workers", 0)
        if source.packing is not None:
            if drop_last or skip:
                raise ValueError("drop_last and skip are not for packed windows, which have no end and no numbers")
            grid = None if lanes is None else lanes[0] * lanes[1]
            self._batches = PackedBatches(source, batch_size, steps, workers, rank, ranks, grid, gather)
        else:
            if steps is not None or gather:
                raise TypeError("steps and gather are of packed windows: any rank's state is that of all of them")
            self._batches = EpochBatches(
                source,
                batch_size,
                workers=workers,
                rank=rank,
                ranks=ranks,
                drop_last=drop_last,
                uneven=uneven,
                lanes=lanes,
                skip=skip,
            )
            self._batches.counts = True
        self._read = _Read(dataset, source)
        options["collate_fn"] = Collate(collate_fn, batch_size is not None)
        drawn = _Steps(self._batches, source)
        if batch_size is None:
            super().__init__(self._read, None, sampler=drawn, **options)
        else:
            super().__init__(self._read, batch_sampler=drawn, **options)
            # What a loader with a batch_sampler does not say, and those that drive loops ask for.
            vars(self).update(batch_size=batch_size, drop_last=drop_last, sampler=drawn)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # of DataLoader's own iterator
        session.begin_steps()
        begin = monotonic_ns()  # workers are started here
        if self.tasks is not None:
            batches = self.tasks.of_batches(super().__iter__, max(1, self.num_workers), self.drop_last)
            return _Marked(batches, begin)
        self.skipped = 0
        running = self._batches.begin()
        return _Marked(_Handed(self, running, super().__iter__()), begin)

    def __len__(self) -> int:
        """The number of batches of an epoch that are handed out, with those before the state that was loaded."""
        if self.tasks is not None:
            raise TypeError("the number of batches of a job's tasks is not known: other workers take some of them")
        self._counted_on = len(self._batches)
        return self._counted_on

    @property
    def batches_left(self) -> int:
        """The number of batches that remain of the epoch."""
        return int(self._batches.left)

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        return int(self._batches.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        self._batches.set_epoch(epoch)

    def samples(self, step: int) -> dict[int, list[SamplePlace]]:
        """Return where the samples of a step come from, for each rank: source, shard and record.

        The step is the number of any batch of the epoch that runs or comes next. What it has follows from seed and
        counts, without reading anything. A batch whose records are all damaged is a step, too, and is not handed out: a
        loop's own count is one less after it.

        `LookupError` for a step that the epoch has not; `TypeError` for packed windows and a job's tasks.
        """
        if not isinstance(self._batches, EpochBatches):
            raise TypeError(f"a {type(self.dataset).__name__} does not say where its samples come from")
        return self._batches.samples(step)

    def state_dict(self) -> dict[str, Any]:
        """Return what was done of the epoch, as plain data: that of all ranks, but for packed windows."""
        return dict(self._batches.state_dict())

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue from a state: of any rank; of packed windows, from those of all ranks, in one state or a list."""
        before = self._counted_on
        self._batches.load_state_dict(state_dict)
        if before is not None and before != len(self):
            warnings.warn(
                f"{LENGTH_CHANGED}, and has changed by it from {before} batches to {len(self)}: what counts batches by "
                "the former ends the epoch at the wrong one (in Lightning, use the callback "
                "fsabs.adapters.torch.lightning.ResumedEpochs)",
                stacklevel=2,
            )

    def handed(self, running: Any, batch: Given) -> None:
        """Record that a batch is handed to the training loop."""
        self._batches.used(running, *batch.used)
        if batch.lost:
            self.skipped += batch.lost
            dataset = self._read.dataset
            if not self.num_workers and isinstance(dataset, EpochDataset):
                dataset.skipped = self.skipped
            check_skipped(self.skipped, getattr(dataset, "max_skipped", None), self._read.name)


class _Steps(DistributedSampler[Any]):
    """The steps of a pass, for the `DataLoader`.

    It is a `DistributedSampler`, which others recognize: they leave the loader's split over ranks alone.
    """

    def __init__(self, batches: EpochBatches | PackedBatches, source: EpochDataset) -> None:
        self._batches = batches
        self.batch_size = source.batch_size or batches.batch_size
        self.drop_last = False

    def __iter__(self) -> Iterator[Any]:
        return self._batches.steps()

    def __len__(self) -> int:
        return len(self._batches)

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the loader counts its epochs, and its state has them; `Loader.set_epoch` sets one."""


class Given(NamedTuple):
    """A batch on its way from a worker to the training loop."""

    data: Any
    """None if all its records are damaged and skipped."""
    used: Any
    """The arguments of `used` of the batches, which counts it when it is handed out."""
    lost: int
    """How many damaged records are missing."""


class Samples(list[Any]):
    """The samples of a batch, with what is counted."""

    def __init__(self, samples: Any, used: Any, lost: int, done: Callable[[], object] = lambda: None) -> None:
        super().__init__(samples)
        self.used, self.lost, self.done = used, lost, done


class Collate:
    """A `collate_fn` around another, which keeps what is counted; `batched` is False where samples are single."""

    def __init__(self, collate_fn: Callable[[Any], Any], batched: bool) -> None:
        self._collate = collate_fn
        self._batched = batched

    def __call__(self, samples: Samples) -> Given:
        data = None
        if samples:
            data = guarded(self._collate, list(samples) if self._batched else samples[0])
        samples.done()
        return Given(data, samples.used, samples.lost)


class _Read(Dataset[Any]):
    """A data set as a `Loader`'s workers read it: the steps of passes. All else is the data set's."""

    def __init__(self, dataset: Any, source: EpochDataset) -> None:
        self.dataset = dataset
        self._is_watching = False
        self._steps: StepReader | PackedReader
        self._steps = StepReader(source) if source.packing is None else PackedReader(source)

    @property
    def name(self) -> str:
        """The name of the data set in errors."""
        return str(getattr(self.dataset, "name", type(self.dataset).__name__))

    def __getitems__(self, step: Any) -> Samples:
        # torch calls this with what `_Steps` gives: a step in place of a list of numbers.
        if not self._is_watching:
            self._is_watching = True
            _end_with_parent()
        if not isinstance(self._steps, StepReader):
            return Samples(*self._steps.read(step))
        found, lost = self._steps.read(step)
        if not found and step.plan.ranks > 1:  # the other ranks have theirs, and take a step
            raise errors.corrupt(self.name, "all records of a batch are damaged", "read_records")
        return Samples(found, (step.number,), lost)

    def __getitem__(self, step: Any) -> Any:  # of a loader without a batch size; of a number, which a user gives
        return self.dataset[step] if isinstance(step, int) else self.__getitems__(step)

    def close(self) -> None:
        """End reading ahead in this process."""
        self._steps.close()
        getattr(self.dataset, "close", lambda: None)()

    def stop(self) -> None:
        """End reading ahead in this process; the data set stays open."""
        self._steps.close()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "dataset":
            raise AttributeError(name)
        return getattr(self.dataset, name)


def _end_with_parent() -> None:
    """Have a worker end with the process whose batches it makes.

    torch sees by the parent's number that it has ended; that of a worker out of a forkserver is the server's, and the
    server waits for its workers.
    """
    parent = multiprocessing.parent_process()
    if get_worker_info() is not None and parent is not None and parent.pid != os.getppid():
        threading.Thread(target=_end_with, args=(parent,), name="fsabs-parent", daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


class _Handed(Iterator[Any]):
    """The batches of a pass, each of which counts as used when it is handed out."""

    def __init__(self, loader: Loader, running: Any, batches: Iterator[Given]) -> None:
        self._loader, self._running, self._batches = loader, running, batches

    def __next__(self) -> Any:
        while True:
            batch = next(self._batches)
            self._loader.handed(self._running, batch)
            if batch.data is not None:
                return batch.data

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self._loader._read.stop()  # without workers, what is read ahead is read in this process


class _Marked(Iterator[Any]):
    """Batches, each of which is a step in a trace."""

    def __init__(self, batches: Iterator[Any], begin: int) -> None:
        self._batches = batches
        self._begin = begin  # of the wait for the first batch

    def __next__(self) -> Any:
        begin, self._begin = self._begin, 0
        if not begin:
            session.step()
            begin = monotonic_ns()
        batch = next(self._batches)
        instrument = hooks.active
        if instrument is not None:
            instrument.record_span("wait", "steps.next", begin)
        return batch
