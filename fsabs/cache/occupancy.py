"""How much of the disk the entries of a cache take: the directory is the truth, and is counted by a sweep.

Between two sweeps it is estimated: what the last one has counted, and what this process has written and removed since.
A sweep is shared: its count is left in a file, and the processes that find a fresh one use it. What the others have
written since is not known. Each may fill as much of the room that is left as leaves as much for all the others, whose
number is guessed from the last two counts; then there is another sweep.
"""

from __future__ import annotations

import contextlib
import os
import random
import stat as stat_bits
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from ..core import process
from ..disk.files import is_leftover
from ..disk.folders import Folder
from .frames import checksum

FOLDERS = 256
"""The hashed folders that entries are divided among."""
SAMPLE, FEWEST_FOLDERS = 8192, 16
"""Entries after which a sweep ends, and the hashed folders that it looks at in any case: of more, it is an estimate."""
MOST_WRITERS = 64
LEAST = 1 << 19
"""Bytes that each process may write without another sweep, however little room is left."""
REST = 100
"""Times as long as a sweep took, a count is good enough to choose what goes; half of that, if much was written."""
OLDEST = 60.0
"""Seconds after which a count that was found is not used any more."""
CHEAP = 0.005
"""Seconds of a sweep that each process makes at its beginning, whatever others have counted."""
_NAME = "count"
_RECORD = struct.Struct("=8sddQQ")
_CHECK = struct.Struct("=I")
_MAGIC = b"fsabsCN1"
_PAGE = 4096


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

    def __init__(self, root: Folder) -> None:
        self._root = root
        self._count: Count | None = None
        self._left: tuple[int, int] | None = None  # the file that the count was read from
        self._changes: list[tuple[float, int]] = []
        self._own = self._written = 0
        self._writers: float = MOST_WRITERS
        self._lock = process.Lock()

    def change(self, size: int) -> None:
        """Note that this process writes, or has removed, an entry of so many bytes."""
        self._changes.append((time.time(), size))
        self._own += size
        self._written += max(0, size)

    def excess(self, size: int, limit: int) -> int:
        """Return by how many bytes an entry of `size` bytes would exceed a limit; 0 or less, if it would not."""
        count = self._known()
        over, own = count.size + self._own + size - limit, self._own
        age = time.time() - count.begun
        unknown = over + own * (self._writers - 1) > 0 and own + size >= max(LEAST, limit >> 10)
        stale = over > 0 and not 0 <= age < max(REST * count.took, 1.0)
        turned = self._written >= limit >> 6 and not 0 <= age < REST / 2 * count.took
        if (unknown and own > 0) or stale or turned:
            over = self.sweep().size + self._own + size - limit
        return over

    def sweep(self) -> Count:
        """Count what is there, and leave the count for other processes."""
        count = self._swept()
        self._take(count)
        data = _RECORD.pack(_MAGIC, *count)
        with contextlib.suppress(OSError), self._root.replace(_NAME) as out:
            out.write(data + _CHECK.pack(checksum(data)))
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
            with contextlib.suppress(OSError, ValueError):
                self._take(self._read())
        return self._count or self.sweep()

    def _file(self) -> tuple[int, int]:
        status = os.stat(_NAME, dir_fd=self._root.descriptor, follow_symlinks=False)
        return status.st_ino, status.st_mtime_ns

    def _read(self) -> Count:
        """Return the count that another process has left; `ValueError` if it is damaged or old."""
        fd = self._root.open(_NAME)
        try:
            data = os.pread(fd, _RECORD.size + _CHECK.size, 0)
        finally:
            os.close(fd)
        record = data[: _RECORD.size]
        if len(data) != _RECORD.size + _CHECK.size or data[_RECORD.size :] != _CHECK.pack(checksum(record)):
            raise ValueError("damaged")
        magic, *fields = _RECORD.unpack(record)
        count = Count(*fields)
        if magic != _MAGIC or not 0 <= time.time() - count.begun < OLDEST:
            raise ValueError("of another time")
        if self._count is None and count.took < CHEAP:
            raise ValueError("a sweep of one's own is more exact")
        return count

    def _take(self, count: Count) -> None:
        with self._lock:
            before, self._count = self._count, count
            if before is not None and self._own >= LEAST:
                self._writers = min(MOST_WRITERS, max(2.0, 1.5 * (count.size - before.size) / self._own))
            else:
                self._writers = MOST_WRITERS
            self._changes = [change for change in self._changes if change[0] >= count.begun]
            self._own = sum(size for _, size in self._changes)
            self._written = sum(max(0, size) for _, size in self._changes)

    def _swept(self) -> Count:
        begun, start = time.time(), time.monotonic()
        size = entries = folders = 0
        for number in random.sample(range(FOLDERS), FOLDERS):
            folders += 1
            for name, status in _members(self._root, number, hidden=True):
                size += size_of(status)
                entries += not name.startswith(".")
            if entries >= SAMPLE and folders >= FEWEST_FOLDERS:
                break
        return Count(begun, time.monotonic() - start, size * FOLDERS // folders, entries * FOLDERS // folders)


def members(root: Folder, number: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files of entries in a hashed folder, by their paths below the root."""
    for name, status in _members(root, number, hidden=False):
        yield f"{number:02x}/{name}", status


def _members(root: Folder, number: int, hidden: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the names and statuses of files in a hashed folder, without leftovers, which are removed."""
    folder = f"{number:02x}"
    with contextlib.suppress(OSError):  # nothing was stored there yet, or it is no folder
        for name, status in root.entries(folder, hidden=hidden):
            if name[0] == "." and is_leftover(status):
                with contextlib.suppress(OSError):
                    root.remove(f"{folder}/{name}")
            else:
                yield name, status


def size_of(status: os.stat_result) -> int:
    """Return the bytes that a file takes of the disk; a filesystem that allocates late tells no blocks yet."""
    return max(status.st_blocks * 512, room_of(status.st_size)) if stat_bits.S_ISREG(status.st_mode) else 0


def room_of(size: int) -> int:
    """Return the bytes of the disk that a file of `size` bytes will take."""
    return -(-size // _PAGE) * _PAGE
