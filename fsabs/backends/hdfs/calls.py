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
from typing import Any, Generic, NamedTuple, TypeVar, cast

from ... import process

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

    def __enter__(self) -> None:
        self.begin(threading.get_ident())

    def __exit__(self, *exc: object) -> None:
        self.done(threading.get_ident())

    def _end(self) -> None:
        self.ending = True
        end = time.monotonic() + self._MAX_WAIT
        while self._under_way and time.monotonic() < end:
            time.sleep(0.001)


calls = _Calls()


class _Outcome(NamedTuple):
    value: Any
    failure: BaseException | None


class _Helper(threading.Thread):
    """A thread that makes calls for others, one at a time, and is idle in between."""

    def __init__(self, idle: deque[_Helper]) -> None:
        super().__init__(daemon=True, name="fsabs-hdfs")
        self._idle = idle
        self._calls: queue.SimpleQueue[tuple[queue.SimpleQueue[_Outcome], Callable[[], Any]]] = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        """Make the calls, for ever."""
        while True:
            answer, call = self._calls.get()
            outcome = _made(call)
            calls.done(answer)
            self._idle.append(self)
            answer.put(outcome)
            del answer, call, outcome  # what they hold must not wait for the next call

    def begin(self, call: Callable[[], Any]) -> queue.SimpleQueue[_Outcome]:
        """Begin a call; where its outcome will be."""
        answer: queue.SimpleQueue[_Outcome] = queue.SimpleQueue()
        calls.begin(answer)
        self._calls.put((answer, call))
        return answer


def _made(call: Callable[[], Any]) -> _Outcome:
    try:
        return _Outcome(call(), None)
    except BaseException as exc:  # handed to the caller, whatever it is
        return _Outcome(None, exc)


# The helpers of this process that have nothing to do; a forked child has none of its parent's.
_idle: process.PerProcess[deque[_Helper]] = process.PerProcess(deque)


class Pending(Generic[T]):
    """A call that is under way in a thread of its own."""

    __slots__ = ("_answer", "_outcome")

    def __init__(self, function: Callable[..., T], *arguments: Any) -> None:
        self._answer = _begin(functools.partial(function, *arguments) if arguments else function)
        self._outcome: _Outcome | None = None

    def wait(self, seconds: float) -> bool:
        """Return whether the call has ended, after `seconds` at the latest."""
        if self._outcome is None:
            try:
                self._outcome = self._answer.get(timeout=seconds if seconds > 0 else 0)
            except queue.Empty:
                return False
        return True

    def result(self) -> T:
        """Return what the call that has ended has returned, or raise what it has raised."""
        assert self._outcome is not None
        if self._outcome.failure is not None:
            raise self._outcome.failure
        return cast(T, self._outcome.value)

    def abandon(self) -> None:
        """Leave the call alone: its outcome is dropped, and the end of the interpreter does not wait for it."""
        calls.done(self._answer)


def _begin(call: Callable[[], Any]) -> queue.SimpleQueue[_Outcome]:
    idle = _idle.get()
    try:
        helper = idle.pop()
    except IndexError:
        helper = _Helper(idle)
    return helper.begin(call)


def _outcome(answer: queue.SimpleQueue[_Outcome], seconds: float, what: str) -> _Outcome:
    try:
        return answer.get(timeout=seconds)
    except queue.Empty:
        calls.done(answer)
        return _Outcome(None, no_answer(what, seconds))


def no_answer(what: str, seconds: float) -> TimeoutError:
    """Return the error of a call whose time is over."""
    return TimeoutError(errno.ETIMEDOUT, f"no answer to {what} within {seconds:g} s")


def within(seconds: float, what: str, function: Callable[..., T], *arguments: Any) -> T:
    """Return `function(*arguments)`, or raise `TimeoutError`; the call then goes on in its thread."""
    pending = Pending(function, *arguments)
    if not pending.wait(seconds):
        pending.abandon()
        raise no_answer(what, seconds)
    return pending.result()


def each_within(
    seconds: float, what: str, function: Callable[[A], T], items: Sequence[A], width: int
) -> Generator[T | BaseException, None, None]:
    """Yield what `function` returns or raises for each of `items`, in order; `width` calls are under way at once.

    As many more outcomes may wait to be taken: a thread goes on to the next item by itself, which costs less than to
    be given one at a time.
    """
    todo: queue.SimpleQueue[tuple[queue.SimpleQueue[_Outcome], A] | None] = queue.SimpleQueue()
    answers: deque[queue.SimpleQueue[_Outcome]] = deque()
    threads = min(width, len(items))
    for _ in range(threads):
        calls.done(_begin(functools.partial(_work, todo, function)))  # it waits, and notes its calls itself
    try:
        for item in items:
            answers.append(queue.SimpleQueue())
            todo.put((answers[-1], item))
            if len(answers) >= 2 * width:
                yield _found(answers.popleft(), seconds, what)
        while answers:
            yield _found(answers.popleft(), seconds, what)
    finally:
        with contextlib.suppress(queue.Empty):  # what is not begun is dropped
            while True:
                todo.get_nowait()
        for _ in range(threads):
            todo.put(None)


def _found(answer: queue.SimpleQueue[_Outcome], seconds: float, what: str) -> Any:
    outcome = _outcome(answer, seconds, what)
    return outcome.value if outcome.failure is None else outcome.failure


def _work(todo: queue.SimpleQueue[tuple[queue.SimpleQueue[_Outcome], A] | None], function: Callable[[A], Any]) -> None:
    """Make the calls of one `each_within`, until there are no more."""
    for_main = calls.ending
    while (task := todo.get()) is not None:
        answer, item = task
        calls.begin(answer, for_main)
        outcome = _made(functools.partial(function, item))
        calls.done(answer)
        answer.put(outcome)
        del answer, item, task, outcome
