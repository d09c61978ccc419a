"""The disk space of a cache: counted by sweeps of its folder, estimated between them, kept in its limits by eviction.

The directory is the truth. What a process knows is the newest count, its own or the one that another process has left
in a file, and what it has written and removed since. What the others have written since is not known: each process
sweeps again when it has added a part of the limit, one of `PARTS`.

Entries are removed in batches, chosen by `policy` among a sample of the files, so that the work of an eviction does not
grow with their number. Where none of a sample goes for what is new, the cache is closed for a while: it refuses what is
new without a look, but for one newcomer in `policy.ONE_IN`.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import stat as stat_bits
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..core import hooks, process
from ..disk.descriptors import read_all
from ..disk.files import is_leftover
from ..disk.folders import Folder
from . import frames, policy
from .partials import PartialEntries
from .policy import ReadOrder, ReuseTimes

FOLDERS = 256
"""The hashed folders that entries are divided among."""
SAMPLE, FEWEST_FOLDERS = 8192, 16
"""Entries after which a sweep ends, and the hashed folders that it looks at in any case: of more, it is an estimate."""
PARTS = 64
"""A process sweeps again when it has added one of so many parts of the limit."""
REST = 1000
"""Times as long as a sweep took, a count is good enough for a cache that seems to be full."""
OLDEST = 60.0
"""Seconds after which a count that was found is not used any more."""
CHEAP = 0.001
"""Seconds of a sweep that each process makes at its beginning, whatever others have counted."""
BATCH = 0.01
"""The share of the limit that one eviction frees of what is not needed."""
TOLERANCE = 1 / 64
"""The share of the limit by which an estimate may exceed it before entries go whatever they are needed for."""
CANDIDATES = 256
"""Entries, at least, among which an eviction chooses."""
VAIN_REST, ORDERED_REST = 200, 5
"""Times as long as a search took that had nothing to evict, there is no other one; the same where reading changes what
can be done without."""
ANY = -2.0
"""In place of a newcomer's position: there has to be less, whatever goes."""
_EXCESS = 1  # the token by which a process claims to bring a cache back to its limits
_COUNT, _COUNTED = "count", struct.Struct("=ddQQ")
_BUCKET = 0.01  # seconds whose changes are kept as one
_PAGE = 4096


class DiskLimits(NamedTuple):
    """The limits of the disk space that a cache may take."""

    max_bytes: int | None
    """Bytes on the disk; None for all that `min_free` leaves."""
    min_free: int
    """Bytes of the disk that are left free."""


class Count(NamedTuple):
    """What a sweep has counted."""

    begun: float
    """When, in seconds since 1970."""
    took: float
    """Seconds."""
    size: int
    entries: int


class Occupancy:
    """The bytes that the entries in a cache's folder take of the disk, as this process knows it."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._count: Count | None = None
        self._left: tuple[int, int] | None = None  # the file that the count was read from
        self._changes: deque[list[float]] = deque(maxlen=int(OLDEST / _BUCKET))  # when, and by how much
        self._own = 0.0  # what this process has added since the count
        self._lock = process.Lock()

    def change(self, size: int) -> None:
        """Note that this process writes, or has removed, an entry of so many bytes."""
        now = time.time()
        if not self._changes or now - self._changes[-1][0] > _BUCKET:
            self._changes.append([now, 0])
        self._changes[-1][1] += size
        self._own += size

    def excess(self, size: int, limit: int) -> int:
        """Return by how many bytes an entry of `size` bytes would exceed a limit; 0 or less, if it would not."""
        count = self._known()
        is_old = not 0 <= time.time() - count.begun < max(REST * count.took, 1.0)
        if self._own > limit / PARTS or (is_old and count.size + self._own + size > limit):
            count = self.sweep()
        return int(count.size + self._own + size - limit)

    def sweep(self) -> Count:
        """Count what is there, and leave the count for other processes."""
        count = self._swept()
        self._take(count)
        data = _COUNTED.pack(*count)
        with contextlib.suppress(OSError), self._folder.replace(_COUNT) as out:
            out.write(frames.pack(_COUNT.encode(), len(data), frames.checksum(data)) + data)
        with contextlib.suppress(OSError):
            self._left = self._file()
        return count

    def _known(self) -> Count:
        """Return the newest count that this or another process has made."""
        try:
            left = self._file()
        except FileNotFoundError:
            left = None
        if left != self._left:
            self._left = left
            with contextlib.suppress(OSError, struct.error, TypeError):
                self._found(Count(*_COUNTED.unpack(self._read())))
        return self._count or self.sweep()

    def _file(self) -> tuple[int, int]:
        status = os.stat(_COUNT, dir_fd=self._folder.descriptor, follow_symlinks=False)
        return status.st_ino, status.st_mtime_ns

    def _read(self) -> Any:
        fd = self._folder.open(_COUNT)
        try:
            return frames.unpack(read_all(fd, os.fstat(fd).st_size), _COUNT.encode())
        finally:
            os.close(fd)

    def _found(self, count: Count) -> None:
        """Use the count that another process has left, unless it is old or a sweep is cheap."""
        if 0 <= time.time() - count.begun < OLDEST and (self._count is not None or count.took >= CHEAP):
            self._take(count)

    def _take(self, count: Count) -> None:
        with self._lock:
            self._count = count
            self._own = sum(change[1] for change in list(self._changes) if change[0] >= count.begun)

    def _swept(self) -> Count:
        begun, start = time.time(), time.monotonic()
        self._changes.append([begun, 0])
        size = entries = folders = 0
        for number in random.sample(range(FOLDERS), FOLDERS):
            folders += 1
            for path, status in members(self._folder, number, hidden=True):
                size += size_of(status)
                entries += path[3] != "."
            if entries >= SAMPLE and folders >= FEWEST_FOLDERS:
                break
        return Count(begun, time.monotonic() - start, size * FOLDERS // folders, entries * FOLDERS // folders)


class Candidate(NamedTuple):
    """An entry that may be evicted."""

    key: int
    last_read: float
    name: Any


Sample: TypeAlias = Callable[[], Sequence[Candidate]]


class Victims:
    """Chooses what is evicted: of samples, what can be done without best."""

    def __init__(self, reuse: ReuseTimes) -> None:
        self._reuse = reuse
        self._candidates: list[Candidate] = []
        self._vain = _VainSearch(math.inf, None, 0.0)

    def next(self, sample: Sample, need: float, order: ReadOrder, *, refill: bool = True) -> Candidate | None:
        """Return an entry that goes for a newcomer that is needed at a position, or for `ANY`; None if none does.

        `sample` returns candidates: all that there are, or some. Without `refill` there is no new sample.
        """
        if need == math.inf and self.rests(need, order):
            return None
        took: float | None = None
        while True:
            candidates = self._candidates
            try:
                if candidates and self._goes(candidates[-1], need, order):
                    return candidates.pop()
            except IndexError:  # another thread took the last one
                continue
            if took is not None:
                rest = took * (VAIN_REST if need == math.inf else ORDERED_REST)
                self._vain = _VainSearch(need, order or None, time.monotonic() + rest)
                return None
            if not refill or self.rests(need, order):
                return None
            took = self._refill(sample, order)

    def rests(self, need: float, order: ReadOrder) -> bool:
        """Return if a search for what is needed no later was in vain lately."""
        vain = self._vain
        return vain.order is (order or None) and need >= vain.need and time.monotonic() < vain.until

    def reset(self) -> None:
        """Search again: something has changed."""
        self._vain = _VainSearch(math.inf, None, 0.0)

    def _goes(self, one: Candidate, need: float, order: ReadOrder) -> bool:
        return need == ANY or policy.goes_for(self._rank(one, order, self._reuse.unused_since()), need)

    def _rank(self, one: Candidate, order: ReadOrder, unused_since: float) -> float:
        return policy.rank(one.key, one.last_read, order, unused_since)

    def _refill(self, sample: Sample, order: ReadOrder) -> float:
        """Take a new sample; return the seconds that it took."""
        began, unused_since = time.monotonic(), self._reuse.unused_since()
        found = sample()
        ranked = sorted(((self._rank(one, order, unused_since), -one.last_read), at) for at, one in enumerate(found))
        dispensable = sum(rank >= policy.READ for (rank, _), _ in ranked) if order else 0
        self._candidates = [found[at] for _, at in ranked[-max(CANDIDATES // 4, len(found) // 4, dispensable) :]]
        return time.monotonic() - began


class _VainSearch(NamedTuple):
    """A search that has found nothing to evict."""

    need: float
    """The position at which the newcomer is needed."""
    order: ReadOrder | None
    until: float
    """When there may be another one."""


class Evictor:
    """Keeps the entries of a folder within their limits."""

    def __init__(self, folder: Folder, partials: PartialEntries, limits: DiskLimits, reuse: ReuseTimes) -> None:
        self.limits = limits
        self.occupancy: Occupancy = Occupancy(folder)
        self.evicted: int = 0
        """Entries that this process has evicted."""
        self._excess_until = 0.0  # when what is beyond the limits may be looked for again
        self._folder = folder
        self._partials = partials
        self._victims = Victims(reuse)

    def make_room(self, size: int, need: float, order: ReadOrder) -> bool:
        """Return whether an entry that takes `size` bytes of the disk, and is needed at a position, is admitted."""
        limit = self.limits.max_bytes
        if limit is not None and size > limit:
            return False
        over, short = self._excesses(size)
        wanted = max(over, short)
        if max(over - int((limit or 0) * TOLERANCE), short) > size:
            # The limits are others than they were, or the disk is filled by something else.
            self._evict_excess(order)
            wanted = self.excess(size)
        return wanted <= 0 or self._evict(wanted, need, order) >= min(wanted, size)

    def is_closed(self, order: ReadOrder) -> bool:
        """Return whether nothing was lately found that goes for what is new, the order of reading not being known."""
        return not order and self._victims.rests(math.inf, order)

    def open(self) -> None:
        """Look for what goes again: something was removed."""
        self._victims.reset()

    def excess(self, size: int) -> int:
        """Return by how many bytes `size` more would exceed the limits; 0 or less, if there is room."""
        return max(self._excesses(size))

    def _excesses(self, size: int) -> tuple[int, int]:
        """Return by how many bytes `size` more would exceed `max_bytes`, and what `min_free` leaves."""
        limit, min_free = self.limits
        short = min_free + size - free(self._folder)
        return short if limit is None else self.occupancy.excess(size, limit), short

    def _evict_excess(self, order: ReadOrder) -> None:
        """Evict what is there beyond the limits, whatever it is needed for, unless another process does so now, or
        there was nothing more to evict lately.
        """
        began = time.monotonic()
        if began >= self._excess_until and self._partials.claim(_EXCESS):
            try:
                self.occupancy.sweep()
                if (wanted := self.excess(0)) > 0:
                    freed = self._evict(wanted, ANY, order)
                    self.occupancy.sweep()
                    if freed < wanted:
                        self._excess_until = time.monotonic() + VAIN_REST * (time.monotonic() - began)
            finally:
                self._partials.release(_EXCESS)

    def _evict(self, wanted: int, need: float, order: ReadOrder) -> int:
        """Free so many bytes of entries that go for a newcomer, or for `ANY` of all, and some more of what is not
        needed; return how many were freed.
        """
        began, freed, evicted, vain = time.monotonic_ns(), 0, 0, 0
        most = max(wanted, int((self.limits.max_bytes or 0) * BATCH))
        while freed < most and vain < CANDIDATES:
            needed = freed < wanted
            victim = self._victims.next(self._sample, need if needed else policy.READ / 2, order, refill=needed)
            if victim is None:
                break
            size = self._remove(victim, need)
            freed, evicted, vain = freed + size, evicted + (size > 0), vain + (size == 0)
        if evicted:
            self.evicted += evicted
            self.occupancy.change(-freed)
            if (instrument := hooks.active) is not None:
                instrument.record_event("evict", "cache", freed)
                instrument.record_span("cache", "cache.evict", began, freed, self._folder.path)
        return freed

    def _remove(self, victim: Candidate, need: float) -> int:
        """Remove an entry unless it was read or pinned meanwhile; return the bytes that it took."""
        try:
            status = os.stat(victim.name, dir_fd=self._folder.descriptor, follow_symlinks=False)
            if not status.st_mode & 0o200 or (need != ANY and status.st_mtime > victim.last_read):
                return 0
            self._folder.remove(victim.name)
        except OSError:  # another process was faster, or the disk is read-only
            return 0
        return size_of(status)

    def _sample(self) -> list[Candidate]:
        """Return the entries of some folders, but for those that are pinned.

        The folders are random: neighbours would be emptied together, and then sampled together in vain.
        """
        found: list[Candidate] = []
        for number in random.sample(range(FOLDERS), FOLDERS):
            for path, status in members(self._folder, number):
                key = policy.key_in(path)
                if key is not None and status.st_mode & 0o200:
                    found.append(Candidate(key, status.st_mtime, path))
            if len(found) >= CANDIDATES:
                break
        return found


def members(folder: Folder, number: int, *, hidden: bool = False) -> Iterator[tuple[str, os.stat_result]]:
    """Yield paths, below the root, and statuses of the files in a hashed folder, without leftovers, which are removed.

    Hidden ones, which are being written, are left out unless they are asked for.
    """
    name = f"{number:02x}"
    with contextlib.suppress(OSError):  # nothing was stored there yet, or it is no folder
        for file, status in folder.entries(name, hidden=hidden):
            path = f"{name}/{file}"
            if file[0] == "." and is_leftover(status, file):
                with contextlib.suppress(OSError):
                    folder.remove(path)
            else:
                yield path, status


def size_of(status: os.stat_result) -> int:
    """Return the bytes that a file takes of the disk; a filesystem that allocates late reports no blocks yet."""
    return max(status.st_blocks * 512, room_of(status.st_size)) if stat_bits.S_ISREG(status.st_mode) else 0


def room_of(size: int) -> int:
    """Return the bytes of the disk that a file of `size` bytes will take."""
    return -(-size // _PAGE) * _PAGE


def free(folder: Folder) -> int:
    """Return how many bytes of the disk this user may still fill."""
    status = os.fstatvfs(folder.descriptor)
    return status.f_bavail * status.f_frsize
