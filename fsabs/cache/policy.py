"""The eviction policy of a full cache. It is made for epochs, in which every entry is read again a whole pass later.

Recency is the worst guide then: what was read last is needed last. Where nothing is known of the future, a newcomer
takes the place of an entry that was not read for longer than entries take to be read again (`ReuseTimes`). Where there
is none, one newcomer in `ONE_IN` takes that of the entry that was not read for longest: so the cache keeps nearly all
that it has from pass to pass, and what is read over and over gets in. Where the order of reading is known
(`ReadOrder`), what is needed last goes first, and what is needed later than all that is there is not admitted.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections import deque
from collections.abc import Iterable

HITS, FEWEST_HITS = 256, 8
"""The hits by which it is known how long entries take to be read again: at most, and at least."""
LONGER = 1.2
"""An entry that was not read for so many times the longest of these is not used any more.

(Two reads of a file in shuffled passes may be almost two passes apart.)
"""
UNUSED_AFTER = 3 * 24 * 3600.0
"""The same in seconds, where there were too few hits."""
ONE_IN = 128
"""One in so many newcomers is admitted to a cache that is full of what is used."""
READ = 1e18
"""The rank of an entry that was read lately: behind every position."""
NOW = -1.0
"""The position of what is needed before all else."""


@functools.lru_cache(4096)  # each file of a window is asked for some times
def key_of(url: str) -> int:
    """Return 48 bits that stand for a URL, in names of entries and in orders, the same in every process."""
    data = url.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big")


def key_in(path: str) -> int | None:
    """Return the key in the path of an entry's file, `3f/0123456789ab-...`; None for a file that is none."""
    try:
        return int(path[3:15], 16) if len(path) == 54 and path[15] == "-" else None
    except ValueError:
        return None


class ReadOrder:
    """In what order files will be read: positions by key, and how far reading has come in this process.

    A file may be there more than once: the orders of two epochs, one behind the other, are an order, too.
    """

    __slots__ = ("_first", "_later", "cursor", "is_known", "since")

    def __init__(self, urls: Iterable[str] = (), position: int = 0) -> None:
        self._first: dict[int, int] = {}
        self._later: dict[int, list[int]] = {}
        for at, url in enumerate(urls):
            key = key_of(url)
            if self._first.setdefault(key, at) != at:
                self._later.setdefault(key, []).append(at)
        self.cursor: int = position - 1
        """The position that is being read."""
        self.since: float = time.time()
        self.is_known: bool = bool(self._first)
        """Whether there is an order."""

    def __bool__(self) -> bool:
        return self.is_known

    def __contains__(self, key: int) -> bool:
        return key in self._first

    def reached(self, url: str) -> None:
        """Note that a file is being read: what comes before it is not needed any more."""
        key = key_of(url)
        first = self._first.get(key)
        if first is None:
            return
        if first > self.cursor:
            self.cursor = first
        elif key in self._later and (position := self.need(key)) < math.inf:
            # The next position of a file that is there more than once, unless it is read for the same epoch again.
            if position - self.cursor <= self.cursor - max(self._before(key), 0):
                self.cursor = int(position)

    def _before(self, key: int) -> int:
        return max((at for at in (self._first[key], *self._later.get(key, ())) if at <= self.cursor), default=-1)

    def need(self, key: int) -> float:
        """Return the position at which a file is needed next; infinity if it is not, or not known."""
        position = self._first.get(key)
        if position is None or position > self.cursor:
            return math.inf if position is None else position
        return next((at for at in self._later.get(key, ()) if at > self.cursor), math.inf)


class ReuseTimes:
    """How long after a read entries are read again, by the last hits of this process."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=HITS)

    def add(self, last_read: float) -> float:
        """Note a hit of an entry that was `last_read` at a time, and return the present one."""
        now = time.time()
        self._recent.append(now - last_read)
        return now

    def unused_since(self) -> float:
        """Return a time: an entry that was not read after it is not used any more."""
        recent = self._recent.copy()
        return time.time() - (LONGER * max(recent) if len(recent) >= FEWEST_HITS else UNUSED_AFTER)


def rank(key: int, last_read: float, order: ReadOrder, unused_since: float) -> float:
    """Return how well an entry can be done without: infinity if it goes for whatever is new, else its next position.

    An entry that is not needed as far as is known, and was read lately, has the rank `READ`: it goes only for something
    that is known to be needed, or where there has to be less.
    """
    if order:
        need = order.need(key)
        if need < math.inf:
            return need
        if key in order:  # read in this epoch already: as good as what is new, and worse than what is needed
            return READ
        return math.inf if last_read < order.since else READ
    return math.inf if last_read < unused_since else READ


def goes_for(victim: float, newcomer: float) -> bool:
    """Return whether an entry of this rank goes for a newcomer that is needed at a position (infinity: not known)."""
    if newcomer < math.inf:
        return victim > newcomer
    return victim == math.inf
