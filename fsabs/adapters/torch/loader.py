"""Loader: torch's DataLoader for a data set of this package or your own, with a state.

The main process draws the batches of a pass, sends each with its tag to a worker, and counts it when it hands it to the
training loop. `_Planned` stands for the data set in the workers.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler, default_collate, default_convert

from ...core import hooks
from ...trace import session
from .epochs import state_of_ranks
from .map_style import RecordIODataset
from .resumable import BatchReader, EpochDataset, SamplePlace
from .sampler import EpochSampler
from .tags import Collate, Samples, Tag, Tagged

if TYPE_CHECKING:
    from .plan import Pass, Uneven, WorkerPlace
    from .tasks import TaskDataset


Skip: TypeAlias = Iterable[int | range] | Mapping[int, Iterable[int | range]]
"""Numbers of steps, or ranges of them."""
LENGTH_CHANGED = "the length of the epoch was asked for before a state was loaded"


class Loader(DataLoader[Any]):
    """A `DataLoader` that can be stopped after any batch and continues exactly there.

    `dataset` is a `ShardedDataset`, a `TaskDataset`, or a map-style data set of this package or your own. An iteration
    is one epoch, or what a loaded state left of it; the next one is the next epoch. `state_dict()` is what remains
    after the last batch that was handed out, however many were fetched ahead, and `load_state_dict` takes it, with any
    number of workers. After an error in a batch, the iterator continues with the next one, and the state still has the
    one that failed.

    Each rank has its own part of an epoch. Lightning and accelerate recognize this, and leave the loader as it is: in
    accelerate's `prepare`, too, which then moves no batches to the device.

    Args:
        dataset: what is read. A `ShardedDataset` shuffles by itself; for a map-style data set, each worker reads its
            batches ahead.
        batch_size: samples of a batch; None gives single samples.
        seed: shuffles a map-style data set anew in each epoch; None leaves the order alone.
        rank, ranks, uneven: of `EpochSampler`, for a map-style data set; see `ShardedDataset`.
        skip: steps that are left out, as after a spike of the loss: numbers of batches, or ranges of them, of epoch 0,
            or a mapping from epochs to such. They count as consumed, and are not read.
        gather: `state_dict()` returns the states of all ranks in one, for any number of ranks. All ranks must call it
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
        uneven: Uneven = "keep",
        gather: bool = False,
        skip: Skip = (),
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
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
        self.gather = gather
        """Whether a state is that of all ranks."""
        self.held = 0
        """How many of the batches that were handed out last are not used yet, and so still to come in a state: what
        drives the loop takes some ahead, up to 8. `ResumedEpochs` sets it in Lightning."""
        by_epoch = skip if isinstance(skip, Mapping) else {0: skip}
        self._skip = {epoch: [*map(_as_range, steps)] for epoch, steps in by_epoch.items()}
        self._counted_on: int | None = None  # the length that was asked for before a state was loaded
        self._tasks: TaskDataset | None = None
        self._source: Any
        if collate_fn is None:
            collate_fn = default_convert if batch_size is None else default_collate
        own_ranks = isinstance(dataset, EpochDataset) or _is_tasks(dataset)
        if own_ranks and (seed, rank, ranks, uneven) != (None, None, None, "keep"):
            raise TypeError(f"seed, rank, ranks and uneven of a {type(dataset).__name__} are given to the data set")
        if _is_tasks(dataset):
            self._tasks, self._source = dataset, dataset
            collate_fn = dataset.tagged(collate_fn, batched=batch_size is not None)
            super().__init__(dataset, batch_size, collate_fn=collate_fn, drop_last=drop_last, **options)
            return
        if isinstance(dataset, EpochDataset):
            self._source = dataset
        else:
            self._source = EpochSampler(dataset, seed=seed, rank=rank, ranks=ranks, uneven=uneven)
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is at least 1, or None for single samples, not {batch_size}")
        if batch_size is None and drop_last:
            raise ValueError("drop_last=True needs a batch_size")
        if batch_size is not None and getattr(dataset, "batch_size", None) is not None:
            raise TypeError("the data set makes batches itself: give the loader batch_size=None")
        if drop_last and getattr(dataset, "packing", None) is not None:
            raise ValueError("drop_last is not for packed windows, whose number is not known")
        self._planned = _Planned(dataset)
        self._batches = _Batches(self._source, batch_size, drop_last, options.get("num_workers", 0), self._skip)
        options["collate_fn"] = Collate(collate_fn, batched=batch_size is not None)
        if batch_size is None:
            super().__init__(self._planned, None, sampler=self._batches, **options)
        else:
            super().__init__(self._planned, batch_sampler=self._batches, **options)
            # What a loader with a batch_sampler does not say, and those that drive loops ask for.
            vars(self).update(batch_size=batch_size, drop_last=drop_last, sampler=self._batches)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]  # of DataLoader's own iterator
        session.begin_steps()
        begin = monotonic_ns()  # workers are started here
        self.held = 0
        if self._tasks is not None:
            batches = self._tasks.of_batches(super().__iter__, max(1, self.num_workers), self.drop_last)
            return _Marked(batches, begin)
        running = self._batches.begin()
        self._planned.begin_counting()
        try:
            batches = super().__iter__()
        finally:
            self._batches.begun()
        consumed: Iterator[Any] = _Consumed(self._batches.epochs, running, batches, self._planned)
        if running.place.ranks > 1 and self._batches.varies:
            consumed = agreed(
                consumed,
                self._source.uneven == "drop",
                self._filler,
                partial(self._batches.epochs.abandon, running),
            )
        return _Marked(consumed, begin)

    def _filler(self, batch: Any) -> Any:
        if self._source.uneven == "repeat" or self._source.packing is None:
            return batch
        return self._source.packing.padded(batch)

    def __len__(self) -> int:
        """The number of batches of an epoch that are handed out, with those before the state that was loaded.

        Of a `ShardedDataset`, the last batch of each worker may be partial.
        """
        if self._tasks is not None:
            raise TypeError("the number of batches of a job's tasks is not known: other workers take some of them")
        self._counted_on = len(self._batches)
        return self._counted_on

    @property
    def batches_left(self) -> int:
        """The number of batches that remain of the epoch."""
        return self._batches.counts()[1]

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        return int(self._source.epoch)

    @property
    def skipped(self) -> int:
        """The number of damaged samples that were skipped, in all workers, for a data set that counts them."""
        return int(getattr(self.dataset, "skipped", 0))

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        self._source.set_epoch(epoch)

    def samples(self, step: int) -> dict[int, list[SamplePlace]]:
        """Return where the samples of a step come from, for each rank: source, shard and record.

        The step is the number of a batch of the epoch that runs or comes next, with those before the state that was
        loaded; a rank that has fewer has none. A batch whose records are all damaged is a step, too, and is not handed
        out: a loop's own count is one less after it. What a step has follows from counts alone; windows that are packed
        are read from that state on, and so are the records of the step where damaged ones are skipped. After a state of
        this rank alone, only its own are known.

        `LookupError` for a step that the epoch has not, or that lies before the state; `TypeError` for a data set that
        does not say where its samples come from: map-style ones and a job's tasks.
        """
        if not isinstance(self._source, EpochDataset):
            raise TypeError(f"a {type(self.dataset).__name__} does not say where its samples come from")
        here = self._source.epochs.place
        known = range(here.ranks) if self._source.epochs.plan.scope == "all" else [here.rank]
        found: dict[int, list[SamplePlace]] = {}
        missing: LookupError | None = None
        for rank in known:
            try:
                found[rank] = self._source.ledger(self._batches.planned(here._replace(rank=rank)), step)
            except LookupError as exc:  # a rank may have a batch less than others
                found[rank], missing = [], exc
        if missing is not None and not any(found.values()):
            raise missing
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return what remains of the epoch, as plain data: of this rank, or of all ranks with `gather`."""
        state: dict[str, Any] = self._source.state_dict(self.held)
        if not self.gather:
            return state
        import torch.distributed as distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return state_of_ranks([state])
        states: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(states, state)
        return state_of_ranks(states)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from those of all ranks: in one state, or a list."""
        before = self._counted_on
        self._source.load_state_dict(state_dict)
        if before is not None and self._tasks is None and before != len(self):
            warnings.warn(
                f"{LENGTH_CHANGED}, and has changed by it from {before} batches to {len(self)}: what counts batches by "
                "the former ends the epoch at the wrong one (in Lightning, use the callback "
                "fsabs.adapters.torch.lightning.ResumedEpochs)",
                stacklevel=2,
            )


def _as_range(steps: int | range) -> range:
    if not isinstance(steps, range):
        return range(steps, steps + 1)
    return steps if steps.step > 0 else steps[::-1]  # ascending


def _is_tasks(dataset: Any) -> bool:
    return callable(getattr(dataset, "of_batches", None))


class _Work(NamedTuple):
    """What is sent to a worker for a batch: indices of a map-style data set, or positions of a sharded one."""

    tag: Tag
    what: Any


class _Batches(DistributedSampler[Any]):
    """The batches of a `Loader`, for its `DataLoader`.

    It is a `DistributedSampler`, which others recognize: they leave the loader's split over ranks alone.
    """

    def __init__(
        self,
        source: EpochSampler | EpochDataset,
        batch_size: int | None,
        drop_last: bool,
        workers: int,
        skip: Mapping[int, Sequence[range]],
    ) -> None:
        self._source = source
        self.epochs = source.epochs
        self.batch_size = getattr(source, "batch_size", None) or batch_size or 1
        self.drop_last = drop_last
        self._workers = max(1, workers)
        self._parts = self._workers if isinstance(source, EpochDataset) else 1
        self._skip = skip
        self._drawn: Iterator[_Work] | None = None

    @property
    def varies(self) -> bool:
        """True if ranks are to be even, and the number of their batches is not known before they are read."""
        source = self._source
        return (
            isinstance(source, EpochDataset)
            and source.uneven != "keep"
            and (source.packing is not None or source.skips)
        )

    def begin(self) -> Pass:
        """Begin the pass that is iterated until `begun` is called."""
        running = self.epochs.begin(self._parts, self.batch_size, self.drop_last, self._skip)
        self._drawn = map(_Work._make, self._source.drawn(running, self._workers))
        return running

    def begun(self) -> None:
        """Forget the pass that was begun."""
        self._drawn = None

    def __iter__(self) -> Iterator[Any]:
        if self._drawn is None:
            raise TypeError("the batches of a Loader are the Loader's own: iterate the Loader")
        return self._drawn

    def planned(self, place: WorkerPlace) -> Pass:
        """Return the pass of a rank that runs or comes next, as a new one."""
        epochs = self.epochs
        place = place._replace(workers=self._parts)
        return epochs.planned(place, self.batch_size, self.drop_last, self._skip)

    def counts(self) -> tuple[int, int]:
        """Return how many batches of the epoch were handed out, and how many will be; none that is skipped counts."""
        return self.epochs.batches(self._parts, self.batch_size, self.drop_last, self._skip)

    def __len__(self) -> int:
        return sum(self.counts())

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the loader counts its epochs, and its state has them; `Loader.set_epoch` sets one."""


class _Planned(Dataset[Any]):
    """A data set as a `Loader`'s workers read it: batches by their tags. All else is the data set's."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._reader = BatchReader(dataset) if isinstance(dataset, EpochDataset) else None

    def __getitems__(self, work: _Work) -> Samples:
        if self._reader is not None:
            return self._reader.read(work.tag, work.what)
        if work.tag.skipped:
            return Samples([], work.tag)
        read = getattr(self._dataset, "__getitems__", None)
        return Samples(read(work.what) if read else map(self._dataset.__getitem__, work.what), work.tag)

    def __getitem__(self, work: Any) -> Any:
        if not isinstance(work, _Work):
            return self._dataset[work]
        if self._reader is None and not work.tag.skipped:  # one by one, as a DataLoader asks for single samples
            return Samples([self._dataset[index] for index in work.what], work.tag)
        return self.__getitems__(work)

    def begin_counting(self) -> None:
        """Count what is skipped from here on, in a pass that begins."""
        if isinstance(self._dataset, EpochDataset | RecordIODataset):
            self._dataset.begin_counting()

    def close(self) -> None:
        """End reading ahead in this process."""
        if self._reader is not None:
            self._reader.close()

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataset, name)


class _Consumed(Iterator[Any]):
    """The batches of a pass, each of which counts as consumed when it is handed out."""

    def __init__(self, epochs: Any, running: Pass, batches: Iterator[Tagged], planned: _Planned) -> None:
        self._epochs = epochs
        self._running = running
        self._batches = batches
        self._planned = planned

    def __next__(self) -> Any:
        while True:
            try:
                batch = next(self._batches)
            except StopIteration:
                self._epochs.end(self._running)
                raise
            left_out = self._running.leaves_out(batch.tag)
            self._epochs.consumed(self._running, batch.tag)
            if batch.data is not None and not left_out:
                return batch.data

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():
            self._planned.close()  # of a loader without workers, in the middle of a pass


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


_END: Any = object()


@functools.lru_cache(1)
def _on_cpu(world: Any) -> Any:
    """Return a group of all ranks for tensors on the CPU: one for all epochs, since each has threads and sockets."""
    import torch.distributed as distributed

    return distributed.new_group(backend="gloo")


def agreed(
    batches: Iterator[Any], drops: bool, filler: Callable[[Any], Any], on_drop: Callable[[], None]
) -> Iterator[Any]:
    """Yield the batches of this rank, as many as every other rank has.

    All ranks call this together. It costs one collective operation a batch, on the CPU.

    Args:
        batches: of this rank.
        drops: all ranks end with the first one; else with the last one.
        filler: makes a batch of the last one of this rank, for the time after its end.
        on_drop: is called if the epoch ends while another rank, or this one, had batches left.
    """
    import torch.distributed as distributed

    if not distributed.is_initialized():
        raise RuntimeError("how many batches each rank has is not known: torch.distributed has to be initialized")
    group = None if "gloo" in distributed.get_backend() else _on_cpu(distributed.group.WORLD)
    last = _END
    while True:
        batch = next(batches, _END)
        count = torch.tensor([batch is not _END], dtype=torch.int64)
        distributed.all_reduce(count, group=group)
        if not count or (drops and count < distributed.get_world_size()):
            if count:
                on_drop()
            return
        if batch is _END and last is _END:
            raise RuntimeError("this rank has no batch at all, and others have: there are too few documents")
        last = batch if batch is not _END else filler(last)
        yield last
