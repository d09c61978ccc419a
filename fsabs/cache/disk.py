"""The cache on disk: a self-describing, checksummed file for each entry, for all processes that name the folder.

A hit is one open, two reads and a checksum. No lock is held while anything is fetched, read, written or removed, and
none is needed to be right: leases are hints, by which two processes do not fetch the same thing. Every failure of the
disk is a miss and one warning.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
import warnings
import weakref
from collections.abc import Sequence
from typing import Any

from .. import mounts, process
from ..descriptors import HeldDescriptors, close, open_into
from . import frames, leases, policy
from .checksums import checksum, crc32c
from .eviction import DiskLimits, Evictor, free
from .folder import EntryFolder, room_of
from .policy import Passes, ReadOrder

FAILURES = (OSError, ValueError, OverflowError, MemoryError)
MARKS = 1 << 24
"""Bytes of the file of marks; two files of one mark take each other's for their own."""
_AT_ONCE = 1 << 15  # bytes of a file that are read at once, and copied, in place of two reads
RETRY_AFTER = 10.0  # seconds from a folder that can't be made to the next attempt: there may be room by then
_RECORD_EVERY = 1.0  # seconds between two records of hits and misses for other processes


class DiskCache:
    """See the module; made by `open_disk`."""

    def __init__(self, folder: str, limits: DiskLimits) -> None:
        self.folder = folder
        self.passes: Passes = Passes()
        self._entries = EntryFolder(os.path.join(folder, "entries-1"))
        self._evictor = Evictor(self._entries, limits, self.passes)
        self._leases = HeldDescriptors()
        self._marks = HeldDescriptors()  # closed with its last use: another thread may be writing to it
        self._usable: bool | None = None
        self._retry_at = 0.0
        self._lock = process.Lock()
        self._counted = [0, 0]
        self._recorded_at = 0.0
        self._generation = process.generation()

    @property
    def limits(self) -> DiskLimits:
        """The limits of the disk space that the cache may take."""
        return self._evictor.limits

    # ---- entries

    def get(self, name: bytes, url: str = "") -> bytes | None:
        """Return the content of an entry; None if there is none that is whole and right."""
        if not (self._usable or self._prepare()):
            return None
        path = self._entries.path(name, policy.key_of(url))
        held = HeldDescriptors()
        try:
            fd = open_into(held, path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as exc:
            self._failed(exc)
            return None
        try:
            status = os.fstat(fd)
            start = frames.HEAD_SIZE + len(name)
            head, content = _read(fd, status.st_size, start)
            if head == frames.pack(name, len(content), checksum(content)) and status.st_uid == os.geteuid():
                self.passes.read(hash(name))
                if status.st_mtime < self.passes.begun:
                    os.utime(fd)  # once in a pass
                return content
        except FAILURES as exc:
            self._failed(exc)
            return None
        finally:
            close(held)
        self._entries.drop(path)  # damaged, or another user's
        return None

    def has(self, name: bytes, url: str = "") -> bool:
        """Return if there is an entry; it may turn out to be damaged."""
        return (self._usable or self._prepare()) and os.path.exists(self._entries.path(name, policy.key_of(url)))

    def put(self, name: bytes, url: str, content: bytes, order: ReadOrder, pinned: bool = False) -> bool:
        """Admit an entry, others being evicted as need be; returns if it is there now."""
        if not (self._usable or self._prepare()) or len(name) > frames.LONGEST_NAME:
            return False
        self.passes.read(hash(name))
        room = room_of(frames.HEAD_SIZE + len(name) + len(content))
        try:
            if not self._evictor.make_room(room, policy.key_of(url), order):
                self._refused()
                return False
        except FAILURES as exc:
            self._failed(exc)
            return False
        return self._write([(name, url, content)], room, pinned)[0]

    def put_many(self, entries: Sequence[tuple[bytes, str, bytes]], order: ReadOrder) -> list[bool]:
        """As `put`, for entries of `(name, url, content)`, which are recorded together if there is room for all."""
        if len(entries) > 1 and (self._usable or self._prepare()):
            sizes = [frames.HEAD_SIZE + len(name) + len(content) for name, _, content in entries]
            room = sum(map(room_of, sizes))
            with contextlib.suppress(*FAILURES):  # each by itself then
                if max(len(name) for name, _, _ in entries) <= frames.LONGEST_NAME and self._evictor.reserve(
                    room, len(entries)
                ):
                    for name, _, _ in entries:
                        self.passes.read(hash(name))
                    return self._write(entries, room, False)
        return [self.put(*entry, order) for entry in entries]

    def _write(self, entries: Sequence[tuple[bytes, str, bytes]], room: int, pinned: bool) -> list[bool]:
        """Write entries for which `room` is reserved; returns which are there now."""
        written, taken, more = [False] * len(entries), 0, 0
        try:
            for at, (name, url, content) in enumerate(entries):
                head = frames.pack(name, len(content), checksum(content))
                size, new = self._entries.write(self._entries.path(name, policy.key_of(url)), head, content, pinned)
                written[at], taken, more = True, taken + size, more + new
        except FAILURES as exc:
            self._failed(exc)
        finally:
            if (taken, more) != (room, len(entries)):
                self._entries.record(taken - room, more - len(entries))
        return written

    def remove(self, name: bytes, url: str = "") -> None:
        """Remove an entry, if it is there."""
        if self._usable or self._prepare():
            self._entries.drop(self._entries.path(name, policy.key_of(url)))

    def pin(self, name: bytes, url: str, pinned: bool) -> bool:
        """Exempt an entry from eviction, or no longer; returns if it is there."""
        try:
            os.chmod(self._entries.path(name, policy.key_of(url)), 0o400 if pinned else 0o600)
        except OSError:
            return False
        return True

    # ---- leases

    def lease(self, token: int) -> bool:
        """Lease a token against other processes, until `release` or the end of this one; True also if it can't be."""
        if not (self._usable or self._prepare()):
            return True
        try:
            return not self._leases or leases.acquire(self._leases[0].fileno(), token)
        except FAILURES:
            return True

    def release(self, token: int) -> None:
        """Give a lease back."""
        if self._leases:
            with contextlib.suppress(*FAILURES):
                leases.release(self._leases[0].fileno(), token)

    # ---- marks: hints, which files have been cached

    def mark(self, url: str, cached: bool = True) -> None:
        """Mark a file as one that was cached, or no longer."""
        try:
            if (self._usable or self._prepare()) and (marks := self._marks):
                os.pwrite(marks[0].fileno(), b"\1" if cached else b"\0", policy.key_of(url) % MARKS)
        except FAILURES:
            pass

    def is_marked(self, url: str) -> bool:
        """Return if a file was cached; True now and then for another one, and False after a failure of the disk."""
        try:
            if (self._usable or self._prepare()) and (marks := self._marks):
                return os.pread(marks[0].fileno(), 1, policy.key_of(url) % MARKS) == b"\1"
        except FAILURES:
            pass
        return False

    # ---- all of it

    def sweep(self) -> None:
        """Count what is there, and remove what killed processes have left."""
        self._entries.sweep()

    def clear(self) -> None:
        """Remove everything, for all processes."""
        self._entries.clear()
        self.close()

    def verify(self) -> list[str]:
        """Read everything; returns the URLs and versions of what was damaged, and has been removed."""
        return self._entries.verify()

    def status(self) -> dict[str, Any]:
        """Return what there is and may be, and what became of the reads of all processes."""
        usable = bool(self._usable or self._prepare())
        found: dict[str, Any] = {"dir": self.folder, "max_bytes": self.limits.max_bytes}
        found |= {"min_free": self.limits.min_free, "evicted": self._evictor.evicted, "usable": usable}
        try:
            if usable:
                self.count(0, 0, at_once=True)
                totals = self._entries.totals()
                found |= {"entries": totals.entries, "bytes": totals.size, "hits": totals.hits}
                found |= {"misses": totals.misses, "free": free(self.folder)}
        except FAILURES as exc:
            self._failed(exc)
            if isinstance(exc, FileNotFoundError) and self._prepare():  # the folder is another one by now
                return self.status()
            found["usable"] = False
        return found

    def count(self, hits: int, misses: int, at_once: bool = False) -> None:
        """Count reads; they are recorded for other processes once a second."""
        counted = self._counted
        counted[0] += hits
        counted[1] += misses
        now = time.monotonic()
        if (at_once or now - self._recorded_at > _RECORD_EVERY) and any(counted) and self._usable:
            self._recorded_at, self._counted = now, [0, 0]
            with contextlib.suppress(*FAILURES):
                self._entries.record(0, 0, *counted)

    # ---- the folder

    def _prepare(self) -> bool:
        """Make the folder, if it isn't there; returns if it can be used."""
        if self._is_prepared():
            return bool(self._usable)
        with self._lock:
            if self._is_prepared():
                return bool(self._usable)  # another thread was faster: what it has leased and marked stays open
            try:
                self._entries.prepare()
                kind = mounts.filesystem_of(self.folder)
                if mounts.is_network(kind):
                    message = f"the cache in {self.folder} is on a network filesystem ({kind}): a local disk is faster"
                    warn_once(f"network {self.folder}", message)
                self._shut()
                open_into(self._leases, f"{self._entries.root}/leases", os.O_RDWR | os.O_CREAT, 0o600)
                open_into(marks := HeldDescriptors(), f"{self._entries.root}/marks", os.O_RDWR | os.O_CREAT, 0o600)
                self._marks = marks
                self._usable = True
            except FAILURES as exc:
                self._usable = os.path.isdir(self._entries.root) and isinstance(exc, OSError) and _is_read_only(exc)
                if not self._usable:
                    self._retry_at = time.monotonic() + RETRY_AFTER
                    self._failed(exc)
        return bool(self._usable)

    def _is_prepared(self) -> bool:
        """Return if the folder was made, or could not be made a moment ago."""
        if self._generation != process.generation():
            return False
        return bool(self._usable) or (self._usable is False and time.monotonic() < self._retry_at)

    def _failed(self, exc: Exception) -> None:
        if isinstance(exc, FileNotFoundError) and self._usable:  # the folder was removed: it is made again
            self._usable = None
            return
        reason = f"{type(exc).__name__}: {exc}"
        warn_once(self.folder, f"the cache in {self.folder} fails, and is a miss: {reason}")

    def _refused(self) -> None:
        """Warn if what has no room has none because the disk is nearly full, and not because the cache is."""
        least = self.limits.min_free
        if least > free(self.folder):
            reason = f"less than min_free, {least:,} bytes, of the disk is free"
            warn_once(f"short {self.folder}", f"the cache in {self.folder} stores nothing: {reason}")

    def leave_inherited(self) -> None:
        """Open the leases anew in a forked child: locks belong to what the parent has opened."""
        self._generation = process.generation()
        self._counted = [0, 0]
        self._entries = EntryFolder(self._entries.root)
        self._evictor = Evictor(self._entries, self.limits, self.passes)
        self._usable = None
        with contextlib.suppress(OSError):
            self._shut()

    def _shut(self) -> None:
        before, self._leases, self._marks = self._leases, HeldDescriptors(), HeldDescriptors()
        close(before)

    def close(self) -> None:
        """Free what this process holds; it is opened again when it is needed."""
        self.count(0, 0, at_once=True)
        self._entries.usage.close()
        with self._lock:
            self._usable = None
            self._shut()


def _read(fd: int, size: int, start: int) -> tuple[bytes, bytes]:
    """Return what is before `start` in a file of `size` bytes, and what is from there on."""
    if size <= _AT_ONCE:
        data = os.pread(fd, size, 0)
        return data[:start], data[start:]
    parts: list[bytes] = []
    got = start
    while got < size and (more := os.pread(fd, size - got, got)):  # twice, if there are more than 2 GiB
        parts.append(more)
        got += len(more)
    return os.pread(fd, start, 0), parts[0] if len(parts) == 1 else b"".join(parts)


def _is_read_only(exc: OSError) -> bool:
    return exc.errno in (errno.EROFS, errno.EACCES, errno.ENOSPC, errno.EDQUOT)


def prepare() -> None:
    """Load the libraries that are needed, now: a fork during a thread's import leaves the child waiting for it."""
    crc32c()


_warned: set[str] = set()


def warn_once(what: str, message: str) -> None:
    """Warn, once in a process."""
    if what not in _warned:
        _warned.add(what)
        warnings.warn(message, RuntimeWarning, stacklevel=4)


_disks: weakref.WeakValueDictionary[tuple[str, DiskLimits], DiskCache] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()
    for disk in list(_disks.values()):
        disk.leave_inherited()


os.register_at_fork(after_in_child=_in_child)


def open_disk(folder: str, limits: DiskLimits) -> DiskCache:
    """Return this process's cache in a folder."""
    with _opening:
        disk = _disks.get((folder, limits))
        if disk is None:
            _disks[folder, limits] = disk = DiskCache(folder, limits)
        return disk
