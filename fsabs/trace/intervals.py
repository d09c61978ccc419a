"""Intervals of time: arrays of begins and of ends, in order and disjoint."""

from __future__ import annotations

from typing import Any

Array = Any
"""A numpy array: numpy is loaded when it is used."""

Intervals = tuple[Array, Array]
"""The begins and the ends, of one length."""

MOST = 1 << 16
"""Intervals that a `Collector` keeps as they are; of more, those that are close together become one."""


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


class Collector:
    """Collects intervals, in any order, whose sum is wanted, in bounded memory: at most `MOST` are kept apart."""

    def __init__(self) -> None:
        import numpy as np

        self._kept: list[Intervals] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        self._count = 0
        self._gap = 0  # intervals that are no further apart are one
        self._between = 0

    def add(self, begins: Array, ends: Array) -> None:
        """Add some, which may overlap."""
        self._kept.append((begins, ends))
        self._count += len(begins)
        if self._count >= 2 * MOST:
            self.get()

    def total(self) -> int:
        """Return the sum of the durations, without what is between those that became one."""
        begins, ends = self.get()
        return int((ends - begins).sum()) - self._between

    def get(self) -> Intervals:
        """Return all of them, disjoint."""
        import numpy as np

        begins, ends = union(*(np.concatenate(column) for column in zip(*self._kept, strict=True)))
        while len(begins) > MOST:
            self._gap, before = 2 * self._gap or 1000, int((ends - begins).sum())
            begins, ends = union(begins, ends + self._gap)
            ends = ends - self._gap
            self._between += int((ends - begins).sum()) - before
        self._kept, self._count = [(begins, ends)], len(begins)
        return begins, ends
