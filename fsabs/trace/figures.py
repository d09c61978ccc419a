"""The arithmetic of an analysis, on arrays of events: histograms, and quantities over time. Memory is bounded.

`tables.py` counts in the histograms, `analysis.py` adds up in the grids. A log2 histogram, which results have, counts
by bit lengths; a fine one, which percentiles are taken from, has `FINE` buckets for each of those.
"""

from __future__ import annotations

import math

from .intervals import Array
from .schema import trimmed

FINE = 32
"""Buckets of a fine histogram for each power of two: their middle is at most 1.6 % off."""
FINE_BUCKETS = 64 * FINE
SLICES = 512
"""A grid has at most so many slices, and half of them or more where the trace is long enough."""
ENOUGH, MOST_SHARING = 50, 1 << 18
"""Of fewer pieces of work nothing is concluded on what they share; of more, nothing either: they are not kept."""
SEVERAL, SHARES, SURE = 1.5, -0.6, 0.2
"""Something is shared and full if the rate of a piece goes with this power, or a lower one, of how many are under way,
that power is known to this standard error, and for half of the time so many are."""
FIRST_WIDTH = 1 << 16
"""Nanoseconds of a slice to begin with."""


def bit_lengths(values: Array) -> Array:
    """`int.bit_length` of each."""
    import numpy as np

    return np.frexp(values.astype(np.float64))[1].clip(0, 64)


def fine_buckets(values: Array) -> Array:
    """The bucket of each value (not negative) in a fine histogram."""
    import numpy as np

    bits = bit_lengths(values)
    shift = np.maximum(bits - 6, 0)
    return np.where(bits <= 5, values, (shift + 1) * FINE + ((values >> shift) & (FINE - 1)))


def fine_middle(bucket: int) -> float:
    """The middle of a bucket of a fine histogram."""
    if bucket < FINE:
        return float(bucket)
    shift, sub = bucket // FINE - 1, bucket % FINE
    return ((FINE + sub) << shift) + ((1 << shift) - 1) / 2


def percentile(counts: Array, fraction: float) -> float:
    """The value below which `fraction` of a fine histogram lies; NaN if it is empty."""
    import numpy as np

    total = int(counts.sum())
    if not total:
        return math.nan
    return fine_middle(int(np.searchsorted(np.cumsum(counts), fraction * total)))


def coarse(counts: Array) -> list[int]:
    """A fine histogram as a log2 histogram's counts."""
    by_bits = [int(counts[0])]
    by_bits += [int(counts[1 << (bits - 1) : 1 << bits].sum()) for bits in range(1, 6)]
    by_bits += [int(counts[at : at + FINE].sum()) for at in range(FINE, FINE_BUCKETS, FINE)]
    return trimmed(by_bits)


class Sharing:
    """Pieces of work that may share a link, a store or a disk: are they slower where more of them are under way?"""

    def __init__(self) -> None:
        self._kept: list[Array] = []
        self.count = 0

    def add(self, begins: Array, ends: Array, amounts: Array) -> None:
        """Add some, while there are few enough to be kept."""
        import numpy as np

        self.count += len(begins)
        if self.count <= MOST_SHARING and len(begins):
            self._kept.append(np.stack((begins, ends, amounts)))

    def ceiling(self) -> tuple[bool, float, float] | None:
        """Return whether bytes are shared, or pieces; the most of them a second; and for which part of the time.

        What is limited by latency, or by its own connection, takes as long however much is under way; of what is
        shared and full, each has a part that is the smaller the more there are. None where this isn't so, and where
        no more is under way at one time than at another: nothing is known then.
        """
        import numpy as np

        if not ENOUGH <= self.count <= MOST_SHARING:
            return None
        begins, ends, amounts = np.concatenate(self._kept, axis=1)
        times = np.concatenate((begins, ends))
        order = np.argsort(times, kind="stable")
        under_way = np.cumsum(np.repeat((1, -1), len(begins))[order])[:-1]
        times = times[order]
        spent = np.concatenate(([0.0], np.cumsum(under_way * np.diff(times))))
        took = (ends - begins).clip(1).astype(np.float64)
        beside = ((np.interp(ends, times, spent) - np.interp(begins, times, spent)) / took).clip(1)
        found = []
        for bytes_shared, shared in ((True, amounts.clip(1)), (False, np.ones(len(took)))):
            logs = np.log(beside), np.log(shared / took)
            varied = logs[0].var()
            slope = np.cov(*logs, bias=True)[0, 1] / varied if varied > 1e-6 else 0.0
            rest = (logs[1] - slope * logs[0]).std()
            if slope <= SHARES and rest / (len(took) * max(varied, 1e-12)) ** 0.5 <= SURE:
                found.append((rest, bytes_shared, float(np.median(shared / took * beside)) * 1e9))
        part = float(took[beside >= SEVERAL].sum() / took.sum())
        if not found or part < 0.5:
            return None
        rest, bytes_shared, most = min(found, key=lambda one: (round(one[0], 2), not one[1]))
        return bytes_shared, most, part


class Grid:
    """A quantity over time in equal slices, that become wider as time goes on."""

    def __init__(self, zero: int) -> None:
        import numpy as np

        self.zero = zero
        self.width = FIRST_WIDTH
        self._sums = np.zeros(SLICES)
        # What covers slices from end to end is one change up at its first slice, one down behind its last: `_folded`
        # adds them up.
        self._changes = np.zeros(SLICES + 1)

    def spread(self, begins: Array, ends: Array, weights: Array | float) -> None:
        """Add `weights` a nanosecond from each begin to each end (nanoseconds since 1970)."""
        import numpy as np

        if not len(begins):
            return
        begins, ends = np.maximum(begins - self.zero, 0), np.maximum(ends - self.zero, 0)
        self.widen(int(ends.max()))
        first, last = begins // self.width, ends // self.width
        weights = np.broadcast_to(np.asarray(weights, np.float64), begins.shape)
        same = first == last
        np.add.at(self._sums, first[same], (ends - begins)[same] * weights[same])
        first, last, rest = first[~same], last[~same], weights[~same]
        np.add.at(self._sums, first, ((first + 1) * self.width - begins[~same]) * rest)
        np.add.at(self._sums, last, (ends[~same] - last * self.width) * rest)
        np.add.at(self._changes, first + 1, self.width * rest)
        np.add.at(self._changes, last, -self.width * rest)

    def count(self, times: Array, amounts: Array | float) -> None:
        """Add each amount in the slice of its time."""
        import numpy as np

        if len(times):
            at = np.maximum(times - self.zero, 0)
            self.widen(int(at.max()))
            np.add.at(self._sums, at // self.width, amounts)

    def widen(self, end: int) -> None:
        """Double the width until `end` (nanoseconds from the grid's zero) is on the grid."""
        import numpy as np

        while end >= SLICES * self.width:
            sums = self._folded().reshape(-1, 2).sum(axis=1)
            self._sums = np.concatenate((sums, np.zeros(SLICES // 2)))
            self.width *= 2

    def slices(self, width: int, end: int) -> Array:
        """The sums of slices of `width`, which is no less than the grid's own, up to `end` nanoseconds."""
        while self.width < width:
            self.widen(SLICES * self.width)
        return self._folded()[: max(1, -(-end // self.width))]

    def _folded(self) -> Array:
        import numpy as np

        self._sums = self._sums + np.cumsum(self._changes)[:SLICES]
        self._changes = np.zeros(SLICES + 1)
        return self._sums
