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
import operator
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
        block_size: records that stay together when they are shuffled, counted through all shards; None is a whole
            shard.
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
        self.block_size = None if block_size is None else operator.index(block_size)  # as a key of 64 bits needs
        self.buffer_size = buffer_size if seed is not None else 0
        self.settings = _plain(seed, block_size, self.buffer_size)
        if block_size is not None:
            self.settings = _plain("counted", *self.settings)
        self._starts: Numbers = np.array([shard.start for shard in self.shards], np.int64)
        self._counts: Numbers = np.array([shard.count for shard in self.shards], np.int64)
        self._ends: Numbers = np.cumsum(self._counts)
        self.total = int(self._counts.sum())
        self.occupied = int((self._counts > 0).sum())
        """The number of shards that hold records."""

    def epoch(self, number: int) -> Epoch:
        """The order of an epoch."""
        if self.block_size is not None:
            return _BlockEpoch(self, number, self.block_size)
        shards = np.arange(len(self.shards), dtype=np.int64)
        return _TableEpoch(self, number, np.stack([shards, self._starts, self._counts], axis=1), shards)

    def records(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return the shards of records, and their numbers there; `numbers` count the records of all shards."""
        shards = self._ends.searchsorted(numbers, side="right")
        return shards, numbers - (self._ends - self._counts)[shards] + self._starts[shards]

    def shard_ends(self, first: int, last: int) -> Numbers:
        """Return where shards end between two records, counted through all shards."""
        return self._ends[slice(*self._ends.searchsorted([first, last]))]


class Epoch:
    """The order of one epoch, cut into blocks, each of which lies in one shard."""

    def __init__(self, order: EpochOrder, number: int) -> None:
        self._order = order
        self._key = None if order.seed is None else key_of(order.seed, number)
        self._kept: dict[int, Numbers] = {}  # the shuffled positions of buffers, by their first one

    def at(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions, before any shuffle within buffers."""
        raise NotImplementedError

    def _block_ends(self, start: int, end: int) -> Numbers:
        """Return the positions between `start` and `end` where blocks end, ascending."""
        raise NotImplementedError

    @property
    def shuffles_buffers(self) -> bool:
        """Return whether the positions of each buffer are shuffled among each other."""
        return self._order.buffer_size > 1

    def pieces(self, intervals: Iterable[Interval]) -> Iterator[Interval]:
        """The intervals, cut where a buffer or (with none) a block ends."""
        for start, end in intervals:
            ahead = _CUT_TOGETHER
            while start < end:
                stop = min(end, start + ahead)
                cuts = self._piece_ends(start, stop).tolist()
                if stop == end:
                    cuts.append(end)
                for cut in cuts:
                    yield start, cut
                    start = cut
                ahead = _CUT_TOGETHER if cuts else 2 * ahead

    def _piece_ends(self, start: int, end: int) -> Numbers:
        """Return the positions between `start` and `end` where pieces end, ascending."""
        size = self._order.buffer_size
        if size > 1:
            return np.arange((start // size + 1) * size, end, size, dtype=np.int64)
        return self._block_ends(start, end)

    def _buffer_at(self, position: int) -> Interval:
        """Return the positions that are shuffled together with one."""
        first = position // self._order.buffer_size * self._order.buffer_size
        return first, min(first + self._order.buffer_size, self._order.total)

    def shards_in_turn(self, parts: Sequence[Sequence[Interval]]) -> list[int]:
        """Return the numbers of the shards that readers at the same speed reach, each of them once, in order.

        Args:
            parts: the intervals of each reader.
        """
        found: dict[int, None] = {}
        longest, at, ahead = max(map(length, parts), default=0), 0, _CUT_TOGETHER
        while at < longest and len(found) < self._order.occupied:
            times, starts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
            for part in parts:
                taken = 0
                for start, end in take(drop(part, at), ahead):
                    begins = np.concatenate([[start], self._block_ends(start, end)])
                    times.append(taken + begins - start)
                    starts.append(begins)
                    taken += end - start
            in_turn = np.concatenate(starts)[np.argsort(np.concatenate(times), kind="stable")]
            found |= dict.fromkeys(self.at(in_turn)[0].tolist())
            at, ahead = at + ahead, min(2 * ahead, _MOST_TOGETHER)
        return list(found)

    def locate(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions of one piece, in order."""
        at = np.arange(start, end, dtype=np.int64)
        if self.shuffles_buffers and self._key is not None:
            first, last = self._buffer_at(start)
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


_CUT_TOGETHER, _MOST_TOGETHER = 1 << 16, 1 << 26
"""Positions whose blocks are computed together, at first and at most."""


class _TableEpoch(Epoch):
    """The order of one epoch, of blocks in a table: whole shards, or the chunks of files."""

    def __init__(self, order: EpochOrder, number: int, blocks: Numbers, groups: Numbers) -> None:
        """`blocks` has the shard, the first record and the records of each block; blocks of one group stay together."""
        super().__init__(order, number)
        self._blocks = blocks
        if self._key is not None:
            self._blocks = blocks[np.argsort(shuffled(groups, self._key), kind="stable")]
        self._ends: Numbers = np.cumsum(self._blocks[:, 2])

    def at(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        block = self._ends.searchsorted(positions, side="right")
        row = self._blocks[block]
        return row[:, 0], row[:, 1] + positions - (self._ends[block] - row[:, 2])

    def _block_ends(self, start: int, end: int) -> Numbers:
        return np.unique(self._ends[slice(*self._ends.searchsorted([start + 1, end]))])


class _BlockEpoch(Epoch):
    """The order of one epoch, of blocks of one size: which one comes when is computed, and no table grows with them.

    The records that are left over make a shorter block, which has a place of its own among the others.
    """

    def __init__(self, order: EpochOrder, number: int, size: int) -> None:
        super().__init__(order, number)
        self._size = size
        self._whole, self._rest = divmod(order.total, size)
        place = self._whole if self._key is None else self._key % (self._whole + 1)
        self._short = place * size, place * size + self._rest
        """The positions of the shorter block."""

    def at(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        return self._order.records(self._numbers(positions))

    def _numbers(self, positions: Numbers) -> Numbers:
        """Return the numbers of the records at positions, counted through all shards."""
        first, end = self._short
        among = np.where(positions >= end, positions - self._rest, positions)  # the positions in whole blocks
        places, which = np.unique(among // self._size, return_inverse=True)
        numbers = self._blocks(places)[which] * self._size + among % self._size
        return np.where((positions >= first) & (positions < end), self._whole * self._size + positions - first, numbers)

    def _blocks(self, places: Numbers) -> Numbers:
        """Return the numbers of the whole blocks at places, ascending."""
        if self._key is None or not self._whole or not len(places):
            return places
        places = np.minimum(places, self._whole - 1)  # the shorter block may be the last one
        run, last = int(places[0]) // _RUN, int(places[-1]) // _RUN
        if run == last:  # neighbours are asked for one after the other
            return _permuted_run(run, self._whole, self._key)[places - run * _RUN]
        return permuted(places, self._whole, self._key)

    def _block_ends(self, start: int, end: int) -> Numbers:
        size, (short, after) = self._size, self._short
        own = np.concatenate(
            [
                np.arange(start // size * size, min(end, short) + 1, size),
                np.arange(max((start - self._rest) // size * size + self._rest, after), end + 1, size),
            ]
        ).astype(np.int64)
        begins = np.unique(np.concatenate([own, [start]]))
        begins = begins[(begins >= start) & (begins < end)]
        firsts = self._numbers(begins)
        lasts = self._numbers(np.append(begins[1:], end) - 1)
        shards = [self._order.records(one)[0] for one in (firsts, lasts)]
        inner = [
            self._order.shard_ends(int(firsts[at]) + 1, int(lasts[at]) + 1) - firsts[at] + begins[at]
            for at in np.flatnonzero(shards[0] != shards[1])
        ]
        found = np.unique(np.concatenate([own, *inner]))
        return found[(found > start) & (found < end)]


_RUN = 1024  # places whose blocks are computed together


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


def between(intervals: Iterable[Interval], start: int, end: int) -> list[Interval]:
    """Return what the intervals have from one position to another."""
    cut = ((max(start, first), min(end, last)) for first, last in intervals)
    return [(first, last) for first, last in cut if first < last]


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
        super().__init__(shards, seed, None, 0)
        self.blocks = chunks[:, :3]
        self.groups = chunks[:, 3]
        self.total = int(self.blocks[:, 2].sum())
        self.window = window if seed is not None else 0
        self.settings = _plain(seed, "window", self.window)
        if seed is not None and chunk_bytes is not None:
            self.settings += _plain(chunk_bytes)

    def epoch(self, number: int) -> Epoch:
        """The order of an epoch."""
        return _WindowEpoch(self, number)


class _WindowEpoch(_TableEpoch):
    """The order of one epoch of a `WindowOrder`."""

    def __init__(self, order: WindowOrder, number: int) -> None:
        super().__init__(order, number, order.blocks, order.groups)
        self._window = order.window
        step = max(1, self._window)
        self._cuts = np.unique(np.concatenate([[0], self._ends[step - 1 :: step], [order.total]]))

    @property
    def shuffles_buffers(self) -> bool:
        """Return whether the positions of each window are shuffled among each other."""
        return self._window > 0

    def _piece_ends(self, start: int, end: int) -> Numbers:
        return self._cuts[slice(*self._cuts.searchsorted([start + 1, end]))]

    def _buffer_at(self, position: int) -> Interval:
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

    @property
    def shuffles_buffers(self) -> bool:
        """True: pieces hold records of any shards."""
        return True

    def _piece_ends(self, start: int, end: int) -> Numbers:
        return np.arange((start // LOCATED_TOGETHER + 1) * LOCATED_TOGETHER, end, LOCATED_TOGETHER, dtype=np.int64)

    def _block_ends(self, start: int, end: int) -> Numbers:
        return np.arange(start + 1, end, dtype=np.int64)

    def at(self, positions: Numbers) -> tuple[Numbers, Numbers]:
        return self._order.records(
            positions if self._key is None else permuted(positions, self._order.total, self._key)
        )

    def locate(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions, in order."""
        return self.at(np.arange(start, end, dtype=np.int64))

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


@functools.lru_cache(64)
def _permuted_run(run: int, total: int, key: int) -> Numbers:
    """Return what `permuted` returns for run number `run` of `_RUN` numbers."""
    return permuted(np.arange(run * _RUN, min((run + 1) * _RUN, total), dtype=np.int64), total, key)
