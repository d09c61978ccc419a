"""LeasedTasks: the records of the tasks that a worker leases.

One thread leases, a task ahead, and renews and reports. Another one reads the records of one task after the other,
some ahead of the consumer. Only files on a local disk are read by the consumer itself: a thread would save nothing, and
records that one thread makes and another one frees cost a third more. What becomes of the records is not decided here:
the owner counts them.
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
from ..readers.prefetch import Ahead
from ..readers.recordio import Scan
from .dispatcher import TaskDispatcher

LOCAL_CHUNK, CHUNK = 128, 16
"""Records that are read at once, about: by the consumer, and by a thread, whose first ones are waited for."""
AHEAD = 8
"""Chunks that a thread is ahead of the consumer."""
FIRST_DELAY, HOLDING_DELAY, MAX_WAIT = 0.02, 0.05, 2.0
"""Seconds between two requests for a task while none is free: at first, at first while tasks are held, at most."""
POLL = 0.5
"""Seconds between two looks at whether tasks are still wanted, and two reports while the database is away."""
MAX_FAILURES = 10
"""How many tasks a worker fails in succession, without a record of one, before it ends with its error."""
_END: Any = object()


class HeldTask:
    """A leased task, and how many of its records its owner has counted."""

    __slots__ = ("counted", "lease", "lost", "size", "task")

    def __init__(self, task: Task, lease: int) -> None:
        self.task = task
        self.lease = lease
        self.size = len(task.numbers())
        self.counted = 0
        self.lost = False  # the lease is not in force any more


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
    `active()` is False, none is leased, and those that are held are given back. What a store raises is raised by
    `chunks`, and its task is still held.
    """

    def __init__(
        self,
        dispatcher: TaskDispatcher,
        reader: AbstractDataReader,
        worker_id: str,
        type: TaskType | None,
        ended: Callable[[HeldTask], object],
        max_wait: float = MAX_WAIT,
        *,
        active: Callable[[], bool],
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
        self._thread: threading.Thread | None = None
        self._wakes: SimpleQueue[None] = SimpleQueue()  # for the thread
        self._wanted = True  # a task is to be leased
        self._leased: SimpleQueue[Any] = SimpleQueue()  # tasks to be read; None while none is free; an error; _END
        self._failure: OSError | None = None  # of the last attempt to give tasks back
        self._failures = 0  # in succession, of tasks of which nothing was read
        overridden = reader.__class__.reads_ahead is not AbstractDataReader.reads_ahead
        self._is_local = overridden and not reader.reads_ahead
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
        self._thread = threading.Thread(target=self._work, name="fsabs-leases", daemon=True)
        self._thread.start()
        self._chunks = self._read(batch_size * -(-(LOCAL_CHUNK if self._is_local else CHUNK) // batch_size))
        return self._chunks

    def finish(self) -> None:
        """Report tasks of which all records were counted, in a thread; they are renewed until then."""
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

    def close(self, patience: float | None = None) -> None:
        """End the threads, which give back the tasks that are held unless these are `active`.

        Waits up to `patience` seconds for a database that does not answer. Raises the error of what was not given back.
        """
        if process.inherited(self._generation):
            return
        self._stop()
        if self._chunks is not None:
            self._chunks.close()
        if self._thread is not None:
            self._thread.join(patience)
            if not (self._thread.is_alive() or self._is_active() or self._failure is not None):
                self._give_back()  # the thread has ended before this was closed
        with self.lock:
            self.held.clear()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _stop(self) -> None:
        self._stopped.set()
        self._wakes.put(None)
        self._leased.put(_END)

    def _check_process(self) -> None:
        if process.generation() != self._generation:
            raise RuntimeError("leased tasks belong to the process that leased them: lease others in each worker")

    # ---- the consumer, or the thread that reads

    def _read(self, size: int) -> Generator[TaskChunk, None, None]:
        # Closed below, after the threads were told to stop: Ctrl-C comes while one is waited for.
        chunks: Any = self._produce(size) if self._is_local else Ahead(lambda: self._produce(size), AHEAD, waits=True)
        try:
            for chunk in chunks:
                yield chunk
                self._check_process()
        finally:
            if not process.inherited(self._generation):
                self._stop()
            chunks.close()

    def _produce(self, size: int) -> Iterator[TaskChunk]:
        """Yield the chunks of one task after the other."""
        while (held := self._leased.get()) is not _END:
            if isinstance(held, Exception):
                raise held
            if held is None:
                yield TaskChunk(None, [])
                continue
            self._wanted = True  # the next one, while this one is read
            self._wakes.put(None)
            if held.task.type == TaskType.TRAIN_END_CALLBACK:
                yield TaskChunk(held, [], last=True)
            else:
                yield from self._chunks_of(held, size)

    def _chunks_of(self, held: HeldTask, size: int) -> Iterator[TaskChunk]:
        """Yield the chunks of a task; a task whose records can't be read fails, and the worker goes on."""
        chunk: list[Any] = []
        at = 0
        try:
            with _records(self._reader, held.task) as records:
                while at < held.size and not held.lost:
                    chunk, wanted = [], min(size, held.size - at)
                    if isinstance(records, Scan):  # it takes half of the time that the steps of an iterator take
                        records.read_into(chunk, wanted)
                    else:
                        chunk.extend(islice(records, wanted))  # what came before an error stays in the list
                    at += len(chunk)
                    if len(chunk) < wanted or at == held.size:
                        _check_end(records, held.task, at)
                    self._failures = 0
                    yield TaskChunk(held, chunk, last=at == held.size)
        except Exception as exc:
            if at < held.size:
                yield TaskChunk(held, chunk)
            self._failures = 0 if at or chunk else self._failures + 1
            if _is_of_worker(exc) or (self._failures >= MAX_FAILURES and self._is_first(held)):
                raise
            yield TaskChunk(held, [], last=True, failure=exc)

    def _is_first(self, held: HeldTask) -> bool:
        """Return True if no other worker has failed on a task."""
        return self.dispatcher.failed_by(held.task) in (None, self._worker_id)

    # ---- the thread that leases, renews and reports

    def _work(self) -> None:
        renewal, request, delay = monotonic() + self.interval, 0.0, 0.0
        while True:
            until = min(renewal, request) if self._wanted else renewal
            if self._is_woken(until - monotonic()):
                request = 0.0  # what was reported may have freed a task
            if self._stopped.is_set():
                if not self._is_active():
                    self._give_back()  # here, so that it may be left alone with a database that does not answer
                return
            is_due = monotonic() >= renewal
            if is_due:
                renewal = monotonic() + self.interval
            try:
                self._account(is_due)
            except Exception:  # a warning that is an error, say: it is shown, and the other leases are renewed
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
            if self._wanted and monotonic() >= request:
                delay = self._lease(delay)
                request = monotonic() + delay

    def _is_woken(self, seconds: float) -> bool:
        """Wait until there is something to do, `POLL` seconds at most; return True if somebody said so."""
        woken = False
        with contextlib.suppress(Empty):
            self._wakes.get(timeout=max(0.0, min(seconds, POLL)))
            while woken := True:
                self._wakes.get_nowait()
        return woken

    def _lease(self, delay: float) -> float:
        """Lease a task; return after how many seconds one is asked for again if none is free."""
        leased: Any = _END
        try:
            task, lease = self.dispatcher.get(self._worker_id, self._type)
        except Exception as exc:
            leased = exc
        else:
            if task.type == TaskType.WAIT:
                if self._leased.empty():
                    self._leased.put(None)
                return min(delay * 2, self._max_wait) or (HOLDING_DELAY if self.held else FIRST_DELAY)
            if task.type != TaskType.NONE:
                leased = HeldTask(task, lease)
                with self.lock:
                    self.held.append(leased)
        self._wanted = False
        self._leased.put(leased)
        return 0.0

    def _account(self, is_due: bool) -> None:
        """Report the tasks that are finished, and renew the others if that is due; give all back that is not wanted."""
        if not self._is_active():
            self._give_back()
            if self._wanted:
                self._wanted = False
                self._leased.put(_END)
        with self.lock:
            held = [one for one in self.held if not one.lost and (is_due or one.counted == one.size)]
        for one in held:
            if not self._renew(one):
                break

    def _renew(self, held: HeldTask) -> bool:
        """Renew a lease and account for the records that were counted, which reports the task if those are all.

        Returns False if the database is away.
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

    def _give_back(self) -> None:
        """Report what was counted of the tasks that are held, and free them."""
        self._failure = None
        with self.lock:
            held = list(self.held)
        for one in held:
            one.lost = True
            try:
                self.dispatcher.report(one.task, one.lease, records=one.counted)
                self.release(one)
            except OSError as exc:  # the database is away
                self._failure = exc


_OF_RECORDS = (
    *(CorruptFileError, StaleFileError, FileNotFoundError, IsADirectoryError, NotADirectoryError),
    io.UnsupportedOperation,
)


def _is_of_worker(exc: Exception) -> bool:
    """Return True for an error that a worker meets at each task: of a store, or of a library that is not installed."""
    if isinstance(exc, OSError):
        return exc.errno is not None and not isinstance(exc, _OF_RECORDS)
    return isinstance(exc, ImportError)


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
