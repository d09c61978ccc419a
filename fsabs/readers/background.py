"""Threads behind an iterator: bounded, ended with the iterator, their errors raised where the iterator is read.

A forked child has no copy of its parent's threads: an iterator that it inherits raises there, and does not wait.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from .. import process
from ..threads import TaskOutcome, Threads

T = TypeVar("T")
R = TypeVar("R")


_END: Any = object()


class Channel(Generic[T]):
    """A queue of at most `size` items between threads, which either side may end.

    It is made of two queues of C's, one for the items and one for the room that is left: an exception of a signal
    handler leaves `threading.Condition` without its lock, or with it.
    """

    def __init__(self, size: int) -> None:
        self._items: SimpleQueue[T] = SimpleQueue()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(size):
            self._room.put(None)
        self._ended = False
        self._failure: BaseException | None = None
        self._generation = process.generation()

    def put(self, item: T) -> bool:
        """Add an item once there is room; return False if the consumer has stopped."""
        self._room.get()
        if self._ended:
            self._room.put(None)  # for the next one that waits
            return False
        self._items.put(item)
        return True

    def finish(self, failure: BaseException | None = None) -> None:
        """Say that nothing more comes: what is in the queue can still be taken, and then `failure` is raised."""
        self._failure = self._failure or failure
        self._ended = True
        self._items.put(_END)
        self._room.put(None)

    def drop(self) -> None:
        """End at once, with what is in the queue."""
        self._ended = True
        with contextlib.suppress(Empty):
            while True:
                self._items.get_nowait()
        self._items.put(_END)
        self._room.put(None)

    def __iter__(self) -> Iterator[T]:
        while True:
            if self._generation != process.generation():
                raise RuntimeError("this iterator's threads are another process's: begin a new one after the fork")
            item = self._items.get()
            if item is _END:
                self._items.put(_END)  # for the next one that waits
                break
            self._room.put(None)
            yield item
        if self._failure is not None:
            raise self._failure


def read_ahead(items: Callable[[], Iterable[T]], size: int) -> Iterator[T]:
    """The items, taken by a thread that is up to `size` of them ahead."""
    channel: Channel[T] = Channel(size)

    def work() -> None:
        for item in items():
            if not channel.put(item):
                return
        channel.finish()

    yield from _served(channel, [channel], [work])


def mapped(
    function: Callable[[T], R], items: Callable[[], Iterable[T]], threads: int, size: int, ordered: bool
) -> Iterator[R]:
    """`function` of the items, by so many threads, with at most `size` results waiting; in order if `ordered`."""
    under_way: Channel[None] = Channel(size + threads)  # a bound on what is anywhere between the items and the caller
    waiting: Channel[tuple[int, T]] = Channel(size + threads)
    results: Channel[tuple[int, R]] = Channel(size + 2 * threads)
    left = [threads]
    lock = _thread.allocate_lock()

    def feed() -> None:
        for job in enumerate(items()):
            if not (under_way.put(None) and waiting.put(job)):
                return
        waiting.finish()

    def work() -> None:
        for number, item in waiting:
            if not results.put((number, function(item))):
                return
        with lock:
            left[0] -= 1
            if not left[0]:
                results.finish()

    channels: list[Channel[Any]] = [under_way, waiting, results]
    served = _served(results, channels, [feed, *[work] * threads])
    taken = iter(under_way)
    with contextlib.closing(served):
        for result in _in_order(served) if ordered else map(_value, served):
            next(taken)
            yield result


def _value(numbered: tuple[int, R]) -> R:
    return numbered[1]


def _in_order(results: Iterable[tuple[int, R]]) -> Iterator[R]:
    early: dict[int, R] = {}
    due = 0
    for number, result in results:
        early[number] = result
        while due in early:
            yield early.pop(due)
            due += 1


def _served(
    channel: Channel[T], channels: list[Channel[Any]], work: list[Callable[[], None]]
) -> Generator[T, None, None]:
    """Yield what comes out of `channel` while threads do the work; the threads end before the generator does."""
    generation = process.generation()

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as exc:  # whatever it is, it is raised where the items are read
            for other in channels:
                other.finish(exc)

    def drop() -> None:
        if not process.inherited(generation):
            for other in channels:
                other.drop()

    with Threads[None](len(work), wait=True) as threads:
        try:
            try:
                for one in work:
                    threads.submit(partial(run, one), _forget)
                yield from channel
            finally:
                drop()
        finally:
            drop()  # an exception of a signal handler may have ended the first one


def _forget(outcome: TaskOutcome[None]) -> None:
    """Take an outcome that says nothing."""
