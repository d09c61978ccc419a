"""The locks on a file of items: one for puts, and one that says that the file is in use.

All of them are the kernel's and belong to an open file description: they are gone when the process that holds them is
killed. A description is shared with forked children, so a child must open its own at once: see `reopen`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from ... import process
from ..leases import set_lock

LOCK_TIMEOUT = 5.0
"""The seconds that a put waits for another process's put."""

_IN_USE = 0x3FFF_FFFF_FFFF_FFFE  # a byte of the file that is never written: locks need no bytes


def use(fd: int) -> bool:
    """Mark the file as in use, for as long as `fd` is open; return False if it is being removed."""
    return set_lock(fd, fcntl.F_RDLCK, _IN_USE)


def last(fd: int) -> bool:
    """End the use; return whether no other process uses the file.

    This process removes it then, and none can begin to use it.

    Of several processes that end at once, the last one gets True: each ends its own use before it looks.
    """
    set_lock(fd, fcntl.F_UNLCK, _IN_USE)
    return set_lock(fd, fcntl.F_WRLCK, _IN_USE)


def reopen(fd: int, flags: int) -> None:
    """Give the number `fd` an open file description of this process's own, in place of an inherited one."""
    fresh = os.open(f"/proc/self/fd/{fd}", flags | os.O_CLOEXEC)
    try:
        os.dup2(fresh, fd, inheritable=False)
    finally:
        os.close(fresh)


class PutLock:
    """The lock of puts: between threads a lock of the process, between processes `flock`.

    `with` raises `TimeoutError` if another process has held it for LOCK_TIMEOUT seconds, and `ValueError` after
    `shut()`.
    """

    __slots__ = ("_fd", "_threads")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._threads = process.Lock()

    def __enter__(self) -> None:
        self._threads.__enter__()
        try:
            self._wait()
        except BaseException:
            self._threads.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._threads.__exit__()

    def shut(self) -> bool:
        """Disable the lock before its descriptor is closed: no thread holds it or can take it then.

        Return False if it was disabled.
        """
        with self._threads:
            fd, self._fd = self._fd, -1
        return fd >= 0

    def _wait(self) -> None:
        if self._fd < 0:
            raise ValueError("the cache is closed")
        end, pause = 0.0, 0.0
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                now = time.monotonic()
                end = end or now + LOCK_TIMEOUT
                if now > end:
                    raise TimeoutError(errno.ETIMEDOUT, f"another process has held it for {LOCK_TIMEOUT} s") from None
            time.sleep(pause)
            pause = min(pause + 20e-6, 2e-3)
