"""Threads for the length of one call, started and fed by C functions alone.

The classes of `threading` and `concurrent.futures` are written in Python: an exception of a signal handler in one of
their methods leaves a lock held, or hides behind an error of theirs. `_thread.start_new_thread` and `queue.SimpleQueue`
are safe from that.
"""

from __future__ import annotations

import _thread
import resource
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from . import process

T = TypeVar("T")
R = TypeVar("R")


class Flag:
    """An event that happens once; as `threading.Event`, of C's lock alone."""

    __slots__ = ("_lock", "_set")

    def __init__(self) -> None:
        self._set = False
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let all that wait go on."""
        self._set = True
        try:
            self._lock.release()  # here, and not in a function, at whose beginning a signal handler may run
        except RuntimeError:
            pass  # it was set before

    def is_set(self) -> bool:
        """Return whether it has happened."""
        return self._set

    def wait(self, seconds: float) -> bool:
        """Wait for so long at most; return whether it has happened."""
        try:
            if not self._set:
                self._lock.acquire(timeout=max(0.0, min(seconds, _thread.TIMEOUT_MAX)))
        finally:
            if self._set:
                try:
                    self._lock.release()  # for the next one that waits
                except RuntimeError:
                    pass  # it has been released
        return self._set


class TaskOutcome(Generic[R]):
    """The result of a task: its return value, or the exception that it raised."""

    __slots__ = ("_error", "_value")

    def __init__(self, task: Callable[[], R]) -> None:
        self._error: BaseException | None = None
        try:
            self._value = task()
        except BaseException as exc:  # of the thread that asks for the result
            self._error = exc

    def result(self) -> R:
        """Return what the task returned, or raise what it raised."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # it refers to this frame, and this frame to it
        return self._value


class Threads(Generic[R]):
    """`size` threads that run tasks; a context manager, which lets the running tasks end and runs no other.

    Where `wait` is set, the end of the block waits for the running tasks.
    """

    def __init__(self, size: int, wait: bool = False) -> None:
        self._size = min(size, most_at_once())
        self._wait = wait
        self._tasks: SimpleQueue[tuple[Callable[[], R], Callable[[TaskOutcome[R]], None]] | None] = SimpleQueue()
        self._ended: SimpleQueue[None] = SimpleQueue()
        self._stopping = False
        self._started: list[int] = []  # the threads' identifiers
        self._made_in = process.generation()

    @property
    def stopping(self) -> bool:
        """True once the block has ended, and results are no longer needed."""
        return self._stopping

    def submit(self, task: Callable[[], R], report: Callable[[TaskOutcome[R]], None]) -> None:
        """Have `report` called, in a thread, with the outcome of `task()`; `RuntimeError` if no thread can be started.

        Where no further one can be, those that there are do it.
        """
        if not self._has_thread():
            raise RuntimeError("can't start new thread")
        self._tasks.put((task, report))

    def start(self, task: Callable[[], R]) -> Callable[[], R]:
        """Begin `task()`; return a function, to be called once, that waits for it and returns or raises what it did.

        Where no thread can be started, the task is done now: the limit of threads is reached, or the interpreter ends,
        when Python 3.12 starts none, and what was left open is still written.
        """
        outcomes: SimpleQueue[TaskOutcome[R]] = SimpleQueue()
        if self._has_thread():
            self._tasks.put((task, outcomes.put))
        else:
            outcomes.put(TaskOutcome(task))
        return lambda: outcomes.get().result()

    def _has_thread(self) -> bool:
        """Start a thread, if there may be one more; return whether there is one."""
        before = len(self._started)
        if before < self._size:
            starting = map(_thread.start_new_thread, (self._work,), ((),))
            try:
                # One call of a C function: a thread that was started is counted, whatever a signal handler raises.
                self._started.extend(starting)
            except RuntimeError:
                if len(self._started) > before:  # of a signal handler, as torch's of SIGCHLD
                    raise
        return bool(self._started)

    def _work(self) -> None:
        try:
            while (task := self._tasks.get()) is not None:
                if not self._stopping:
                    task[1](TaskOutcome(task[0]))
                del task
        finally:
            self._ended.put(None)

    def __enter__(self) -> Threads[R]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def end(self) -> None:
        """End the threads, as the end of the block does."""
        self._stopping = True
        self._join(self._wait)

    def finish(self) -> None:
        """Wait for all tasks, and end the threads."""
        self._join(True)

    # What a finalizer calls is bound: when the interpreter ends, the names of modules may be gone before.
    def _join(
        self,
        wait: bool,
        inherited: Callable[[int], bool] = process.inherited,
        is_ending: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        started, self._started = self._started, []
        for _ in started:
            self._tasks.put(None)
        if inherited(self._made_in) or is_ending():
            return  # a forked child has none of the threads, and in an interpreter that ends they have stopped
        for ident in started if wait else ():
            if ident != _thread.get_ident():  # the garbage collector may be what calls this, anywhere
                self._ended.get()


def most_at_once() -> int:
    """Return how many files may be open at once for one call: a quarter of what this process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, limit // 4) if limit != resource.RLIM_INFINITY else sys.maxsize


def in_threads(function: Callable[[T], R], items: Iterable[T], size: int) -> Generator[R, None, None]:
    """Yield `function` of each item, in order, with `size` threads and at most twice as many results waiting.

    With a size of 1 or less, the items are taken and the function is called by the consumer's own thread.
    """
    if size <= 1:
        yield from map(function, items)
        return
    waiting: deque[Callable[[], R]] = deque()
    with Threads[R](size) as threads:
        for item in items:
            waiting.append(threads.start(partial(function, item)))
            if len(waiting) >= 2 * size:
                yield waiting.popleft()()
        while waiting:
            yield waiting.popleft()()
