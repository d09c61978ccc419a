"""The folder of a cache on disk: a file for each entry, and the log of what they take.

    ROOT/3f/5c0e...-e91a...    the frame (see `frames`) of one entry
    ROOT/usage                 how much there is, for all processes: see `usage`
    ROOT/leases                locks on bytes of it say which process is fetching what
    ROOT/marks                 a byte for each hash of a URL: whether the file has been cached

The name of an entry's file is the key of its URL (`policy.key_of`), by which an eviction knows when it is needed, and
the hash of its name. A file is written aside and moved into its place. A file's time is when it was last read, by
passes; one that its owner can't write to is pinned.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import shutil
import stat as stat_bits
import time
from collections.abc import Iterator
from typing import NamedTuple

from .. import identity
from ..descriptors import HeldDescriptors, close, open_into
from . import frames
from .checksums import checksum
from .usage import Totals, UsageLog

FOLDERS = 256
ABANDONED_AFTER = 60.0
"""Seconds after which a file that is being written belongs to a process that is gone."""
_PAGE = 4096


class EntryFile(NamedTuple):
    """The file of an entry that may be evicted."""

    key: int
    last_read: float
    size: int
    path: str


class EntryFolder:
    """See the module."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.usage: UsageLog = UsageLog(os.path.join(root, "usage"))
        self._own = f"{secrets.token_hex(8)}-"  # begins the names of files that this process is writing
        self._numbers = itertools.count()

    def path(self, name: bytes, key: int) -> str:
        """Return where the file of an entry is."""
        hashed = identity.digest(name)
        return f"{self.root}/{hashed[:2]}/{key:012x}-{hashed[2:]}"

    def write(self, path: str, head: bytes, content: bytes, pinned: bool) -> tuple[int, int]:
        """Write a file, whole or not at all; returns how many bytes and files more there are, for `record`."""
        folder = path.rpartition("/")[0]
        aside = f"{folder}/.{self._own}{next(self._numbers):x}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW
        mode = 0o400 if pinned else 0o600
        held = HeldDescriptors()
        try:
            try:
                fd = open_into(held, aside, flags, mode)
            except FileNotFoundError:
                os.makedirs(folder, 0o700, exist_ok=True)
                fd = open_into(held, aside, flags, mode)
            try:
                done = os.writev(fd, [head, content])
                while done < len(head) + len(content):  # more than 2 GiB
                    done += os.write(fd, memoryview(content)[done - len(head) :])
                size = size_of(os.fstat(fd))
            finally:
                close(held)
            before = status_of(path) if os.access(path, os.F_OK, follow_symlinks=False) else None
            os.rename(aside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        return size - (size_of(before) if before is not None else 0), int(before is None)

    def unlink(self, path: str, status: os.stat_result) -> int:
        """Remove a file without recording it; returns its size, 0 if it is there still or was gone."""
        try:
            os.unlink(path)
        except OSError:  # another process was faster, or the disk is read-only
            return 0
        return size_of(status)

    def drop(self, path: str) -> None:
        """Remove a file, if it is there."""
        status = status_of(path)
        if status is not None and (size := self.unlink(path, status)):
            self.record(-size, -1)

    def record(self, size: int, entries: int, hits: int = 0, misses: int = 0) -> None:
        """Add to the totals; what can't be recorded is counted by the next sweep."""
        try:
            self.usage.add(size, entries, hits, misses)
        except FileNotFoundError:  # the folder is another one by now
            with contextlib.suppress(OSError):
                self._begin_usage()
        except OSError:
            pass

    def reserve(self, size: int, entries: int) -> None:
        """Add files to the totals that will be written; `record` corrects that then."""
        try:
            self.usage.add(size, entries)
        except FileNotFoundError:
            with contextlib.suppress(OSError):
                self._begin_usage()
                self.usage.add(size, entries)
        except OSError:
            pass

    def totals(self) -> Totals:
        """Return the totals of all processes."""
        try:
            return self.usage.totals()
        except FileNotFoundError:  # the folder is another one by now, or was restored without it
            self._begin_usage()
            return self.usage.totals()

    def _begin_usage(self) -> None:
        """Count what is there, unless another process has done so."""
        self.usage.begin(self._count(), replace=False)

    def scan(self, number: int) -> Iterator[EntryFile]:
        """Yield the files in one of the hashed folders that are not pinned, and remove abandoned ones."""
        for entry, status in files(f"{self.root}/{number:02x}"):
            if entry.name.startswith("."):
                if time.time() - status.st_mtime > ABANDONED_AFTER:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
            elif status.st_mode & stat_bits.S_IWUSR:
                key = entry.name.partition("-")[0]
                with contextlib.suppress(ValueError):
                    yield EntryFile(int(key, 16), status.st_mtime, size_of(status), entry.path)

    def prepare(self) -> None:
        """Make the folder, if it isn't there; `OSError` if it can't be used."""
        os.makedirs(self.root, 0o700, exist_ok=True)
        status = os.stat(self.root)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise PermissionError(f"others than its owner may have written to {self.root}")
        self._remove_cleared()
        if not os.path.exists(self.usage.path):
            self._begin_usage()

    def sweep(self) -> Totals:
        """Count what is there, remove what killed processes have left, and begin a new log."""
        before = Totals(0, 0, 0, 0)
        self._remove_cleared()
        with contextlib.suppress(OSError):
            before = self.usage.totals()
        totals = self._count()._replace(hits=before.hits, misses=before.misses)
        self.usage.begin(totals)
        return totals

    def _count(self) -> Totals:
        size = entries = 0
        for number in range(FOLDERS):
            for _ in self.scan(number):
                pass
            for entry, status in files(f"{self.root}/{number:02x}"):
                size += size_of(status)
                entries += not entry.name.startswith(".")
        return Totals(size, entries, 0, 0)

    def clear(self) -> None:
        """Remove everything, for all processes."""
        with contextlib.suppress(OSError):
            os.rename(self.root, f"{self.root}.{secrets.token_hex(4)}")
        self._remove_cleared()

    def _remove_cleared(self) -> None:
        """Remove what `clear` has moved aside, here or in a process that was killed meanwhile."""
        above, name = os.path.split(self.root)
        with contextlib.suppress(OSError):
            for other in os.listdir(above):
                if other.startswith(f"{name}."):
                    shutil.rmtree(os.path.join(above, other), ignore_errors=True)

    def verify(self) -> list[str]:
        """Read everything; returns the URLs and versions of what was damaged, and has been removed."""
        damaged: list[str] = []
        for number in range(FOLDERS):
            for entry, _ in files(f"{self.root}/{number:02x}"):
                if not entry.name.startswith("."):
                    name, right = _checked(entry.path)
                    if not right or not entry.path.endswith(self.path(name, 0).rpartition("-")[2]):
                        damaged.append(" ".join(identity.decode(name)[1:3]) or entry.path)
                        self.drop(entry.path)
        with contextlib.suppress(OSError, ValueError):  # read-only, or gone
            self.sweep()
        return damaged


def files(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    """Yield what is in a folder; nothing if it can't be read."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # gone meanwhile
                    yield entry, entry.stat(follow_symlinks=False)
    except OSError:
        return


def status_of(path: str) -> os.stat_result | None:
    """Return the status of a file; None if it isn't there."""
    try:
        return os.stat(path, follow_symlinks=False)
    except OSError:
        return None


def size_of(status: os.stat_result) -> int:
    """Return the bytes that a file takes of the disk; a filesystem that allocates late tells no blocks yet."""
    return max(status.st_blocks * 512, room_of(status.st_size))


def room_of(size: int) -> int:
    """Return the bytes of the disk that a file of `size` bytes will take."""
    return -(-size // _PAGE) * _PAGE


def _checked(path: str) -> tuple[bytes, bool]:
    """Return the name of the entry in a file, as far as it can be read, and if the file is whole and right."""
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
