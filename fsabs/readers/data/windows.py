"""Orders for rows and windows of tokens: chunks shuffled in windows of several, and single records shuffled over all.

Both are functions of (seed, epoch), as `order.EpochOrder` is, and have its interface.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .base import Shard
from .order import Epoch, EpochOrder, Interval, key_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]


class WindowOrder(EpochOrder):
    """Chunks in a shuffled order, and the records of each `window` chunks that follow each other shuffled together.

    Args:
        shards: what there is.
        chunks: a row for each chunk: the number of its shard, its first record, its records, and the number of its
            group. Chunks of a group (the parts of a large row group) stay together, in their order.
        seed: of the shuffles; None leaves everything in the order of the shards.
        window: how many chunks are shuffled among each other; 1 shuffles within chunks, 0 only the chunks.
    """

    def __init__(self, shards: Sequence[Shard], chunks: Numbers, seed: int | None, window: int) -> None:
        if window < 0:
            raise ValueError(f"window must not be negative: {window}")
        super().__init__([], seed, None, 0)
        self.shards = list(shards)
        self.blocks = chunks[:, :3]
        self.groups = chunks[:, 3]
        self.total = int(self.blocks[:, 2].sum())
        self.window = window if seed is not None else 0
        self.settings = (seed, "window", self.window)

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
        import numpy as np

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


class RandomOrder(EpochOrder):
    """Every record at random among all, by a bijection of numbers: no table grows with the records.

    A seed of None leaves the records in the order of the shards. `piece` records are located together.
    """

    def __init__(self, shards: Sequence[Shard], seed: int | None, piece: int = 256) -> None:
        super().__init__(shards, seed, None, 0)
        self.piece = piece
        self.settings = (seed, "random", 0)

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
        self._piece = order.piece

    @property
    def shuffles_buffers(self) -> bool:
        """True: pieces hold records of any shards."""
        return True

    def _piece_at(self, position: int) -> Interval:
        first = position // self._piece * self._piece
        return first, first + self._piece

    def locate(self, start: int, end: int) -> tuple[Numbers, Numbers]:
        """The numbers of the shards and records at positions, in order."""
        import numpy as np

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
    import numpy as np

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
    import numpy as np

    digest = hashlib.blake2b(key.to_bytes(8, "little"), digest_size=8 * _ROUNDS).digest()
    return tuple(np.frombuffer(digest, np.uint64))
