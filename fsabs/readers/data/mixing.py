"""The sequence of a mixture: which source each step takes, and which of the source's samples that is, by arithmetic.

Steps are cut into blocks. At the end of a block, each source has had its share of all steps by its weight, to within
one (the cumulative shares are rounded); within a block, the sources come in a hashed order. So what a step takes is
known from its block alone, and nothing is kept that grows with the steps.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from .order import Interval, Numbers, key_of, shuffled

Ending = Literal["stop", "repeat", "leave"]
"""What happens when a source has no more samples: the mixture ends, the source begins anew, or the others go on."""
Weights: TypeAlias = Mapping[str, float] | Sequence[tuple[int, Mapping[str, float]]]
"""One weight for each source, or a list of (step from which they hold, weights)."""
Schedule = list[tuple[int, list[int]]]
"""The same, as integers of which the largest cumulative one is 2**32."""

_WHOLE = 1 << 32
_LEAST_SHARE = 2.0**-16
_LEAST_BITS, _MOST_BITS = 6, 17
"""Of the number of steps in a block: as many as the rarest source needs to come once."""
_NEAR = 4  # blocks by which the guess of a sample's block may be wrong
_AT_ONCE = 1 << 16  # steps that are computed together


def schedule_of(weights: Weights, names: Sequence[str]) -> Schedule:
    """Return the cumulative weights of sources in the order of `names`, from each step on at which they change.

    `ValueError` for weights that are negative, all 0, or below 1/65,536 of their sum without being 0, `TypeError` for
    anything but numbers by name.
    """
    try:
        pairs = [(0, weights)] if isinstance(weights, Mapping) else [(step, dict(one)) for step, one in weights]
    except (TypeError, ValueError):
        raise TypeError(f"weights are numbers by name, or a list of (step, weights), not {weights!r}") from None
    if not pairs or pairs[0][0] != 0 or any(one[0] >= two[0] for one, two in itertools.pairwise(pairs)):
        raise ValueError("a schedule of weights is a list of (step, weights) from step 0 on, with ascending steps")
    return [(int(step), _cumulative(one, names)) for step, one in pairs]


def _cumulative(weights: Mapping[str, float], names: Sequence[str]) -> list[int]:
    if set(weights) != set(names):
        raise ValueError(f"weights are given for {sorted(weights)}, and there are the sources {sorted(names)}")
    values = [float(weights[name]) for name in names]
    total = sum(values)
    if not 0 < total < float("inf") or any(value < 0 for value in values):
        raise ValueError(f"weights are not negative, finite, and not all 0: {dict(weights)}")
    return rescaled([value / total for value in values])


def rescaled(shares: Sequence[float]) -> list[int]:
    """Return cumulative weights of sources with these shares, whose sum is 1."""
    for share in shares:
        if 0 < share < _LEAST_SHARE:
            raise ValueError(f"a weight is 0 or at least 1/65,536 of the sum of the weights, not {share:g} of it")
    found, at = [], 0.0
    for share in shares:
        at += share
        found.append(min(_WHOLE, round(at * _WHOLE)))
    last = max(number for number, share in enumerate(shares) if share)
    return [*found[:last], *[_WHOLE] * (len(found) - last)]


class _Stretch:
    """Steps with the same weights, numbered from 0."""

    def __init__(self, cumulative: Sequence[int], key: int) -> None:
        self.cumulative = np.array(cumulative, np.uint64)
        self.weights = np.diff(self.cumulative.astype(np.int64), prepend=0)
        least = int(self.weights[self.weights > 0].min())
        self.bits = min(_MOST_BITS, max(_LEAST_BITS, (-(-_WHOLE // least) - 1).bit_length()))
        self._shift = np.uint64(32 - self.bits)
        self._half = np.uint64(1 << (31 - self.bits))
        self._key = key

    def at_blocks(self, first: int, last: int) -> Numbers:
        """Return how many samples of each source come before the blocks `first` to `last`: a row for each."""
        blocks = np.arange(first, last + 1, dtype=np.uint64)[:, None]
        rounded = (blocks * self.cumulative + self._half >> self._shift).astype(np.int64)
        found: Numbers = np.diff(rounded, axis=1, prepend=0)
        return found

    def steps(self, first: int, last: int) -> tuple[Numbers, Numbers]:
        """Return the sources of the steps of blocks, and the number of each sample in its source."""
        counts = self.at_blocks(first, last)
        blocks, size = last - first, 1 << self.bits
        each = np.diff(counts, axis=0)
        sources = np.repeat(np.tile(np.arange(each.shape[1]), blocks), each.reshape(-1)).reshape(blocks, size)
        begins = np.cumsum(each, axis=1) - each
        numbers = np.arange(size) - np.take_along_axis(begins, sources, 1) + np.take_along_axis(counts[:-1], sources, 1)
        steps = np.arange(first * size, last * size, dtype=np.int64).reshape(blocks, size)
        mixed = np.take_along_axis(sources, np.argsort(shuffled(steps, self._key), axis=1, kind="stable"), 1)
        in_order = np.empty_like(numbers)
        np.put_along_axis(in_order, np.argsort(mixed, axis=1, kind="stable"), numbers, 1)
        return mixed.reshape(-1), in_order.reshape(-1)

    def counts(self, step: int) -> Numbers:
        """Return how many samples of each source come before a step."""
        block, rest = step >> self.bits, step & (1 << self.bits) - 1
        found: Numbers = self.at_blocks(block, block)[0]
        if rest:
            sources, _ = self.steps(block, block + 1)
            found = found + np.bincount(sources[:rest], minlength=len(found))
        return found

    def extreme(self, which: Any, samples: Mapping[int, int]) -> tuple[int, int]:
        """Return the first or the last (`min` or `max`) of the steps of some sources' samples, and its source."""
        about = {source: (number << 32 - self.bits) // int(self.weights[source]) for source, number in samples.items()}
        guess = which(about.values())
        blocks = {
            source: self._block_of(source, samples[source], block)
            for source, block in about.items()
            if abs(block - guess) <= 2 * _NEAR
        }
        block = which(blocks.values())
        sources, numbers = self.steps(block, block + 1)
        found = (
            (int(np.flatnonzero((sources == source) & (numbers == samples[source]))[0]), source)
            for source, one in blocks.items()
            if one == block
        )
        step, source = which(found)
        return (block << self.bits) + step, source

    def _block_of(self, source: int, number: int, about: int) -> int:
        """Return the block of a source's sample, which is near `about`."""
        blocks = range(max(0, about - _NEAR), about + _NEAR)
        return next(block for block in blocks if self._before(source, block + 1) > number)

    def _before(self, source: int, block: int) -> int:
        half, shift = int(self._half), int(self._shift)
        upper = block * int(self.cumulative[source]) + half >> shift
        lower = block * int(self.cumulative[source - 1]) + half >> shift if source else 0
        return upper - lower


class _Placed(NamedTuple):
    start: int
    """The first step of the stretch."""
    before: Numbers
    """How many samples of each source come before it."""
    stretch: _Stretch


class Mixing:
    """The steps of a mixture of sources: an endless sequence, or one that ends where its sources do.

    Args:
        schedule: see `schedule_of`.
        seed: of the order within blocks.
        sizes: of the sources, in samples.
        ending: what happens when a source has no more.
        length: of a mixture whose sources repeat: its steps; None ends it when each source has been read once.
        since: the step of the schedule at which this begins.
    """

    def __init__(
        self,
        schedule: Schedule,
        seed: int,
        sizes: Sequence[int],
        ending: Ending,
        length: int | None = None,
        since: int = 0,
    ) -> None:
        self._key = key_of(seed, 0)
        self._sizes = np.array(sizes, np.int64)
        begun = max(number for number, (step, _) in enumerate(schedule) if step <= since)
        coming = [(0, schedule[begun][1]), *((step - since, weights) for step, weights in schedule[begun + 1 :])]
        self.cuts: tuple[int, ...] = ()
        """The steps from which other weights of the schedule hold, which is earlier where no source is left before."""
        self._placed: list[_Placed] = []
        self._left: set[int] = set()  # the sources that have no more
        at, self.total = 0, 0
        zero = np.zeros(len(sizes), np.int64)
        for number, (_, cumulative) in enumerate(coming):
            until = coming[number + 1][0] if number + 1 < len(coming) else None
            if self._placed:
                zero = self.counts(at)
            at = self._add(at, zero, cumulative, until, ending)
            if until is None or (at < until and ending != "leave"):
                break
            self.cuts += (at,)
        if not self._placed:  # all sources are empty
            self._placed.append(_Placed(0, zero, _Stretch(coming[0][1], self._key)))
        if ending == "repeat":
            self.total = self._once_each() if length is None else length
        else:
            self.total = at

    def _add(self, at: int, before: Numbers, cumulative: list[int], until: int | None, ending: Ending) -> int:
        """Add the steps from `at` on, to `until` or to their end; return where they end."""
        while True:
            weights = _without(cumulative, self._left)
            if weights is None:
                return at
            stretch = _Stretch(weights, self._key ^ at)
            self._placed.append(_Placed(at, before, stretch))
            if ending == "repeat":
                return at if until is None else until
            end, source = self._first_end(self._placed[-1])
            if ending == "stop":
                return end if until is None else min(end, until)
            # The last sample of the source is before `end`: from there on, the others are alone.
            if until is not None and end >= until:
                return until
            self._left.add(source)
            before = before + stretch.counts(end - at)
            if end == at:
                self._placed.pop()
            at = end

    def _first_end(self, placed: _Placed) -> tuple[int, int]:
        """Return the first step that would take a sample which a source has not, and the source.

        Of a source that leaves, that is after its last sample.
        """
        start, before, stretch = placed
        left = (self._sizes - before).tolist()
        sources = [source for source, weight in enumerate(stretch.weights.tolist()) if weight]
        step, source = stretch.extreme(min, {source: left[source] for source in sources})
        return start + step, source

    def _once_each(self) -> int:
        """Return the step at which each source with a weight has been read once."""
        for number, (start, before, stretch) in reversed(list(enumerate(self._placed))):
            following = self._placed[number + 1].before if number + 1 < len(self._placed) else self._sizes
            ending = (stretch.weights > 0) & (before < self._sizes) & (following >= self._sizes)
            last = {
                source: int(self._sizes[source] - before[source]) - 1
                for source, ends in enumerate(ending.tolist())
                if ends
            }
            if last:
                return int(start + 1 + stretch.extreme(max, last)[0])
        return 0

    def counts(self, step: int) -> Numbers:
        """Return how many samples of each source come before a step."""
        start, before, stretch = self._placed[self._number(step)]
        found: Numbers = before + stretch.counts(step - start)
        return found

    def _number(self, step: int) -> int:
        return bisect_right(self._placed, step, key=lambda placed: placed.start) - 1

    def steps(self, start: int, end: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield, some at a time, the sources of the steps from one to another, and the numbers of their samples."""
        while start < end:
            number = self._number(start)
            first, before, stretch = self._placed[number]
            last = min(end, self._placed[number + 1].start if number + 1 < len(self._placed) else end)
            size = 1 << stretch.bits
            block = start - first >> stretch.bits
            blocks = min(-(-(last - first) // size), block + max(1, _AT_ONCE >> stretch.bits))
            sources, numbers = stretch.steps(block, blocks)
            begin = start - first - block * size
            until = min(last - first, blocks * size) - block * size
            yield sources[begin:until], numbers[begin:until] + before[sources[begin:until]]
            start = first + block * size + until


def _without(cumulative: list[int], left: set[int]) -> list[int] | None:
    """Return the weights of the sources that are still there, or None if there are none."""
    if not left:
        return cumulative
    weights = [upper - lower for lower, upper in zip([0, *cumulative], cumulative, strict=False)]
    weights = [0 if source in left else weight for source, weight in enumerate(weights)]
    total = sum(weights)
    return rescaled([weight / total for weight in weights]) if total else None


class Unread:
    """The samples of a source that are to be read, numbered: runs of them, and all after the last run.

    A sample is a position in the source's stream, which goes on from epoch to epoch where the source repeats.
    """

    def __init__(self, runs: Sequence[Interval] = (), after: int = 0) -> None:
        self.runs = list(runs)
        self.count = sum(end - start for start, end in self.runs)
        self.after = after

    def positions(self, start: int, end: int) -> list[Interval]:
        """Return where the samples of numbers `start` to `end` are."""
        found, at = [], 0
        for first, last in self.runs:
            size = last - first
            if start < at + size and end > at:
                found.append((first + max(0, start - at), first + min(size, end - at)))
            at += size
        if end > self.count:
            found.append((self.after + max(0, start - self.count), self.after + end - self.count))
        return [one for one in found if one[0] < one[1]]
