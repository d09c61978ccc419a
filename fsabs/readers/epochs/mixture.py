"""The order of an epoch of a mixture: which source each step takes, and which of its samples; by arithmetic."""

from __future__ import annotations

import base64
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from ..data.mixing import Mixing, Schedule, Unread
from ..data.order import Interval, Numbers

InSource: TypeAlias = Callable[[int, int, int, int], Iterator[tuple[int, Interval]]]
"""Returns the epochs of a source, and positions in them, of a run of its stream: by source, epoch, start and end."""


def written(schedule: Schedule) -> list[Any]:
    """Return a schedule as a list of steps and texts: cumulative weights, less 1, in 5 characters for each source."""
    return [
        [step, base64.b85encode(struct.pack(f">{len(weights)}I", *(max(0, one - 1) for one in weights))).decode()]
        for step, weights in schedule
    ]


def schedule_in(written: Sequence[Any], sources: int) -> Schedule:
    found = []
    for step, text in written:
        values = struct.unpack(f">{sources}I", base64.b85decode(text))
        found.append((int(step), [value + 1 if value else 0 for value in values]))
    return found


class MixedOrder:
    """The order of an epoch of a mixture."""

    def __init__(
        self,
        in_source: InSource,
        epoch: int,
        mixing: Mixing,
        total: int,
        since: int,
        unread: Sequence[Unread],
        first: Numbers,
    ) -> None:
        """`since`: the step of the schedule at which it begins; `unread`: the samples that the sources have left, of
        which each begins with number `first`.
        """
        self._of_stream, self._epoch = in_source, epoch
        self.mixing, self.total, self.since, self.unread, self._first = mixing, total, since, unread, first

    def pieces(self, intervals: Iterable[Interval]) -> Iterator[Interval]:
        """The intervals: nothing is cut."""
        yield from intervals

    def _counts(self, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield the sources that have samples in some steps, and the numbers of these in `unread`."""
        first, last = (self._first + self.mixing.counts(step) for step in (start, end))
        for source, (low, high) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            if low < high:
                yield source, low, high

    def of_sources(self, start: int, end: int) -> Iterator[tuple[int, int, Interval]]:
        """Yield what the sources have in some steps: the source, its epoch, and positions in that."""
        for source, low, high in self._counts(start, end):
            yield from self._in_source(source, low, high)

    def _in_source(self, source: int, low: int, high: int) -> Iterator[tuple[int, int, Interval]]:
        for first, last in self.unread[source].positions(low, high):
            for epoch, interval in self._of_stream(source, self._epoch, first, last):
                yield source, epoch, interval

    def sources(self, intervals: Iterable[Interval]) -> Iterator[int]:
        """Yield the source of each step."""
        for start, end in intervals:
            for sources, _ in self.mixing.steps(start, end):
                yield from sources.tolist()

    def samples(self, intervals: Iterable[Interval]) -> Iterator[tuple[int, int, Interval]]:
        """Yield the source, its epoch, and the position in that of each step."""
        for start, end in intervals:
            for sources, numbers in self.mixing.steps(start, end):
                for source, number in zip(sources.tolist(), numbers.tolist(), strict=True):
                    at = number + int(self._first[source])
                    yield from self._in_source(source, at, at + 1)

    def unread_of(self, left: Sequence[Interval]) -> list[Unread]:
        """Return what is to be read of each source if these steps are left."""
        runs: list[list[Interval]] = [[] for _ in self.unread]
        for start, end in left:
            for source, low, high in self._counts(start, end):
                runs[source] += self.unread[source].positions(low, high)
        ends = (self._first + self.mixing.counts(self.total)).tolist()
        found = []
        for own, before, end in zip(runs, self.unread, ends, strict=True):
            after = max(before.after, before.positions(end, end + 1)[0][0])
            found.append(Unread([*own, *before.positions(end, before.count)], after))
        return found


def described(unread: Iterable[Unread]) -> list[Any]:
    """Return what is to be read of sources as it is in a base: runs of their streams, and all after a position."""
    return [[[list(run) for run in one.runs], one.after] for one in unread]


class Distribution:
    """What the sources have in some intervals of steps, which are taken as far as one of them needs it."""

    def __init__(self, order: MixedOrder, intervals: Iterable[Interval], sources: int) -> None:
        self._order, self._intervals = order, iter(intervals)
        self._waiting: list[deque[tuple[int, Interval]]] = [deque() for _ in range(sources)]
        self._steps: deque[Interval] = deque()
        self._lock = threading.Lock()

    def _next(self, waiting: deque[Any]) -> Any:
        """Return the next of what waits for a source, or of the steps; None at the end."""
        with self._lock:
            while not waiting:
                interval = next(self._intervals, None)
                if interval is None:
                    return None
                self._steps.append(interval)
                for source, epoch, positions in self._order.of_sources(*interval):
                    self._waiting[source].append((epoch, positions))
            return waiting.popleft()

    def steps(self) -> Iterator[Interval]:
        """Yield the intervals."""
        while (found := self._next(self._steps)) is not None:
            yield found

    def of(self, source: int) -> Iterator[tuple[int, Interval]]:
        """Yield the epochs of a source, and positions in them."""
        while (found := self._next(self._waiting[source])) is not None:
            yield found
