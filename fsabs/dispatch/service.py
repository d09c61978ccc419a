"""TaskDataService: the records of the tasks that a worker gets, and what it reports of them.

The tasks are read ahead, and their leases renewed, by `leasing`. A record counts as processed when the consumer says so
(`report_record_done`), as in ElasticDL's `elasticdl/python/worker/task_data_service.py`; what was read and not counted
is dispatched again.
"""

from __future__ import annotations

import operator
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from ..core.writing import ClosesOnExit
from ..readers.data import Task, TaskType
from ..readers.data.shards import adopt
from .dispatcher import TaskDispatcher
from .leasing import HeldTask, LeasedTasks

PATIENCE = 0.5
"""How many seconds Ctrl-C waits for a database that does not answer."""


class TaskDataService(ClosesOnExit):
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
        self._on_train_end = on_train_end
        self._closed = False
        self._tasks = LeasedTasks(
            self.dispatcher,
            self.reader,
            self.worker_id,
            type,
            lambda held: self._accepted(held, accepted=False),
            active=lambda: not self._closed,
        )
        self._current: Task | None = None
        self._handed_out: deque[tuple[HeldTask, int]] = deque()  # records to be counted by `report_record_done`

    @property
    def current_task(self) -> Task | None:
        """The task of the record that was handed out last: its type and model version say what to do with it."""
        return self._current

    def get_dataset(self) -> Iterator[Any]:
        """Yield the records of the tasks until the job has ended.

        Call `report_record_done` for what was processed. A task whose records can't be read is reported as failed, and
        the next one goes on. What a store raises (`PermissionError`, `TimeoutError`), a library that is missing, and
        the tenth failure in succession are raised here, and their task goes to another worker at no cost. Raises
        `JobFailedError` when the job has ended with failed tasks.
        """
        for held, records in self._read(1):
            self._handed_out.append((held, len(records)))
            yield from records

    def batches(self, batch_size: int) -> Iterator[list[Any]]:
        """Yield lists of `batch_size` records, the last one of a task may be shorter; each of one task.

        A batch counts as processed when the next one is asked for; one during which the loop is left does not.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size is at least 1, not {batch_size}")
        for held, records in self._read(batch_size):
            for at in range(0, len(records), batch_size):
                batch = records[at : at + batch_size]
                yield batch
                if self._count(held, len(batch)):
                    self._tasks.finish()

    def report_record_done(self, count: int, error: str = "") -> bool:
        """Count the next `count` records, in the order in which they were handed out, as processed.

        With `error` they count as not processed, and their tasks as failed. Returns False if one of their leases was
        not in force any more, so that they are dispatched again.
        """
        if count < 0:
            raise ValueError(f"count must not be negative: {count}")
        count = operator.index(count)  # of NumPy's, as a training loop may have it
        in_force, failed = True, None
        with self._tasks.lock:
            while count:
                if not self._handed_out:
                    raise ValueError(f"{count} records more were reported than handed out")
                held, left = self._handed_out.popleft()
                part = min(count, left)
                count -= part
                if part < left:
                    self._handed_out.appendleft((held, left - part))
                if held is failed:
                    continue  # more records of the task that was reported
                if held.lost:
                    in_force = False  # they are dispatched again
                elif error:
                    in_force, failed = self._fail(held, error) and in_force, held
                elif self._count(held, part):
                    in_force = self._accepted(held, self._tasks.report(held)) and in_force
        return in_force

    def close(self) -> None:
        """Report what was counted, give back the rest, and end the threads."""
        self._close(None)

    def _close(self, patience: float | None) -> None:
        self._closed = True
        self._tasks.close(patience)
        self._handed_out.clear()

    def __exit__(self, *exc: object) -> None:
        is_interrupted = exc[1] is not None and not isinstance(exc[1], Exception)
        try:
            self._close(PATIENCE if is_interrupted else None)
        except OSError:  # the database is away: the tasks are dispatched again, and the block's own error goes through
            if exc[1] is None:
                raise

    # ---- what is consumed

    def _read(self, batch_size: int) -> Iterator[tuple[HeldTask, list[Any]]]:
        """Yield records of one task after the other, some batches at once."""
        for held, records, _, failure in self._tasks.chunks(batch_size):
            if held is None or held.lost:
                continue
            if held.task.type == TaskType.TRAIN_END_CALLBACK:
                self._end_training(held)
                continue
            self._current = held.task
            if failure is not None:
                self._fail(held, f"{type(failure).__name__}: {failure}")
            else:
                yield held, records

    def _count(self, held: HeldTask, count: int) -> bool:
        """Count records of a task; return True if those are all, so that the task is to be reported."""
        with self._tasks.lock:
            held.counted += count
            return held.counted == held.size

    def _fail(self, held: HeldTask, reason: str) -> bool:
        held.lost = True
        return self._tasks.report(held, reason)

    def _end_training(self, held: HeldTask) -> None:
        try:
            if self._on_train_end is not None:
                self._on_train_end(held.task)
        except Exception as exc:  # the callback is the user's: its task fails, and the job goes on
            self._fail(held, f"{type(exc).__name__}: {exc}")
            return
        self._tasks.report(held)

    def _accepted(self, held: HeldTask, accepted: bool) -> bool:
        if not accepted:
            held.lost = True
            warnings.warn(
                f"the lease on records {held.task.start} to {held.task.end} of {held.task.shard_name!r} ended before "
                f"they were reported: they are dispatched again; renewals come every {self._tasks.interval:g} s",
                stacklevel=2,
            )
        return accepted


def get_dataset(
    dispatcher: TaskDispatcher | str, reader: Any, worker_id: str | int, batch_size: int, type: TaskType | None = None
) -> Iterator[list[Any]]:
    """Yield batches of the records of the tasks that a worker gets; each counts when the next one is asked for."""
    with TaskDataService(dispatcher, reader, worker_id, type=type) as service:
        yield from service.batches(batch_size)
