"""The sequence of a rank's epochs, as its main process sees it: plans, progress, and the states made of them.

An epoch ends when its last batch has been consumed, whichever loader made the batches and whether or not the loop over
it has ended: that is known from counts alone. A pass over the data follows the plan; the next pass is of the next
epoch. This module knows no records and no workers; `sharded` and `sampler` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...readers.data.order import Interval, drop, length
from .plan import EpochPlan, EpochProgress, Uneven, WorkerPlace
from .states import Content, Remainder, plan_of_rank, remainders, state_of


def rank_of(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """Return the rank and the number of ranks: those given, or those of `torch.distributed`, or 0 of 1."""
    if (rank is None) != (ranks is None):
        raise ValueError("rank and ranks are given together, or neither")
    if rank is None or ranks is None:
        import torch.distributed as distributed

        if not (distributed.is_available() and distributed.is_initialized()):
            return 0, 1
        rank, ranks = distributed.get_rank(), distributed.get_world_size()
    if not 0 <= rank < ranks:
        raise ValueError(f"there is no rank {rank} of {ranks}")
    return rank, ranks


class Epochs:
    """The plan of the pass that runs or comes next, and how much of it was consumed.

    `publish(serial, plan)` is called with each new plan.
    """

    def __init__(
        self,
        content: Content,
        total: int,
        rank: tuple[int, int],
        uneven: Uneven,
        publish: Callable[[int, EpochPlan], object] = lambda serial, plan: None,
    ) -> None:
        if uneven not in ("keep", "drop"):
            raise ValueError(f"uneven is 'keep' or 'drop', not {uneven!r}")
        self.place = WorkerPlace(*rank, 0, 1)
        self.content = content
        self.uneven: Uneven = uneven
        self.total = total
        self.serial = 0
        """Counts the plans."""
        self.plan = EpochPlan.whole(0, total)
        self.progress: EpochProgress | None = None
        """Of the pass that runs or has ended; None if none has begun with this plan."""
        self.ended = False
        """Whether all batches of the pass have been consumed."""
        self._again = False  # the next pass is of this epoch once more
        self._loaded: int | None = None  # the epoch of the state that was loaded, until a pass begins
        self._publish = publish
        self._set(self.plan)

    def _set(self, plan: EpochPlan) -> None:
        self.plan = plan
        self.serial += 1
        self.progress, self.ended, self._again, self._loaded = None, False, False, None
        self._publish(self.serial, plan)

    @property
    def epoch(self) -> int:
        """The epoch of the pass that runs or has ended; the one that is read next if none has begun."""
        return self.plan.epoch

    def whole_length(self) -> int:
        """Return how many samples the rank has in a whole epoch."""
        return length(EpochPlan.whole(0, self.total).of_rank(self.place, self.uneven))

    # ---- passes

    def begin(self) -> EpochPlan:
        """Return the plan of the pass that begins: the next epoch's if anything of this one was consumed."""
        if self._again:
            self._set(EpochPlan.whole(self.plan.epoch, self.total))
        elif self.ended or (self.progress is not None and self.progress.begun):
            self._set(self.plan.of_epoch(self.plan.epoch + 1, self.total))
        else:
            self._set(self.plan)
        return self.plan

    def skip_to(self, epoch: int) -> None:
        """Make `epoch` the next one, which follows passes that were not seen here."""
        self._set(
            self.plan.of_epoch(epoch, self.total) if epoch > self.plan.epoch else EpochPlan.whole(epoch, self.total)
        )

    def follow(self, workers: int) -> EpochProgress:
        """Return the progress of the pass, which `workers` workers make."""
        if self.progress is None or self.progress.workers != workers:
            self.progress = EpochProgress(self.plan, self.place._replace(workers=workers), self.uneven)
        return self.progress

    def count(self, worker: int, workers: int, taken: int, least: int) -> None:
        """Record that a worker's first `taken` samples have been consumed; it makes a batch of `least` or more."""
        progress = self.follow(workers)
        progress.note(worker, taken)
        self.ended = progress.exhausted(least)

    def end(self) -> None:
        """Record that the pass gives no more batches."""
        self.ended = True

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass one of `epoch`; what a loaded state left of that epoch stays in force."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if epoch == self.plan.epoch:
            if self.ended:
                self._set(EpochPlan.whole(epoch, self.total))
            elif self.progress is not None:
                self._again = self.progress.begun
        elif epoch == self._loaded:  # all of it had been consumed
            self._set(self._emptied(epoch))
        else:
            self.skip_to(epoch)

    def _emptied(self, epoch: int) -> EpochPlan:
        """Return a plan that leaves nothing of an epoch, and continues with the present one."""
        intervals = tuple(interval for part in self.plan.parts for interval in part)
        return EpochPlan(epoch, self.plan.scope, (), ((self.plan.epoch, tuple(sorted(intervals))), *self.plan.later))

    # ---- states

    def state_dict(self) -> dict[str, Any]:
        """Return what remains of the epoch after the batches that were consumed."""
        plan = self.plan
        if self.ended:
            return self._state([])
        if self.progress is not None:
            return self._state(self.progress.parts())
        return self._state(list(map(list, plan.parts)) if plan.scope == "rank" else [self._own()])

    def state_behind(self, taken: int) -> dict[str, Any]:
        """Return what remains of the epoch behind its first `taken` samples, of one worker."""
        return self._state([list(drop(self.plan.of_worker(self.place, self.uneven), taken))])

    def _own(self) -> list[Interval]:
        return self.plan.of_rank(self.place, self.uneven)

    def _state(self, parts: list[list[Interval]]) -> dict[str, Any]:
        later = self.plan.later_of_rank(self.place, self.uneven)
        return state_of(self.content, Remainder(self.place, self.plan.epoch, parts, later), in_worker=False)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from those of all ranks."""
        states = [state_dict] if isinstance(state_dict, Mapping) else list(state_dict)
        left = remainders(states, self.content, self.total)
        self._set(plan_of_rank(left, self.total, self.place, self.uneven))
        self._loaded = min(one.epoch for one in left)
