"""EpochSampler: the order of a map-style data set by epochs, split over ranks, with a state."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.utils.data import Sampler

from ...readers.data import Shard
from ...readers.data.base import ShardContent
from ...readers.data.order import EpochOrder, length
from .epochs import Epochs, rank_of
from .plan import EpochPlan, Uneven, WorkerPlace
from .states import Content

if TYPE_CHECKING:
    from .sampling import Numbers


class EpochSampler(Sampler[int]):
    """The indices of a map-style data set, each once an epoch, split over ranks, in an order of the epoch's own.

    Args:
        data_source: the data set.
        seed: shuffles anew in each epoch; None leaves the order alone.
        rank, ranks: which of how many training processes this is; those of torch.distributed, if it is initialized.
        uneven: "keep" every sample, so that a rank may have one more than another; or "drop" the last ones of the epoch
            so that all ranks have as many.

    Each iteration is of the next epoch, as with `ShardedDataset`. A loader takes indices before their batches are used:
    iterate it by `consumed(loader)`, and `state_dict()` is exact.
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
        self._epochs = Epochs(content, total, rank_of(rank, ranks), uneven)
        self._counted = False  # the pass that begins is that of `consumed`
        self._uncounted = False  # the pass was begun by a loader whose batches are not counted

    def __len__(self) -> int:
        return self._epochs.whole_length()

    def __iter__(self) -> Iterator[int]:
        if not self._counted:
            self._epochs.begin()
            self._uncounted = True
        return self._indices(self._epochs.plan, self._epochs.serial)

    def _indices(self, plan: EpochPlan, serial: int) -> Iterator[int]:
        order = self._order.epoch(plan.epoch)
        for start, end in plan.of_worker(self._epochs.place, self._epochs.uneven):
            if self._uncounted and self._epochs.serial == serial:
                self._epochs.follow(1).note(0, 1)
            _, numbers = order.locate(start, end)
            yield from numbers.tolist()
        if self._uncounted and self._epochs.serial == serial:
            self._epochs.end()

    def consumed(self, loader: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches of a `DataLoader` with this sampler, one epoch, and count those that were handed out."""
        if getattr(loader, "in_order", True) is False:
            raise ValueError("the DataLoader must hand batches out in order: in_order=False leaves its state undefined")
        size, least = batch_rule(loader)
        plan = self._epochs.begin()
        serial = self._epochs.serial
        self._uncounted, taken = False, 0
        total = length(plan.of_worker(self._epochs.place, self._epochs.uneven))
        self._counted = True
        try:
            batches = iter(loader)
            batch = next(batches, _END)  # by now, the loader has begun to iterate this sampler
        finally:
            self._counted = False
        while batch is not _END:
            if self._epochs.serial != serial:
                raise RuntimeError("the epoch or the state was set while batches of an earlier one were still coming")
            taken = min(total, taken + size)
            self._epochs.count(0, 1, taken, least)
            yield batch
            batch = next(batches, _END)
        if self._epochs.serial == serial:
            self._epochs.end()

    def following(self) -> Callable[[], Numbers]:
        """Return a function that returns the indices of the next epoch, and can be pickled."""
        plan = self._epochs.plan.of_epoch(self._epochs.epoch + 1, self._epochs.total)
        return functools.partial(_indices, self._order, plan, self._epochs.place, self._epochs.uneven)

    # ---- for batches that know their own state

    @property
    def serial(self) -> int:
        """The serial number of the plan of the pass."""
        return self._epochs.serial

    def state_behind(self, taken: int, serial: int) -> dict[str, Any]:
        """Return the state behind the first `taken` indices of the pass that began with the plan of number `serial`."""
        if serial != self._epochs.serial:
            raise RuntimeError("the epoch or the state was set, or another pass was begun, while this one was running")
        return self._epochs.state_behind(taken)

    def rest_of(self, state_dict: Mapping[str, Any]) -> Iterator[int]:
        """Load a state, and return the indices that it left of its epoch, even if there are none."""
        self.load_state_dict(state_dict)
        self._epochs.set_epoch(state_dict["epoch"])
        self._uncounted = True
        if not any(self._epochs.plan.parts):
            self._epochs.end()
        return self._indices(self._epochs.plan, self._epochs.serial)

    # ---- epochs and states

    @property
    def epoch(self) -> int:
        """The number of the epoch of the last iteration; of the next one where none has begun."""
        return self._epochs.epoch

    def set_epoch(self, epoch: int) -> None:
        """Read epoch `epoch` next; what a state that was just loaded left of that epoch stays in force."""
        self._epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return what remains of the epoch; `RuntimeError` where the loader's batches were not counted."""
        if self._uncounted:
            raise RuntimeError("which batches were used is not known: iterate the loader by sampler.consumed(loader)")
        return self._epochs.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from a list of those of all ranks."""
        self._uncounted = False
        self._epochs.load_state_dict(state_dict)


_END = object()


def _indices(order: EpochOrder, plan: EpochPlan, place: WorkerPlace, uneven: Uneven) -> Numbers:
    """Return the indices that a rank has of a plan, in order."""
    import numpy as np

    epoch = order.epoch(plan.epoch)
    found = [epoch.locate(start, end)[1] for start, end in plan.of_worker(place, uneven)]
    return np.concatenate(found) if found else np.empty(0, np.int64)


def batch_rule(loader: Any) -> tuple[int, int]:
    """Return the size of a loader's batches, and how many samples must be left for another one."""
    batches = getattr(loader, "batch_sampler", None)
    source = loader if getattr(loader, "batch_size", None) is not None or batches is None else batches
    size = getattr(source, "batch_size", None) or 1
    return size, size if getattr(source, "drop_last", False) else 1
