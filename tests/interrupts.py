"""Exceptions of a signal handler, raised at random moments of an operation, as Ctrl-C and timeouts do."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

ENDING_SECONDS = 5.0
"""The time that threads have, which end by themselves, to close what they have open."""
_LOST_LOCKS = ("cannot release un-acquired lock", "release unlocked lock")


class Interrupted(BaseException):
    """What the signal handler raises."""


class Interruptions(NamedTuple):
    """What came of a run."""

    interrupted: int
    """How many runs of the operation were ended by an interrupt."""
    descriptors: int
    """How many more descriptors are open than before."""
    opened: list[str]
    """The descriptors that were not open before, with their targets."""


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def interrupt(operation: Callable[[], object], times: int, rng: random.Random) -> Interruptions:
    """Run `operation` `times` times, with an interrupt at a random moment of each."""
    operation()
    duration = min(_timed(operation) for _ in range(3))
    gc.collect()
    before = _descriptors()
    hits = 0
    for _ in range(times):
        begin = time.perf_counter()
        if _once(operation, rng.uniform(1e-6, 1.2 * duration)):
            hits += 1
        else:  # the machine may be quicker than it was
            duration = min(duration, time.perf_counter() - begin)
    operation()
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        gc.collect()
        now = _descriptors()
        if len(now) <= len(before) or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    new = [f"{number}: {target}" for number, target in now.items() if before.get(number) != target]
    return Interruptions(hits, len(now) - len(before), new)


def _descriptors() -> dict[str, str]:
    """Return the open descriptors and their targets."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def _timed(operation: Callable[[], object]) -> float:
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


def _once(operation: Callable[[], object], delay: float) -> bool:
    """Run the operation until `delay` is over; return whether that ended it."""
    try:
        try:
            signal.signal(signal.SIGALRM, _raise)
            signal.setitimer(signal.ITIMER_REAL, delay)
            operation()
        finally:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
    except Interrupted:
        return True
    except RuntimeError as exc:
        # `Thread.start` waits in a `Condition`, which an exception may leave without the lock that it releases.
        if not isinstance(exc.__context__, Interrupted) or str(exc) not in _LOST_LOCKS:
            raise
        return True
    return False


if __name__ == "__main__":
    from tests.interrupt_cases import run

    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
