"""Eviction from the disk: entries are removed in batches, chosen by `policy` among a sample of the files.

An eviction looks at the files of some of the hashed folders, so that its work does not grow with their number. Where
none of those that it saw may go for what is new, it does not look again for a while: a full cache refuses quickly.
"""

from __future__ import annotations

import math
import os
import random
import time
from typing import NamedTuple

from .. import hooks, process
from . import policy
from .folder import FOLDERS, EntryFile, EntryFolder, status_of
from .policy import Passes, ReadOrder

BATCH = 0.01
"""The share of what is there that one eviction frees, down to a low-water mark, of what is not needed."""
CANDIDATES = 256
"""Entries, at least, among which an eviction chooses."""
ANY = -2.0
"""In place of a newcomer's position: there has to be less, whatever goes."""
REST = 50
"""Times as long as a search in vain took, no other one begins."""


class DiskLimits(NamedTuple):
    """The limits of the disk space that a cache may take."""

    max_bytes: int | None
    """Bytes on the disk; None for all that `min_free` leaves."""
    min_free: int
    """Bytes of the disk that are left free."""


class Evictor:
    """Keeps the entries of a folder within their limits."""

    def __init__(self, folder: EntryFolder, limits: DiskLimits, passes: Passes) -> None:
        self.limits = limits
        self.evicted: int = 0
        """Entries that this process has evicted."""
        self._folder = folder
        self._passes = passes
        self._candidates: list[EntryFile] = []
        self._rests_until = 0.0
        self._rests_for: tuple[ReadOrder | None, float] | None = None
        self._lock = process.Lock()

    def make_room(self, size: int, key: int, order: ReadOrder) -> bool:
        """Return whether an entry that takes `size` bytes of the disk is admitted, and reserve them."""
        limit = self.limits.max_bytes
        if limit is not None and size > limit:
            return False
        most = self._excess()
        if most > 0:  # the limits are others than they were, or the disk is filled by something else
            most -= self._evict(int(most), ANY, order)
        wanted = int(most + size) if most + size > 0 else 0
        return (not wanted or self._evict(wanted, order.need(key), order) >= wanted) and self._claim(size, 1)

    def reserve(self, size: int, entries: int) -> bool:
        """Reserve `size` bytes for so many new entries, if there is room without an eviction."""
        return self._excess() + size <= 0 and self._claim(size, entries)

    def _excess(self) -> float:
        """Return how many bytes are beyond the limits; below 0, how many there is room for."""
        limit, min_free = self.limits
        over = self._folder.totals().size - limit if limit is not None else -math.inf
        return max(over, min_free - free(self._folder.root))

    def _claim(self, size: int, entries: int) -> bool:
        """Record new entries before they are written, unless other processes were faster and there is no room now."""
        self._folder.reserve(size, entries)
        limit = self.limits.max_bytes
        if limit is None or self._folder.totals().size <= limit:
            return True
        self._folder.record(-size, -entries)
        return False

    def _evict(self, wanted: int, newcomer: float, order: ReadOrder) -> int:
        """Free so many bytes of entries that go for a newcomer, or for `ANY` of all; returns how many were freed."""
        if self._rests(newcomer, order):
            return 0
        begin, freed, evicted = time.monotonic_ns(), 0, 0
        most = max(wanted, int(self._folder.totals().size * BATCH))
        with self._lock:
            at_refill = -1  # the bytes freed by then: a refill after which nothing is freed is the last
            while freed < most and not (at_refill >= 0 and self._rests(newcomer, order)):
                if freed >= wanted and not self._is_dispensable(order):  # beyond what is wanted only what is not needed
                    break
                if self._candidates and self._goes(self._candidates[-1], newcomer, order):
                    victim = self._candidates.pop()
                    status = status_of(victim.path)
                    if status is not None and (newcomer == ANY or status.st_mtime <= victim.last_read):
                        size = self._folder.unlink(victim.path, status)
                        freed += size
                        evicted += size > 0
                elif freed == at_refill:
                    break
                else:
                    at_refill = freed
                    self._refill(newcomer, order)
        if evicted:
            self.evicted += evicted
            self._folder.record(-freed, -evicted)
            if (instrument := hooks.active) is not None:
                instrument.record_event("evict", "cache", freed)
                instrument.record_span("cache", "cache.evict", begin, freed, self._folder.root)
        return freed

    def _rests(self, newcomer: float, order: ReadOrder) -> bool:
        """Return if a search for a newcomer of unknown use was in vain lately, and nothing has changed since."""
        rests = newcomer == math.inf and time.monotonic() < self._rests_until
        return rests and self._rests_for == (order or None, self._passes.unread_since)

    def _is_dispensable(self, order: ReadOrder) -> bool:
        """Return if the next candidate is not needed as far as is known."""
        return bool(self._candidates) and self._rank(self._candidates[-1], order) >= policy.READ

    def _goes(self, one: EntryFile, newcomer: float, order: ReadOrder) -> bool:
        return newcomer == ANY or policy.goes_for(self._rank(one, order), newcomer)

    def _rank(self, one: EntryFile, order: ReadOrder) -> float:
        return policy.rank(one.key, one.last_read, order, self._passes)

    def _refill(self, newcomer: float, order: ReadOrder) -> None:
        """Look at some folders for what can be done without best; it stands at the end."""
        begin = time.monotonic()
        found: list[EntryFile] = []
        start = random.randrange(FOLDERS)
        for turn in range(FOLDERS):
            found += self._folder.scan((start + turn) % FOLDERS)
            if len(found) >= CANDIDATES:
                break
        ranked = sorted(((self._rank(one, order), -one.last_read), at) for at, one in enumerate(found))
        dispensable = sum(rank >= policy.READ for (rank, _), _ in ranked) if order else 0
        self._candidates = [found[at] for _, at in ranked[-max(CANDIDATES // 4, len(found) // 4, dispensable) :]]
        if newcomer == math.inf and not (ranked and ranked[-1][0][0] == math.inf):
            now = time.monotonic()
            self._rests_for = order or None, self._passes.unread_since
            self._rests_until = now + REST * (now - begin)


def free(folder: str) -> int:
    """Return how many bytes of the disk this user may still fill."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize
