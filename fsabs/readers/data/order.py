"""The order of an epoch as a function of (seed, epoch), and how what remains of it is split.

The samples of an epoch have positions 0 to N - 1, in the order in which they would be read by one reader. Where a
position lies (shard, record) can be computed from the shards, the seed and the epoch alone, so that the whole state of
a pass is which positions remain: a few intervals. Nothing is drawn from a generator whose state would have to be kept,
and the hash (SplitMix64: Steele, Lea, Flood, OOPSLA 2014) is our own, so that an order outlives releases of NumPy.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import operator
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.threads import in_threads
from .base import Shard

Numbers = npt.NDArray[np.int64]

Interval = tuple[int, int]
"""Positions from the first to the second, exclusive."""


class EpochOrder:
    """The orders of the epochs over some shards.

    Args:
        shards: what there is.
        seed: of the shuffles; None leaves everything in the order of the shards.
        block_size: records that stay together when shards are shuffled; None is a whole shard.
        buffer_size: each run of so many positions is shuffled in itself; 0 or 1 leaves it alone.
    """

    def __init__(
        self, shards: Sequence[Shard], seed: int | None = None, block_size: int | None = None, buffer_size: int = 0
    ) -> None:
        if block_size is not None and block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if buffer_size < 0:
            raise ValueError(f"buffer_size must not be negative: {buffer_size}")
        self.shards = list(shards)
        self.seed = seed
        self.buffer_size = buffer_size if seed is not None else 0
        self.settings = _plain(seed, block_size, self.buffer_size)
        blocks = [
            (number, start, min(block_size or shard.count, shard.end - start))
            for number, shard in enumerate(self.shards)
            for start in range(shard.start, shard.end, block_size or max(1, shard.count))
        ]
        self.blocks: Numbers = np.array(blocks, np.int64).reshape(-1, 3)
        self.groups: Numbers = np.arange(len(blocks), dtype=np.int64)
        """The number of each block's group: blocks of one stay together."""
        self.total = int(self.blocks[:, 2].sum())

    def fingerprint(self) -> str:
        """Return the fingerprint of an order: of the shards and the settings, in 32 hexadecimal digits."""
        described = json.dumps([self.shards, *self.settings])
        return hashlib.blake2b(described.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def epoch(self, number: int) -> Epoch:
        """The order of an epoch."""
        return Epoch(self, number)


class Epoch:
    """The order of one epoch."""

    def __init__(self, order: EpochOrder, number: int) -> None:
        self._order = order
        self._key = None if order.seed is None else key_of(order.seed, number)
        self._blocks = order.blocks
        if self._key is not None:
            self._blocks = order.blocks[np.argsort(shuffled(order.groups, self._key), kind="stable")]
        self._ends: Numbers = np.cumsum(self._blocks[:, 2])
        self._kept: dict[int, Numbers] = {}  # the shuffled positions of buffers, by their first one

    @property
    def shuffles_buffers(self) -> bool:
        """Return whether the positions of each buffer are shuffled among each other."""
        return self._order.buffer_size > 1

    def pieces(self, intervals: Iterable[Interval]) -> Iterator[Interval]:
        """The intervals, cut where a buffer or (with none) a block ends."""
        for start, end in intervals:
            while start < end:
                cut = min(end, self._piece_at(start)[1])
                yield start, cut
                start = cut

    def _piece_at(self, position: int) -> Interval:
        """Return the positions that are cut nowhere, around one: those of a buffer or of a block."""
        size = self._order.buffer_size
        if size > 1:
            first = position // size * size
            return first, min(first + size, self._order.total)
        number = int(self._ends.searchsorted(position, side="right"))
        return int(self._ends[number] - self._blocks[number, 2]), int(self._ends[number])

    def shards_in_turn(self, parts: Sequence[Sequence[Interval]]) -> list[int]:
        """Return the numbers of the shards that readers at the same speed reach, each of them once, in order.

        Args:
            parts: the intervals of each reader.
        """
        times, shards = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for intervals in parts:
            taken = 0
            for start, end in intervals:
                first, last = self._ends.searchsorted([start, end - 1], side="right")
                begins = self._ends[first : last + 1] - self._blocks[first : last + 1, 2]
                times.append(taken + np.maximum(begins - start, 0))
                shards.append(self._blocks[first : last + 1, 0])
                taken += end - start
        by_time = np.concatenate(shards)[np.argsort(np.concatenate(times), kind="stable")]
        found, first_places = np.unique(by_time, return_index=True)
        return [int(shard) for shard in found[np.argsort(first_places)]]

    def locate(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions of one piece, in order."""
        at = np.arange(start, end, dtype=np.int64)
        if self.shuffles_buffers and self._key is not None:
            first, last = self._piece_at(start)
            at = self._permuted(first, last)[start - first : end - first]
        return self.at(at)

    def _permuted(self, first: int, last: int) -> Numbers:
        """Return the positions of a buffer in their shuffled order, which is kept: batches take some from several."""
        found = self._kept.pop(first, None)
        if found is None:
            whole = np.arange(first, last, dtype=np.int64)
            found = whole[np.argsort(shuffled(whole, self._key or 0, 1), kind="stable")]
            for other in list(self._kept)[: -max(1, _KEPT // len(found))]:
                self._kept.pop(other, None)  # another thread may have
        self._kept[first] = found  # the last one that was used
        return found

    def at(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions, before any shuffle within buffers."""
        block = self._ends.searchsorted(positions, side="right")
        row = self._blocks[block]
        return row[:, 0], row[:, 1] + positions - (self._ends[block] - row[:, 2])


class JoinedEpoch(Epoch):
    """Epochs over shards that follow each other, one after the other: of shards that were added later."""

    def __init__(self, epochs: Sequence[Epoch], shards: Sequence[int], totals: Sequence[int]) -> None:
        """`shards` and `totals` are the numbers of shards and of positions of each."""
        self._epochs = epochs
        self._shards = list(itertools.accumulate((0, *shards)))
        self._starts = list(itertools.accumulate((0, *totals)))

    @property
    def shuffles_buffers(self) -> bool:
        """Return whether the positions of each buffer are shuffled among each other."""
        return self._epochs[0].shuffles_buffers

    def pieces(self, intervals: Iterable[Interval]) -> Iterator[Interval]:
        """The intervals, cut as each epoch cuts them."""
        for interval in intervals:
            for epoch, (start, end) in zip(self._epochs, itertools.pairwise(self._starts), strict=True):
                own = [(first - start, last - start) for first, last in between([interval], start, end)]
                yield from ((first + start, last + start) for first, last in epoch.pieces(own))

    def locate(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions of one piece, in order."""
        number = max(0, bisect_right(self._starts, start, hi=len(self._epochs)) - 1)
        shards, records = self._epochs[number].locate(start - self._starts[number], end - self._starts[number])
        return shards + self._shards[number], records

    def shards_in_turn(self, parts: Sequence[Sequence[Interval]]) -> list[int]:
        """Return the numbers of the shards that readers at the same speed reach."""
        found = []
        for number, (start, end) in enumerate(itertools.pairwise(self._starts)):
            own = [[(one - start, two - start) for one, two in between(part, start, end)] for part in parts]
            found += [shard + self._shards[number] for shard in self._epochs[number].shards_in_turn(own)]
        return found


_MASK = 2**64 - 1
_SALT = 0x6A09E667F3BCC908  # the fraction of sqrt(2): so that blocks and buffers are shuffled apart


def _plain(*settings: int | str | None) -> tuple[int | str | None, ...]:
    """Return settings as they are in states and digests: integers of NumPy as plain ones."""
    return tuple(one if one is None or isinstance(one, str) else operator.index(one) for one in settings)


def key_of(seed: int, epoch: int) -> int:
    """Return the key of an epoch's shuffles, of 64 bits."""
    digest = hashlib.blake2b(f"{seed}/{epoch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def shuffled(numbers: Numbers, key: int, salt: int = 0) -> npt.NDArray[np.uint64]:
    """Return a hash of each number, by which they are ordered in a shuffle; `salt` sets shuffles of one key apart.

    It is SplitMix64 under the key, which maps no two numbers to one.
    """
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key ^ salt * _SALT & _MASK)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


# ---- records at positions


def by_shard(shards: Numbers) -> list[tuple[int, Numbers]]:
    """Return the places of each shard's records among these, in their order."""
    order = np.argsort(shards, kind="stable")
    places = np.split(order, np.flatnonzero(np.diff(shards[order])) + 1)
    return [(int(shards[own[0]]), own) for own in places if len(own)]


def gathered(
    shards: Numbers, records: Numbers, read: Callable[[int, list[int]], Iterable[Any]], at_once: int
) -> list[Any]:
    """Return records in the order given; `read(shard, numbers)` returns those of one shard, with ascending numbers.

    So many shards are read at once, by threads.
    """
    order = np.lexsort((records, shards))
    in_turn, numbers = shards[order], records[order].tolist()
    cuts = [0, *(np.flatnonzero(np.diff(in_turn)) + 1).tolist(), len(numbers)]
    parts = [(int(in_turn[start]), numbers[start:end]) for start, end in itertools.pairwise(cuts) if start < end]
    contents = in_threads(lambda part: list(read(*part)), parts, min(at_once, len(parts)))
    found: list[Any] = [None] * len(numbers)
    for place, record in zip(order.tolist(), itertools.chain.from_iterable(contents), strict=True):
        found[place] = record
    return found


# ---- intervals


def length(intervals: Iterable[Interval]) -> int:
    """Return the number of positions that they hold."""
    return sum(end - start for start, end in intervals)


def drop(intervals: Iterable[Interval], count: int) -> Iterator[Interval]:
    """The intervals without their first `count` positions."""
    for start, end in intervals:
        skipped = min(count, end - start)
        count -= skipped
        if start + skipped < end:
            yield start + skipped, end


def take(intervals: Iterable[Interval], count: int) -> Iterator[Interval]:
    """Their first `count` positions."""
    for start, end in intervals:
        if count <= 0:
            return
        yield start, min(end, start + count)
        count -= end - start


def part(intervals: Sequence[Interval], number: int, parts: int, cuts: Sequence[int] = ()) -> list[Interval]:
    """Part `number` of `parts`, in sizes that differ by at most 1: runs of the intervals as they follow each other.

    Where there are `cuts`, each stretch between them is divided by itself.
    """
    found: list[Interval] = []
    more = parts - 1  # the next part, backwards, that gets a position more than others
    for stretch in _stretches(intervals, cuts):
        least, extra = divmod(length(stretch), parts)
        before = sum((more - other) % parts < extra for other in range(number))
        found += take(drop(stretch, number * least + before), least + ((more - number) % parts < extra))
        more = (more - extra) % parts
    return found


def _stretches(intervals: Sequence[Interval], cuts: Sequence[int]) -> Iterator[list[Interval]]:
    """Yield the intervals between cuts."""
    if not cuts:
        yield list(intervals)
        return
    for start, end in itertools.pairwise((0, *cuts, max((end for _, end in intervals), default=0))):
        yield between(intervals, start, end)


def between(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    """Return what the intervals have from one position to another."""
    cut = ((max(start, first), min(end, last)) for first, last in intervals)
    return [(first, last) for first, last in cut if first < last]


def wrapped(intervals: Iterable[Interval], total: int) -> Iterator[Interval]:
    """Yield the intervals with positions from `total` on as the first ones again."""
    for start, end in intervals:
        while start < end:
            at = start % total
            count = min(end - start, total - at)
            yield at, at + count
            start += count


def union(parts: Iterable[Sequence[Interval]]) -> list[Interval]:
    """All positions of the parts, ascending; `ValueError` if a position is in two of them."""
    joined: list[list[int]] = []
    for start, end in sorted(interval for one in parts for interval in one):
        if joined and start < joined[-1][1]:
            raise ValueError(f"position {start} is in two parts")
        if joined and start == joined[-1][1]:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return [(start, end) for start, end in joined]


def intervals_of(value: Any, total: int) -> list[Interval]:
    """Intervals as they come out of a state; `ValueError` if they are none of positions 0 to `total`."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"no list of intervals: {value!r}")
    found = []
    for one in value:
        if not (isinstance(one, list | tuple) and len(one) == 2 and 0 <= one[0] < one[1] <= total):
            raise ValueError(f"no interval of positions up to {total}: {one!r}")
        found.append((int(one[0]), int(one[1])))
    return found


# ---- orders for rows and windows of tokens: functions of (seed, epoch) with the interface of `EpochOrder`


class WindowOrder(EpochOrder):
    """Chunks in a shuffled order, and the records of each `window` chunks that follow each other shuffled together.

    Args:
        shards: what there is.
        chunks: a row for each chunk: the number of its shard, its first record, its records, and the number of its
            group. Chunks of a group (the parts of a large row group) stay together, in their order.
        seed: of the shuffles; None leaves everything in the order of the shards.
        window: how many chunks are shuffled among each other; 1 shuffles within chunks, 0 only the chunks.
        chunk_bytes: what chunks were cut by, where that is no part of the shards' content.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        chunks: Numbers,
        seed: int | None,
        window: int,
        chunk_bytes: int | None = None,
    ) -> None:
        if window < 0:
            raise ValueError(f"window must not be negative: {window}")
        super().__init__([], seed, None, 0)
        self.shards = list(shards)
        self.blocks = chunks[:, :3]
        self.groups = chunks[:, 3]
        self.total = int(self.blocks[:, 2].sum())
        self.window = window if seed is not None else 0
        self.settings = _plain(seed, "window", self.window)
        if seed is not None and chunk_bytes is not None:
            self.settings += _plain(chunk_bytes)

    def fingerprint(self) -> str:
        """Return the fingerprint of an order, in 32 hexadecimal digits."""
        digest = hashlib.blake2b(repr(self.settings).encode(), digest_size=16)
        digest.update(self.blocks.tobytes())
        return digest.hexdigest()

    def epoch(self, number: int) -> Epoch:
        """The order of an epoch."""
        return _WindowEpoch(self, number)


class _WindowEpoch(Epoch):
    """The order of one epoch of a `WindowOrder`."""

    def __init__(self, order: WindowOrder, number: int) -> None:
        super().__init__(order, number)
        self._window = order.window
        step = max(1, self._window)
        self._cuts = np.unique(np.concatenate([[0], self._ends[step - 1 :: step], [order.total]]))

    @property
    def shuffles_buffers(self) -> bool:
        """Return whether the positions of each window are shuffled among each other."""
        return self._window > 0

    def _piece_at(self, position: int) -> Interval:
        number = int(self._cuts.searchsorted(position, side="right"))
        return int(self._cuts[number - 1]), int(self._cuts[number])


_KEPT = 1 << 20  # positions of buffers whose order is kept
LOCATED_TOGETHER = 256
"""Records at random places that are located, and so read, together."""


class RandomOrder(EpochOrder):
    """Every record at random among all, by a bijection of numbers: no table grows with the records.

    A seed of None leaves the records in the order of the shards.
    """

    def __init__(self, shards: Sequence[Shard], seed: int | None) -> None:
        super().__init__(shards, seed, None, 0)
        self.settings = _plain(seed, "random", 0)

    def epoch(self, number: int) -> Epoch:
        """The order of an epoch."""
        return _RandomEpoch(self, number)


class _RandomEpoch(Epoch):
    """The order of one epoch of a `RandomOrder`."""

    def __init__(self, order: RandomOrder, number: int) -> None:
        self._order = order
        self._blocks = order.blocks
        self._ends = order.blocks[:, 2].cumsum()
        self._key = None if order.seed is None else key_of(order.seed, number)

    @property
    def shuffles_buffers(self) -> bool:
        """True: pieces hold records of any shards."""
        return True

    def _piece_at(self, position: int) -> Interval:
        first = position // LOCATED_TOGETHER * LOCATED_TOGETHER
        return first, first + LOCATED_TOGETHER

    def locate(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions, in order."""
        at = np.arange(start, end, dtype=np.int64)
        return self.at(at if self._key is None else permuted(at, self._order.total, self._key))

    def shards_in_turn(self, parts: Sequence[Sequence[Interval]]) -> list[int]:
        """Return the shards in their order: at random, all are in use at any time."""
        return list(range(len(self._order.shards)))


_ROUNDS = 6


def permuted(numbers: Numbers, total: int, key: int) -> Numbers:
    """Return where a permutation of 0 to `total` - 1, chosen by `key`, maps each of `numbers`.

    A balanced Feistel network over the next power of four, walked until it is below `total` (Black and Rogaway, CT-RSA
    2002): 1.3 rounds of it for a number on the average, 4 at most, in memory for these numbers alone.
    """
    half = max(1, (max(total - 1, 1).bit_length() + 1) // 2)
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    keys = _round_keys(key)
    found = numbers.astype(np.uint64)
    open_ = np.arange(len(found))
    values = found
    while len(open_):
        left, right = values >> shift, values & mask
        for one in keys:
            mixed = right * np.uint64(0x9E3779B97F4A7C15) + one
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ (mixed ^ (mixed >> np.uint64(31))) & mask
        values = left << shift | right
        found[open_] = values
        outside = values >= np.uint64(total)
        open_, values = open_[outside], values[outside]
    return found.astype(np.int64)


@functools.lru_cache(64)
def _round_keys(key: int) -> tuple[np.uint64, ...]:
    digest = hashlib.blake2b(key.to_bytes(8, "little"), digest_size=8 * _ROUNDS).digest()
    return tuple(np.frombuffer(digest, np.uint64))
