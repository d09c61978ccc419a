"""The runner on one machine: some processes, each with a unit at a time; no Spark.

The processes are programs of their own, not forks: the model file may import what does not survive a fork. One that is
killed, or whose store fails, costs its unit another attempt.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from functools import partial

from ..core import errors
from ..core.threads import TaskOutcome, Threads
from .plan import PrepareJob, Unit, UnitResult
from .work import UnitWorker

ATTEMPTS = 3
"""How often a unit is begun before the job fails."""
_EARLY = 4
"""Processes that start before it is known how many units there are, while the input is listed."""


class LocalRunner:
    """Works on units in `workers` processes, which end with `close`."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._idle: queue.SimpleQueue[subprocess.Popen[bytes]] = queue.SimpleQueue()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._ending = False
        for _ in range(min(workers, _EARLY)):
            self._idle.put(self._start())

    def run(self, job: PrepareJob, units: Sequence[Unit]) -> Generator[UnitResult | None, None, None]:
        """Yield the result of each unit when it is done, in any order; None now and then while there is none."""
        done: queue.SimpleQueue[TaskOutcome[UnitResult]] = queue.SimpleQueue()
        threads = Threads[UnitResult](min(self._workers, len(units)), wait=True)
        try:
            for unit in units:
                threads.submit(partial(self._work, job, unit), done.put)
            left = len(units)
            while left:
                try:
                    outcome = done.get(timeout=1.0)
                except queue.Empty:
                    yield None
                else:
                    left -= 1
                    yield outcome.result()
        finally:
            self._kill()
            threads.end()

    def close(self) -> None:
        """End the processes."""
        self._kill()
        for process in list(self._processes):
            self._end(process)

    def _kill(self) -> None:
        self._ending = True
        for process in list(self._processes):
            process.kill()

    def _work(self, job: PrepareJob, unit: Unit) -> UnitResult:
        """Have a unit worked on by a process, and by another one where that fails."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(job, unit)
            except Exception:  # a store's, or that the process was killed: another attempt may not meet it
                if attempt == ATTEMPTS or self._ending:
                    raise

    def _attempt(self, job: PrepareJob, unit: Unit) -> UnitResult:
        try:
            process = self._idle.get_nowait()
        except queue.Empty:
            process = self._start()
        try:
            outcome = _exchange(process, job, unit)
        except Exception as exc:  # it was killed; or its exception's class, the user's, can't be imported here
            span = f"{unit.files[0].path!r} to {unit.files[-1].path!r}"
            reason = f"a worker process ended with {self._end(process)} at files {span} ({exc})"
            raise ChildProcessError(reason) from exc
        self._idle.put(process)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _start(self) -> subprocess.Popen[bytes]:
        """Start a process that imports from the directories of this one, and never from the working directory."""
        path = [entry for entry in sys.path if entry]
        command = [sys.executable, "-P", "-c", "from fsabs.prepare.local import main; main()"]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self._processes.add(process)
        if self._ending:
            process.kill()
        assert process.stdin is not None
        pickle.dump(path, process.stdin)
        process.stdin.flush()
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> int:
        """Have a process end, as it does with its input; return its exit status."""
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        self._processes.discard(process)
        return process.returncode


def _exchange(process: subprocess.Popen[bytes], job: PrepareJob, unit: Unit) -> UnitResult | Exception:
    """Send a unit to a process and return its result, or the exception that it raised."""
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump((job, unit), process.stdin)
    process.stdin.flush()
    outcome: UnitResult | Exception = pickle.load(process.stdout)
    return outcome


# ---- in a process


def main() -> None:
    """Work on the units that come on standard input, as pickles, until it ends; results go where output went.

    What the user's function prints goes to standard error: standard output is the pipe of the results.
    """
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
                outcome: object = worker.run(unit)
            except Exception as exc:  # of the model file or of a store: the parent raises it, or tries again
                outcome = errors.portable(exc)
            pickle.dump(outcome, results)
            results.flush()
    except (EOFError, BrokenPipeError):  # the parent has ended, or needs no more
        os._exit(0)  # with no word of a pipe that is gone
