"""Reading ahead: items that a thread takes from their source while the consumer works on those before.

`Ahead` is the engine: its thread runs as long as there is room, and is started again when there is some: nothing waits
for room, and nothing has to be woken to end. Waiting for an item is recorded as `readers.read_ahead`, for which the
store is to blame. A forked child has no copy of its parent's threads: an iterator that it inherits raises there, and
does not wait. Queues and threads are those of `queue.SimpleQueue` and `core.threads`: an exception of a signal handler
leaves them as they are, where it could leave the locks of `queue.Queue` and `ThreadPoolExecutor` held
(`tests/test_interrupts.py`).

`prefetch` reads files in an order that is known, by batches and within a bound on bytes, for a data set that knows its
sampler's order; `read_batches_ahead` does so for anything that is read in batches. Both begin anew in each process. An
FS that can use the order itself (a cache) receives it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from queue import SimpleQueue
from time import monotonic_ns
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from ..backends.local import Local
from ..backends.memory import Memory
from ..containers.base import Container
from ..core import hooks, process
from ..core.errors import CorruptFileError
from ..core.fs import FS, StrPath
from ..core.threads import TaskOutcome, Threads
from ..disk import folders

T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()


def _one(item: object) -> int:
    return 1


class SharedThreads(NamedTuple):
    """Threads that take the items of many sources in turn, and how much of each is held."""

    threads: Threads[None]
    most: int


class Ahead(Iterator[T], Generic[T]):
    """The items of `source()`, taken from it by a thread while the consumer works.

    `weigh(item)` is its size, 1 if it is not given; no more is read while `most` or more is held. What `source` raises
    is raised where its next item would have come. The thread ends with the items, at `close()`, or when this is
    dropped; `close()` waits for it if `waits` is set. `shared` threads are not ended.
    """

    def __init__(
        self,
        source: Callable[[], Iterable[T]],
        most: int,
        weigh: Callable[[T], int] = _one,
        *,
        waits: bool = False,
        shared: Threads[None] | None = None,
    ) -> None:
        # The thread must not hold this object, or it would never be dropped.
        self._reading: _Reading[T] = _Reading(source, most, weigh)
        self._threads = Threads[None](1, wait=waits) if shared is None else shared
        own = self._threads if shared is None else None
        self._generation = process.generation()
        self._close = weakref.finalize(self, _close, self._reading, own, self._generation)
        self._close.atexit = False
        self._read_on()

    def _read_on(self) -> None:
        self._threads.submit(self._reading.read, TaskOutcome.result)

    def __next__(self) -> T:
        if self._generation != process.generation():
            raise RuntimeError("this iterator's thread is another process's: begin a new one after the fork")
        reading = self._reading
        if reading.idle:  # an exception of a signal handler may have ended the last call before it did this
            self._read_on()
        if hooks.active is None or not reading.items.empty():
            item, taken = reading.items.get()
        else:
            begin = monotonic_ns()
            item, taken = reading.items.get()
            if (instrument := hooks.active) is not None:
                instrument.record_span("wait", "readers.read_ahead", begin)
        if item is _END:
            reading.items.put((_END, 0))  # for the next one that asks
            failure, reading.failure = reading.failure, None
            raise failure if failure is not None else StopIteration
        reading.taken = taken
        if reading.idle:
            self._read_on()
        return item

    def close(self) -> None:
        """End the thread, after what it is reading now; nothing is to be had after that."""
        self._close()


def _close(reading: _Reading[Any], own: Threads[None] | None, generation: int) -> None:
    if process.inherited(generation):
        return
    reading.closed = True
    reading.items.put((_END, 0))
    if own is not None:
        own.end()
    if reading.idle:
        reading.leave()


class _Reading(Generic[T]):
    """The items that were read and not taken yet, and the iterator that they come from."""

    def __init__(self, source: Callable[[], Iterable[T]], most: int, weigh: Callable[[T], int]) -> None:
        self.items: SimpleQueue[tuple[T, int]] = SimpleQueue()
        self.taken = 0  # the weight of all items up to the last one that was taken; the consumer writes it
        self.idle = False  # nothing is being read; the thread writes it
        self.closed = False
        self.failure: BaseException | None = None
        self._source = source
        self._weigh = weigh
        self._most = most
        self._read = 0
        self._iterator: Iterator[T] | None = None
        self._ended = False
        self._turn = threading.Lock()  # of the thread that reads

    def _full(self) -> bool:
        return self._read - self.taken >= self._most and not self.items.empty()

    def read(self) -> None:
        """Read as long as there is room, in a thread; of two shared threads that come here at once, one does."""
        while self._turn.acquire(blocking=False):
            try:
                self.idle = False
                self._fill()
                self.idle = not self._ended
            finally:
                self._turn.release()
            if self.closed or self._ended:
                self.leave()
            elif not self._full():  # the consumer took something just before `idle` was set
                continue
            return

    def _fill(self) -> None:
        try:
            if self._iterator is None and not self.closed:
                self._iterator = iter(self._source())
            while not (self.closed or self._ended or self._full()):
                assert self._iterator is not None
                item = next(self._iterator)
                self._read += self._weigh(item)
                self.items.put((item, self._read))
        except StopIteration:
            self._end(None)
        except BaseException as exc:  # whatever it is, it is the consumer's
            self._end(exc)

    def _end(self, failure: BaseException | None) -> None:
        self._ended, self.failure = True, failure
        self.items.put((_END, 0))

    def leave(self) -> None:
        """Close the iterator."""
        iterator, self._iterator = self._iterator, iter(())
        with contextlib.suppress(ValueError):  # the thread is in it, and closes it
            if iterator is not None and hasattr(iterator, "close"):
                iterator.close()


def read_ahead(items: Callable[[], Iterable[T]], size: int) -> Generator[T, None, None]:
    """Yield the items, taken by a thread that is up to `size` of them ahead, and has ended when this ends."""
    with contextlib.closing(Ahead(items, size, waits=True)) as ahead:
        yield from ahead


def in_lists(chunks: Ahead[list[T]]) -> Generator[T, None, None]:
    """Yield the items of the lists that a thread reads; closing the iterator ends the thread."""
    with contextlib.closing(chunks):
        for chunk in chunks:
            yield from chunk


def mapped(
    function: Callable[[T], R], items: Callable[[], Iterable[T]], threads: int, size: int, ordered: bool
) -> Iterator[R]:
    """`function` of the items, by so many threads, with at most `size` results waiting; in order if `ordered`."""
    with Threads[R](threads, wait=True) as pool:
        results: SimpleQueue[TaskOutcome[R]] = SimpleQueue()

        def begun() -> Iterator[Callable[[], R]]:
            for item in items():
                if ordered:
                    yield pool.start(functools.partial(function, item))
                else:
                    pool.submit(functools.partial(function, item), results.put)
                    yield lambda: results.get().result()  # of whichever item is ready

        with contextlib.closing(Ahead(begun, size + threads, waits=True)) as coming:
            for result in coming:
                yield result()


# ---- in batches, in an order that is known


MAX_BYTES = 256 * 1024 * 1024
_CHUNK = 64  # items that a thread hands over at once: each time costs as much as reading some small ones
_CHUNKS = 8  # of a batch, at least: one of them waits beyond the bound, and another one is the consumer's
LARGEST_BATCH = 512  # files of one read_many: enough to keep a store busy, few enough to adapt to their sizes


@runtime_checkable
class TakesOrder(Protocol):
    """An FS that can use the order of coming reads: a cache that evicts what is needed last."""

    def set_order(self, paths: Sequence[StrPath]) -> None:
        """Receive the files that are read next, in order."""


def hand_over(fs: FS, order: Iterable[StrPath]) -> None:
    """Set the order of the outermost layer of `fs` that takes one; `order` is not iterated if there is none."""
    layer: Any = fs
    while layer is not None:
        if isinstance(layer, TakesOrder):
            # Absolute, since a layer below has another cwd where this is a subfs; the keys are the same.
            layer.set_order(["/" + fs._key(path, "set_order") for path in order])
            return
        layer = getattr(layer, "inner", None)


def is_immediate(fs: FS) -> bool:
    """Return whether reading from `fs` waits for no other machine, so that reading ahead gains nothing.

    True for a local disk and for memory, and for containers on them; False for all else, layers included.
    """
    while isinstance(fs, Container):
        fs = fs.parent
    if isinstance(fs, Local):
        return not folders.is_network(folders.filesystem_of(f"/{fs._root}"))
    return isinstance(fs, Memory)


def prefetch(fs: FS, order: Sequence[StrPath], *, max_bytes: int = MAX_BYTES) -> process.Resumable[bytes]:
    """The contents of the files `order`, in order, read ahead of the consumer by batches (`read_many`).

    About `max_bytes` bytes are held at most, going by the largest file seen so far; one file is always read, however
    large. The iterator continues in a forked child and after pickling, reading ahead there by itself; `close()` ends it
    early. An error of a file is raised where its content would have come.
    """
    order = list(order)
    return read_batches_ahead(fs.read_many, order, len, max_bytes=max_bytes, begin=functools.partial(hand_over, fs))


def _no_preparation(wanted: Any) -> None:
    """Do nothing."""


def read_batches_ahead(
    read: Callable[[Any], Iterable[T]],
    wanted: Any,
    weigh: Callable[[T], int],
    *,
    max_bytes: int,
    begin: Callable[[Any], object] = _no_preparation,
    largest_batch: int = LARGEST_BATCH,
) -> process.Resumable[T]:
    """Return an iterator of what `read` gives for batches of `wanted`, one item for each, read ahead by a thread.

    `wanted` may be a list, or an array of numbers. `weigh(item)` is an item's size in bytes. `begin` is called with the
    rest of `wanted` in each process that begins.
    """
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, not {max_bytes}")
    # One half of the bound is for what waits, the other for the batch that is under way.
    return process.Resumable(_Batches(read, wanted, weigh, max(1, max_bytes // 2), begin, largest_batch).begun)


class _Batches(NamedTuple, Generic[T]):
    """Batches of `wanted`, which a thread reads ahead."""

    read: Callable[[Any], Iterable[T]]
    wanted: Any
    weigh: Callable[[T], int]
    max_bytes: int
    begin: Callable[[Any], object]
    largest_batch: int

    def begun(self, start: int) -> Iterator[T]:
        """Begin to read from number `start` on, in this process."""
        coming = self.wanted[start:] if start else self.wanted
        self.begin(coming)
        weigh = self.weigh
        return in_lists(
            Ahead(functools.partial(self._lists, coming), self.max_bytes, lambda items: sum(map(weigh, items)))
        )

    def _lists(self, wanted: Any) -> Iterator[list[T]]:
        """Yield the items in lists: those of a list many at once, others one by one as they come."""
        at, largest, batch = 0, 1, 4
        while at < len(wanted):
            asked, given = min(batch, len(wanted) - at), 0
            try:
                items = self.read(wanted[at : at + asked])
            except CorruptFileError:
                if asked == 1:
                    raise
                batch = asked // 2  # the error comes after the items before it
                continue
            for chunk in _chunks(items, self.max_bytes // largest // _CHUNKS):
                largest = max(largest, *map(self.weigh, chunk))
                given += len(chunk)
                yield chunk
            if given != asked:
                raise RuntimeError(f"{given} items were read, and not {asked}")
            at += asked
            batch = max(1, min(self.max_bytes // largest, 4 * batch, self.largest_batch))


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    if not isinstance(items, list):  # they come one by one
        return ([item] for item in items)
    size = max(1, min(_CHUNK, size))
    return (items[at : at + size] for at in range(0, len(items), size))
