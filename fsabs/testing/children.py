"""Processes for the checks, each with a limit: a child that hangs is killed, and the check fails with the child's name
and where it stood.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import select
import signal
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Child(Generic[T]):
    """A forked child that runs `function()` and sends back what it returns."""

    def __init__(self, what: str, function: Callable[[], T], timeout: float) -> None:
        self._what = what
        self._deadline = time.monotonic() + timeout
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        self._results, sending = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.12: one forks with threads
            self.pid = os.fork()
        if not self.pid:
            _answer(function, sending, self._stacks.fileno())
        os.close(sending)

    def result(self) -> T:
        """Return the result of the function; `AssertionError` if it raised, died or took too long."""
        try:
            sent = self._receive()
        finally:
            self.kill()
        if not sent:
            raise AssertionError(f"{self._what} died and sent nothing back")
        good, value = pickle.loads(sent)
        if not good:
            raise AssertionError(f"{self._what} failed:\n{value}")
        return value  # type: ignore[no-any-return]

    def _receive(self) -> bytes:
        sent = b""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._results], [], [], left)[0]:
                raise AssertionError(f"{self._what} hangs, and was killed:\n{self._where()}")
            part = os.read(self._results, 1 << 20)
            if not part:
                return sent
            sent += part

    def _where(self) -> str:
        """Return the child's stacks, which it writes on a signal, hanging or not."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.2)
        self._stacks.seek(0)
        return self._stacks.read().decode(errors="replace")

    def kill(self) -> None:
        """Kill the child, if it is still there, and forget it."""
        if self.pid:
            pid, self.pid = self.pid, 0
            os.kill(pid, signal.SIGKILL)  # a zombie until it is waited for: the pid is no other's
            os.waitpid(pid, 0)
            os.close(self._results)
            self._stacks.close()


def _answer(function: Callable[[], Any], sending: int, stacks: int) -> None:
    """The child's whole life."""
    try:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        try:
            answer = (True, function())
        except BaseException:  # reported to the parent, whatever it is
            answer = (False, traceback.format_exc())
        view = memoryview(pickle.dumps(answer))
        while view:
            view = view[os.write(sending, view) :]
    finally:
        os._exit(0)


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
    context: Any = multiprocessing.get_context(method)
    receiving, sending = context.Pipe(duplex=False)
    # By a file: multiprocessing's own pipe blocks the parent for ever if the child fails before it has read it all.
    with tempfile.NamedTemporaryFile() as file:
        pickle.dump((function, arguments), file)
        file.flush()
        process = context.Process(target=_send, args=(sending, file.name), name=what, daemon=True)
        process.start()
        sending.close()
        try:
            good, value = _received(receiving, what, timeout)
            process.join(5.0)  # it has exit handlers to run
        finally:
            receiving.close()
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
    if not good:
        raise AssertionError(f"{what} failed:\n{value}")
    return value  # type: ignore[no-any-return]


def _received(receiving: Connection, what: str, timeout: float) -> tuple[bool, Any]:
    if not receiving.poll(timeout):
        raise AssertionError(f"{what} hangs")
    try:
        return receiving.recv()  # type: ignore[no-any-return]
    except EOFError:
        raise AssertionError(f"{what} died and sent nothing back") from None


def _send(sending: Connection, path: str) -> None:
    """The life of a process that was started."""
    try:
        with open(path, "rb") as file:
            function, arguments = pickle.load(file)
        answer = (True, function(*arguments))
    except BaseException:  # reported to the parent, whatever it is
        answer = (False, traceback.format_exc())
    sending.send(answer)
    sending.close()


def threaded(what: str, functions: Iterable[Callable[[], T]], timeout: float) -> list[T]:
    """Return the results of `functions`, each called in a thread, all at once; `AssertionError` if one raises or takes
    too long.
    """
    results: list[list[Any]] = []
    threads = []
    for number, function in enumerate(functions, 1):
        box: list[Any] = []
        results.append(box)
        target = _Kept(function, box)
        threads.append(threading.Thread(target=target, name=f"{what}, thread {number}", daemon=True))
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread, box in zip(threads, results, strict=True):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            raise AssertionError(f"{thread.name} hangs")
        if not box[0]:
            raise AssertionError(f"{thread.name} failed:\n{box[1]}")
    return [box[1] for box in results]


class _Kept:
    """A thread's function whose result, or traceback, is kept."""

    def __init__(self, function: Callable[[], Any], box: list[Any]) -> None:
        self._function = function
        self._box = box

    def __call__(self) -> None:
        try:
            found = (True, self._function())
        except BaseException:  # reported to the check, whatever it is
            found = (False, traceback.format_exc())
        self._box += found
