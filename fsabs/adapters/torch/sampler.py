"""The order of a map-style data set: `EpochSampler`, by epochs, split over ranks, with a state; and `PlannedBatches`.

A batch sampler that plans an epoch announces to each worker, with its first batch, the batches that it will get: a data
set of this package then reads them ahead.
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import BatchSampler, Sampler

from ...readers.data import Shard
from ...readers.data.base import ShardContent
from ...readers.data.order import EpochOrder, Numbers, wrapped
from .epochs import Content, Epochs, RankOf, StateDict
from .plan import EpochPlan, EpochShape, Pass, Sharing, Uneven, WorkerPlace
from .tags import Tag


class EpochSampler(Sampler[int]):
    """The indices of a map-style data set, each once an epoch, split over ranks, in an order of the epoch's own.

    Args:
        data_source: the data set.
        seed: shuffles anew in each epoch; None leaves the order alone.
        rank, ranks: which of how many training processes this is; see `ShardedDataset`.
        uneven: "keep" every sample, so that a rank may have one more than another; or, so that all ranks have as many,
            "drop" the last ones of the epoch, or "repeat" its first ones at its end.

    Each iteration is of the next epoch, as with `ShardedDataset`. A loader takes indices before their batches are used:
    iterate it by `consumed(loader)`, and `state_dict()` is exact; or use a `Loader`.
    """

    def __init__(
        self,
        data_source: Any,
        *,
        seed: int | None = None,
        rank: int | None = None,
        ranks: int | None = None,
        uneven: Uneven = "keep",
    ) -> None:
        total = len(data_source)
        self._order = EpochOrder([Shard("", 0, total)], seed, buffer_size=total)
        contents = getattr(data_source, "contents", lambda: [(0, total, ShardContent(""))])()
        content = Content(contents, self._order.settings[:1], self._order.fingerprint())
        if uneven == "pad":
            raise ValueError("uneven='pad' is for data sets that are read by positions, and not for map-style ones")
        self.epochs = Epochs(
            content,
            Sharing(uneven, functools.partial(_shape, total)),
            RankOf(rank, ranks),
            rebased=functools.partial(_of_these_shards, len(content)),
        )
        self._counted = False  # the pass that begins is that of `consumed`
        self._uncounted = False  # the pass was begun by a loader whose batches are not counted

    def __len__(self) -> int:
        return self.epochs.whole_length()

    def __iter__(self) -> Iterator[int]:
        if not self._counted:
            self.epochs.begin()
            self._uncounted = True
        return self._indices(self.epochs.plan, self.epochs.serial)

    def _indices(self, plan: EpochPlan, serial: int) -> Iterator[int]:
        numbers = _indices(self._order, plan, self.epochs.place, self.epochs.sharing).tolist()
        if numbers and self._uncounted and self.epochs.serial == serial and self.epochs.running is not None:
            self.epochs.running.taken[0] += 1
        yield from numbers

    def consumed(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a `DataLoader` with this sampler, one epoch, and count those that were handed out.

        `ValueError` for a loader whose batches are not of one size, or out of order: which samples they have is not
        known. A `Loader` takes a data set without a sampler, and counts any batches.
        """
        size, drop_last = _batches_of(loader)
        running = self.epochs.begin(batch_size=size, drop_last=drop_last)
        self._uncounted = False
        self._counted = True
        try:
            batches = iter(loader)
            drawn, batch = running.draw(), next(batches, _END)  # by now, the loader has begun to iterate this sampler
        finally:
            self._counted = False
        while batch is not _END and drawn is not None:
            self.epochs.consumed(running, drawn[0])
            yield batch
            drawn, batch = running.draw(), next(batches, _END)
        self.epochs.end(running)

    def following(self) -> Callable[[], Numbers]:
        """Return a function that returns the indices of the next epoch, and can be pickled."""
        plan = self.epochs.plan.of_epoch(self.epochs.epoch + 1, self.epochs.sharing)
        return functools.partial(_indices, self._order, plan, self.epochs.place, self.epochs.sharing)

    def drawn(self, running: Pass, workers: int) -> Iterator[tuple[Tag, list[int]]]:
        """Yield the tags and the indices of the batches of a pass, for a loader with so many workers."""
        order = _indices(self._order, running.plan, running.place, self.epochs.sharing)
        first, drop_last = running.plan.batches, running.least > 1
        batches = announced(
            order, running.batch_size, drop_last, workers, self.following(), lambda at: running.skips(first + at)
        )
        while (drawn := running.draw()) is not None:
            yield drawn[0], next(batches)

    # ---- for batches that know their own state

    def rest_of(self, state_dict: Mapping[str, Any]) -> Iterator[int]:
        """Load a state, and return the indices that it left of its epoch, even if there are none."""
        self.load_state_dict(state_dict)
        self.epochs.set_epoch(state_dict["epoch"])
        self._uncounted = True
        self.epochs.end(self.epochs.begin())
        return self._indices(self.epochs.plan, self.epochs.serial)

    # ---- epochs and states

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        return self.epochs.epoch

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        self.epochs.set_epoch(epoch)

    def state_dict(self, held: int = 0) -> dict[str, Any]:
        """Return what remains of the epoch; `RuntimeError` where the loader's batches were not counted.

        The last `held` batches do not count as consumed: see `Loader.held`.
        """
        if self._uncounted:
            raise RuntimeError("which batches were used is not known: iterate the loader by sampler.consumed(loader)")
        return self.epochs.state_dict(held)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from a list of those of all ranks."""
        self._uncounted = False
        self.epochs.load_state_dict(state_dict)


_END = object()


def _shape(total: int, epoch: int, base: Any) -> EpochShape:
    return EpochShape(total)


def _of_these_shards(shards: int, plan: EpochPlan, of_all: object, state: StateDict) -> EpochPlan:
    """Return the plan; `ValueError` if the state is of fewer shards: the order of a map-style data set is of all."""
    if state["format"] != 1 and state["content"]["shards"] != shards:
        raise ValueError(
            f"the state is of {state['content']['shards']} shards, and there are {shards}: the samples of a map-style "
            "data set have another order then (a ShardedDataset takes shards that are added)"
        )
    return plan


def _indices(order: EpochOrder, plan: EpochPlan, place: WorkerPlace, sharing: Sharing) -> Numbers:
    """Return the indices that a rank has of a plan, in order."""
    epoch = order.epoch(plan.epoch)
    found = [epoch.locate(start, end)[1] for start, end in wrapped(plan.of_worker(place, sharing), order.total)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _batches_of(loader: Any) -> tuple[int, bool]:
    """Return the size of a loader's batches, and whether a partial one is dropped; `ValueError` if they vary."""
    if getattr(loader, "in_order", True) is False:
        raise ValueError("the DataLoader must hand batches out in order: in_order=False leaves its state undefined")
    batches = getattr(loader, "batch_sampler", None)
    if batches is None:
        return 1, False
    if type(batches) not in (BatchSampler, PlannedBatches):
        raise ValueError(
            f"which samples the batches of a {type(batches).__name__} have is not known, so that they can't be counted"
        )
    return batches.batch_size, batches.drop_last


class EpochBatches(NamedTuple):
    """The batches of an epoch that a loader hands out in turns to `workers` workers."""

    order: Numbers
    """The indices of all batches, from the present batch of this worker on."""
    size: int
    workers: int
    following: Callable[[], Numbers] | None = None
    """Returns the order of the next epoch, where it is known."""

    def own(self) -> Numbers:
        """Return the indices of the batches that this worker gets."""
        if self.workers == 1:
            return self.order
        turn = self.size * self.workers
        whole = len(self.order) // turn * turn
        rest: Numbers = self.order[whole : whole + self.size]
        return np.concatenate((self.order[:whole].reshape(-1, turn)[:, : self.size].reshape(-1), rest))

    def all(self) -> Iterator[int]:
        """Yield the indices of all workers, then those of the next epoch."""
        yield from self.order.tolist()
        if self.following is not None:
            yield from self.following().tolist()


class AnnouncedBatch(list[int]):
    """The first batch of a worker, with all batches that the loader hands out in the epoch."""

    def __init__(self, indices: Iterable[int], batches: EpochBatches) -> None:
        super().__init__(indices)
        self.batches = batches

    def __reduce__(self) -> tuple[Any, ...]:
        return AnnouncedBatch, (list(self), self.batches)


def announced(
    order: Numbers,
    size: int,
    drop_last: bool,
    workers: int,
    following: Callable[[], Numbers] | None = None,
    skips: Callable[[int], bool] = lambda number: False,
) -> Iterator[list[int]]:
    """Yield the batches of an order, of which the first one of each worker announces those that follow.

    So does one that a worker gets after a batch that is not read, as `skips(number)` says.
    """
    if drop_last:
        order = order[: len(order) // size * size]
    for number, start in enumerate(range(0, len(order), size)):
        batch = order[start : start + size].tolist()
        if number < workers or skips(number - workers):  # the loader gives every batch to the next worker in turn
            yield AnnouncedBatch(batch, EpochBatches(order[start:], size, workers, following))
        else:
            yield batch


class PlannedBatches(Sampler[list[int]]):
    """Batches of a sampler's indices, as torch's `BatchSampler` makes them, which announce the epoch to each worker.

    Give it to the `DataLoader` as `batch_sampler`, with the loader's own `num_workers`. A data set of this package then
    reads ahead; for any other, the batches are lists. Set the epoch on the sampler, as always. With an `EpochSampler`,
    torchdata's `StatefulDataLoader` resumes exactly.
    """

    def __init__(
        self, sampler: Iterable[int], batch_size: int, *, num_workers: int = 0, drop_last: bool = False
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._workers = max(1, num_workers)

    def __iter__(self) -> Iterator[list[int]]:
        if isinstance(self.sampler, EpochSampler):
            return _StatefulBatches(self, self.sampler)
        return self.of(iter(self.sampler))

    def of(self, indices: Iterable[int]) -> Iterator[list[int]]:
        """Yield the batches of these indices."""
        order = np.frombuffer(array("q", indices), np.int64)
        following = self.sampler.following() if isinstance(self.sampler, EpochSampler) else None
        return announced(order, self.batch_size, self.drop_last, self._workers, following)

    def __len__(self) -> int:
        total = len(self.sampler)  # type: ignore[arg-type]  # as torch's: a sampler with no length has none
        return total // self.batch_size if self.drop_last else -(-total // self.batch_size)


class _StatefulBatches(Iterator[list[int]]):
    """The batches of one epoch of an `EpochSampler`; torchdata asks for the state after each one that it sends out.

    The pass begins with the first batch: torchdata makes iterators that it drops.
    """

    def __init__(self, batches: PlannedBatches, sampler: EpochSampler) -> None:
        self._batches = batches
        self._sampler = sampler
        self._coming: Iterator[list[int]] | None = None
        self._serial = -1
        self._taken = 0

    def _begin(self, indices: Iterator[int]) -> Iterator[list[int]]:
        self._coming = self._batches.of(indices)
        self._serial = self._sampler.epochs.serial
        self._taken = 0
        return self._coming

    def __next__(self) -> list[int]:
        batch = next(self._coming or self._begin(iter(self._sampler)))
        self._taken += len(batch)
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return what the epoch has left after the batches that were given."""
        if self._coming is None:
            self._begin(iter(self._sampler))
        self._sampler.epochs.check(self._serial)
        return self._sampler.epochs.state_after(self._taken)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make this pass what the state left, which may be nothing."""
        self._begin(self._sampler.rest_of(state_dict))
