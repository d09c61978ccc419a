"""Descriptors of files of this machine: opened for what they are, and read and written whole.

Whoever opens a descriptor closes it (`try`, `finally`), or gives it to an object that does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_bits


def open_ours(path: str, flags: int, *, dir_fd: int | None = None) -> int:
    """Open a file of this user's, as `os.open` does; one that is made is private. The caller closes the descriptor.

    No link is followed and no FIFO waited for. What is no regular file, belongs to another user or can be written to by
    others is a `PermissionError`; so is, for writing, a file that has another name.
    """
    return open_ours_with_status(path, flags, dir_fd)[0]


def open_ours_with_status(path: str, flags: int, dir_fd: int | None = None) -> tuple[int, os.stat_result]:
    """As `open_ours`; returns the file's status, too."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    try:
        status = os.fstat(fd)
        private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        named_once = flags & os.O_ACCMODE == os.O_RDONLY or status.st_nlink == 1
        if not (stat_bits.S_ISREG(status.st_mode) and private and named_once):
            raise PermissionError(errno.EACCES, "not a private file of this user", path)
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def drop_setuid(fd: int) -> None:
    """Take the setuid and setgid bits of a file that is written, as the kernel does where the writer isn't root."""
    mode = os.fstat(fd).st_mode
    if mode & 0o6000 and stat_bits.S_ISREG(mode):
        with contextlib.suppress(PermissionError):  # another user's: the kernel does it
            os.fchmod(fd, mode & 0o1777)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write all of `data` to a descriptor, which may take less at once."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def read_all(fd: int, size: int, offset: int = 0) -> bytes:
    """Read `size` bytes of a file from `offset` on; fewer if it is shorter."""
    data = os.pread(fd, size, offset)
    if len(data) in (0, size):
        return data
    found = [data]  # at most 2 GiB at once on Linux
    at = len(data)
    while at < size and (data := os.pread(fd, size - at, offset + at)):
        found.append(data)
        at += len(data)
    return b"".join(found)


def allocate(fd: int, size: int, offset: int = 0) -> None:
    """Have the disk keep room for `size` bytes from `offset` on; a file that is shorter becomes as long.

    Memory that is mapped from a hole kills its process if the disk is full. Where a system can't do that (macOS), the
    file is only made as long.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, offset, size)
    elif os.fstat(fd).st_size < offset + size:
        os.ftruncate(fd, offset + size)
