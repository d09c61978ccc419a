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
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


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
        self._started = 0

    @property
    def stopping(self) -> bool:
        """True once the block has ended, and results are no longer needed."""
        return self._stopping

    def submit(self, task: Callable[[], R], report: Callable[[TaskOutcome[R]], None]) -> None:
        """Have `report` called, in a thread, with the outcome of `task()`."""
        self._tasks.put((task, report))
        if self._started < self._size:
            self._started += 1
            _thread.start_new_thread(self._work, ())

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
        self._stopping = True
        for _ in range(self._started):
            self._tasks.put(None)
        for _ in range(self._started if self._wait else 0):
            self._ended.get()


def most_at_once() -> int:
    """Return how many files may be open at once for one call: a quarter of what this process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return max(1, limit // 4) if limit != resource.RLIM_INFINITY else sys.maxsize


def in_threads(function: Callable[[T], R], items: Iterable[T], size: int) -> Iterator[R]:
    """Yield `function` of each item, in order, with `size` threads and at most twice as many results waiting."""
    waiting: deque[SimpleQueue[TaskOutcome[R]]] = deque()
    with Threads[R](size) as threads:
        for item in items:
            outcomes: SimpleQueue[TaskOutcome[R]] = SimpleQueue()
            threads.submit(lambda item=item: function(item), outcomes.put)  # type: ignore[misc]
            waiting.append(outcomes)
            if len(waiting) >= 2 * size:
                yield waiting.popleft().get().result()
        while waiting:
            yield waiting.popleft().get().result()
