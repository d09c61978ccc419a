"""The runner on one machine: some processes, each with a unit at a time; no Spark.

The processes are programs of their own, not forks: the model file may import what does not survive a fork. One that is
killed, or whose store fails, costs its unit another attempt.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence

from .plan import PrepareJob, Unit, UnitResult

ATTEMPTS = 3
"""How often a unit is begun before the job fails."""


class LocalRunner:
    """Works on units in `workers` processes."""

    def __init__(self, job: PrepareJob, workers: int) -> None:
        self._job = job
        self._workers = workers
        self._waiting: deque[Unit] = deque()
        self._outcomes: queue.SimpleQueue[tuple[Unit, UnitResult | Exception]] = queue.SimpleQueue()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ending = False

    def run(self, units: Sequence[Unit]) -> Generator[UnitResult | None, None, None]:
        """Yield the result of each unit when it is done, in any order; None now and then while there is none."""
        self._waiting.extend(units)
        attempts: dict[int, int] = {}
        threads = [
            threading.Thread(target=self._drive, name="fsabs-prepare", daemon=True)
            for _ in range(min(self._workers, len(units)))
        ]
        try:
            for thread in threads:
                thread.start()
            left = len(units)
            while left:
                try:
                    unit, outcome = self._outcomes.get(timeout=1.0)
                except queue.Empty:
                    yield None
                    continue
                if isinstance(outcome, UnitResult):
                    left -= 1
                    yield outcome
                    continue
                attempts[unit.number] = attempts.get(unit.number, 0) + 1
                if attempts[unit.number] >= ATTEMPTS:
                    raise outcome
                self._waiting.append(unit)
        finally:
            self._ending = True
            for process in list(self._processes):
                process.kill()
            for thread in threads:
                thread.join()

    def _drive(self) -> None:
        """Have units worked on by one process, or by another where it ends early."""
        process: subprocess.Popen[bytes] | None = None
        try:
            while not self._ending:
                try:
                    unit = self._waiting.popleft()
                except IndexError:  # a unit may come back
                    time.sleep(0.05)
                    continue
                try:
                    process = process or self._start()
                    outcome: UnitResult | Exception = _exchange(process, unit)
                except (OSError, EOFError, pickle.UnpicklingError) as exc:
                    reason = f"a worker process ended with {self._end(process)}"
                    process, outcome = None, ChildProcessError(f"{reason} at files {_span(unit)} ({exc})")
                self._outcomes.put((unit, outcome))
        finally:
            self._end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "from fsabs.prepare.worker import main; main()"]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
        )
        self._processes.add(process)
        if self._ending:
            process.kill()
        assert process.stdin is not None
        pickle.dump((sys.path, self._job), process.stdin)
        return process

    def _end(self, process: subprocess.Popen[bytes] | None) -> int | None:
        """End a process; return its exit status."""
        if process is None:
            return None
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if self._ending:
            process.kill()
        try:
            status = process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        self._processes.discard(process)
        return status


def _exchange(process: subprocess.Popen[bytes], unit: Unit) -> UnitResult | Exception:
    """Send a unit to a process and return what comes back."""
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump(unit, process.stdin)
    process.stdin.flush()
    outcome: UnitResult | Exception = pickle.load(process.stdout)
    return outcome


def _span(unit: Unit) -> str:
    return f"{unit.files[0].path!r} to {unit.files[-1].path!r}"
