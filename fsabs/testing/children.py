"""Processes and threads for the checks, each with a limit: what hangs fails the check, and does not wait for ever."""

from __future__ import annotations

import faulthandler
import functools
import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_STACKS = signal.SIGUSR1
_EXIT_SECONDS = 5.0  # for the exit handlers of a child that has sent its result


class Child(Generic[T]):
    """A child process that runs `function()` and sends back what it returns: forked, or started by another `method`."""

    def __init__(self, what: str, function: Callable[[], T], timeout: float, method: str = "fork") -> None:
        self._what = what
        self._deadline = time.monotonic() + timeout
        context: Any = multiprocessing.get_context(method)
        self._results, sending = context.Pipe(duplex=False)
        self._process = context.Process(target=_send, args=(sending, function), name=what)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: one forks with threads
            self._process.start()
        sending.close()
        self.pid: int = self._process.pid

    def result(self) -> T:
        """Return the result of the function; `AssertionError` if it raised, died or took too long."""
        try:
            if not self._results.poll(max(0.0, self._deadline - time.monotonic())):
                os.kill(self.pid, _STACKS)
                time.sleep(0.2)
                raise AssertionError(f"{self._what} hangs, and was killed; its stacks are on standard error")
            good, value = self._results.recv()
            self._process.join(_EXIT_SECONDS)
        except EOFError:
            raise AssertionError(f"{self._what} died and sent nothing back") from None
        finally:
            self.kill()
        if not good:
            raise AssertionError(f"{self._what} failed:\n{value}")
        return value  # type: ignore[no-any-return]

    def kill(self) -> None:
        """Kill the child, if it is still there."""
        if not self._results.closed:
            self._results.close()
            self._process.kill()
            self._process.join()
            self._process.close()


def _send(sending: Connection, function: Callable[[], Any]) -> None:
    """Run in the child: send the result of a function, or the traceback of what it raises."""
    faulthandler.register(_STACKS, file=2)
    try:
        outcome = (True, function())
    except BaseException:  # reported to the parent, whatever it is
        outcome = (False, traceback.format_exc())
    sending.send(outcome)
    sending.close()


def forked(what: str, functions: Iterable[Callable[[], T]], timeout: float) -> list[T]:
    """Return the results of `functions`, each called in a forked child, all at once."""
    children = [Child(f"{what}, child {n}", function, timeout) for n, function in enumerate(functions, 1)]
    try:
        return [child.result() for child in children]
    finally:
        for child in children:
            child.kill()


def started(method: str, what: str, function: Callable[..., T], arguments: tuple[Any, ...], timeout: float) -> T:
    """Return the result of `function(*arguments)` in a process started by `spawn` or `forkserver`; everything is
    pickled.
    """
    # By a file: multiprocessing's own pipe blocks the parent for ever if the child fails before it has read it all.
    with tempfile.NamedTemporaryFile() as file:
        pickle.dump((function, arguments), file)
        file.flush()
        child: Child[T] = Child(what, functools.partial(_call_pickled, file.name), timeout, method)
        return child.result()


def _call_pickled(path: str) -> Any:
    with open(path, "rb") as file:
        function, arguments = pickle.load(file)
    return function(*arguments)


def threaded(what: str, functions: Iterable[Callable[[], T]], timeout: float) -> list[T]:
    """Return the results of `functions`, each called in a thread, all at once; raises what `results` raises."""
    return results(what, start_threads(what, functions), timeout)


def start_threads(what: str, functions: Iterable[Callable[[], T]]) -> list[Future[T]]:
    """Call each of `functions` in a daemon thread of its own; return the futures of their results."""
    futures: list[Future[T]] = []
    for function in functions:
        futures.append(Future())
        threading.Thread(target=_run, args=(futures[-1], function), name=what, daemon=True).start()
    return futures


def results(what: str, futures: Iterable[Future[T]], timeout: float) -> list[T]:
    """Return the results of threads; raises what one of them raised, and `AssertionError` if one takes too long."""
    futures = list(futures)
    if late := wait(futures, timeout).not_done:
        raise AssertionError(f"{len(late)} threads hang: {what}")
    return [future.result() for future in futures]


def _run(future: Future[T], function: Callable[[], T]) -> None:
    try:
        future.set_result(function())
    except BaseException as exc:  # raised in the thread that waits, whatever it is
        future.set_exception(exc)
