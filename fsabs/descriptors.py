"""Descriptors that no exception of a signal handler can lose or close twice.

Python runs signal handlers between two instructions: also between `os.open` and the assignment of what it returned. So
a descriptor is put into a list, and taken out of it to be closed, in one call of a C function. Whatever object owns the
list, from before the descriptor is opened, closes it in its finalizer at the latest.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable


def open_into(held: list[int], path: str, flags: int, mode: int = 0o777) -> int:
    """Open `path` as `os.open` does, append the descriptor to `held`, and return it."""
    held.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,)))
    return held[-1]


# Finalizers call this when the interpreter ends, too: by then the names of this module may be gone, so they are bound.
def close(
    held: list[int],
    close_one: Callable[[int], None] = os.close,
    run: Callable[[Iterable[object], int], object] = deque,
) -> None:
    """Close the descriptors in `held` and leave it empty."""
    while held:
        run(map(close_one, map(held.pop, (-1,))), 0)


class HeldDescriptors(list[int]):
    """Descriptors that are closed when the list is freed, for a function that closes them at its end.

    An exception of a signal handler may end the `finally` block, too, that was to close them.
    """

    __slots__ = ()

    def __del__(self, close: Callable[[list[int]], None] = close) -> None:
        if self:
            close(self)
