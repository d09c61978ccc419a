"""LeasedTasks: what a worker reads of the tasks that it leases, read ahead by a thread, renewed by another one.

What becomes of the records is not decided here: the owner counts and reports them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice, repeat
from typing import Any, NamedTuple

from .. import process
from ..readers.background import read_ahead
from ..readers.data import Task, TaskType
from ..readers.data.base import AbstractDataReader, exactly
from .dispatcher import TaskDispatcher

MIN_CHUNK, MAX_CHUNK = 128, 1024
"""Records that the reading thread hands over at once; the larger number for those that come fast."""
CHUNK_SECONDS = 0.002
"""A chunk that was read in less is followed by a larger one."""
AHEAD = 2
"""Chunks that it is ahead of the consumer."""
MAX_WAIT = 2.0
"""Seconds between two requests for a task while none is free, at most."""
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


class Chunk(NamedTuple):
    """Some records of a task, in the order in which they were read."""

    held: HeldTask | None
    """None while no task is free, but one may be later."""
    records: list[Any]
    last: bool = False
    failure: Exception | None = None
    """The error that the reader raised after its records."""


class LeasedTasks:
    """The tasks that worker `worker_id` leases; used in the process that made it.

    `ended(task)` is called, in the renewing thread, for a held task whose lease is found not to be in force any more.
    """

    def __init__(
        self,
        dispatcher: TaskDispatcher,
        reader: AbstractDataReader,
        worker_id: str,
        type: TaskType | None,
        ended: Callable[[HeldTask], object],
        max_wait: float = MAX_WAIT,
    ) -> None:
        self.held: deque[HeldTask] = deque()
        self.lock = threading.RLock()
        self._dispatcher = dispatcher
        self._reader = reader
        self._worker_id = worker_id
        self._type = type
        self._ended = ended
        self._max_wait = max_wait
        self._stopped = threading.Event()
        self._woken = threading.Event()  # a task was reported, or all ends
        self._renewing: threading.Thread | None = None
        self._chunks: Generator[Chunk, None, None] | None = None
        self._generation = process.generation()

    @property
    def interval(self) -> float:
        """Seconds between two renewals of a lease."""
        return self._dispatcher.lease_seconds / 3

    def chunks(self) -> Iterator[Chunk]:
        """Yield the records of one task after the other until the job has ended; once for each object.

        A chunk of the type TRAIN_END_CALLBACK has no records: its owner reports it.
        """
        if process.generation() != self._generation:
            raise RuntimeError("leased tasks belong to the process that leased them: lease others in each worker")
        if self._chunks is not None:
            raise RuntimeError("the records of leased tasks are read once")
        self._renewing = threading.Thread(target=self._renew, name="fsabs-leases", daemon=True)
        self._renewing.start()
        self._chunks = chunks = read_ahead(self._read, AHEAD)  # type: ignore[assignment]
        return chunks or iter(())

    def release(self, held: HeldTask) -> None:
        """Renew the lease of a task no more."""
        with self.lock:
            if held in self.held:
                self.held.remove(held)

    def wake(self) -> None:
        """Ask for a task again at once if none was free: one was reported."""
        self._woken.set()

    def close(self) -> list[HeldTask]:
        """End the threads; return the tasks that are still held."""
        if process.inherited(self._generation):
            return []
        self._stopped.set()
        self._woken.set()
        if self._chunks is not None:
            self._chunks.close()
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None
        with self.lock:
            held, self.held = list(self.held), deque()
        return [one for one in held if not one.lost]

    # ---- the threads

    def _read(self) -> Iterator[Chunk]:
        """Yield the tasks' records in chunks, in the reading thread."""
        delay = 0.02
        while not self._stopped.is_set():
            self._woken.clear()
            task, lease = self._dispatcher.get(self._worker_id, self._type)
            if task.type == TaskType.NONE:
                return
            if task.type == TaskType.WAIT:
                yield Chunk(None, [])
                self._woken.wait(delay)
                delay = min(delay * 2, self._max_wait)
                continue
            delay = 0.02
            held = HeldTask(task, lease)
            with self.lock:
                self.held.append(held)
            if task.type == TaskType.TRAIN_END_CALLBACK:
                yield Chunk(held, [], last=True)
            else:
                yield from self._read_task(held)

    def _read_task(self, held: HeldTask) -> Iterator[Chunk]:
        chunk: list[Any] = []
        at, size = 0, MIN_CHUNK
        try:
            with _records(self._reader, held.task) as records:
                while at < held.size and not held.lost:
                    chunk, begin = [], time.monotonic()
                    wanted = min(size, held.size - at)
                    chunk.extend(islice(records, wanted))  # what came before an error stays in the list
                    at += len(chunk)
                    _check_end(records, held, at, short=len(chunk) < wanted)
                    if time.monotonic() - begin < CHUNK_SECONDS:
                        size = min(2 * size, MAX_CHUNK)
                    yield Chunk(held, chunk, last=at == held.size)
        except Exception as exc:  # the reader's, whatever it is: the task fails, and the worker goes on
            yield Chunk(held, chunk, last=True)
            yield Chunk(held, [], last=True, failure=exc)

    def _renew(self) -> None:
        while not self._stopped.wait(self.interval):
            with self.lock:
                held = [(one, one.counted) for one in self.held if not one.lost]
            for one, counted in held:
                with contextlib.suppress(OSError):  # the database is away: the next renewal may reach it
                    if not self._dispatcher.renew(one.task, one.lease, counted) and one in self.held:
                        self._ended(one)


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


def _check_end(records: Iterator[Any], held: HeldTask, at: int, short: bool) -> None:
    """Raise `CorruptFileError` if the reader has ended before the task, or goes on behind it."""
    name, numbers = held.task.shard_name, held.task.numbers()
    if short:
        deque(exactly(repeat(None, at), name, numbers), maxlen=0)
    elif at == held.size and next(records, _END) is not _END:
        deque(exactly(repeat(None, at + 1), name, numbers), maxlen=0)
