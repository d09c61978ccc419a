"""Descriptors that no exception of a signal handler can lose or close twice.

Python runs signal handlers between two instructions: also between `os.open` and the assignment of what it returned, and
in a finalizer that is written in Python, which then ends without an effect. So a descriptor is opened, and given to an
object in C that closes it when it is freed, in one call of a C function.
"""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol


class Descriptor(Protocol):
    """An open descriptor, which is closed when this object is freed."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...

    def close(self) -> None:
        """Close the descriptor, unless that was done before."""
        ...


class ReportingDescriptor:
    """A `Descriptor` that raises what the system reports when it is closed, as for bytes that a network lost.

    Its finalizer is written in Python: an exception of a signal handler in that moment keeps the descriptor open.
    """

    __slots__ = ("_number",)

    def __init__(self, number: int) -> None:
        self._number = [number]

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._number[0]

    # Taken out and closed in one call. The module's names may be gone when the interpreter ends, so they are bound.
    def close(
        self,
        close_one: Callable[[int], None] = os.close,
        run: Callable[[Iterable[object], int], object] = deque,
    ) -> None:
        """Close the descriptor, unless that was done before."""
        if self._number:
            run(map(close_one, map(self._number.pop, (-1,))), 0)

    def __del__(self) -> None:
        self.close()


_own: Callable[[int], Descriptor] = ReportingDescriptor
if sys.platform == "linux":
    # The only type of Python's that holds descriptors of any kind and closes one silently when it is freed. Its `close`
    # raises nothing.
    _own = select.epoll.fromfd


class HeldDescriptors(list[Descriptor]):
    """Descriptors that are closed when the list is freed, at the latest."""

    __slots__ = ()


def open_into(held: HeldDescriptors, path: str, flags: int, mode: int = 0o777) -> int:
    """Open `path` as `os.open` does, append the descriptor to `held`, and return its number.

    What closing it reports is ignored: see `open_to_write`.
    """
    held.extend(map(_own, map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,))))
    return held[-1].fileno()


def open_to_write(held: HeldDescriptors, path: str, flags: int, mode: int = 0o777) -> int:
    """Do as `open_into`, for a file that must not become visible if closing it reports an error."""
    held.extend(map(ReportingDescriptor, map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,))))
    return held[-1].fileno()


def duplicate_into(held: HeldDescriptors, number: int) -> int:
    """Duplicate a descriptor as `os.dup` does, append the new one to `held`, and return its number."""
    held.extend(map(_own, map(os.dup, (number,))))
    return held[-1].fileno()


def close(held: HeldDescriptors) -> None:
    """Close the descriptors in `held` and leave it empty; `OSError` if one that was opened to write reports it."""
    while held:
        held.pop().close()
