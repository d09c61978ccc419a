"""Forked children for the tests: they end by themselves, whatever happens in them."""

from __future__ import annotations

import contextlib
import os
import signal
import traceback
from collections.abc import Callable, Iterator


def forked(check: Callable[[], object]) -> int:
    """Start a child that calls `check`; returns its pid. The child ends well if that gives something true."""
    pid = os.fork()
    if pid:
        return pid
    signal.alarm(40)  # a child that hangs is no orphan
    status = 1
    try:
        status = 0 if check() else 1
    except BaseException:  # nothing may get out into the copy of pytest that this is
        traceback.print_exc()
    finally:
        os._exit(status)


def all_end_well(*pids: int) -> bool:
    """Wait for children; whether all checks were right."""
    return [os.waitpid(pid, 0)[1] for pid in pids] == [0] * len(pids)


@contextlib.contextmanager
def living_child() -> Iterator[None]:
    """A forked child that lives for the block, and does nothing."""
    wait, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        os.read(wait, 1)
        os._exit(0)
    try:
        yield
    finally:
        os.close(go)
        os.close(wait)
        os.waitpid(pid, 0)
