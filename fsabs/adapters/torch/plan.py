"""The samples that a pass through an epoch reads (`EpochPlan`), and which of them were consumed (`Pass`).

A plan is a few intervals of the epoch's positions (see `readers.data.order`). This module does arithmetic only: states
are in `states`, and the sequence of epochs in `epochs`.
"""

from __future__ import annotations

from itertools import chain
from typing import Literal, NamedTuple

from ...readers.data.order import Interval, drop, length, part, take, union
from .tags import Tag

Uneven = Literal["keep", "drop"]
Scope = Literal["all", "rank", "worker"]
Intervals = tuple[Interval, ...]


class WorkerPlace(NamedTuple):
    """The rank and the worker of a process."""

    rank: int
    ranks: int
    worker: int
    workers: int


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

    @classmethod
    def whole(cls, epoch: int, total: int) -> EpochPlan:
        """Return the plan of a whole epoch."""
        return cls(epoch, "all", (((0, total),) if total else (),))

    def of_epoch(self, epoch: int, total: int) -> EpochPlan:
        """Return the plan of this epoch or a later one, which is whole unless some of it was consumed."""
        if epoch == self.epoch:
            return self
        later = tuple(one for one in self.later if one[0] > epoch)
        for number, intervals in self.later:
            if number == epoch:
                return EpochPlan(epoch, self.scope, (intervals,), later)
        return EpochPlan.whole(epoch, total)._replace(later=later)

    def of_rank(self, place: WorkerPlace, uneven: Uneven) -> list[Interval]:
        """Return the share of a rank."""
        return self._share(union(self.parts), place, uneven)

    def later_of_rank(self, place: WorkerPlace, uneven: Uneven) -> list[tuple[int, list[Interval]]]:
        """Return the share of a rank in what remains of later epochs."""
        return [(epoch, self._share(list(intervals), place, uneven)) for epoch, intervals in self.later]

    def _share(self, intervals: list[Interval], place: WorkerPlace, uneven: Uneven) -> list[Interval]:
        if self.scope != "all":
            return intervals
        if uneven == "drop":
            total = length(intervals)
            intervals = list(take(intervals, total - total % place.ranks))
        return part(intervals, place.rank, place.ranks)

    def of_worker(self, place: WorkerPlace, uneven: Uneven) -> list[Interval]:
        """Return the share of a worker."""
        if self.scope != "all" and len(self.parts) == (place.workers if self.scope == "rank" else 1):
            return list(self.parts[place.worker if self.scope == "rank" else 0])
        return part(self.of_rank(place, uneven), place.worker, place.workers)


class Pass:
    """One pass over what remains of an epoch: the positions that were drawn from it, and those that were consumed.

    Each of `workers` parts is read in its order, and a batch is drawn from each in turn. A batch counts as consumed
    when its tag comes back (`consumed`), so that what was fetched ahead, and what an error swallowed, is still to come.
    """

    def __init__(
        self,
        plan: EpochPlan,
        place: WorkerPlace,
        uneven: Uneven,
        serial: int,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        """`place` gives the rank and the number of workers."""
        self.plan = plan
        self.place = place
        self.serial = serial
        self.batches = 0
        """How many batches have been consumed."""
        self.parts = [plan.of_worker(place._replace(worker=number), uneven) for number in range(place.workers)]
        self._lengths = list(map(length, self.parts))
        self._drawn = [0] * place.workers
        self._coming = [list(reversed(part)) for part in self.parts]  # to be drawn, the first one last
        self.taken = [0] * place.workers  # an iteration over one part adds to it
        self._missing: list[list[Interval]] = [[] for _ in range(place.workers)]  # numbers before `taken`
        self._turn = 0
        self._last = place.workers - 1
        self.batch_size = batch_size
        self.least = batch_size if drop_last else 1

    def draw(self) -> tuple[Tag, Intervals] | None:
        """Return the tag and the positions of the next batch; None if there is none."""
        for _ in self.parts:
            part, self._turn = self._turn, (self._turn + 1) % len(self.parts)
            first = self._drawn[part]
            count = min(self.batch_size, self._lengths[part] - first)
            if count >= self.least:
                self._drawn[part] += count
                return Tag(self.serial, part, first, count), self._next_positions(self._coming[part], count)
        return None

    def _next_positions(self, coming: list[Interval], count: int) -> Intervals:
        start, end = coming[-1]
        if start + count < end:  # nearly always
            coming[-1] = start + count, end
            return ((start, start + count),)
        found = []
        while count:
            start, end = coming.pop()
            cut = min(end, start + count)
            found.append((start, cut))
            count -= cut - start
            if cut < end:
                coming.append((cut, end))
        return tuple(found)

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
        self.batches += 1

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
