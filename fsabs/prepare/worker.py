"""A process that works on units for `LocalRunner`: pickles come on standard input, and results go where output went.

What the user's function prints goes to standard error: standard output is the pipe of the results. The process ends
with its input.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

from .work import UnitWorker


def main() -> None:
    """Work on units until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process
    tasks = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[:] = pickle.load(tasks)
    worker: UnitWorker | None = None
    try:
        while True:
            job, unit = pickle.load(tasks)
            try:
                worker = worker or UnitWorker(job)
                answer: object = worker.run(unit)
            except Exception as exc:
                answer = _portable(exc)
            pickle.dump(answer, results)
            results.flush()
    except (EOFError, BrokenPipeError):  # the parent has ended, or needs no more
        os._exit(0)  # with no word of a pipe that is gone


def _portable(exc: Exception) -> Exception:
    """Return an exception that the parent can unpickle."""
    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:
        return RuntimeError(f"{type(exc).__name__}: {exc}")
    return exc
