"""The cache on disk: a self-describing, checksummed file for each entry, for all processes that name the folder.

    FOLDER/entries-1/3f/5c0e...-e91a...    the frame (see `frames`) of one entry
    FOLDER/entries-1/count                 what the last sweep has counted: see `occupancy`
    FOLDER/entries-1/claims                which process is fetching what: see `claims`

The directory is the truth: nothing else says what is there. The name of an entry's file is the key of its URL
(`policy.key_of`), by which an eviction knows when it is needed, and the hash of its name. A file's time is when it was
last read, by passes; one that its owner can't write to is pinned. What is there was opened by descriptor, without
following a link, and belongs to this user. A hit is one open, a read and a checksum. No lock is held while anything is
fetched, read, written or removed, and none is needed to be right. Every failure of the disk is a miss and one warning.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..core import identity, process
from ..disk import mounts
from ..disk.descriptors import open_ours_with_status
from ..disk.folders import Folder
from . import frames, occupancy, policy
from .claims import Claims
from .eviction import DiskLimits, Evictor, free
from .frames import checksum, crc32c
from .occupancy import FOLDERS, Occupancy, room_of
from .policy import Passes, ReadOrder

FAILURES = (OSError, ValueError, OverflowError, MemoryError)
RETRY_AFTER = 10.0  # seconds from a folder that can't be made to the next attempt: there may be room by then
_AT_ONCE = 1 << 15  # bytes of a file that are read, or written, at once, and copied
_LOOKED_AFTER = 1.0  # seconds between two looks whether the folder is still at its path
_OF_OLD = ("usage", "marks", "leases")  # what the release before kept beside the entries


class OpenFolder:
    """The folder of the entries, opened in this process, with what is known of it."""

    _claimed = -1

    def __init__(self, path: str, limits: DiskLimits, passes: Passes) -> None:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.folder: Folder = Folder(path, private=True)
        self.occupancy: Occupancy = Occupancy(self.folder)
        self.claims: Claims | None = None
        for name in _OF_OLD:
            with contextlib.suppress(OSError):
                self.folder.remove(name)
        with contextlib.suppress(OSError):  # a read-only disk
            self._claimed = self.folder.open("claims", os.O_RDWR | os.O_CREAT)
            self.claims = Claims(self._claimed)
        self.evictor: Evictor = Evictor(self.folder, self.occupancy, self.claims, limits, passes)
        _remove_cleared(path)

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close it with its last use: another thread may be in the middle of a call."""
        for fd in (self._claimed, self.folder.descriptor if hasattr(self, "folder") else -1):
            if fd >= 0:
                close(fd)


class DiskCache:
    """See the module; made by `open_disk`."""

    def __init__(self, folder: str, limits: DiskLimits) -> None:
        self.folder = folder
        self.limits = limits
        self.passes: Passes = Passes()
        self.evicted: int = 0
        self._path = os.path.join(folder, "entries-1")
        self._open: OpenFolder | None = None
        self._failed_at: float | None = None
        self._looked_at = 0.0
        self._generation = process.generation()
        self._lock = process.Lock()

    # ---- entries

    def get(self, name: bytes, url: str = "") -> bytes | None:
        """Return the content of an entry; None if there is none that is whole and right."""
        root = self._root()
        if root is None:
            return None
        path = _path(name, url)
        try:
            fd, status = open_ours_with_status(path, os.O_RDONLY, root.folder.descriptor)
        except FileNotFoundError:
            return None
        except FAILURES as exc:
            if not self._drop(root, path):  # it isn't a file of ours
                self._fails(exc)
            return None
        try:
            head, content = _read(fd, status.st_size, frames.HEAD_SIZE + len(name))
            if head == frames.pack(name, len(content), checksum(content)):
                self.passes.read(hash(name))
                if status.st_mtime < self.passes.begun:
                    os.utime(fd)  # once in a pass
                return content
        except FAILURES as exc:
            self._fails(exc)
            return None
        finally:
            os.close(fd)
        self._drop(root, path)
        return None

    def has(self, name: bytes, url: str = "") -> bool:
        """Return if there is an entry; it may turn out to be damaged."""
        root = self._root()
        try:
            return root is not None and os.access(_path(name, url), os.F_OK, dir_fd=root.folder.descriptor)
        except FAILURES:
            return False

    def put(self, name: bytes, url: str, content: bytes, order: ReadOrder, pinned: bool = False) -> bool:
        """Admit an entry, others being evicted as need be; returns if it is there now.

        One that is pinned takes the place of any other one.
        """
        root = self._root(_LOOKED_AFTER)
        if root is None or len(name) > frames.LONGEST_NAME:
            return False
        self.passes.read(hash(name))
        key = policy.key_of(url)
        room = room_of(frames.HEAD_SIZE + len(name) + len(content))
        try:
            if not root.evictor.make_room(room, policy.NOW if pinned else order.need(key), order):
                self._refused(root)
                return False
            return self._write(root, name, url, content, room, pinned)
        except FAILURES as exc:
            self._fails(exc)
            return False

    def put_many(self, entries: Sequence[tuple[bytes, str, bytes]], order: ReadOrder) -> list[bool]:
        """As `put`, for entries of `(name, url, content)`, which are admitted together if there is room for all."""
        root = self._root(_LOOKED_AFTER)
        if root is None or len(entries) < 2 or max(len(name) for name, _, _ in entries) > frames.LONGEST_NAME:
            return [self.put(*entry, order) for entry in entries]
        rooms = [room_of(frames.HEAD_SIZE + len(name) + len(content)) for name, _, content in entries]
        written = [False] * len(entries)
        try:
            if root.evictor.excess(sum(rooms)) > 0:
                return [self.put(*entry, order) for entry in entries]
            for at, (name, url, content) in enumerate(entries):
                self.passes.read(hash(name))
                written[at] = self._write(root, name, url, content, rooms[at], False)
        except FAILURES as exc:
            self._fails(exc)
        return written

    def _write(self, root: OpenFolder, name: bytes, url: str, content: bytes, room: int, pinned: bool) -> bool:
        path = _path(name, url)
        root.occupancy.change(room)
        try:
            try:
                out = root.folder.replace(path)
            except FileNotFoundError:
                root.folder.make_folder(path[:2])
                out = root.folder.replace(path)
            with out:
                head = frames.pack(name, len(content), checksum(content))
                if len(content) < _AT_ONCE:
                    out.write(head + content)
                else:
                    out.write(head)
                    out.write(content)
                if pinned:
                    os.fchmod(out.descriptor, 0o400)
        except BaseException:
            root.occupancy.change(-room)
            raise
        return True

    def remove(self, name: bytes, url: str = "") -> None:
        """Remove an entry, if it is there."""
        if (root := self._root()) is not None:
            self._drop(root, _path(name, url))

    def _drop(self, root: OpenFolder, path: str) -> bool:
        """Remove what has the name of an entry: a damaged file, or what is none of ours; return if it is gone."""
        try:
            status = os.stat(path, dir_fd=root.folder.descriptor, follow_symlinks=False)
            root.folder.remove(path)
        except FileNotFoundError:
            return True
        except FAILURES:
            return False
        root.occupancy.change(-occupancy.size_of(status))
        return True

    # ---- pins

    def pin(self, name: bytes, url: str) -> bool:
        """Exempt an entry from eviction; returns if it is there."""
        root = self._root()
        try:
            if root is not None:
                os.chmod(_path(name, url), 0o400, dir_fd=root.folder.descriptor)
                return True
        except FAILURES:
            pass
        return False

    def unpin(self, urls: Iterable[str]) -> None:
        """Take `pin` back, for all that is there of files, of whichever version."""
        root, keys = self._root(), {f"{policy.key_of(url):012x}" for url in urls}
        if root is None:
            return
        for path, status in self._members(root):
            if status.st_mode & 0o200 == 0 and path[3:].partition("-")[0] in keys:
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o600, dir_fd=root.folder.descriptor)

    # ---- claims

    @property
    def claims(self) -> Claims | None:
        """The claims of the processes that share the folder; None if there can be none."""
        root = self._root()
        return None if root is None else root.claims

    # ---- all of it

    def clear(self) -> None:
        """Remove all entries, for all processes; nothing else that lies in the folder."""
        root = self._root(0.0)
        if root is not None:
            for path, _ in self._members(root):
                with contextlib.suppress(OSError):  # another process was faster
                    root.folder.remove(path)
            with contextlib.suppress(*FAILURES):
                root.occupancy.sweep()

    def verify(self) -> list[str]:
        """Read everything; returns the URLs and versions of what was damaged, and has been removed."""
        damaged: list[str] = []
        root = self._root(0.0)
        if root is None:
            return damaged
        for path, _ in self._members(root):
            name, right = _checked(root.folder, path)
            if right is False or (right and not path.endswith(_path(name, "").partition("-")[2])):
                damaged.append(" ".join(identity.decode(name)[1:3]) or f"{self._path}/{path}")
                self._drop(root, path)
        with contextlib.suppress(*FAILURES):  # read-only, or gone
            root.occupancy.sweep()
        return damaged

    def status(self) -> dict[str, Any]:
        """Return what there is and may be."""
        root = self._root(0.0)
        found: dict[str, Any] = {"dir": self.folder, "max_bytes": self.limits.max_bytes}
        found |= {"min_free": self.limits.min_free, "evicted": self.evicted, "usable": root is not None}
        if root is None:
            return found
        try:
            found["evicted"] += root.evictor.evicted
            count = root.occupancy.sweep()
            found |= {"entries": count.entries, "bytes": count.size, "free": free(root.folder)}
        except FAILURES as exc:
            self._fails(exc)
            found["usable"] = False
        return found

    def _members(self, root: OpenFolder) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of all entries that are in our format by their names."""
        for number in range(FOLDERS):
            for path, status in occupancy.members(root.folder, number):
                if policy.key_in(path) is not None:
                    yield path, status

    # ---- the folder

    def _root(self, look_after: float | None = None) -> OpenFolder | None:
        """Return the folder, which is made if it isn't there; None if it can't be used.

        Where the last look whether it is still at its path is `look_after` seconds ago, there is another one.
        """
        root = self._open
        if root is not None and self._generation == process.generation():
            if look_after is None or time.monotonic() - self._looked_at < look_after or self._is_there(root):
                return root
        return self._prepare()

    def _is_there(self, root: OpenFolder) -> bool:
        self._looked_at = time.monotonic()
        return root.folder.is_at_its_path

    def _prepare(self) -> OpenFolder | None:
        with self._lock:
            if self._generation != process.generation():
                self._generation, self._open, self._failed_at, self.evicted = process.generation(), None, None, 0
            root = self._open
            if root is not None and self._is_there(root):
                return root  # another thread was faster
            if self._failed_at is not None and time.monotonic() - self._failed_at < RETRY_AFTER:
                return None
            try:
                self._open = OpenFolder(self._path, self.limits, self.passes)
                self._failed_at = None
                _warn_of_network(self.folder)
            except FAILURES as exc:
                self._open, self._failed_at = None, time.monotonic()
                self._fails(exc)
            if root is not None:
                self.evicted += root.evictor.evicted
            return self._open

    def _fails(self, exc: Exception) -> None:
        if isinstance(exc, FileNotFoundError) and self._open is not None:
            self._looked_at = 0.0  # the folder was removed: it is made again
            return
        reason = f"{type(exc).__name__}: {exc}"
        warn_once(self.folder, f"the cache in {self.folder} fails, and is a miss: {reason}")

    def _refused(self, root: OpenFolder) -> None:
        """Warn if what has no room has none because the disk is nearly full, and not because the cache is."""
        least = self.limits.min_free
        if least > free(root.folder):
            reason = f"less than min_free, {least:,} bytes, of the disk is free"
            warn_once(f"short {self.folder}", f"the cache in {self.folder} stores nothing: {reason}")

    def close(self) -> None:
        """Free what this process holds; it is opened again when it is needed."""
        with self._lock:
            root, self._open = self._open, None
            if root is not None and self._generation == process.generation():
                self.evicted += root.evictor.evicted


def _path(name: bytes, url: str) -> str:
    """Return where the file of an entry is, below the root."""
    hashed = identity.digest(name)
    return f"{hashed[:2]}/{policy.key_of(url):012x}-{hashed[2:]}"


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


def _checked(folder: Folder, path: str) -> tuple[bytes, bool | None]:
    """Return the name of the entry in a file, as far as it can be read, and if it is whole and right; None if it is
    gone.
    """
    try:
        fd = folder.open(path)
        try:
            data = b"".join(_read(fd, os.fstat(fd).st_size, 0))
        finally:
            os.close(fd)
    except FileNotFoundError:
        return b"", None
    except OSError:
        return b"", False
    head = frames.read_head(data)
    name = frames.name_of(data, head) if head is not None else None
    if head is None or name is None:
        return b"", False
    return name, len(data) == head.total and checksum(data[head.start :]) == head.crc


def _remove_cleared(path: str) -> None:
    """Remove what `clear` of the release before has moved aside, in a process that was killed meanwhile."""
    import shutil

    above, name = os.path.split(path)
    with contextlib.suppress(OSError):
        for other in os.listdir(above):
            suffix = other.removeprefix(f"{name}.")
            if suffix != other and len(suffix) == 8 and set(suffix) <= set("0123456789abcdef"):
                shutil.rmtree(os.path.join(above, other), ignore_errors=True)


def prepare() -> None:
    """Load the libraries that are needed, now: a fork during a thread's import leaves the child waiting for it."""
    crc32c()


_warned: set[str] = set()


def warn_once(what: str, message: str) -> None:
    """Warn, once in a process."""
    if what not in _warned:
        _warned.add(what)
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _warn_of_network(folder: str) -> None:
    kind = mounts.filesystem_of(folder)
    if mounts.is_network(kind):
        message = f"the cache in {folder} is on a network filesystem ({kind}): a local disk is faster"
        warn_once(f"network {folder}", message)


_disks: weakref.WeakValueDictionary[tuple[str, DiskLimits], DiskCache] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def _in_child() -> None:
    global _opening
    _opening = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def open_disk(folder: str, limits: DiskLimits) -> DiskCache:
    """Return this process's cache in a folder."""
    with _opening:
        disk = _disks.get((folder, limits))
        if disk is None:
            _disks[folder, limits] = disk = DiskCache(folder, limits)
        return disk
