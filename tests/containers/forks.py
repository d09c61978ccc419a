"""Forked children for the tests: they end by themselves, whatever happens in them."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable


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
