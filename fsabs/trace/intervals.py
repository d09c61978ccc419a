"""Arithmetic on intervals of time: arrays of begins and of ends, in order and disjoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Array = Any
"""A numpy array: numpy is loaded when it is used."""

Intervals = tuple[Array, Array]
"""The begins and the ends, of one length."""

MOST = 1 << 22
"""Intervals that a `Collector` keeps as they are, days of steps; of more, those that are close together become one."""
FOR_TOTALS = 1 << 16
"""Intervals that one keeps whose sum alone is wanted, which is right even so."""


def empty() -> Intervals:
    """Return no intervals."""
    import numpy as np

    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def union(begins: Array, ends: Array) -> Intervals:
    """Return the disjoint intervals, in order, that cover the same time as any intervals."""
    import numpy as np

    if not len(begins):
        return begins, ends
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], begins[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return begins[first], ends[last]


def joined(some: Sequence[Intervals]) -> Intervals:
    """Return the union of several."""
    import numpy as np

    if not some:
        return empty()
    return union(np.concatenate([begins for begins, _ in some]), np.concatenate([ends for _, ends in some]))


def intersection(first: Intervals, second: Intervals) -> Intervals:
    """Return the time that is in both."""
    import numpy as np

    times = np.concatenate((*first, *second))
    ones = (np.ones(len(first[0]), np.int64), np.ones(len(second[0]), np.int64))
    order = np.argsort(times, kind="stable")
    depth = np.cumsum(np.concatenate((ones[0], -ones[0], ones[1], -ones[1]))[order])[:-1]
    times = times[order]
    both = (depth == 2) & (times[1:] > times[:-1])
    return times[:-1][both], times[1:][both]


def difference(first: Intervals, second: Intervals) -> Intervals:
    """Return the time that is in the first and not in the second."""
    import numpy as np

    begins, ends = second
    far = np.iinfo(np.int64)
    outside = np.concatenate(([far.min], ends)), np.concatenate((begins, [far.max]))
    return intersection(first, outside)


def covered(begin: Array, end: Array, by: Intervals) -> Array:
    """Return how much of each interval from `begin` to `end` is covered, in the unit of the times."""
    import numpy as np

    starts, stops = by
    if not len(starts):
        return np.zeros(len(begin), np.int64)
    before = np.concatenate(([0], np.cumsum(stops - starts)))

    def until(time: Array) -> Array:
        """Return how much is covered up to a time."""
        at = np.searchsorted(starts, time, side="right") - 1
        inside = np.minimum(time, stops[np.maximum(at, 0)]) - starts[np.maximum(at, 0)]
        return np.where(at < 0, 0, before[np.maximum(at, 0)] + np.maximum(inside, 0))

    return until(end) - until(begin)


def length(some: Intervals) -> int:
    """Return the sum of the durations."""
    return int((some[1] - some[0]).sum())


class Collector:
    """Collects intervals, in any order, in bounded memory: at most `most` of them are kept apart, `MOST` by default."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most or MOST
        self._kept: list[Intervals] = []
        self._count = 0
        self._gap = 0  # intervals that are no further apart are one
        self._between = 0

    def add(self, begins: Array, ends: Array) -> None:
        """Add some, which may overlap."""
        if len(begins):
            self._kept.append((begins, ends))
            self._count += len(begins)
            if self._count >= 2 * self._most:
                self.get()

    def total(self) -> int:
        """Return the sum of the durations, without what is between those that became one."""
        return length(self.get()) - self._between

    @property
    def is_exact(self) -> bool:
        """False once intervals with time between them have become one."""
        return not self._gap

    def get(self) -> Intervals:
        """Return all of them, disjoint."""
        found = joined(self._kept)
        while len(found[0]) > self._most:
            self._gap, before = 2 * self._gap or 1000, length(found)
            found = union(found[0], found[1] + self._gap)
            found = found[0], found[1] - self._gap
            self._between += length(found) - before
        self._kept, self._count = [found], len(found[0])
        return found
