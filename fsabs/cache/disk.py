"""The cache on disk: a self-describing, checksummed file for each entry, for all processes that name the folder.

    FOLDER/entries-1/3f/5c0e...-e91a...    the frame (see `frames`) of one entry
    FOLDER/entries-1/count                 what the last sweep has counted: see `eviction`
    FOLDER/entries-1/3f/.5c0e.partial      what a process is fetching: see `partials`

The directory is the truth: nothing else says what is there. The name of an entry's file is the key of its URL
(`policy.key_of`), by which an eviction knows when it is needed, and the hash of its name. A file's time is when it was
last read, by passes; one that its owner can't write to is pinned. What is there was opened by descriptor, without
following a link, and belongs to this user. A hit is one open, a read and a checksum. No lock is held while anything is
fetched, read, written or removed, and none is needed to be right. Every failure of the disk is a miss and one warning.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..core import identity, process
from ..disk import folders
from ..disk.descriptors import open_ours_with_status, read_all
from ..disk.folders import Folder
from . import eviction, frames, policy
from .eviction import FOLDERS, DiskLimits, Evictor, free, room_of
from .frames import checksum
from .partials import PartialEntries
from .policy import ReadOrder, ReuseTimes

FAILURES = (OSError, ValueError, OverflowError, MemoryError)
RETRY_AFTER = 10.0  # seconds from a folder that can't be made to the next attempt: there may be room by then
_AT_ONCE = 1 << 15  # bytes of a file that are read, or written, at once, and copied
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENXIO)
"""Why what has the name of an entry can't be opened, if it is no file of ours: another user's, a link, a socket."""
_MOST = 2_000_000_000  # bytes of an entry: what Linux reads at once
_LOOKED_AFTER = 1.0  # seconds between two looks whether the folder is still at its path
_OF_OLD = ("usage", "marks", "leases", "claims")  # what releases before kept beside the entries


class EntryKey(NamedTuple):
    """The name of one entry, and the URL of the file that it is of: a whole file, or a block of one."""

    name: bytes
    """What `Identity.encode` gives, and what follows it for a block of a file."""
    url: str
    path: str
    """Where its file is, below the root."""

    @classmethod
    def of(cls, name: bytes, url: str) -> EntryKey:
        """Return the key of the entry of that name."""
        hashed = identity.digest(name)
        return cls(name, url, f"{hashed[:2]}/{policy.key_of(url):012x}-{hashed[2:]}")


class OpenFolder:
    """The folder of the entries, opened in this process, with what is known of it."""

    def __init__(self, path: str, limits: DiskLimits, reuse: ReuseTimes) -> None:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        self.folder: Folder = Folder(path, private=True)
        for name in _OF_OLD:
            with contextlib.suppress(OSError):
                self.folder.remove(name)
        self.partials: PartialEntries = PartialEntries(self.folder)
        self.evictor: Evictor = Evictor(self.folder, self.partials, limits, reuse)

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        """Close it with its last use: another thread may be in the middle of a call."""
        if hasattr(self, "folder"):
            close(self.folder.descriptor)


class DiskCache:
    """See the module; made by `open_disk`, for one process."""

    def __init__(self, folder: str, limits: DiskLimits) -> None:
        self.folder = folder
        self.limits = limits
        self._reuse = ReuseTimes()
        self._evicted = 0  # in folders that were opened before
        self._path = os.path.join(folder, "entries-1")
        self._open: OpenFolder | None = None
        self._failed_at: float | None = None
        self._looked_at = 0.0
        self._lock = process.Lock()

    # ---- entries

    def get(self, entry: EntryKey) -> bytes | None:
        """Return the content of an entry; None if there is none that is whole and right."""
        root = self._open or self._root()
        if root is None:
            return None
        name = entry.name
        try:
            fd, status = open_ours_with_status(entry.path, os.O_RDONLY, root.folder.descriptor)
        except FileNotFoundError:
            return None
        except FAILURES as exc:
            if getattr(exc, "errno", None) not in _NOT_OURS or not self._drop(root, entry.path):
                self._fails(exc)
            return None
        try:
            start = frames.HEAD_SIZE + len(name)
            size, small = status.st_size - start, status.st_size <= _AT_ONCE
            data = os.pread(fd, status.st_size if small else start, 0)
            if data[frames.HEAD_SIZE : start] == name and data.startswith(frames.MAGIC):
                declared, crc = frames.CONTENT.unpack_from(data, frames.CONTENT_AT)
                if size == declared:
                    content = data[start:] if small else os.pread(fd, size, start)
                    if len(content) == size and checksum(content) == crc:
                        now = self._reuse.add(status.st_mtime)
                        with contextlib.suppress(OSError):  # a read-only disk
                            os.utime(fd, (now, now))
                        return content
        except OSError as exc:  # a damaged disk
            self._fails(exc)
        except FAILURES as exc:
            self._fails(exc)
            return None
        finally:
            os.close(fd)
        self._drop(root, entry.path)
        return None

    def has(self, entry: EntryKey) -> bool:
        """Return if there is an entry; it may turn out to be damaged."""
        root = self._root()
        try:
            return root is not None and os.access(entry.path, os.F_OK, dir_fd=root.folder.descriptor)
        except FAILURES:
            return False

    def is_full(self, order: ReadOrder) -> bool:
        """Return whether the cache was full of what is used, lately: what is new is refused, unless it is `chosen`."""
        root = self._open
        return root is not None and root.evictor.is_closed(order)

    def put(
        self, entry: EntryKey, content: bytes, order: ReadOrder, *, pinned: bool = False, replace: bool = False
    ) -> bool:
        """Admit an entry, others being evicted as need be; return if it is there now.

        One that is there stays as it is, for a name has one content; with `replace`, of a name that has several, the
        content is replaced.
        """
        return self.put_many([(entry, content)], order, pinned=pinned, replace=replace)[0]

    def put_many(
        self,
        contents: Sequence[tuple[EntryKey, bytes]],
        order: ReadOrder,
        *,
        pinned: bool = False,
        replace: bool = False,
        chosen: bool = False,
    ) -> list[bool]:
        """As `put`, for several, which are admitted together if there is room for all.

        What is pinned or `chosen` takes the place of any other entry.
        """
        root, stored = self._root(_LOOKED_AFTER), [False] * len(contents)
        if root is None:
            return stored
        rooms = [room_of(frames.HEAD_SIZE + len(entry.name) + len(content)) for entry, content in contents]
        try:
            together = root.evictor.excess(sum(rooms)) <= 0
            for at, (entry, content) in enumerate(contents):
                need = policy.NOW if pinned or chosen else order.need(policy.key_of(entry.url))
                storable = len(entry.name) <= frames.LONGEST_NAME and len(content) <= _MOST
                there = not pinned and _is_there(root.folder, entry)
                if there and not replace:
                    stored[at] = True
                elif storable and (there or together or root.evictor.make_room(rooms[at], need, order)):
                    self._write(root, entry, content, rooms[at], pinned)
                    root.evictor.occupancy.change(-rooms[at] if there else 0)  # it has taken that of the one before it
                    stored[at] = True
            if not all(stored):
                self._refused(root)
        except FAILURES as exc:
            self._fails(exc)
        return stored

    def _write(self, root: OpenFolder, entry: EntryKey, content: bytes, room: int, pinned: bool) -> None:
        root.evictor.occupancy.change(room)
        try:
            try:
                out = root.folder.replace(entry.path)
            except FileNotFoundError:
                root.folder.make_folder(entry.path[:2])
                out = root.folder.replace(entry.path)
            with out:
                head = frames.pack(entry.name, len(content), checksum(content))
                if len(content) < _AT_ONCE:
                    out.write(head + content)
                else:
                    out.write(head)
                    out.write(content)
                if pinned:
                    os.fchmod(out.descriptor, 0o400)
        except BaseException:
            root.evictor.occupancy.change(-room)
            raise

    def remove(self, entry: EntryKey) -> None:
        """Remove an entry, if it is there."""
        if (root := self._root()) is not None:
            self._drop(root, entry.path)

    def _drop(self, root: OpenFolder, path: str) -> bool:
        """Remove what has the name of an entry: a damaged file, or what is none of ours; return if it is gone."""
        try:
            status = os.stat(path, dir_fd=root.folder.descriptor, follow_symlinks=False)
            root.folder.remove(path)
        except FileNotFoundError:
            return True
        except FAILURES:
            return False
        root.evictor.occupancy.change(-eviction.size_of(status))
        return True

    # ---- pins

    def pin(self, entry: EntryKey) -> bool:
        """Exempt an entry from eviction; return if it is there."""
        root = self._root()
        try:
            if root is not None:
                os.chmod(entry.path, 0o400, dir_fd=root.folder.descriptor)
                return True
        except FAILURES:
            pass
        return False

    def unpin(self, urls: Iterable[str]) -> None:
        """Take `pin` back, for all that is there of files, of whichever version."""
        root, keys = self._root(), {f"{policy.key_of(url):012x}" for url in urls}
        for path, status in self._members(root):
            if root is not None and status.st_mode & 0o200 == 0 and path[3:].partition("-")[0] in keys:
                with contextlib.suppress(OSError):
                    os.chmod(path, 0o600, dir_fd=root.folder.descriptor)

    def partials(self) -> PartialEntries | None:
        """Return what the processes that share the folder are fetching; None where it can't be used."""
        root = self._root()
        return None if root is None else root.partials

    # ---- all of it

    def clear(self) -> None:
        """Remove all entries, for all processes; nothing else that lies in the folder."""
        root = self._root(0.0)
        for path, _ in self._members(root):
            if root is not None:
                self._drop(root, path)
        self._sweep(root)
        if root is not None:
            root.evictor.open()

    def verify(self) -> list[str]:
        """Read everything; return the URLs and versions of what was damaged, and has been removed."""
        damaged: list[str] = []
        root = self._root(0.0)
        for path, _ in self._members(root):
            if root is not None and (name := _damaged(root.folder, path)) is not None:
                damaged.append(" ".join(identity.decode(name)[1:3]) or f"{self._path}/{path}")
                self._drop(root, path)
        self._sweep(root)
        return damaged

    def status(self) -> dict[str, Any]:
        """Return what there is and may be."""
        root = self._root(0.0)
        evicted = self._evicted + (root.evictor.evicted if root is not None else 0)
        count = self._sweep(root)
        found: dict[str, Any] = {"dir": self.folder, **self.limits._asdict(), "evicted": evicted, "usable": bool(count)}
        if root is not None and count is not None:
            found |= {"entries": count.entries, "bytes": count.size, "free": free(root.folder)}
        return found

    def _sweep(self, root: OpenFolder | None) -> eviction.Count | None:
        try:
            return root.evictor.occupancy.sweep() if root is not None else None
        except FAILURES as exc:
            self._fails(exc)
            return None

    def _members(self, root: OpenFolder | None) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the files of all entries that are in our format by their names."""
        if root is not None:
            for number in range(FOLDERS):
                for path, status in eviction.members(root.folder, number):
                    if policy.key_in(path) is not None:
                        yield path, status

    # ---- the folder

    def _root(self, look_after: float | None = None) -> OpenFolder | None:
        """Return the folder, which is made if it isn't there; None if it can't be used.

        Where the last look whether it is still at its path is `look_after` seconds ago, there is another one.
        """
        root = self._open
        if root is None or (look_after is not None and time.monotonic() - self._looked_at >= look_after):
            with self._lock:
                root = self._open = self._looked_at_again()
        return root

    def _looked_at_again(self) -> OpenFolder | None:
        root, self._looked_at = self._open, time.monotonic()
        if root is not None and root.folder.is_at_its_path:
            return root
        if self._failed_at is not None and time.monotonic() - self._failed_at < RETRY_AFTER:
            return None
        self._evicted += root.evictor.evicted if root is not None else 0
        self._failed_at = None
        try:
            _warn_of_network(self.folder)
            return OpenFolder(self._path, self.limits, self._reuse)
        except FAILURES as exc:
            self._failed_at = time.monotonic()
            self._fails(exc)
            return None

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
            self._evicted += root.evictor.evicted if root is not None else 0


def _is_there(folder: Folder, entry: EntryKey) -> bool:
    """Return if there is an entry, which is needed now, and is left as it is: it may be pinned."""
    try:
        os.utime(entry.path, dir_fd=folder.descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True


def _damaged(folder: Folder, path: str) -> bytes | None:
    """Return the name of the entry in a file that is damaged, as far as it can be read; None for one that is right, or
    gone.
    """
    try:
        fd = folder.open(path)
        try:
            beginning = os.pread(fd, frames.HEAD_SIZE + frames.LONGEST_NAME, 0)
            head = frames.read_head(beginning)
            name = frames.name_of(beginning, head) if head is not None else None
            if head is None or name is None:
                return b""
            if head.total != os.fstat(fd).st_size or EntryKey.of(name, "").path[16:] != path[16:]:
                return name
            return None if frames.unpack(read_all(fd, head.total), name) is not None else name
        finally:
            os.close(fd)
    except FileNotFoundError:
        return None
    except OSError:
        return b""


_warned: set[str] = set()


def warn_once(what: str, message: str) -> None:
    """Warn, once in a process."""
    if what not in _warned:
        _warned.add(what)
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _warn_of_network(folder: str) -> None:
    kind = folders.filesystem_of(folder)
    if folders.is_network(kind):
        message = f"the cache in {folder} is on a network filesystem ({kind}): a local disk is faster"
        warn_once(f"network {folder}", message)


_disks: weakref.WeakValueDictionary[tuple[str, DiskLimits, int], DiskCache] = weakref.WeakValueDictionary()
_opening = process.Lock()


def open_disk(folder: str, limits: DiskLimits) -> DiskCache:
    """Return this process's cache in a folder."""
    with _opening:
        disk = _disks.get((folder, limits, process.generation()))
        if disk is None:
            _disks[folder, limits, process.generation()] = disk = DiskCache(folder, limits)
        return disk
