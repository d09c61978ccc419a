"""Leases: locks on single bytes of a file, by which a process claims a token against other processes.

They are the kernel's and belong to an open file description: they are gone when the process that holds them is killed.
A description is shared with forked children, so that a child must open its own. Leases are hints: on many network
filesystems every process gets them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

_FLOCK = struct.Struct("@hhqqi4x")  # struct flock: type, whence, start, length, pid
_FIRST = 1 << 61  # bytes of the file that are never written: locks need no bytes
_BITS = (1 << 60) - 1


def set_lock(fd: int, kind: int, start: int) -> bool:
    """Set a lock of one byte on the open file description; False if another description holds it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, start, 1, 0))
    except OSError as exc:
        if exc.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def acquire(fd: int, token: int) -> bool:
    """Lease `token` against other processes (not against other threads); False if another one has it."""
    return set_lock(fd, fcntl.F_WRLCK, _FIRST + (token & _BITS))


def release(fd: int, token: int) -> None:
    """Release a lease."""
    set_lock(fd, fcntl.F_UNLCK, _FIRST + (token & _BITS))
