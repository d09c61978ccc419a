"""Descriptors that no exception of a signal handler can lose or close twice.

Python runs signal handlers between two instructions: also between `os.open` and the assignment of what it returned, and
in a finalizer that is written in Python, which then ends without an effect. So a descriptor is opened, and given to an
object in C that closes it when it is freed, in one call of a C function.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Descriptor(Protocol):
    """An open descriptor, which is closed when this object is freed."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...

    def close(self) -> None:
        """Close the descriptor, unless that was done before."""
        ...


class PythonDescriptor:
    """A `Descriptor` for systems without epoll: a signal handler's exception in its finalizer keeps it open."""

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = [number]

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._number[0]

    # The module's names may be gone when the interpreter ends, so the function is bound.
    def close(self, close_one: Callable[[int], None] = os.close) -> None:
        """Close the descriptor, unless that was done before."""
        if self._number:
            close_one(self._number.pop())

    def __del__(self) -> None:
        self.close()


own: Callable[[int], Descriptor] = PythonDescriptor
"""Return a `Descriptor` of an open one."""
if sys.platform == "linux":
    # The only type of Python's that holds descriptors of any kind and closes one silently when it is freed.
    own = select.epoll.fromfd


class HeldDescriptors(list[Descriptor]):
    """Descriptors that are closed when the list is freed, at the latest."""

    __slots__ = ()


def open_into(held: HeldDescriptors, path: str, flags: int, mode: int = 0o777) -> int:
    """Open `path` as `os.open` does, append the descriptor to `held`, and return its number."""
    held.extend(map(own, map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,))))
    return held[-1].fileno()


def duplicate_into(held: HeldDescriptors, number: int) -> int:
    """Duplicate a descriptor as `os.dup` does, append the new one to `held`, and return its number."""
    held.extend(map(own, map(os.dup, (number,))))
    return held[-1].fileno()


def close(held: HeldDescriptors) -> None:
    """Close the descriptors in `held` and leave it empty; errors are ignored."""
    while held:
        try:
            held.pop().close()
        except OSError:
            pass


def close_written(held: HeldDescriptors) -> None:
    """Close the descriptors in `held`, unless `check_written` raises."""
    check_written(held)
    close(held)


def check_written(held: HeldDescriptors) -> None:
    """Raise the `OSError` that the system reports for what was written to `held`, which stays open.

    A network filesystem reports lost bytes when any descriptor of the file is closed. Here that is a duplicate, since
    the object that holds the descriptor reports nothing.
    """
    for descriptor in held:
        try:
            deque(map(os.close, map(os.dup, (descriptor.fileno(),))), 0)
        except OSError as exc:
            if exc.errno != errno.EMFILE:
                raise
            if stat.S_ISREG(os.fstat(descriptor.fileno()).st_mode):
                os.fsync(descriptor.fileno())  # reports all that closing would
