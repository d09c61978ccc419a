"""LeasedTasks: the records of the tasks that a worker leases; leased one ahead by a thread, renewed by another one.

A third thread reads the records of one task after the other, some ahead of the consumer. Only files on a local disk are
read by the consumer itself: a thread would save nothing, and records that one thread makes and another one frees cost a
third more. What becomes of the records is not decided here: the owner counts them.
"""

from __future__ import annotations

import contextlib
import io
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice, repeat
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, NamedTuple

from ..core import process
from ..core.errors import CorruptFileError, StaleFileError
from ..core.threads import Flag
from ..readers.data import Task, TaskType
from ..readers.data.base import AbstractDataReader, exactly
from ..readers.prefetch import Ahead, read_ahead
from ..readers.recordio import Scan
from .dispatcher import TaskDispatcher

LOCAL_CHUNK, CHUNK = 128, 16
"""Records that are read at once, about: by the consumer, and by a thread, whose first ones are waited for."""
AHEAD = 8
"""Chunks that a thread is ahead of the consumer."""
FIRST_DELAY, HOLDING_DELAY, MAX_WAIT = 0.02, 0.05, 2.0
"""Seconds between two requests for a task while none is free: at first, at first while tasks are held, at most."""
STANDSTILL = 0.5
"""Seconds after which a finished task is reported at most."""
_END = object()


class HeldTask:
    """A leased task, and how many of its records its owner has counted."""

    __slots__ = ("counted", "failed", "lease", "lost", "size", "task")

    def __init__(self, task: Task, lease: int) -> None:
        self.task = task
        self.lease = lease
        self.size = len(task.numbers())
        self.counted = 0
        self.lost = False  # the lease is not in force any more
        self.failed = False  # the reader raised


class TaskChunk(NamedTuple):
    """Some records of a task, in the order in which they were read."""

    held: HeldTask | None
    """None while no task is free, but one may be later."""
    records: list[Any]
    last: bool = False
    failure: Exception | None = None
    """The error that the reader raised after its records."""


class LeasedTasks:
    """The tasks that worker `worker_id` leases; used in the process that made it.

    `ended(task)` is called, in a thread, for a held task whose lease is found not to be in force any more. Once
    `active()` is False, none is leased, and those that are held are given back. What a store raises
    is raised by `chunks`, and its task is still held. Once this is closed, `dispatcher` waits for no database.
    """

    def __init__(
        self,
        dispatcher: TaskDispatcher,
        reader: AbstractDataReader,
        worker_id: str,
        type: TaskType | None,
        ended: Callable[[HeldTask], object],
        max_wait: float = MAX_WAIT,
        active: Callable[[], bool] = lambda: True,
    ) -> None:
        self.held: deque[HeldTask] = deque()
        self.lock = threading.RLock()
        self._reader = reader
        self._worker_id = worker_id
        self._type = type
        self._ended = ended
        self._max_wait = max_wait
        self._is_active = active
        self._stopped = Flag()
        self.dispatcher = dispatcher.until(self._stopped)
        self._wakes: SimpleQueue[None] = SimpleQueue()  # for the leasing thread
        self._wakes.put(None)
        self._wanted = True  # a task is to be leased
        self._finished: deque[HeldTask] = deque()  # to be reported
        overridden = reader.__class__.reads_ahead is not AbstractDataReader.reads_ahead
        self._is_local = overridden and not reader.reads_ahead
        self._renewing: threading.Thread | None = None
        self._chunks: Generator[TaskChunk, None, None] | None = None
        self._generation = process.generation()

    @property
    def interval(self) -> float:
        """Seconds between two renewals of a lease."""
        return self.dispatcher.lease_seconds / 3

    def chunks(self, batch_size: int = 1) -> Iterator[TaskChunk]:
        """Yield the records of one task after the other until the job has ended; once for each object.

        A chunk has a multiple of `batch_size` records, the last one of a task may have fewer. A chunk of the type
        TRAIN_END_CALLBACK has none: its owner reports it.
        """
        self._check_process()
        if self._chunks is not None:
            raise RuntimeError("the records of leased tasks are read once")
        self._renewing = threading.Thread(target=self._renew, name="fsabs-leases", daemon=True)
        self._renewing.start()
        self._chunks = self._read(batch_size * -(-(LOCAL_CHUNK if self._is_local else CHUNK) // batch_size))
        return self._chunks

    def finish(self, held: HeldTask) -> None:
        """Report a task, all of whose records were counted, in a thread; it is renewed until then."""
        self._finished.append(held)
        self._wakes.put(None)

    def release(self, held: HeldTask) -> None:
        """Renew the lease of a task no more."""
        with self.lock:
            if held in self.held:
                self.held.remove(held)

    def report(self, held: HeldTask, error: str = "") -> bool:
        """Report a task that was done, or why it failed; return whether its lease was in force."""
        self.release(held)
        counted = held.counted if error else None
        in_force = self.dispatcher.report(held.task, held.lease, not error, counted, error)
        self._wakes.put(None)  # if no task was free, there may be one now
        return in_force

    def close(self) -> list[HeldTask]:
        """End the threads; return the tasks that are still held."""
        if process.inherited(self._generation):
            return []
        self._stop()
        if self._chunks is not None:
            self._chunks.close()
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None
        if not self._is_active():
            self._give_back()
        with self.lock:
            held, self.held = list(self.held), deque()
        return [one for one in held if not one.lost]

    def _stop(self) -> None:
        self._stopped.set()
        self._wakes.put(None)

    def _check_process(self) -> None:
        if process.generation() != self._generation:
            raise RuntimeError("leased tasks belong to the process that leased them: lease others in each worker")

    # ---- the consumer

    def _read(self, size: int) -> Generator[TaskChunk, None, None]:
        chunks: Any = self._produce(size)
        if (
            not self._is_local
        ):  # closed below, after the threads were told to stop: Ctrl-C comes while one is waited for
            chunks = Ahead(lambda: self._produce(size), AHEAD, waits=True)
        try:
            for chunk in chunks:
                yield chunk
                self._check_process()
        finally:
            if not process.inherited(self._generation):
                self._stop()
            chunks.close()

    def _produce(self, size: int) -> Iterator[TaskChunk]:
        """Yield the chunks of one task after the other, in the thread that reads."""
        with contextlib.closing(read_ahead(self._lease, 1)) as leased:
            for held in leased:
                if held is None:
                    yield TaskChunk(None, [])
                    continue
                self._wanted = True  # the next one, while this one is read
                self._wakes.put(None)
                if held.task.type == TaskType.TRAIN_END_CALLBACK:
                    yield TaskChunk(held, [], last=True)
                else:
                    yield from _chunks(self._reader, held, size)

    # ---- the threads

    def _lease(self) -> Iterator[HeldTask | None]:
        """Yield the tasks, in the leasing thread; None while no task is free."""
        delay = 0.0
        while True:
            with contextlib.suppress(Empty):
                self._wakes.get(timeout=delay or None)
                while True:
                    self._wakes.get_nowait()
            self._report_finished()
            if self._stopped.is_set() or not self._is_active():
                return
            if not self._wanted:
                continue
            task, lease = self.dispatcher.get(self._worker_id, self._type)
            if task.type == TaskType.NONE:
                return
            if task.type == TaskType.WAIT:
                yield None
                delay = min(delay * 2, self._max_wait) or (HOLDING_DELAY if self.held else FIRST_DELAY)
                continue
            delay, self._wanted = 0.0, False
            held = HeldTask(task, lease)
            with self.lock:
                self.held.append(held)
            yield held

    def _renew(self) -> None:
        """Renew the leases, and report what is finished while the leasing thread stands still: its task is not read."""
        due = monotonic() + self.interval
        while not self._stopped.wait(max(0.0, min(STANDSTILL, due - monotonic()))):
            try:
                self._report_finished()
                if not self._is_active():
                    self._give_back()
                if monotonic() >= due:
                    due = monotonic() + self.interval
                    with self.lock:
                        held = [one for one in self.held if not one.lost]
                    for one in held:
                        if not self._account(one):
                            break
            except Exception:  # a warning that is an error, say: it is shown, and the other leases are renewed
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def _give_back(self) -> None:
        """Free the tasks that are held."""
        with self.lock:
            held = list(self.held)
        for one in held:
            one.lost = True
            with contextlib.suppress(OSError):  # the database is away
                self.dispatcher.report(one.task, one.lease, records=one.counted)
                self.release(one)

    def _report_finished(self) -> None:
        while True:
            try:
                finished = self._finished.popleft()
            except IndexError:
                return
            if not self._account(finished):
                self._finished.appendleft(finished)
                return

    def _account(self, held: HeldTask) -> bool:
        """Account for the records of a task that were counted: renew its lease, or report it if those are all.

        Returns False if the database is away: the next renewal may reach it.
        """
        counted = held.counted
        try:
            in_force = self.dispatcher.renew(held.task, held.lease, counted)
        except OSError:
            return False
        if not in_force and held in self.held:
            self._ended(held)
        if counted == held.size:
            self.release(held)
        return True


_OF_RECORDS = (
    *(CorruptFileError, StaleFileError, FileNotFoundError, IsADirectoryError, NotADirectoryError),
    io.UnsupportedOperation,
)


def is_of_store(exc: Exception) -> bool:
    """Return True for an error of a store, which a worker meets at each task; others are of the records it reads."""
    return isinstance(exc, OSError) and exc.errno is not None and not isinstance(exc, _OF_RECORDS)


def _chunks(reader: AbstractDataReader, held: HeldTask, size: int) -> Iterator[TaskChunk]:
    """Yield the chunks of a task; a task whose records can't be read fails, and the worker goes on."""
    chunk: list[Any] = []
    at = 0
    try:
        with _records(reader, held.task) as records:
            while at < held.size and not held.lost:
                chunk, wanted = [], min(size, held.size - at)
                if isinstance(records, Scan):  # it takes half of the time that the steps of an iterator take
                    records.read_into(chunk, wanted)
                else:
                    chunk.extend(islice(records, wanted))  # what came before an error stays in the list
                at += len(chunk)
                if len(chunk) < wanted or at == held.size:
                    _check_end(records, held.task, at)
                yield TaskChunk(held, chunk, last=at == held.size)
    except Exception as exc:
        if at < held.size:
            yield TaskChunk(held, chunk)
        if is_of_store(exc):
            raise
        yield TaskChunk(held, [], last=True, failure=exc)


@contextlib.contextmanager
def _records(reader: AbstractDataReader, task: Task) -> Iterator[Iterator[Any]]:
    """Give the records of a task, in its order, and close the iterator of them."""
    if task.indices is None:
        records = iter(reader.read_records(task))
    else:
        ascending = sorted(task.indices)
        read = exactly(reader.read_at(task.shard_name, ascending), task.shard_name, ascending)
        found = dict(zip(ascending, read, strict=True))
        records = (found[number] for number in task.indices)
    try:
        yield records
    finally:
        if (close := getattr(records, "close", None)) is not None:
            close()


def _check_end(records: Iterator[Any], task: Task, at: int) -> None:
    """Raise `CorruptFileError` if the reader has ended before the task, or has records after it."""
    numbers = task.numbers()
    if at == len(numbers) and next(records, _END) is _END:
        return
    count = at + (at == len(numbers))
    deque(exactly(repeat(None, count), task.shard_name, numbers), maxlen=0)
