"""The batches of an epoch as a pure function of their numbers: `EpochPlan`; and what is left of it: `Stop`.

An epoch's positions (see `readers.data.order`) are dealt, in runs, to the lanes of a grid of `turns` x `slots`. Step k
takes its samples from the lanes of turn `k % turns`, as many from each slot, so that a worker that takes each
`turns`-th step reads the runs of one turn, and a rank those of its slots. When a lane can fill no more batches, what is
left of all lanes makes the last batches together. A batch is that of all ranks together, an ordered list of which each
has an equal part. The grid says which positions are near each other; no position belongs to a process.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ..data.order import Interval, between, drop, length, take, union

Uneven = Literal["drop", "repeat", "keep"]
"""What is done about a last batch whose samples can't be divided by the number of ranks."""
UNEVEN: tuple[Uneven, ...] = ("drop", "repeat", "keep")
Steps = tuple[Interval, ...]
"""Ranges of numbers of steps, ascending."""


class Grid(NamedTuple):
    """How many lanes an epoch is dealt to."""

    slots: int
    """Lanes that a batch takes samples from."""
    turns: int
    """Batches that follow each other and take samples from different lanes."""

    @property
    def lanes(self) -> int:
        """The number of lanes."""
        return self.slots * self.turns


class Stop(NamedTuple):
    """How far an epoch was read with one batch size and grid; the last one of a state is that of the pass that runs."""

    batch_size: int
    """Samples of a batch of all ranks together."""
    grid: Grid
    steps: int
    """The number of the step that comes next."""
    failed: Steps = ()
    """Those before it that were not done."""

    def described(self) -> list[Any]:
        """Return this as it is in a state."""
        return [self.batch_size, *self.grid, self.steps, [list(one) for one in self.failed]]

    @classmethod
    def of(cls, described: Sequence[Any]) -> Stop:
        """Return what a state describes."""
        batch_size, slots, turns, steps, failed = described
        return cls(batch_size, Grid(slots, turns), steps, tuple((start, end) for start, end in failed))


def deal(intervals: Sequence[Interval], grid: Grid, cuts: Sequence[int] = ()) -> list[list[Interval]]:
    """Return a run of the intervals for each lane: sizes differ by 1 at most.

    Where there are `cuts`, each stretch between them is dealt by itself, so that all lanes pass them together.
    """
    lanes: list[list[Interval]] = [[] for _ in range(grid.lanes)]
    for start, end in itertools.pairwise((0, *cuts, max((end for _, end in intervals), default=0))):
        stretch = between(intervals, start, end) if cuts else list(intervals)
        total, rest = length(stretch), iter(stretch)
        for lane, size in zip(lanes, _sizes(total, grid), strict=True):
            rest = _move(rest, lane, size)
    return lanes


def _sizes(total: int, grid: Grid) -> Iterator[int]:
    for turn in range(grid.turns):
        own = total // grid.turns + (turn < total % grid.turns)
        for slot in range(grid.slots):
            yield own // grid.slots + (slot < own % grid.slots)


def _move(intervals: Iterator[Interval], lane: list[Interval], count: int) -> Iterator[Interval]:
    """Append the first `count` positions to a lane, and return an iterator of the others."""
    while count:
        start, end = next(intervals)
        cut = min(end, start + count)
        lane.append((start, cut))
        count -= cut - start
        if cut < end:
            return itertools.chain([(cut, end)], intervals)
    return intervals


class EpochPlan:
    """The steps of an epoch, or of what is left of one."""

    def __init__(self, lanes: Sequence[Sequence[Interval]], grid: Grid, batch_size: int, drop_last: bool) -> None:
        self.lanes, self.grid, self.batch_size, self.drop_last = lanes, grid, batch_size, drop_last
        slots = [number % grid.slots for number in range(grid.lanes)]
        rounds = (self._batches_of(slot, length(lane)) for slot, lane in zip(slots, lanes, strict=True))
        self._rounds = min(rounds)
        self._full = self._rounds * grid.turns  # the steps before the tail
        ends = (drop(lane, self._given(self._rounds, slot)) for slot, lane in zip(slots, lanes, strict=True))
        self._tail = list(itertools.chain.from_iterable(ends))
        rest = length(self._tail)
        self._steps = self._full + (rest // batch_size if drop_last else -(-rest // batch_size))

    @classmethod
    def of(
        cls,
        total: int,
        batch_size: int,
        grid: Grid,
        drop_last: bool = False,
        before: Iterable[Stop] = (),
        cuts: Sequence[int] = (),
    ) -> EpochPlan:
        """Return the plan of an epoch of so many positions, of which the batches of some stops were read before."""
        left = remaining(total, before, cuts)
        return cls(deal(left, grid, cuts), grid, batch_size, drop_last)

    def _given(self, batches: int, slot: int) -> int:
        """Return how many samples the first batches of a turn take from a slot, to which they are dealt one by one."""
        return max(0, -(-(batches * self.batch_size - slot) // self.grid.slots))

    def _batches_of(self, slot: int, size: int) -> int:
        """Return for how many batches a lane of this size is enough."""
        return (size * self.grid.slots + slot) // self.batch_size

    def __len__(self) -> int:
        return self._steps

    def batch(self, step: int) -> list[Interval]:
        """Return the positions of a step's batch, of all ranks together; `LookupError` if there is no such step."""
        if not 0 <= step < self._steps:
            raise LookupError(f"step {step} is none of the {self._steps} steps of this epoch")
        if step >= self._full:
            return list(take(drop(self._tail, (step - self._full) * self.batch_size), self.batch_size))
        number, turn = divmod(step, self.grid.turns)
        found: list[Interval] = []
        for slot in range(self.grid.slots):
            first = self._given(number, slot)
            lane = self.lanes[turn * self.grid.slots + slot]
            found += take(drop(lane, first), self._given(number + 1, slot) - first)
        return found

    def left(self, step: int, failed: Steps = ()) -> list[Interval]:
        """Return the positions that are not read yet when `step` comes next, with those of the steps that failed."""
        again = [self.batch(one) for start, end in failed for one in range(start, min(end, step))]
        if step >= self._full:
            rest = list(drop(self._tail, (step - self._full) * self.batch_size))
        else:
            rest = []
            for number, lane in enumerate(self.lanes):
                turn, slot = divmod(number, self.grid.slots)
                rest += drop(lane, self._given(-(-(step - turn) // self.grid.turns), slot))
        return union([*again, rest])

    def run(self, step: int, end: int, stride: int, rank: int, ranks: int) -> tuple[list[Interval], int] | None:
        """Return what a rank reads of each `stride`-th step from one up to `end`, if these begin with a run of one
        lane; and of how many steps that run is.

        Then each worker has one lane, that of its turn, in which its rank has the slot of its number. None where the
        numbers of workers and ranks are not those of the grid, and at the tail.
        """
        if (ranks, stride) != self.grid or step >= self._full:
            return None
        number, turn = divmod(step, self.grid.turns)
        until = min(self._rounds, number - (step - end) // stride)
        first = self._given(number, rank)
        lane = self.lanes[turn * self.grid.slots + rank]
        return list(take(drop(lane, first), self._given(until, rank) - first)), until - number

    def steps(self, ranks: int, uneven: Uneven) -> int:
        """Return how many steps all ranks have; `ValueError` if one would have nothing in the last of them."""
        size = length(self.batch(self._steps - 1)) if self._steps else ranks
        if size < ranks and uneven == "keep":
            raise ValueError(
                f"the last batch of the epoch has {size} samples for {ranks} ranks: uneven='drop' leaves them out, "
                "'repeat' gives each rank one"
            )
        return self._steps - (size < ranks and uneven == "drop")


def remaining(total: int, before: Iterable[Stop], cuts: Sequence[int] = ()) -> list[Interval]:
    """Return what some stops have left of an epoch."""
    left = [(0, total)] if total else []
    for stop in before:
        dealt = deal(left, stop.grid, cuts)
        left = EpochPlan(dealt, stop.grid, stop.batch_size, False).left(stop.steps, stop.failed)
    return left


def part_of(batch: Sequence[Interval], rank: int, ranks: int, uneven: Uneven) -> list[Interval]:
    """Return a rank's part of a batch: an equal one but for `uneven="keep"`."""
    size = length(batch)
    if size % ranks and uneven == "drop":
        size -= size % ranks
    elif size % ranks and uneven == "repeat":
        more = ranks - size % ranks
        batch = [*batch, *take(itertools.chain.from_iterable(itertools.repeat(batch)), more)]
        size += more
    first, last = size * rank // ranks, size * (rank + 1) // ranks
    return list(take(drop(batch, first), last - first))


@dataclass(frozen=True, slots=True)
class PassPlan:
    """One pass through what is left of an epoch, as it is sent to workers: everything that its batches follow from."""

    serial: int
    """Which pass of its loader it is."""
    epoch: int
    base: Any
    """What the epoch's order follows from besides the data set: plain data."""
    total: int
    batch_size: int
    grid: Grid
    drop_last: bool
    before: tuple[Stop, ...]
    cuts: tuple[int, ...]
    rank: int
    ranks: int
    uneven: Uneven
    workers: int
    first: int
    """The step that comes next, but for those that failed before."""
    order: Steps
    """The steps, in ranges: those that failed before, and the others without those that are left out."""

    @property
    def plan(self) -> EpochPlan:
        """The batches."""
        return _plan_of(self.total, self.batch_size, self.grid, self.drop_last, self.before, self.cuts)

    def __len__(self) -> int:
        return length(self.order)

    def step(self, number: int) -> int:
        """Return the step that is done as number `number` of this pass."""
        return next(drop(self.order, number))[0]

    def positions(self, number: int) -> list[Interval]:
        """Return the positions of this rank's batch number `number` of this pass."""
        return part_of(self.plan.batch(self.step(number)), self.rank, self.ranks, self.uneven)

    def coming(self, number: int, stride: int) -> Iterator[Interval]:
        """Yield the positions of this rank's batches from one on, each `stride`-th one."""
        while number < len(self):
            step, end = next(drop(self.order, number))
            run = self.plan.run(step, end, stride, self.rank, self.ranks)
            intervals, steps = run or (self.positions(number), 1)
            yield from intervals
            number += steps * stride

    def done(self, count: int, failed: Iterable[int] = ()) -> tuple[int, Steps]:
        """Return the step that comes next and those before it that were not done, after so many batches of the pass.

        `failed` are numbers of batches that were not done.
        """
        following = max((end for _, end in take(self.order, count)), default=0)
        following = max(following, self.first)
        left = [(start, end) for start, end in drop(self.order, count) if start < following]
        again = [(step, step + 1) for step in map(self.step, failed)]
        return following, tuple(union([left, again]))


@functools.lru_cache(8)
def _plan_of(*arguments: Any) -> EpochPlan:
    return EpochPlan.of(*arguments)


def order_of(steps: int, first: int, failed: Steps, skipped: Sequence[range] = ()) -> Steps:
    """Return the steps of a pass: those that failed, then the others, without what is skipped."""
    found = [*failed, *([(first, steps)] if first < steps else [])]
    for one in skipped:
        for start, end in [(one.start, one.stop)] if one.step == 1 else [(step, step + 1) for step in one]:
            found = without(found, start, end)
    return tuple(found)


def without(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    """Return the intervals without the numbers from one to another."""
    pieces = ((low, min(high, start), max(low, end), high) for low, high in intervals)
    return [one for low, cut, again, high in pieces for one in ((low, cut), (max(low, again), high)) if one[0] < one[1]]
