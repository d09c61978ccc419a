"""The samples that a pass through an epoch reads (`EpochPlan`), and how many of them were consumed (`EpochProgress`).

A plan is a few intervals of the epoch's positions (see `readers.data.order`). This module does arithmetic only: states
are in `states`, what workers share in `shared`, and the sequence of epochs in `epochs`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ...readers.data.order import Interval, drop, length, part, take, union

Uneven = Literal["keep", "drop"]
Scope = Literal["all", "rank", "worker"]
SCOPES: tuple[Scope, ...] = ("all", "rank", "worker")
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


class EpochProgress:
    """The number of samples that have been consumed of each worker of a rank."""

    def __init__(self, plan: EpochPlan, place: WorkerPlace, uneven: Uneven) -> None:
        """`place` gives the rank and the number of workers."""
        self.workers = place.workers
        self.taken = [0] * place.workers
        self._last = place.workers - 1
        self._of = [plan.of_worker(place._replace(worker=number), uneven) for number in range(place.workers)]
        self._lengths = list(map(length, self._of))

    def note(self, worker: int, taken: int) -> None:
        """Record that a worker's first `taken` samples have been consumed."""
        self.taken[worker] = taken
        self._last = worker

    @property
    def begun(self) -> bool:
        """True once a sample has been consumed."""
        return any(self.taken)

    def exhausted(self, batch_size: int) -> bool:
        """Return whether no worker has `batch_size` samples left."""
        return all(all_of - taken < batch_size for all_of, taken in zip(self._lengths, self.taken, strict=True))

    def parts(self) -> list[list[Interval]]:
        """Return what each worker has still to read, first the one that gives the next batch."""
        first = self._last + 1
        order = [(first + number) % self.workers for number in range(self.workers)]
        return [list(drop(self._of[number], self.taken[number])) for number in order]


class Pass:
    """The part of an epoch that one iteration reads, and how many samples of it were taken.

    The data set knows its last pass, and not the pass's iterator: what an iterator reads from is registered with the
    process, and would never be freed if it referred to the iterator.
    """

    __slots__ = ("_uneven", "intervals", "place", "plan", "serial", "taken")

    def __init__(self, plan: EpochPlan, place: WorkerPlace, serial: int, uneven: Uneven) -> None:
        self.place = place
        self.taken = 0
        self._uneven = uneven
        self.follow(plan, serial)

    def follow(self, plan: EpochPlan, serial: int) -> None:
        """Read what this plan has for the place."""
        self.plan = plan
        self.serial = serial
        self.intervals = plan.of_worker(self.place, self._uneven)

    def remaining(self) -> list[Interval]:
        """Return what is still to be taken."""
        return list(drop(self.intervals, self.taken))
