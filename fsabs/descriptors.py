"""Descriptors that no exception of a signal handler can lose or close twice.

Python runs signal handlers between two instructions: also between `os.open` and the assignment of what it returned. So
a descriptor is put into a list, and taken out of it to be closed, in one call of a C function. Whatever object owns the
list, from before the descriptor is opened, closes it in its finalizer at the latest.
"""

from __future__ import annotations

import os
from collections import deque


def open_into(held: list[int], path: str, flags: int, mode: int = 0o777) -> int:
    """Open `path` as `os.open` does, append the descriptor to `held`, and return it."""
    held.extend(map(os.open, (path,), (flags | os.O_CLOEXEC,), (mode,)))
    return held[-1]


def close(held: list[int]) -> None:
    """Close the descriptors in `held` and leave it empty."""
    while held:
        deque(map(os.close, map(held.pop, (-1,))), 0)
