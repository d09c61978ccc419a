"""TaskDataService: the records of the tasks that a worker gets, and what it reports of them.

A thread gets the tasks and reads them, so that the next task's first records are there while this one's are consumed;
another one renews the leases. A record counts as processed when the consumer says so (`report_record_done`), as in
ElasticDL's `elasticdl/python/worker/task_data_service.py`; what was read and not counted is dispatched again.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

from .. import process
from ..readers.background import read_ahead
from ..readers.data import Task, TaskType
from ..readers.data.base import adopt, exactly
from .dispatcher import TaskDispatcher

CHUNK = 128
"""Records that the reading thread hands over at once."""
AHEAD = 2
"""Chunks that it is ahead of the consumer."""
MAX_WAIT = 2.0
"""Seconds between two requests for a task while none is free, at most."""


class _Held:
    """A leased task: how many of its records were handed out, and how many were counted."""

    __slots__ = ("counted", "failed", "lease", "lost", "size", "task")

    def __init__(self, task: Task, lease: int) -> None:
        self.task = task
        self.lease = lease
        self.size = len(task.numbers())
        self.counted = 0
        self.lost = False  # the lease is not in force any more
        self.failed = False  # the reader raised


class _Chunk(NamedTuple):
    """Some records of a task, in the order in which they were read."""

    held: _Held
    records: list[Any]
    last: bool
    failure: Exception | None = None
    """What the reader raised after its records."""


class TaskDataService:
    """The records of the tasks that worker `worker_id` gets from a dispatcher.

    Args:
        dispatcher: the job's, or the URL of its database.
        reader: the data reader that the job's shards came from.
        worker_id: the worker's name, unique among those that run.
        type: of the tasks; None takes evaluation tasks and those of the job's epochs.
        on_train_end: called with the TRAIN_END_CALLBACK task, by the worker that gets it.

    Made and used in one process. `close()` (or the end of the `with` block) reports what was counted and gives back the
    rest of the tasks that are held.
    """

    def __init__(
        self,
        dispatcher: TaskDispatcher | str,
        reader: Any,
        worker_id: str | int,
        *,
        type: TaskType | None = None,
        on_train_end: Callable[[Task], object] | None = None,
    ) -> None:
        self.dispatcher = TaskDispatcher(dispatcher) if isinstance(dispatcher, str) else dispatcher
        self.reader = adopt(reader)
        self.worker_id = str(worker_id)
        self._type = type
        self._on_train_end = on_train_end
        self._held: deque[_Held] = deque()
        self._lock = threading.RLock()
        self._closing = threading.Event()
        self._renewing: threading.Thread | None = None
        self._chunks: Generator[_Chunk, None, None] | None = None
        self._generation = process.generation()
        self._current: Task | None = None

    @property
    def current_task(self) -> Task | None:
        """The task of the record that was handed out last: its type and model version say what to do with it."""
        return self._current

    def get_dataset(self) -> Iterator[Any]:
        """Yield the records of the tasks until the job has ended.

        Call `report_record_done` for what was processed. A task whose reading fails is reported as failed, and the
        next one goes on. Raises `JobFailedError` when the job has ended with failed tasks.
        """
        for _, records in self._batches(CHUNK):
            yield from records

    def batches(self, batch_size: int) -> Iterator[list[Any]]:
        """Yield lists of `batch_size` records, the last one of a task may be shorter; each of one task.

        A batch counts as processed when the next one is asked for; one during which the loop is left does not.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        for held, records in self._batches(batch_size):
            yield records
            self._count(held, len(records))

    def report_record_done(self, count: int, error: str = "") -> bool:
        """Count the next `count` records, in the order in which they were handed out, as processed.

        With `error` they count as not processed, and their tasks as failed. Returns False if one of their leases was
        not in force any more, so that they are dispatched again.
        """
        if count < 0:
            raise ValueError(f"count must not be negative: {count}")
        in_force = True
        with self._lock:
            while count:
                held = next((one for one in self._held if one.counted < one.size and not one.failed), None)
                if held is None:
                    raise ValueError(f"{count} records more were reported than handed out")
                part = min(count, held.size - held.counted)
                count -= part
                if error:
                    self._fail(held, error)
                else:
                    in_force = self._count(held, part) and in_force
        return in_force

    def close(self) -> None:
        """Report what was counted, give back the rest, and end the threads."""
        if process.inherited(self._generation):
            return
        self._closing.set()
        if self._chunks is not None:
            self._chunks.close()
            self._chunks = None
        if self._renewing is not None:
            self._renewing.join()
            self._renewing = None
        with self._lock:
            held, self._held = list(self._held), deque()
        for one in held:
            if not one.lost:
                self.dispatcher.report(one.task, one.lease, records=one.counted)

    def __enter__(self) -> TaskDataService:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ---- what is consumed

    def _batches(self, size: int) -> Iterator[tuple[_Held, list[Any]]]:
        """Yield lists of up to `size` records, each of one task."""
        if process.generation() != self._generation:
            raise RuntimeError("a TaskDataService belongs to the process that made it: make one in each worker")
        if self._chunks is not None:
            raise RuntimeError("the records of a TaskDataService are read once")
        self._start_renewing()
        self._chunks = chunks = read_ahead(self._read, AHEAD)  # type: ignore[assignment]
        waiting: list[Any] = []
        for held, records, last, failure in chunks or ():
            if held.lost:
                waiting = []
                continue
            self._current = held.task
            if failure is not None:
                held.failed = True
                self._fail(held, f"{type(failure).__name__}: {failure}")
                continue
            waiting += records
            while len(waiting) >= size or (last and waiting):
                yield held, waiting[:size]
                del waiting[:size]

    def _count(self, held: _Held, count: int) -> bool:
        """Count records of a task; report it when that is all of them."""
        with self._lock:
            held.counted += count
            if held.counted < held.size or held.failed:
                return not held.lost
            if held in self._held:
                self._held.remove(held)
        return not held.lost and self._accepted(held, self.dispatcher.report(held.task, held.lease))

    def _fail(self, held: _Held, reason: str) -> None:
        with self._lock:
            held.lost = True
            if held in self._held:
                self._held.remove(held)
        self.dispatcher.report(held.task, held.lease, success=False, records=held.counted, error=reason)

    def _accepted(self, held: _Held, accepted: bool) -> bool:
        if not accepted:
            held.lost = True
            warnings.warn(
                f"the lease on records {held.task.start} to {held.task.end} of {held.task.shard_name!r} ended before "
                f"they were reported: they are dispatched again; renewals come every {self._interval:g} s",
                stacklevel=2,
            )
        return accepted

    # ---- the threads

    def _read(self) -> Iterator[_Chunk]:
        """Yield the tasks' records in chunks, in the reading thread."""
        delay = 0.02
        while not self._closing.is_set():
            task, lease = self.dispatcher.get(self.worker_id, self._type)
            if task.type == TaskType.NONE:
                return
            if task.type == TaskType.WAIT:
                self._closing.wait(delay)
                delay = min(delay * 2, MAX_WAIT)
                continue
            delay = 0.02
            held = _Held(task, lease)
            if task.type == TaskType.TRAIN_END_CALLBACK:
                self._end_training(held)
                continue
            with self._lock:
                self._held.append(held)
            yield from self._read_task(held)

    def _read_task(self, held: _Held) -> Iterator[_Chunk]:
        chunk: list[Any] = []
        left = held.size
        try:
            with contextlib.closing(_records(self.reader, held.task)) as records:
                for record in records:
                    chunk.append(record)
                    if len(chunk) == CHUNK:
                        left -= CHUNK
                        yield _Chunk(held, chunk, last=not left)
                        chunk = []
                    if held.lost:
                        return
            if chunk:
                yield _Chunk(held, chunk, last=True)
        except Exception as exc:  # the reader's, whatever it is: the task fails, and the worker goes on
            yield _Chunk(held, chunk, last=True)
            yield _Chunk(held, [], last=True, failure=exc)

    def _end_training(self, held: _Held) -> None:
        try:
            if self._on_train_end is not None:
                self._on_train_end(held.task)
        except Exception as exc:
            self.dispatcher.report(held.task, held.lease, success=False, error=f"{type(exc).__name__}: {exc}")
            return
        self.dispatcher.report(held.task, held.lease)

    @property
    def _interval(self) -> float:
        return self.dispatcher.lease_seconds / 3

    def _start_renewing(self) -> None:
        self._renewing = threading.Thread(target=self._renew, name="fsabs-leases", daemon=True)
        self._renewing.start()

    def _renew(self) -> None:
        while not self._closing.wait(self._interval):
            with self._lock:
                held = [(one, one.counted) for one in self._held if not one.lost]
            for one, counted in held:
                with contextlib.suppress(OSError):  # the database is away: the next renewal may reach it
                    if not self.dispatcher.renew(one.task, one.lease, counted) and one in self._held:
                        self._accepted(one, accepted=False)


def _records(reader: Any, task: Task) -> Generator[Any, None, None]:
    """Yield the records of a task, in its order; `CorruptFileError` if the reader gives fewer or more."""
    if task.indices is None:
        yield from exactly(reader.read_records(task), task.shard_name, task.numbers())
        return
    ascending = sorted(task.indices)
    found = dict(
        zip(ascending, exactly(reader.read_at(task.shard_name, ascending), task.shard_name, ascending), strict=True)
    )
    yield from (found[number] for number in task.indices)


def get_dataset(
    dispatcher: TaskDispatcher | str, reader: Any, worker_id: str | int, batch_size: int, type: TaskType | None = None
) -> Iterator[list[Any]]:
    """Yield batches of the records of the tasks that a worker gets; each counts when the next one is asked for."""
    with TaskDataService(dispatcher, reader, worker_id, type=type) as service:
        yield from service.batches(batch_size)
