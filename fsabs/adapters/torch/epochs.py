"""The sequence of a rank's epochs, as its main process sees it: plans, passes, and the states made of them.

An epoch ends when its last batch has been consumed, whichever loader made the batches and whether or not the loop over
it has ended: that is known from counts alone. A pass over the data follows the plan; the next pass is of the next
epoch. This module knows no records and no workers; `sharded` and `sampler` do.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...readers.data.order import Interval, drop, length
from .plan import EpochPlan, Pass, Uneven, WorkerPlace
from .states import Content, Remainder, plan_of_rank, remainders, state_of


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
        self._warned = False

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
            self._warn(
                "the process group has rank {} of {}, and RANK and WORLD_SIZE say {} of {}".format(*group, *environment)
            )
        return group

    def _warn(self, contradiction: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"{contradiction}: the first counts; give rank= and ranks= to choose", stacklevel=2)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inherited": self.get()}


def _environments_rank() -> tuple[int, int] | None:
    try:
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    return (rank, ranks) if 0 <= rank < ranks else None


class Epochs:
    """The plan of the pass that runs or comes next, and which of its samples were consumed.

    `publish(serial, plan)` is called with each new plan.
    """

    def __init__(
        self,
        content: Content,
        total: int,
        rank: RankOf,
        uneven: Uneven,
        publish: Callable[[int, EpochPlan], object] = lambda serial, plan: None,
    ) -> None:
        if uneven not in ("keep", "drop"):
            raise ValueError(f"uneven is 'keep' or 'drop', not {uneven!r}")
        self._rank = rank
        self.content = content
        self.uneven: Uneven = uneven
        self.total = total
        self.serial = 0
        """Counts the plans."""
        self.pass_type: type[Pass] = Pass
        self.plan = EpochPlan.whole(0, total)
        self.running: Pass | None = None
        """The pass that runs or has ended; None if none has begun with this plan."""
        self._empty = False  # the pass that runs had no batch at all
        self._again = False  # the next pass is of this epoch once more
        self._loaded: int | None = None  # the epoch of the state that was loaded, until a pass begins
        self._loaded_by: WorkerPlace | None = None
        self._publish = publish
        self._set(self.plan)

    def _set(self, plan: EpochPlan) -> None:
        self.plan = plan
        self.serial += 1
        self.running, self._empty, self._again, self._loaded, self._loaded_by = None, False, False, None, None
        self._publish(self.serial, plan)

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
        return length(EpochPlan.whole(0, self.total).of_rank(self.place, self.uneven))

    # ---- passes

    def begin(self, workers: int = 1, batch_size: int = 1, drop_last: bool = False) -> Pass:
        """Return the pass that begins, in so many parts: of the next epoch if anything of this one was consumed."""
        place = self.place._replace(workers=workers)
        if self._loaded_by not in (None, place._replace(workers=1)):
            raise RuntimeError(
                f"a state was loaded as {self._loaded_by}, and this is rank {place.rank} of {place.ranks} now: load it "
                "after torch.distributed is initialized"
            )
        if self._again:
            self._set(EpochPlan.whole(self.plan.epoch, self.total))
        elif self.ended or (self.running is not None and self.running.begun):
            self._set(self.plan.of_epoch(self.plan.epoch + 1, self.total))
        else:
            self._set(self.plan)
        self.running = self.pass_type(self.plan, place, self.uneven, self.serial, batch_size, drop_last)
        return self.running

    def batches(self, workers: int, batch_size: int, drop_last: bool) -> tuple[int, int]:
        """Return how many batches of the pass that runs or comes next were consumed before, and how many remain."""
        place = self.place._replace(workers=workers)
        running = self.running
        least = batch_size if drop_last else 1
        if running is None or (running.place, running.batch_size, running.least) != (place, batch_size, least):
            plan = EpochPlan.whole(0, self.total) if self._again else self.plan
            running = self.pass_type(plan, place, self.uneven, self.serial, batch_size, drop_last)
        elif self.ended:
            running = self.pass_type(
                self.plan.of_epoch(self.plan.epoch + 1, self.total), place, self.uneven, 0, batch_size, drop_last
            )
        return running.plan.batches + running.batches, running.batches_left

    def skip_to(self, epoch: int) -> None:
        """Make `epoch` the next one, which follows passes that were not seen here."""
        self._set(
            self.plan.of_epoch(epoch, self.total) if epoch > self.plan.epoch else EpochPlan.whole(epoch, self.total)
        )

    def check(self, running: Pass) -> None:
        """Raise `RuntimeError` if a pass is not the present one."""
        if running.serial != self.serial:
            raise RuntimeError("the epoch or the state was set, or another pass was begun, while this one was running")

    def consumed(self, running: Pass, tag: Any) -> None:
        """Record that a batch of a pass was handed to the training loop."""
        if running.serial != self.serial:
            self.check(running)
        running.consumed(tag)

    def end(self, running: Pass) -> None:
        """Record that a pass gives no more batches."""
        if running.serial == self.serial:
            self._empty = running.exhausted

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass one of `epoch`; what a loaded state left of that epoch stays in force."""
        if epoch < 0:
            raise ValueError(f"epoch must not be negative: {epoch}")
        if epoch == self.plan.epoch:
            if self.ended:
                self._set(EpochPlan.whole(epoch, self.total))
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
        return EpochPlan(epoch, self.plan.scope, (), ((self.plan.epoch, tuple(sorted(intervals))), *self.plan.later))

    # ---- states

    def state_dict(self) -> dict[str, Any]:
        """Return what remains of the epoch after the batches that were consumed."""
        plan, running = self.plan, self.running
        if self.ended:
            return self._state([])
        if running is not None:
            return self._state(running.remaining(), running.batches)
        return self._state(list(map(list, plan.parts)) if plan.scope == "rank" else [self._own()])

    def state_behind(self, taken: int) -> dict[str, Any]:
        """Return what remains of the epoch behind its first `taken` samples, of one worker."""
        return self._state([list(drop(self.plan.of_worker(self.place, self.uneven), taken))])

    def _own(self) -> list[Interval]:
        return self.plan.of_rank(self.place, self.uneven)

    def _state(self, parts: list[list[Interval]], batches: int = 0) -> dict[str, Any]:
        later = self.plan.later_of_rank(self.place, self.uneven)
        before = 0 if self.ended else self.plan.batches + batches
        remainder = Remainder(self.place, self.plan.epoch, parts, later, before)
        return state_of(self.content, remainder, in_worker=False)

    def load_state_dict(self, state_dict: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Continue from a state of this rank, or from those of all ranks."""
        place = self.place
        left = remainders(state_dict, self.content, self.total)
        self._set(plan_of_rank(left, self.total, place, self.uneven))
        self._loaded = min(one.epoch for one in left)
        self._loaded_by = place
