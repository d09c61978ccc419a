"""The runner on one machine: a pool of processes, each with a unit at a time; no Spark.

The processes are spawned, not forked: the model file may import what does not survive a fork. When one of them is
killed, its pool ends, and another one works on the units that were under way.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections import Counter, deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

from ..core import errors
from .plan import PrepareJob, Unit, UnitResult
from .work import ATTEMPTS, run_unit

_EARLY = 4
"""Processes that start before it is known how many units there are, while the input is listed."""
_SAFE_PATH = "PYTHONSAFEPATH"
"""The variable by which a program imports nothing from the working directory."""


class LocalRunner:
    """Works on units in `workers` processes, which end with `close`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._processes = _Processes()
        self._pool = self._new_pool()

    def run(self, job: PrepareJob, units: Sequence[Unit]) -> Generator[UnitResult | None, None, None]:
        """Yield the result of each unit when it is done, in any order; None now and then while there is none."""
        waiting = deque(units)
        running: dict[Future[UnitResult], Unit] = {}
        attempts = Counter[int]()
        try:
            while waiting or running:
                while waiting and len(running) < self._workers:
                    unit = waiting.popleft()
                    attempts[unit.number] += 1
                    running[self._submit(job, unit)] = unit
                done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                if not done:
                    yield None
                for future in done:
                    unit = running.pop(future)
                    error = future.exception()
                    if error is None:
                        yield future.result()
                    elif attempts[unit.number] < ATTEMPTS:  # a store's, or a process was killed
                        waiting.appendleft(unit)
                    elif isinstance(error, BrokenProcessPool):
                        others = [other for other in running.values() if attempts[other.number] == ATTEMPTS]
                        raise _killed([unit, *others]) from error
                    else:
                        raise error
        finally:
            self.close()

    def _submit(self, job: PrepareJob, unit: Unit) -> Future[UnitResult]:
        """Give a unit to the pool, or to a new one if that has ended."""
        with _safe_path():
            try:
                return self._pool.submit(_work, job, unit)
            except BrokenProcessPool:
                self._pool = self._new_pool()
                return self._pool.submit(_work, job, unit)

    def _new_pool(self) -> ProcessPoolExecutor:
        """Return a pool whose first processes start."""
        with _safe_path():
            pool = ProcessPoolExecutor(self._workers, self._processes, _begin)
            for _ in range(min(self._workers, _EARLY)):
                pool.submit(os.getpid)
            return pool

    def close(self) -> None:
        """End the processes, also those that work."""
        self._processes.kill()
        self._pool.shutdown(cancel_futures=True)


def _killed(units: Sequence[Unit]) -> ChildProcessError:
    """Return the error for units of which one has ended its process each time: a pool does not say which."""
    files = " or ".join(f"{unit.files[0].path!r} to {unit.files[-1].path!r}" for unit in units)
    return ChildProcessError(f"a worker process ended {ATTEMPTS} times at files {files}")


class _Processes(SpawnContext):
    """Processes of pools, which can be killed: a pool itself waits for those that work."""

    def __init__(self) -> None:
        self._made: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        process = SpawnProcess(*args, **kwargs)
        self._made.append(process)
        return process

    def kill(self) -> None:
        """Kill all that have been started."""
        for process in self._made:
            if process.pid is not None:
                process.kill()


@contextlib.contextmanager
def _safe_path() -> Iterator[None]:
    """Have processes that start in the block import nothing from the working directory."""
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


# ---- in a process


def _begin() -> None:
    """Begin a process of a pool.

    Ctrl-C is for the parent, which kills it. What the user's function prints goes to standard error: standard output
    is the command's. Programs that the function starts may import from their own directories.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)
    sys.stdout = sys.stderr  # which is written by the line: the end of the pool kills this process
    os.environ.pop(_SAFE_PATH, None)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent is killed: it would wait for work without end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(job: PrepareJob, unit: Unit) -> UnitResult:
    try:
        return run_unit(job, unit)
    except Exception as exc:  # of the model file or of a store
        raise errors.portable(exc) from None
