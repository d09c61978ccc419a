"""The eviction policy of a full cache. It is made for epochs, in which every entry is read again a whole pass later.

Recency is the worst guide then: what was read last is needed last. Where nothing is known of the future, a cache evicts
what was not read for a whole pass over the data (`Passes`), and of the rest what has the largest keys, so that it keeps
the same part of the data from pass to pass: what has a larger key than all that is there can't be in it, and is refused
without a look. Where the order
of reading is known (`ReadOrder`), what is needed last goes first, and what is needed later than all that is there is
not admitted.
"""

from __future__ import annotations

import functools
import hashlib
import math
import time
from collections.abc import Iterable

from ..core import process

SAMPLES = 256
"""Keys by which passes are recognised, at most."""
TWICE, LEAST = 8, 8
"""A pass has ended when every eighth of its keys, and eight at least, were read again."""
READ, UNREAD = 2.0**52, 2.0**53
"""The rank of an entry that was read lately, behind every position, and of one that goes for whatever is new, at least.

Where no order is known, the ranks of entries that were read lately lie between them, by key."""
NOW = -1.0
"""The position of what is needed before all else."""
EARLIER = 3600.0
"""Seconds by which a process takes its first pass to have begun earlier: another one may have read its entries."""
UNUSED_AFTER = 3 * 24 * 3600.0
"""Seconds after which an entry that was not read may go, whatever is known of passes."""


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
        """Return the position at which a file is needed next; infinity if it is not, or not known.

        Without an order it is that of a key among the others, behind every position.
        """
        if not self.is_known:
            return READ + key
        position = self._first.get(key)
        if position is None or position > self.cursor:
            return math.inf if position is None else position
        return next((at for at in self._later.get(key, ()) if at > self.cursor), math.inf)


class Passes:
    """The times at which this process began its last passes over the data, recognised by keys that are read again.

    A sample of the keys is enough: at most `SAMPLES` of them, those that have no bit of `mask`.
    """

    def __init__(self) -> None:
        self.mask: int = 0
        self._seen: dict[int, bool] = {}
        self._again = 0
        self._lock = process.Lock()
        self.begun: float = time.time() - EARLIER
        """When the present pass began; a read renews the time of an entry that was last read before."""
        self.before: float = -math.inf
        self.unread_since: float = -math.inf
        """When the pass before began, and the one before that: what was last read earlier may go.

        (Two reads of a file in shuffled passes may be almost two passes apart.)
        """

    def read(self, key: int) -> None:
        """Note that something is read; what has a bit of `mask` is not counted."""
        if key & self.mask:
            return
        seen = self._seen.get(key)
        if seen is None:
            self._seen[key] = False
            if len(self._seen) > SAMPLES:
                self._thin_out()
        elif not seen:
            self._seen[key] = True
            self._again += 1
            if self._again >= LEAST and self._again * TWICE > len(self._seen):
                self._next()

    def _thin_out(self) -> None:
        with self._lock:
            self.mask = 2 * self.mask + 1
            self._seen = {key: seen for key, seen in list(self._seen.items()) if not key & self.mask}
            self._again = sum(self._seen.values())

    def _next(self) -> None:
        with self._lock:
            self.unread_since, self.before, self.begun = self.before, self.begun, time.time()
            self._seen, self._again = {}, 0


def rank(key: int, last_read: float, order: ReadOrder, passes: Passes) -> float:
    """Return how well an entry can be done without: infinity if it goes for whatever is new, else its next position.

    An entry that is not needed as far as is known, and was read lately, has the rank `READ`: it goes only for something
    that is known to be needed, or where there has to be less. Without an order it goes for what has a smaller key.
    """
    need = order.need(key)
    if order:
        if need < math.inf:
            return need
        if key in order:  # read in this epoch already: as good as what is new, and worse than what is needed
            return READ
        return math.inf if last_read < order.since else READ
    unused = last_read < passes.unread_since or last_read < time.time() - UNUSED_AFTER
    return math.inf if unused else need


def goes_for(victim: float, newcomer: float) -> bool:
    """Return whether an entry of this rank goes for a newcomer that is needed at a position (infinity: not known)."""
    if newcomer < math.inf:
        return victim > newcomer
    return victim == math.inf
