"""The plan of a pass through an epoch (`EpochPlan`), and how far it is consumed (`Pass`).

A plan is a few intervals of the epoch's positions (see `readers.data.order`). This module does arithmetic only: the
sequence of epochs, and the states that it resumes from, are in `epochs`.
"""

from __future__ import annotations

import copy
import operator
from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from ...readers.data.order import Interval, between, drop, length, part, take, union
from .tags import Tag

Uneven = Literal["keep", "drop", "pad", "repeat"]
UNEVEN: tuple[Uneven, ...] = ("keep", "drop", "pad", "repeat")
Scope = Literal["all", "rank", "worker"]
Intervals = tuple[Interval, ...]


class WorkerPlace(NamedTuple):
    """The rank and the worker of a process."""

    rank: int
    ranks: int
    worker: int
    workers: int


class EpochShape(NamedTuple):
    """The positions of an epoch: 0 to `total` - 1. Positions after them stand for no sample: they make ranks even."""

    total: int
    cuts: tuple[int, ...] = ()
    """Where all ranks and workers go from one stretch to the next one together."""


def _unchanged(base: Any, epoch: int) -> Any:
    return base


ShapeOf = Callable[[int, Any], EpochShape]
"""Returns the shape of an epoch of a base."""


class Sharing(NamedTuple):
    """How the samples of an epoch are divided among ranks and workers."""

    uneven: Uneven
    shape_of: ShapeOf
    pruned: Callable[[Any, int], Any] = _unchanged
    """Returns a base without what matters only for epochs before one."""


class EpochPlan(NamedTuple):
    """The samples to be read: the rest of an epoch for all ranks, for this rank, or for this worker."""

    epoch: int
    scope: Scope
    parts: tuple[Intervals, ...]
    """One for each worker that read it before; the same number of workers continues each its own."""
    later: tuple[tuple[int, Intervals], ...] = ()
    """What remains of the epochs that other ranks had begun already, ascending; later epochs than these are whole."""
    batches: int = 0
    """How many batches of the epoch a rank had consumed before."""
    base: Any = None
    """What the epoch's order follows from besides the data set, as its state has it; None for nothing."""

    @classmethod
    def whole(cls, epoch: int, base: Any, sharing: Sharing) -> EpochPlan:
        """Return the plan of a whole epoch."""
        total = sharing.shape_of(epoch, base).total
        return cls(epoch, "all", (((0, total),) if total else (),), base=base)

    def of_epoch(self, epoch: int, sharing: Sharing) -> EpochPlan:
        """Return the plan of this epoch or a later one, which is whole unless some of it was consumed."""
        if epoch == self.epoch:
            return self
        later = tuple(one for one in self.later if one[0] > epoch)
        for number, intervals in self.later:
            if number == epoch:
                return EpochPlan(epoch, self.scope, (intervals,), later, base=self.base)
        return EpochPlan.whole(epoch, self.base, sharing)._replace(later=later)

    def of_rank(self, place: WorkerPlace, sharing: Sharing) -> list[Interval]:
        """Return the share of a rank."""
        return self._share(self.epoch, union(self.parts), place, sharing)

    def later_of_rank(self, place: WorkerPlace, sharing: Sharing) -> list[tuple[int, list[Interval]]]:
        """Return the share of a rank in what remains of later epochs."""
        return [(epoch, self._share(epoch, list(intervals), place, sharing)) for epoch, intervals in self.later]

    def _share(self, epoch: int, intervals: list[Interval], place: WorkerPlace, sharing: Sharing) -> list[Interval]:
        if self.scope != "all":
            return intervals
        total, cuts = sharing.shape_of(epoch, self.base)
        intervals = between(intervals, 0, total)  # without what made other numbers of ranks even
        left = length(intervals)
        if sharing.uneven == "drop":
            intervals = list(take(intervals, left - left % place.ranks))
        elif sharing.uneven != "keep" and left % place.ranks:
            intervals.append((total, total + -left % place.ranks))
        return part(intervals, place.rank, place.ranks, cuts)

    def of_worker(self, place: WorkerPlace, sharing: Sharing) -> list[Interval]:
        """Return the share of a worker."""
        if self.scope != "all" and len(self.parts) == (place.workers if self.scope == "rank" else 1):
            return list(self.parts[place.worker if self.scope == "rank" else 0])
        return part(
            self.of_rank(place, sharing), place.worker, place.workers, sharing.shape_of(self.epoch, self.base).cuts
        )


_MOST_HELD = 8


class Pass:
    """One pass over what remains of an epoch: the positions that were drawn from it, and those that were consumed.

    Each of `workers` parts is read in its order, and a batch is drawn from each in turn. A batch counts as consumed
    when its tag comes back (`consumed`), so that what was fetched ahead, and what an error swallowed, is still to come.
    """

    def __init__(
        self,
        plan: EpochPlan,
        place: WorkerPlace,
        sharing: Sharing,
        serial: int,
        batch_size: int = 1,
        drop_last: bool = False,
        skip: Sequence[range] = (),
    ) -> None:
        """`place` gives the rank and the number of workers; `skip` has steps that are left out."""
        self.plan = plan
        self.place = place
        self.serial = serial
        self.batches = 0
        """How many batches have been consumed."""
        self.parts = [plan.of_worker(place._replace(worker=number), sharing) for number in range(place.workers)]
        self._lengths = list(map(length, self.parts))
        self._drawn = [0] * place.workers
        self.taken = [0] * place.workers  # an iteration over one part adds to it
        self._missing: list[list[Interval]] = [[] for _ in range(place.workers)]  # numbers before `taken`
        self._lately: deque[Tag] = deque(maxlen=_MOST_HELD)  # of the batches that were consumed last
        self._turn = 0
        self._last = place.workers - 1
        self.batch_size = operator.index(batch_size)  # numpy's numbers don't get into states
        self.least = self.batch_size if drop_last else 1
        self._skip = skip
        self._step = plan.batches  # of the batch that is drawn next

    def skips(self, step: int) -> bool:
        """Return whether the batch of this number is left out."""
        return any(step in steps for steps in self._skip)

    def leaves_out(self, tag: Tag) -> bool:
        """Return whether the batch that came back with this tag is left out; before it is counted as consumed."""
        return tag.skipped

    @property
    def step(self) -> int:
        """The number of the batch that is handed out next."""
        return self.plan.batches + self.batches

    def draw(self) -> tuple[Tag, Intervals] | None:
        """Return the tag and the positions of the next batch; None if there is none."""
        for _ in self.parts:
            part, self._turn = self._turn, (self._turn + 1) % len(self.parts)
            first = self._drawn[part]
            count = min(self.batch_size, self._lengths[part] - first)
            if count >= self.least:
                self._drawn[part] += count
                self._step += 1
                tag = Tag(self.serial, part, first, count, self.skips(self._step - 1))
                return tag, tuple(take(drop(self.parts[part], first), count))
        return None

    def positions_of(self, step: int) -> Intervals:
        """Return the positions of the batch of a number, by arithmetic; `LookupError` if the pass has none."""
        batches = [size // self.batch_size if self.least > 1 else -(-size // self.batch_size) for size in self._lengths]
        at = step - self.plan.batches
        if not 0 <= at < sum(batches):
            first = self.plan.batches
            raise LookupError(f"step {step} is none of the steps {first} to {first + sum(batches)} of this pass")
        low, high = 0, max(batches)
        while high - low > 1:  # after `low` turns of all parts, as far as they have batches, it is not drawn yet
            middle = (low + high) // 2
            low, high = (middle, high) if sum(min(middle, one) for one in batches) <= at else (low, middle)
        in_turn = [number for number, one in enumerate(batches) if one > low]
        part = in_turn[at - sum(min(low, one) for one in batches)]
        return tuple(take(drop(self.parts[part], low * self.batch_size), self.batch_size))

    def consumed(self, tag: Tag) -> None:
        """Record that a batch was handed to the training loop."""
        part, end = tag.part, tag.first + tag.count
        missing = self._missing[part]
        if tag.first > self.taken[part]:
            missing.append((self.taken[part], tag.first))
        elif tag.first < self.taken[part]:  # batches may come out of order
            cuts = (
                ((start, min(stop, tag.first)) for start, stop in missing),
                ((max(start, end), stop) for start, stop in missing),
            )
            self._missing[part] = sorted({(start, stop) for cut in cuts for start, stop in cut if start < stop})
        self.taken[part] = max(self.taken[part], end)
        self._last = part
        self._lately.append(tag)
        self.batches += 1

    def before(self, count: int) -> Pass:
        """Return a copy of this as it was before the last `count` batches, 8 at most, were consumed."""
        earlier = copy.copy(self)
        earlier._missing = list(map(list, self._missing))
        tags = list(self._lately)[max(0, len(self._lately) - count) :]
        for tag in tags:
            earlier._missing[tag.part].append((tag.first, tag.first + tag.count))
        earlier.batches -= len(tags)
        if tags:
            earlier._last = tags[0].part - 1
        return earlier

    @property
    def begun(self) -> bool:
        """True once a sample has been consumed."""
        return any(self.taken)

    @property
    def exhausted(self) -> bool:
        """True where no batch remains."""
        left = (size - taken for size, taken in zip(self._lengths, self.taken, strict=True))
        return not any(self._missing) and all(count < self.least for count in left)

    @property
    def batches_left(self) -> int:
        """The number of batches that remain."""
        total = 0
        for size, taken, missing in zip(self._lengths, self.taken, self._missing, strict=True):
            left = size - taken
            total += left // self.batch_size if self.least > 1 else -(-left // self.batch_size)
            total += sum(-(-(stop - start) // self.batch_size) for start, stop in missing)
        return total

    def remaining(self) -> list[list[Interval]]:
        """Return what each worker has still to read, first the one that gives the next batch."""
        order = [(self._last + 1 + number) % len(self.parts) for number in range(len(self.parts))]
        return [self._remaining_of(part) for part in order]

    def _remaining_of(self, part: int) -> list[Interval]:
        intervals = self.parts[part]
        failed = (take(drop(intervals, start), stop - start) for start, stop in self._missing[part])
        return [*chain.from_iterable(failed), *drop(intervals, self.taken[part])]
