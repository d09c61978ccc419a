"""What a driver of HDFS does, on absolute paths, with Python's own errors; and what both need: a time limit, and that
no call is under way when the interpreter ends.
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from ... import process

A = TypeVar("A")
T = TypeVar("T")


class Info(NamedTuple):
    """A file or directory as the NameNode tells it."""

    name: str
    """The last segment."""
    size: int
    directory: bool
    modified: int
    """Milliseconds since 1970."""
    mode: int
    """Permission bits."""


class Reader(Protocol):
    """An open file; its blocks are located, and stay this version's."""

    size: int

    def read_range(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes from `offset`, both inside of the file; from any thread."""


class Output(Protocol):
    """A file being written."""

    def write(self, data: bytes) -> None:
        """Take all of `data`."""

    def close(self) -> None:
        """Send what is left, and complete the file."""


class Driver(Protocol):
    """One process's connection to a nameservice."""

    timeout: float
    """Seconds to wait for an answer."""

    def read(self, path: str) -> bytes:
        """The content of a file, from its first open to its last byte; with no time limit of its own."""

    def stat(self, path: str) -> Info:
        """What is at `path`; `FileNotFoundError`."""

    def list(self, path: str) -> Iterator[Info]:
        """The members of a directory, by name; a file lists nothing or itself."""

    def open(self, path: str) -> Reader:
        """Open a file; `FileNotFoundError`, `IsADirectoryError`."""

    def create(self, path: str) -> Output:
        """Make a file that is not there, in a directory that is."""

    def append(self, path: str) -> Output:
        """Go on at the end of an existing file."""

    def mkdir(self, path: str, mode: int) -> None:
        """Make one directory; its parent is there."""

    def rename(self, src: str, dst: str) -> None:
        """Move; `FileExistsError` if there is something at `dst`."""

    def replace(self, src: str, dst: str) -> None:
        """Move a file over a file, or over nothing."""

    def delete(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; what is missing is no error."""


class _Calls:
    """The calls of the drivers' libraries that are under way, which the end of the interpreter waits for.

    Python ends a thread that comes back from such a call later, and neither Rust nor C++ lets that pass: the process is
    aborted.
    """

    _PATIENCE = 10.0  # seconds; one that comes back in the very moment of the end is unlikely then

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
            threading.Event().wait()  # for ever

    def done(self, call: object) -> None:
        """A call has ended, or is given up."""
        self._under_way.discard(call)

    def __enter__(self) -> None:
        self.begin(threading.get_ident())

    def __exit__(self, *exc: object) -> None:
        self.done(threading.get_ident())

    def _end(self) -> None:
        self.ending = True
        end = time.monotonic() + self._PATIENCE
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
        return _Outcome(None, TimeoutError(errno.ETIMEDOUT, f"no answer to {what} within {seconds:g} s"))


def within(seconds: float, what: str, function: Callable[..., T], *arguments: Any) -> T:
    """`function(*arguments)`, or a `TimeoutError`: the drivers themselves wait for a silent NameNode for ever.

    The call then goes on in its thread, which nobody waits for.
    """
    outcome = _outcome(_begin(functools.partial(function, *arguments)), seconds, what)
    if outcome.failure is not None:
        raise outcome.failure
    return cast(T, outcome.value)


def each_within(
    seconds: float, what: str, function: Callable[[A], T], items: Sequence[A], width: int
) -> Iterator[T | BaseException]:
    """What `function` gives for each of `items`, in order, or raises; `width` of the calls are under way at once.

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
        with contextlib.suppress(queue.Empty):  # what nobody will take
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
