"""The disk's part of `CachedFS`: a self-describing, checksummed file for each entry, for all processes.

    FOLDER/entries-1/3f/5c0e...-e91a...    the frame (see `frames`) of one entry
    FOLDER/entries-1/usage                 how much there is, for all processes: see `usage`
    FOLDER/entries-1/claims                locks on bytes of it say which process is fetching what

The name of an entry's file is the key of its URL (`policy.key_of`), by which an eviction knows when it is needed, and
the hash of its name. A file is written aside and moved into its place; a hit is one open, two reads and a checksum. No
lock is held while anything is fetched, read, written or removed, and none is needed to be right: claims are hints, by
which two processes do not fetch the same thing. A file's time is when it was last read, by passes; one that its owner
can't write to is pinned. Whatever the disk does wrong is a miss and one warning.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import secrets
import shutil
import stat as stat_bits
import threading
import time
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from .. import hooks, identity, mounts, process
from . import frames, locks, policy
from .layout import checksum, crc32c, key_hash
from .policy import Order, Passes
from .usage import Totals, UsageLog

FAILURES = (OSError, ValueError, OverflowError, MemoryError)
BATCH = 0.01
"""The share of what is there that one eviction frees, at least: down to a low-water mark."""
CANDIDATES = 256
"""Entries, at least, among which an eviction chooses."""
ANY = -2.0
"""In place of a newcomer's position: there has to be less, whatever goes."""
_FOLDERS = 256
_DEBRIS = 60.0  # seconds after which a file that is being written belongs to a process that is gone
_NOTE_EVERY = 1.0  # seconds between two notes of hits and misses for other processes


class Limits(NamedTuple):
    """How much of a disk a cache may take."""

    max_bytes: int | None
    """Bytes on the disk; None for all that `min_free` leaves."""
    min_free: int
    """Bytes of the disk that are left free."""


class _Candidate(NamedTuple):
    """An entry that an eviction may take."""

    key: int
    last_read: float
    size: int
    path: str


class DiskCache:
    """See the module; made by `open_disk`."""

    def __init__(self, folder: str, limits: Limits) -> None:
        self.folder = folder
        self.limits = limits
        self.passes = Passes()
        self.evicted = 0
        """Entries that this process has evicted."""
        self._root = os.path.join(folder, "entries-1")
        self._log = UsageLog(os.path.join(self._root, "usage"))
        self._claims = -1
        self._usable: bool | None = None
        self._pool: list[_Candidate] = []
        self._lock = process.Lock()
        self._counted = [0, 0]
        self._noted_at = 0.0
        self._generation = process.generation()

    # ---- entries

    def get(self, name: bytes, url: str = "") -> bytes | None:
        """Return the content that is kept under a name; None if there is none that is whole and right."""
        if self._usable is None and not self._prepare():
            return None
        path = self._path(name, policy.key_of(url))
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._failed(exc)
            return None
        try:
            status = os.fstat(fd)
            start = frames.HEAD_SIZE + len(name)
            content = _read(fd, status.st_size - start, start) if status.st_size >= start else b""
            right = os.pread(fd, start, 0) == frames.pack(name, len(content), checksum(content))
            if right and status.st_uid == os.geteuid():
                self.passes.read(hash(name))
                if status.st_mtime < self.passes.begun:
                    os.utime(path)  # once in a pass
                return content
        except FAILURES as exc:
            self._failed(exc)
            return None
        finally:
            os.close(fd)
        self._unlink(path, status)  # damaged, or another user's
        return None

    def has(self, name: bytes, url: str = "") -> bool:
        """Return whether something is kept under a name; it may turn out to be damaged."""
        return (self._usable or self._prepare()) and os.path.exists(self._path(name, policy.key_of(url)))

    def put(self, name: bytes, url: str, content: bytes, order: Order, pinned: bool = False) -> bool:
        """Keep content, others going as need be; returns whether it is there now."""
        if not (self._usable or self._prepare()) or len(name) > frames.LONGEST_NAME:
            return False
        key = policy.key_of(url)
        self.passes.read(hash(name))
        try:
            head = frames.pack(name, len(content), checksum(content))
            room = -(-(len(head) + len(content)) // 4096) * 4096
            if not self._has_room(room, order.need(key), order):
                return False
            self._write(self._path(name, key), head, content, pinned)
        except FAILURES as exc:
            self._failed(exc)
            return False
        return True

    def remove(self, name: bytes, url: str = "") -> None:
        """Drop an entry, if it is there."""
        if self._usable or self._prepare():
            path = self._path(name, policy.key_of(url))
            with contextlib.suppress(OSError):
                self._unlink(path, os.stat(path))

    def pin(self, name: bytes, url: str, pinned: bool) -> bool:
        """Make an entry one that stays, or one that may go; returns whether it is there."""
        try:
            os.chmod(self._path(name, policy.key_of(url)), 0o400 if pinned else 0o600)
        except OSError:
            return False
        return True

    def _path(self, name: bytes, key: int) -> str:
        hashed = identity.digest(name)
        return f"{self._root}/{hashed[:2]}/{key:012x}-{hashed[2:]}"

    def _write(self, path: str, head: bytes, content: bytes, pinned: bool) -> None:
        folder, _, _ = path.rpartition("/")
        aside = f"{folder}/.{secrets.token_hex(8)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
        mode = 0o400 if pinned else 0o600
        try:
            fd = os.open(aside, flags, mode)
        except FileNotFoundError:
            os.makedirs(folder, 0o700, exist_ok=True)
            fd = os.open(aside, flags, mode)
        try:
            try:
                done = os.writev(fd, [head, content])
                while done < len(head) + len(content):  # more than 2 GiB
                    done += os.write(fd, memoryview(content)[done - len(head) :])
                size = os.fstat(fd).st_blocks * 512
            finally:
                os.close(fd)
            before = _size_of(path)
            os.rename(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        # A filesystem that allocates late tells no blocks yet.
        size = max(size, -(-(len(head) + len(content)) // 4096) * 4096)
        self._note(size - max(before, 0), 1 if before < 0 else 0)

    def _unlink(self, path: str, status: os.stat_result | None) -> bool:
        try:
            size = max(status.st_blocks * 512, -(-status.st_size // 4096) * 4096) if status is not None else 0
            os.unlink(path)
            self._note(-size, -1)
        except OSError:  # another process was faster, or the disk is read-only
            return False
        return True

    # ---- claims: hints, so that two processes do not fetch the same thing

    def claim(self, name: bytes) -> bool:
        """Claim a name against other processes, until `release` or the end of this one; True also if it can't be."""
        if not (self._usable or self._prepare()):
            return True
        try:
            return self._claims < 0 or locks.claim(self._claims, key_hash(name))
        except FAILURES:
            return True

    def release(self, name: bytes) -> None:
        """Give a claim back."""
        if self._claims >= 0:
            with contextlib.suppress(*FAILURES):
                locks.release(self._claims, key_hash(name))

    # ---- room

    def _has_room(self, room: int, need: float, order: Order) -> bool:
        """Return whether there is room for a newcomer that is needed at that position, made if it has to be."""
        limit = self.limits.max_bytes
        if limit is not None and room > limit:
            return False
        used = self._totals().size
        over = used - limit if limit is not None else 0
        short = self.limits.min_free - _free(self.folder)
        if (over + room <= 0 and short + room <= 0) or (limit is None and short + room <= 0):
            return True
        if over > 0 or short > 0:  # the limits are others than they were, or the disk is filled by something else
            self._evict(max(over, short), ANY, order)
        wanted = max(used + room - limit if limit is not None else 0, self.limits.min_free + room - _free(self.folder))
        return wanted <= 0 or self._evict(wanted, need, order) >= wanted

    def _evict(self, wanted: int, newcomer: float, order: Order) -> int:
        """Free so many bytes of entries that go for a newcomer, or for `ANY` of all; returns how many were freed."""
        begin, freed, evicted = time.monotonic_ns(), 0, 0
        most = wanted if newcomer < math.inf else max(wanted, int(self._totals().size * BATCH))
        with self._lock:
            at_refill = -1  # what was freed by then: a refill that brings nothing is the last
            while freed < most:
                if self._pool and self._goes(self._pool[-1], newcomer, order):
                    victim = self._pool.pop()
                    status = _status(victim.path)
                    read_since = status is not None and status.st_mtime > victim.last_read
                    if (newcomer == ANY or not read_since) and self._unlink(victim.path, status):
                        freed += victim.size
                        evicted += 1
                elif freed == at_refill or freed >= wanted:
                    break
                else:
                    at_refill = freed
                    self._refill(order)
        self.evicted += evicted
        if evicted and (instrument := hooks.active) is not None:
            instrument.record_event("evict", "cache", freed)
            instrument.record_span("cache", "cache.evict", begin, freed, self.folder)
        return freed

    def _goes(self, one: _Candidate, newcomer: float, order: Order) -> bool:
        return newcomer == ANY or policy.goes_for(self._rank(one, order), newcomer)

    def _rank(self, one: _Candidate, order: Order) -> float:
        return policy.rank(one.key, one.last_read, order, self.passes)

    def _refill(self, order: Order) -> None:
        """Look at some folders for what can be done without best; it stands at the end."""
        found: list[_Candidate] = []
        start = random.randrange(_FOLDERS)
        for turn in range(_FOLDERS):
            found += self._scan(f"{self._root}/{(start + turn) % _FOLDERS:02x}")
            if len(found) >= CANDIDATES:
                break
        found.sort(key=lambda one: (self._rank(one, order), -one.last_read))
        self._pool = found[-max(CANDIDATES // 4, len(found) // 4) :]

    def _scan(self, folder: str) -> Iterator[_Candidate]:
        """Yield the entries of a folder that are not pinned; what killed writers have left is removed."""
        for entry, status in _files(folder):
            if entry.name.startswith("."):
                if time.time() - status.st_mtime > _DEBRIS:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
            elif status.st_mode & stat_bits.S_IWUSR:
                key, size = entry.name.partition("-")[0], status.st_blocks * 512
                with contextlib.suppress(ValueError):
                    yield _Candidate(int(key, 16), status.st_mtime, size, entry.path)

    # ---- all of it

    def sweep(self) -> Totals:
        """Count what is there, remove what killed writers have left, and begin a new log."""
        before = Totals(0, 0, 0, 0)
        self._remove_cleared()
        with contextlib.suppress(OSError):
            before = self._log.totals()
        totals = self._counted_files()._replace(hits=before.hits, misses=before.misses)
        self._log.begin(totals)
        return totals

    def _counted_files(self) -> Totals:
        size = entries = 0
        for number in range(_FOLDERS):
            for _ in self._scan(folder := f"{self._root}/{number:02x}"):
                pass
            for entry, status in _files(folder):
                size += status.st_blocks * 512
                entries += not entry.name.startswith(".")
        return Totals(size, entries, 0, 0)

    def clear(self) -> None:
        """Drop everything, for all processes."""
        with contextlib.suppress(OSError):
            aside = f"{self._root}.{secrets.token_hex(4)}"
            os.rename(self._root, aside)
        self._remove_cleared()
        self.close()

    def _remove_cleared(self) -> None:
        """Remove what `clear` has moved aside, here or in a process that was killed meanwhile."""
        prefix = f"{os.path.basename(self._root)}."
        with contextlib.suppress(OSError):
            for name in os.listdir(self.folder):
                if name.startswith(prefix):
                    shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def verify(self) -> list[str]:
        """Read everything; returns the URLs and versions of what was damaged, and has been dropped."""
        damaged: list[str] = []
        for number in range(_FOLDERS):
            for entry, status in _files(f"{self._root}/{number:02x}"):
                if not entry.name.startswith("."):
                    name, right = _checked(entry.path)
                    if not right or not self._belongs(entry.path, name):
                        damaged.append(_readable(name) or entry.path)
                        self._unlink(entry.path, status)
        with contextlib.suppress(*FAILURES):  # read-only, or gone
            self.sweep()
        return damaged

    def _belongs(self, path: str, name: bytes) -> bool:
        hashed = identity.digest(name)
        return path.endswith(f"/{hashed[:2]}/{os.path.basename(path).partition('-')[0]}-{hashed[2:]}")

    def status(self) -> dict[str, Any]:
        """Return what there is and may be, and what became of the reads of all processes."""
        usable = bool(self._usable or self._prepare())
        found: dict[str, Any] = {"dir": self.folder, "max_bytes": self.limits.max_bytes, "evicted": self.evicted}
        found |= {"min_free": self.limits.min_free, "usable": usable}
        try:
            if usable:
                self.count(0, 0, at_once=True)
                totals = self._totals()
                found |= {"entries": totals.entries, "bytes": totals.size, "hits": totals.hits}
                found |= {"misses": totals.misses, "free": _free(self.folder)}
        except FAILURES as exc:
            self._failed(exc)
            found["usable"] = False
        return found

    def count(self, hits: int, misses: int, at_once: bool = False) -> None:
        """Count reads, for all processes; they hear of it once a second."""
        counted = self._counted
        counted[0] += hits
        counted[1] += misses
        now = time.monotonic()
        if (at_once or now - self._noted_at > _NOTE_EVERY) and any(counted) and self._usable:
            self._noted_at, self._counted = now, [0, 0]
            with contextlib.suppress(*FAILURES):
                self._log.add(0, 0, *counted)

    def _note(self, size: int, entries: int) -> None:
        with contextlib.suppress(OSError):  # then a sweep will count it
            try:
                self._log.add(size, entries)
            except FileNotFoundError:  # the folder is another one by now
                self._begin_log()

    def _totals(self) -> Totals:
        try:
            return self._log.totals()
        except FileNotFoundError:  # the folder is another one by now, or was restored without it
            self._begin_log()
            return self._log.totals()

    def _begin_log(self) -> None:
        """Count what is there, unless another process has done so."""
        self._log.begin(self._counted_files(), replace=False)

    # ---- the folder

    def _prepare(self) -> bool:
        """Make the folder, if it isn't there; returns whether it can be used."""
        if self._usable is not None and self._generation == process.generation():
            return self._usable
        with self._lock:
            try:
                os.makedirs(self._root, 0o700, exist_ok=True)
                status = os.stat(self._root)
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    raise PermissionError(f"others than its owner may have written to {self._root}")
                kind = mounts.filesystem_of(self.folder)
                if mounts.is_network(kind) and self.folder not in _told:
                    _told.add(self.folder)
                    message = f"the cache in {self.folder} is on a network filesystem ({kind}): a local disk is faster"
                    warnings.warn(message, RuntimeWarning, stacklevel=4)
                self._claims = os.open(f"{self._root}/claims", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._remove_cleared()
                if not os.path.exists(self._log.path):
                    self._begin_log()
                self._usable = True
            except FAILURES as exc:
                self._usable = os.path.isdir(self._root) and isinstance(exc, OSError) and _is_read_only(exc)
                if not self._usable:
                    self._warn(exc)
        return bool(self._usable)

    def _failed(self, exc: Exception) -> None:
        if isinstance(exc, FileNotFoundError):  # the folder was removed: it is made again
            self._usable = None
            return
        self._warn(exc)

    def _warn(self, exc: Exception) -> None:
        if self.folder not in _warned:
            _warned.add(self.folder)
            reason = f"{type(exc).__name__}: {exc}"
            warnings.warn(f"the cache in {self.folder} fails, and is a miss: {reason}", RuntimeWarning, stacklevel=3)

    def leave_inherited(self) -> None:
        """Open the claims anew in a forked child: locks belong to what the parent has opened."""
        self._generation = process.generation()
        self._counted = [0, 0]
        self._log = UsageLog(self._log.path)
        claims, self._claims, self._usable = self._claims, -1, None
        if claims >= 0:
            with contextlib.suppress(OSError):
                os.close(claims)

    def __del__(self) -> None:
        claims, self._claims = self._claims, -1
        if claims >= 0:
            os.close(claims)

    def close(self) -> None:
        """Free what this process holds; it is opened again when it is needed."""
        self.count(0, 0, at_once=True)
        self._log.close()
        with self._lock:
            claims, self._claims, self._usable = self._claims, -1, None
            if claims >= 0:
                os.close(claims)


def _read(fd: int, size: int, offset: int) -> bytes:
    data = os.pread(fd, size, offset) if size else b""
    if len(data) == size or not data:
        return data
    parts = [data]  # more than 2 GiB
    while (got := sum(map(len, parts))) < size and (more := os.pread(fd, size - got, offset + got)):
        parts.append(more)
    return b"".join(parts)


def _files(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone meanwhile
                    yield entry, entry.stat(follow_symlinks=False)
    except OSError:
        return


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None


def _size_of(path: str) -> int:
    status = _status(path)
    return -1 if status is None else max(status.st_blocks * 512, -(-status.st_size // 4096) * 4096)


def _checked(path: str) -> tuple[bytes, bool]:
    """Return the name of the entry in a file, as far as it can be read, and whether the file is whole and right."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return b"", False
    head = frames.read_head(data)
    name = frames.name_of(data, head) if head is not None else None
    if head is None or name is None:
        return b"", False
    return name, len(data) == head.total and checksum(data[head.start :]) == head.crc


def _readable(name: bytes) -> str:
    """Return URL and version."""
    return " ".join(identity.decode(name)[1:3])


def _is_read_only(exc: OSError) -> bool:
    return exc.errno in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT)


def _free(folder: str) -> int:
    """Return how many bytes of the disk this user may still fill."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def prepare() -> None:
    """Load the libraries that are needed, now: a fork during a thread's import leaves the child waiting for it."""
    crc32c()


_warned: set[str] = set()  # folders; a process hears of each once
_told: set[str] = set()
_disks: weakref.WeakValueDictionary[tuple[str, Limits], DiskCache] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()
    for disk in list(_disks.values()):
        disk.leave_inherited()


os.register_at_fork(after_in_child=_in_child)


def open_disk(folder: str, limits: Limits) -> DiskCache:
    """Return this process's cache in a folder."""
    with _opening:
        disk = _disks.get((folder, limits))
        if disk is None:
            _disks[folder, limits] = disk = DiskCache(folder, limits)
        return disk
