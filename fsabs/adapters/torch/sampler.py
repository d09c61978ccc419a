"""EpochSampler: the order of a map-style data set by epochs, split over ranks, with a state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, Sampler

from ...readers.data import Shard
from ...readers.data.base import ShardContent
from ...readers.data.order import EpochOrder, Interval
from .epochs import Epochs, RankOf
from .plan import EpochPlan, EpochShape, Pass, Sharing, Uneven, WorkerPlace
from .states import Content
from .tags import Tag

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


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
        content = Content(contents, [seed], self._order.fingerprint())
        if uneven == "pad":
            raise ValueError("uneven='pad' is for data sets that are read by positions, and not for map-style ones")
        self.epochs = Epochs(content, Sharing(uneven, functools.partial(_shape, total), _settled), RankOf(rank, ranks))
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
        order = self._order.epoch(plan.epoch)
        for start, end in _wrapped(plan.of_worker(self.epochs.place, self.epochs.sharing), self._order.total):
            if self._uncounted and self.epochs.serial == serial and self.epochs.running is not None:
                self.epochs.running.taken[0] += 1
            _, numbers = order.locate(start, end)
            yield from numbers.tolist()

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
        from .batches import announced

        order = _indices(self._order, running.plan, running.place, self.epochs.sharing)
        if running.least > 1:  # the last batch is dropped where it is partial
            order = order[: len(order) // running.batch_size * running.batch_size]
        batches = announced(order, running.batch_size, workers, self.following())
        while (drawn := running.draw()) is not None:
            yield drawn[0], next(batches)

    # ---- for batches that know their own state

    @property
    def serial(self) -> int:
        """The serial number of the plan of the pass."""
        return self.epochs.serial

    def state_behind(self, taken: int, serial: int) -> dict[str, Any]:
        """Return the state behind the first `taken` indices of the pass that began with the plan of number `serial`."""
        if serial != self.epochs.serial:
            raise RuntimeError("the epoch or the state was set, or another pass was begun, while this one was running")
        return self.epochs.state_behind(taken)

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

    def state_dict(self) -> dict[str, Any]:
        """Return what remains of the epoch; `RuntimeError` where the loader's batches were not counted."""
        if self._uncounted:
            raise RuntimeError("which batches were used is not known: iterate the loader by sampler.consumed(loader)")
        return self.epochs.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from a list of those of all ranks."""
        self._uncounted = False
        self.epochs.load_state_dict(state_dict)


_END = object()


def _shape(total: int, epoch: int, base: Any) -> EpochShape:
    return EpochShape(total)


def _settled(base: Any, epoch: int) -> Any:
    return base


def _indices(order: EpochOrder, plan: EpochPlan, place: WorkerPlace, sharing: Sharing) -> Numbers:
    """Return the indices that a rank has of a plan, in order."""
    import numpy as np

    epoch = order.epoch(plan.epoch)
    found = [epoch.locate(start, end)[1] for start, end in _wrapped(plan.of_worker(place, sharing), order.total)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _wrapped(intervals: Iterable[Interval], total: int) -> Iterator[Interval]:
    """Yield the intervals, those after the last sample as the first ones again."""
    for start, end in intervals:
        if start < total:
            yield start, min(end, total)
        yield from ((at % total, at % total + 1) for at in range(max(start, total), end))


def _batches_of(loader: Any) -> tuple[int, bool]:
    """Return the size of a loader's batches, and whether a partial one is dropped; `ValueError` if they vary."""
    from .batches import PlannedBatches

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
