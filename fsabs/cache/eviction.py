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

from ..core import hooks, process
from ..disk.folders import Folder
from . import policy
from .claims import Claims
from .occupancy import FOLDERS, Occupancy, members, size_of
from .policy import Passes, ReadOrder

BATCH = 0.01
"""The share of the limit that one eviction frees, down to a low-water mark, of what is not needed."""
TOLERANCE = 1 / 64
"""The share of the limit by which an estimate may exceed it before entries go whatever they are needed for."""
CANDIDATES = 256
"""Entries, at least, among which an eviction chooses."""
ANY = -2.0
"""In place of a newcomer's position: there has to be less, whatever goes."""
REST = 50
"""Times as long as a search in vain took, no other one begins."""


_EXCESS = 1  # the token by which a process claims to bring a cache back to its limits


class DiskLimits(NamedTuple):
    """The limits of the disk space that a cache may take."""

    max_bytes: int | None
    """Bytes on the disk; None for all that `min_free` leaves."""
    min_free: int
    """Bytes of the disk that are left free."""


class _Candidate(NamedTuple):
    """An entry that may be evicted."""

    key: int
    last_read: float
    path: str


class Evictor:
    """Keeps the entries of a folder within their limits."""

    def __init__(
        self, root: Folder, occupancy: Occupancy, claims: Claims | None, limits: DiskLimits, passes: Passes
    ) -> None:
        self.limits = limits
        self.evicted: int = 0
        """Entries that this process has evicted."""
        self._root = root
        self._occupancy = occupancy
        self._claims = claims
        self._passes = passes
        self._candidates: list[_Candidate] = []
        self._rests_until = 0.0
        self._rests_for: tuple[ReadOrder | None, float] | None = None
        self._lock = process.Lock()

    def make_room(self, size: int, need: float, order: ReadOrder) -> bool:
        """Return whether an entry that takes `size` bytes of the disk, and is needed at a position, is admitted."""
        limit = self.limits.max_bytes
        if limit is not None and size > limit:
            return False
        over, short = self._excesses(size)
        wanted = max(over, short)
        beyond = max(over - int((limit or 0) * TOLERANCE), short) - size
        if beyond > 0:  # the limits are others than they were, or the disk is filled by something else
            self._evict_excess(order)
            wanted = self.excess(size)
        return wanted <= 0 or self._evict(wanted, need, order) >= min(wanted, size)

    def _evict_excess(self, order: ReadOrder) -> None:
        """Evict what is there beyond the limits, whatever it is needed for, unless another process does so now."""
        if self._claims is not None and not self._claims.claim(_EXCESS):
            return
        try:
            self._occupancy.sweep()
            if (wanted := self.excess(0)) > 0:
                self._evict(wanted, ANY, order)
                self._occupancy.sweep()
        finally:
            if self._claims is not None:
                self._claims.release(_EXCESS)

    def excess(self, size: int) -> int:
        """Return by how many bytes `size` more would exceed the limits; 0 or less, if there is room."""
        return max(self._excesses(size))

    def _excesses(self, size: int) -> tuple[int, int]:
        """Return by how many bytes `size` more would exceed `max_bytes`, and what `min_free` leaves."""
        limit, min_free = self.limits
        short = min_free + size - free(self._root)
        return short if limit is None else self._occupancy.excess(size, limit), short

    def _evict(self, wanted: int, newcomer: float, order: ReadOrder) -> int:
        """Free so many bytes of entries that go for a newcomer, or for `ANY` of all; returns how many were freed."""
        if self._rests(newcomer, order):
            return 0
        begin, freed, evicted = time.monotonic_ns(), 0, 0
        most = max(wanted, int((self.limits.max_bytes or 0) * BATCH))
        with self._lock:
            at_refill = -1  # the bytes freed by then: a refill after which nothing is freed is the last
            while freed < most and not (at_refill >= 0 and self._rests(newcomer, order)):
                if freed >= wanted and not self._is_dispensable(order):  # beyond what is wanted only what is not needed
                    break
                if self._candidates and self._goes(self._candidates[-1], newcomer, order):
                    size = self._remove(self._candidates.pop(), newcomer)
                    freed += size
                    evicted += size > 0
                elif freed == at_refill:
                    break
                else:
                    at_refill = freed
                    self._refill(newcomer, order)
        if evicted:
            self.evicted += evicted
            self._occupancy.change(-freed)
            if (instrument := hooks.active) is not None:
                instrument.record_event("evict", "cache", freed)
                instrument.record_span("cache", "cache.evict", begin, freed, self._root.path)
        return freed

    def _remove(self, victim: _Candidate, newcomer: float) -> int:
        """Remove an entry unless it was read meanwhile; return the bytes that it took."""
        try:
            status = os.stat(victim.path, dir_fd=self._root.descriptor, follow_symlinks=False)
            if newcomer != ANY and status.st_mtime > victim.last_read:
                return 0
            self._root.remove(victim.path)
        except OSError:  # another process was faster, or the disk is read-only
            return 0
        return size_of(status)

    def _rests(self, newcomer: float, order: ReadOrder) -> bool:
        """Return if a search for a newcomer of unknown use was in vain lately, and nothing has changed since."""
        rests = newcomer == math.inf and time.monotonic() < self._rests_until
        return rests and self._rests_for == (order or None, self._passes.unread_since)

    def _is_dispensable(self, order: ReadOrder) -> bool:
        """Return if the next candidate is not needed as far as is known."""
        return bool(self._candidates) and self._rank(self._candidates[-1], order) >= policy.READ

    def _goes(self, one: _Candidate, newcomer: float, order: ReadOrder) -> bool:
        return newcomer == ANY or policy.goes_for(self._rank(one, order), newcomer)

    def _rank(self, one: _Candidate, order: ReadOrder) -> float:
        return policy.rank(one.key, one.last_read, order, self._passes)

    def _refill(self, newcomer: float, order: ReadOrder) -> None:
        """Look at some folders for what can be done without best; it stands at the end."""
        begin = time.monotonic()
        found: list[_Candidate] = []
        start = random.randrange(FOLDERS)
        for turn in range(FOLDERS):
            for path, status in members(self._root, (start + turn) % FOLDERS):
                key = policy.key_in(path)
                if key is not None and status.st_mode & 0o200:
                    found.append(_Candidate(key, status.st_mtime, path))
            if len(found) >= CANDIDATES:
                break
        ranked = sorted(((self._rank(one, order), -one.last_read), at) for at, one in enumerate(found))
        dispensable = sum(rank >= policy.READ for (rank, _), _ in ranked) if order else 0
        self._candidates = [found[at] for _, at in ranked[-max(CANDIDATES // 4, len(found) // 4, dispensable) :]]
        if newcomer == math.inf and not (ranked and ranked[-1][0][0] == math.inf):
            now = time.monotonic()
            self._rests_for = order or None, self._passes.unread_since
            self._rests_until = now + REST * (now - begin)


def free(root: Folder) -> int:
    """Return how many bytes of the disk this user may still fill."""
    status = os.fstatvfs(root.descriptor)
    return status.f_bavail * status.f_frsize
