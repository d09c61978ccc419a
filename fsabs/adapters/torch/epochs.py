"""The sequence of a rank's epochs, as its main process sees it: plans, passes, and the states made of them.

An epoch ends when its last batch has been consumed, whichever loader made the batches and whether or not the loop over
it has ended: that is known from counts alone. A pass over the data follows the plan; the next pass is of the next
epoch. This module knows no records and no workers; `sharded` and `sampler` do.
"""

from __future__ import annotations

import os
import warnings
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...readers.data.order import Interval, drop, length
from .plan import (
    UNEVEN,
    Content,
    EpochPlan,
    Pass,
    Remainder,
    ShapeOf,
    Sharing,
    StateDict,
    WorkerPlace,
    first_of,
    plan_of_all,
    plan_of_rank,
    remainders,
    state_of,
)


class RankOf:
    """The rank of this process and the number of ranks.

    They are those that are given, else those of `torch.distributed` once it is initialized, else those of the
    environment (`RANK` and `WORLD_SIZE`, as torchrun sets them), else 0 of 1. A copy in a process that has neither
    keeps those of the process where it was pickled.
    """

    def __init__(self, rank: int | None, ranks: int | None) -> None:
        if (rank is None) != (ranks is None):
            raise ValueError("rank and ranks are given together, or neither")
        if rank is not None and ranks is not None and not 0 <= rank < ranks:
            raise ValueError(f"there is no rank {rank} of {ranks}")
        self._given = None if rank is None or ranks is None else (rank, ranks)
        self._inherited = (0, 1)

    def get(self) -> tuple[int, int]:
        """Return the rank and the number of ranks, as they are known now."""
        if self._given is not None:
            return self._given
        import torch.distributed as distributed

        environment = _environments_rank()
        if not (distributed.is_available() and distributed.is_initialized()):
            return environment or self._inherited
        group = distributed.get_rank(), distributed.get_world_size()
        if environment is not None and environment != group:
            warnings.warn(
                "the process group has rank {} of {}, and RANK and WORLD_SIZE say {} of {}: the first counts; give "
                "rank= and ranks= to choose".format(*group, *environment),
                stacklevel=2,
            )
        return group

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inherited": self.get()}


def _environments_rank() -> tuple[int, int] | None:
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    return (rank, ranks) if 0 <= rank < ranks else None


def _members(ranges: Sequence[range], start: int, stop: int) -> int:
    """Return how many numbers from `start` to `stop` are in any of some ascending ranges."""
    inside = (one[bisect_left(one, start) : bisect_left(one, stop)] for one in ranges)
    return len(set().union(*inside))


PlanOfAll: TypeAlias = Callable[[ShapeOf], EpochPlan]
Rebase: TypeAlias = Callable[[EpochPlan, PlanOfAll, StateDict], EpochPlan]


class Epochs:
    """The plan of the pass that runs or comes next, and which of its samples were consumed.

    Args:
        content: what a state has to be of.
        sharing: how an epoch is divided.
        rank: of this process.
        publish: is called with each new plan, as `publish(serial, plan, whole)`: whether it is that of a whole epoch.
        rebased: returns a plan from a state, which may be of another base, for the present data set; it is called with
            this rank's plan, a function that returns that of all ranks (`ValueError` if their states are not there)
            for the shapes that epochs had when they were saved, and the state.
        base: of plans that follow from no state.
    """

    def __init__(
        self,
        content: Content,
        sharing: Sharing,
        rank: RankOf,
        publish: Callable[[int, EpochPlan, bool], object] = lambda serial, plan, whole: None,
        rebased: Rebase = lambda plan, of_all, state: plan,
        base: Any = None,
    ) -> None:
        if sharing.uneven not in UNEVEN:
            raise ValueError(f"uneven is one of {', '.join(map(repr, UNEVEN))}, not {sharing.uneven!r}")
        self._rank = rank
        self.content = content
        self.sharing = sharing
        self.serial = 0
        """Counts the plans."""
        self.pass_type: type[Pass] = Pass
        self._rebased = rebased
        self._base = base
        self.plan = self.whole(0)
        self.running: Pass | None = None
        """The pass that runs or has ended; None if none has begun with this plan."""
        self._empty = False  # the pass that runs had no batch at all
        self._again = False  # the next pass is of this epoch once more
        self._loaded: int | None = None  # the epoch of the state that was loaded, until a pass begins
        self._loaded_by: WorkerPlace | None = None
        self._publish = publish
        self._set(self.plan)

    def whole(self, epoch: int) -> EpochPlan:
        """Return the plan of a whole epoch, as no state has it."""
        return EpochPlan.whole(epoch, self._base, self.sharing)

    def _set(self, plan: EpochPlan) -> None:
        self.plan = plan
        self.serial += 1
        self.running, self._empty, self._again, self._loaded, self._loaded_by = None, False, False, None, None
        pruned = plan._replace(base=self.sharing.pruned(plan.base, plan.epoch))
        self._publish(self.serial, plan, pruned == self.whole(plan.epoch))

    @property
    def place(self) -> WorkerPlace:
        """The rank of this process."""
        return WorkerPlace(*self._rank.get(), 0, 1)

    @property
    def epoch(self) -> int:
        """The epoch of the pass that runs or has ended; the one that is read next if none has begun."""
        return self.plan.epoch

    @property
    def ended(self) -> bool:
        """Whether all batches of the pass have been consumed."""
        running = self.running
        return self._empty or (running is not None and running.begun and running.exhausted)

    def whole_length(self) -> int:
        """Return how many samples the rank has in a whole epoch."""
        return length(self.whole(0).of_rank(self.place, self.sharing))

    # ---- passes

    def begin(
        self,
        workers: int = 1,
        batch_size: int = 1,
        drop_last: bool = False,
        skip: Mapping[int, Sequence[range]] | None = None,
    ) -> Pass:
        """Return the pass that begins, in so many parts: of the next epoch if anything of this one was consumed."""
        place = self.place._replace(workers=workers)
        if self._loaded_by not in (None, place._replace(workers=1)):
            raise RuntimeError(
                f"a state was loaded as {self._loaded_by}, and this is rank {place.rank} of {place.ranks} now: load it "
                "after torch.distributed is initialized"
            )
        if self._again:
            self._set(self.whole(self.plan.epoch))
        elif self.ended or (self.running is not None and self.running.begun):
            self._set(self.plan.of_epoch(self.plan.epoch + 1, self.sharing))
        else:
            self._set(self.plan)
        self.running = self.planned(place, batch_size, drop_last, skip)
        return self.running

    def planned(
        self, place: WorkerPlace, batch_size: int, drop_last: bool, skip: Mapping[int, Sequence[range]] | None = None
    ) -> Pass:
        """Return a pass over the present plan, of any rank."""
        steps = (skip or {}).get(self.plan.epoch, ())
        return self.pass_type(self.plan, place, self.sharing, self.serial, batch_size, drop_last, steps)

    def batches(
        self, workers: int, batch_size: int, drop_last: bool, skip: Mapping[int, Sequence[range]] | None = None
    ) -> tuple[int, int]:
        """Return how many batches of the pass that runs or comes next were handed out before, and how many remain."""
        place = self.place._replace(workers=workers)
        running = self.running
        least = batch_size if drop_last else 1
        if running is None or (running.place, running.batch_size, running.least) != (place, batch_size, least):
            plan = self.whole(self.plan.epoch) if self._again else self.plan
            running = self.pass_type(plan, place, self.sharing, self.serial, batch_size, drop_last)
        elif self.ended:
            following = self.plan.of_epoch(self.plan.epoch + 1, self.sharing)
            running = self.pass_type(following, place, self.sharing, 0, batch_size, drop_last)
        step, left = running.step, running.batches_left
        skipped = (skip or {}).get(running.plan.epoch, ())
        before, behind = _members(skipped, 0, step), _members(skipped, step, step + left)
        return step - before, left - behind

    def skip_to(self, epoch: int) -> None:
        """Make `epoch` the next one, which follows passes that were not seen here."""
        self._set(self.plan.of_epoch(epoch, self.sharing) if epoch > self.plan.epoch else self.whole(epoch))

    def check(self, serial: int) -> None:
        """Raise `RuntimeError` if the pass with the plan of this number is not the present one."""
        if serial != self.serial:
            raise RuntimeError("the epoch or the state was set, or another pass was begun, while this one was running")

    def consumed(self, running: Pass, tag: Any) -> None:
        """Record that a batch of a pass was handed to the training loop."""
        self.check(running.serial)
        running.consumed(tag)

    def end(self, running: Pass) -> None:
        """Record that a pass gives no more batches."""
        if running.serial == self.serial:
            self._empty = running.exhausted

    def abandon(self, running: Pass) -> None:
        """Record that the rest of a pass is left out, so that the next one is of the next epoch."""
        if running.serial == self.serial:
            self._empty = True

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass one of `epoch`; what a loaded state left of that epoch stays in force."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if epoch == self.plan.epoch:
            if self.ended:
                self._set(self.whole(epoch))
            elif self.running is not None:
                self._again = self.running.begun
        elif epoch == self._loaded:  # all of it had been consumed
            self._set(self._emptied(epoch))
        else:
            if self._loaded == self.plan.epoch:
                warnings.warn(
                    f"epoch {epoch} is set, and what the state that was loaded left of epoch {self.plan.epoch} is not "
                    f"read: the loop counts other epochs than the loader, which is in epoch {self.plan.epoch}",
                    stacklevel=3,
                )
            self.skip_to(epoch)

    def _emptied(self, epoch: int) -> EpochPlan:
        """Return a plan that leaves nothing of an epoch, and continues with the present one."""
        intervals = tuple(interval for part in self.plan.parts for interval in part)
        later = ((self.plan.epoch, tuple(sorted(intervals))), *self.plan.later)
        return EpochPlan(epoch, self.plan.scope, (), later, base=self.plan.base)

    # ---- states

    def state_dict(self, held: int = 0) -> dict[str, Any]:
        """Return what remains of the epoch after the batches that were consumed, but for the last `held` of them."""
        plan, running = self.plan, self.running
        if held and running is not None:
            running = running.before(held)
        elif self.ended:
            return self._state([], 0)
        if running is not None:
            return self._state(running.remaining(), running.step)
        return self._state(list(map(list, plan.parts)) if plan.scope == "rank" else [self._own()], plan.batches)

    def state_after(self, taken: int) -> dict[str, Any]:
        """Return what remains of the epoch after its first `taken` samples, of one worker."""
        left = list(drop(self.plan.of_worker(self.place, self.sharing), taken))
        return self._state([left], 0 if self.ended else self.plan.batches)

    def _own(self) -> list[Interval]:
        return self.plan.of_rank(self.place, self.sharing)

    def _state(self, parts: list[list[Interval]], batches: int) -> dict[str, Any]:
        later = self.plan.later_of_rank(self.place, self.sharing)
        remainder = Remainder(self.place, self.plan.epoch, parts, later, batches)
        return state_of(self.content, remainder, in_worker=False, base=self.plan.base)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from those of all ranks."""
        place = self.place
        left, base = remainders(state_dict, self.content, self.sharing)
        plan = plan_of_rank(left, base, place, self.sharing)

        def of_all(shape_of: ShapeOf) -> EpochPlan:
            return plan_of_all(left, base, place, self.sharing._replace(shape_of=shape_of))

        self._set(self._rebased(plan, of_all, first_of(state_dict)))
        self._loaded = min(one.epoch for one in left)
        self._loaded_by = place
