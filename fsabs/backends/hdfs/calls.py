"""Calls of the library in threads of their own: each has a time limit, and none is under way when the interpreter ends.

hdfs-native waits for a silent NameNode for ever. A call whose time is over goes on in its thread, and its outcome is
dropped.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar

from ...core import process
from ...core.threads import TaskOutcome

A = TypeVar("A")
T = TypeVar("T")


class _Calls:
    """The calls that are under way, which the end of the interpreter waits for.

    Python ends a thread that comes back from such a call later, and Rust does not let that pass: the process is
    aborted.
    """

    _MAX_WAIT = 10.0  # seconds; one that comes back in the very moment of the end is unlikely then

    def __init__(self) -> None:
        self._under_way: set[object] = set()  # changes in one step, without a lock
        self.ending = False
        atexit.register(self._end)
        os.register_at_fork(after_in_child=self._under_way.clear)

    def begin(self, call: object, for_main: bool = False) -> None:
        """Note a call before it begins; once the interpreter ends, only what the main thread asks for still does."""
        self._under_way.add(call)
        if self.ending and not for_main and threading.current_thread() is not threading.main_thread():
            self.done(call)
            queue.SimpleQueue[None]().get()  # for ever

    def done(self, call: object) -> None:
        """A call has ended, or is given up."""
        self._under_way.discard(call)

    def _end(self) -> None:
        self.ending = True
        end = time.monotonic() + self._MAX_WAIT
        while self._under_way and time.monotonic() < end:
            time.sleep(0.001)


_calls = _Calls()


class Pending(Generic[T]):
    """A call that is under way in a thread of its own, or will be."""

    __slots__ = ("_outcome", "_outcomes")

    def __init__(self) -> None:
        self._outcomes: queue.SimpleQueue[TaskOutcome[T]] = queue.SimpleQueue()
        self._outcome: TaskOutcome[T] | None = None

    def run(self, call: Callable[[], T]) -> Callable[[], None]:
        """Make the call, in the thread that it is for; return what hands its outcome to the thread that waits."""
        outcome = TaskOutcome(call)
        _calls.done(self._outcomes)
        return functools.partial(self._outcomes.put, outcome)

    def begin(self, for_main: bool = False) -> None:
        """Note that the call begins."""
        _calls.begin(self._outcomes, for_main)

    def wait(self, seconds: float) -> bool:
        """Return whether the call has ended, after `seconds` at the latest."""
        if self._outcome is None:
            try:
                self._outcome = self._outcomes.get(timeout=max(0.0, seconds))
            except queue.Empty:
                return False
        return True

    def result(self) -> T:
        """Return what the call that has ended has returned, or raise what it has raised."""
        assert self._outcome is not None
        return self._outcome.result()

    def abandon(self) -> None:
        """Leave the call alone: its outcome is dropped, and the end of the interpreter does not wait for it."""
        _calls.done(self._outcomes)


class _CallThread(threading.Thread):
    """A thread that makes calls for others, one at a time, and is idle in between."""

    def __init__(self, idle: deque[_CallThread]) -> None:
        super().__init__(daemon=True, name="fsabs-hdfs")
        self._idle = idle
        self.calls: queue.SimpleQueue[tuple[Pending[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        """Make the calls, for ever."""
        while True:
            pending, call = self.calls.get()
            report = pending.run(call)
            self._idle.append(self)
            report()
            del pending, call, report  # what they hold must not wait for the next call


# The threads of this process that have nothing to do; a forked child has none of its parent's.
_idle: process.PerProcess[deque[_CallThread]] = process.PerProcess(deque)


def begin(function: Callable[..., T], *arguments: Any) -> Pending[T]:
    """Begin `function(*arguments)` in a thread."""
    idle, pending = _idle.get(), Pending[T]()
    try:
        thread = idle.pop()
    except IndexError:
        thread = _CallThread(idle)
    pending.begin()
    thread.calls.put((pending, functools.partial(function, *arguments) if arguments else function))
    return pending


def no_answer(what: str, seconds: float) -> TimeoutError:
    """Return the error of a call whose time is over."""
    return TimeoutError(errno.ETIMEDOUT, f"no answer to {what} within {seconds:.3g} s")


def each(function: Callable[[A], T], items: Sequence[A], width: int) -> Generator[Pending[T], None, None]:
    """Yield the call of `function` with each of `items`, in order; `width` calls are under way at once.

    As many more outcomes may wait to be taken: a thread goes on to the next item by itself, which costs less than to
    be given one at a time.
    """
    todo: queue.SimpleQueue[tuple[Pending[T], A] | None] = queue.SimpleQueue()
    pending: deque[Pending[T]] = deque()
    threads = min(width, len(items))
    try:
        for _ in range(threads):
            begin(_work, todo, function).abandon()  # it waits, and notes its calls itself
        for item in items:
            pending.append(Pending())
            todo.put((pending[-1], item))
            if len(pending) >= 2 * width:
                yield pending.popleft()
        for _ in range(threads):
            todo.put(None)  # which ends a thread
        while pending:
            yield pending.popleft()
    finally:
        with contextlib.suppress(queue.Empty):  # what is not begun is dropped
            while True:
                todo.get_nowait()
        for _ in range(threads):
            todo.put(None)


def _work(todo: queue.SimpleQueue[tuple[Pending[T], A] | None], function: Callable[[A], T]) -> None:
    """Make the calls of one `each`, until there are no more."""
    for_main = _calls.ending
    while (task := todo.get()) is not None:
        pending, item = task
        pending.begin(for_main)
        pending.run(functools.partial(function, item))()
        del pending, item, task
