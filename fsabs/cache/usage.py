"""The usage of a cache's folder, with hits and misses: a log of changes that all its processes append to.

A record is four signed numbers of 8 bytes: bytes on the disk, entries, hits, misses. Appending one is atomic on local
disks. What is written is recorded before, a group of entries at once, so that the sum passes no limit, however many
processes write. A process that is killed while it writes a group leaves the sums too large by as much (see
`content.GROUP_BYTES`), until a sweep counts the files and begins a new log. Readers remember how far they have read.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import struct
from array import array
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from .. import process
from ..descriptors import HeldDescriptors, close, open_into

_RECORD = struct.Struct("=4q")
LONGEST = 1 << 20
"""Bytes of a log in whose place a short one with its sums is begun."""
IMPOSSIBLE = 1 << 56
"""A sum that no disk and no job comes to: the log is damaged."""


class Totals(NamedTuple):
    """The sums of a log."""

    size: int
    entries: int
    hits: int
    misses: int


class UsageLog:
    """The log at `path`, in one process; `OSError` where it can't be read or written."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._held = HeldDescriptors()
        self._read = 0
        self._totals = [0, 0, 0, 0]
        self._lock = process.Lock()

    def totals(self) -> Totals:
        """Return what all processes have recorded."""
        with self._lock:
            size = self._open()
            while self._read < size and self._catch_up():
                pass
            if max(map(abs, self._totals)) >= IMPOSSIBLE:
                self._drop()
            totals = Totals(max(0, self._totals[0]), max(0, self._totals[1]), *self._totals[2:])
            if self._read > LONGEST:
                self._begin(totals, os.replace)
            return totals

    def add(self, size: int, entries: int, hits: int = 0, misses: int = 0) -> None:
        """Record a change."""
        with self._lock:
            self._open()
            os.write(self._held[0].fileno(), _RECORD.pack(size, entries, hits, misses))

    def begin(self, totals: Totals, replace: bool = True) -> None:
        """Begin a new log that says what a sweep has found; without `replace`, only if there is none."""
        with self._lock:
            self._begin(totals, os.replace if replace else _move)

    def _begin(self, totals: Totals, move: Callable[[str, str], None]) -> None:
        aside = f"{self.path}.{secrets.token_hex(6)}"
        held = HeldDescriptors()
        try:
            os.write(open_into(held, aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), _RECORD.pack(*totals))
            move(aside, self.path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(aside)
            raise
        finally:
            close(held)
        self._shut()

    def _open(self) -> int:
        """Open the log, unless it is open and still the one at its path; returns its size."""
        status = os.fstat(self._held[0].fileno()) if self._held else None
        if status is None or not status.st_nlink:  # another process has begun a new one
            self._shut()
            # A log has a first record, made by a sweep: none is made here.
            fd = open_into(self._held, self.path, os.O_RDWR | os.O_APPEND)
            self._read, self._totals = 0, [0, 0, 0, 0]
            status = os.fstat(fd)
        if status.st_size % _RECORD.size:  # a full disk cut a record short: none after it is right
            self._drop()
        return status.st_size

    def _drop(self) -> NoReturn:
        """Remove a damaged log; the files are counted for a new one."""
        os.unlink(self.path)
        self._shut()
        raise FileNotFoundError(errno.ENOENT, "the log is damaged, and was removed", self.path)

    def _catch_up(self) -> bool:
        """Add what others have recorded; False if there is no more of it."""
        data = os.pread(self._held[0].fileno(), 1 << 20, self._read)
        data = data[: len(data) // _RECORD.size * _RECORD.size]
        self._read += len(data)
        numbers = array("q", data)
        for at in range(4):
            self._totals[at] += sum(numbers[at::4])
        return bool(data)

    def close(self) -> None:
        """Close the log; it is opened again when it is needed."""
        with self._lock:
            self._shut()

    def _shut(self) -> None:
        close(self._held)


def _move(aside: str, path: str) -> None:
    """Give a file its name, unless there is one of that name."""
    with contextlib.suppress(FileExistsError):
        os.link(aside, path)
    os.unlink(aside)
