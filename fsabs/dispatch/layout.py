"""Laying out the tasks of epochs, in batches, when the queue is empty; and the end of a job."""

from __future__ import annotations

import errno
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..core import errors
from ..readers.data import Shard, TaskType
from . import queries
from .plan import ShardTable, permutation
from .schema import ABANDONED, FAILED, FINISHED, RUNNING, jobs, tasks

BATCH = 1000
"""How many tasks are laid out at once."""


class DispatchJob(NamedTuple):
    """The facts of a job that do not change."""

    id: int
    name: str
    type: TaskType
    """Of the tasks of its epochs."""
    num_epochs: int
    seed: int | None
    shuffle_records: bool
    lease_seconds: float
    max_failures: int
    barrier: bool
    train_end_callback: bool
    table: ShardTable
    evaluation: ShardTable | None
    """Its evaluation shards."""

    @property
    def evaluates(self) -> bool:
        """True if the job has evaluation shards."""
        return self.evaluation is not None


def load_job(connection: sa.Connection, name: str, url: str) -> DispatchJob:
    """Return a job; `FileNotFoundError` that names those there are."""
    row = connection.execute(sa.select(jobs).where(jobs.c.name == name)).first()
    if row is None:
        there = connection.execute(sa.select(jobs.c.name).order_by(jobs.c.name)).scalars().all()
        known = f"there are {', '.join(map(repr, there))}" if there else "there is none"
        raise errors.error(errno.ENOENT, "open", url, f"no job is called {name!r}; {known}")
    type = TaskType(row.type)
    evaluation = _table(connection, row.id, TaskType.EVALUATION, row.records_per_task)
    return DispatchJob(
        row.id,
        name,
        type,
        row.num_epochs,
        row.seed,
        row.shuffle_records,
        row.lease_seconds,
        row.max_failures,
        row.barrier,
        row.train_end_callback,
        _table(connection, row.id, type, row.records_per_task),
        evaluation if evaluation.tasks else None,
    )


def _table(connection: sa.Connection, job: int, type: TaskType, records_per_task: int) -> ShardTable:
    rows = connection.execute(queries.shards_of_type, {"job_id": job, "task_type": int(type)})
    return ShardTable((Shard(*row) for row in rows), records_per_task)


def rows_of(job: DispatchJob, table: ShardTable, type: TaskType, epoch: int, places: range) -> list[dict[str, Any]]:
    """Return the rows of the tasks at these places of an epoch's order."""
    number_at = permutation(table.tasks, job.seed if type == job.type else None, epoch)
    rows = []
    for place in places:
        number = number_at(place)
        piece = table.piece(number)
        rows.append(
            {
                "job": job.id,
                "type": int(type),
                "epoch": epoch,
                "number": number,
                "shard": piece.shard,
                "start": piece.start,
                "end": piece.end,
                "position": epoch * table.tasks + place,
            }
        )
    return rows


def lay_out(connection: sa.Connection, job: DispatchJob) -> str | None:
    """Lay out the next tasks of the job, or end it; the queue was seen empty.

    Returns None if there may be free tasks, "WAIT" if there are none now, or the state in which the job has ended. One
    process does it at a time: the others wait for the job's row.
    """
    row = connection.execute(queries.locked_job, {"job_id": job.id}).one()
    if row.state != RUNNING:
        return str(row.state)
    # A statement of its own: while the one before waited for the lock, another process may have changed these.
    queue = connection.execute(queries.queue, {"job_id": job.id, "task_type": int(job.type)}).one()
    if queue.any_todo:
        return None  # another process was faster
    epoch, laid_out = row.epoch, row.laid_out
    if laid_out >= row.tasks:
        last = job.num_epochs > 0 and epoch + 1 >= job.num_epochs
        if (last or job.barrier) and queue.any_doing:
            return TaskType.WAIT.name
        if last:
            return _end(connection, job)
        epoch, laid_out = epoch + 1, 0
    places = range(laid_out, min(laid_out + BATCH, row.tasks))
    connection.execute(tasks.insert(), rows_of(job, job.table, job.type, epoch, places))
    connection.execute(queries.mark_laid_out, {"job_id": job.id, "of_epoch": epoch, "count": places.stop})
    return None


def _end(connection: sa.Connection, job: DispatchJob) -> str | None:
    """End a job whose epochs are done; None while evaluations and the callback are not."""
    others = {"job_id": job.id, "types": [int(TaskType.EVALUATION), int(TaskType.TRAIN_END_CALLBACK)]}
    if any(connection.execute(query, others).first() is not None for query in (queries.any_doing, queries.any_todo)):
        return None
    mine = (tasks.c.job == job.id,)
    failed = connection.execute(sa.select(tasks.c.id).where(*mine, tasks.c.state == FAILED).limit(1)).first()
    if failed is None and job.type == TaskType.TRAINING and job.train_end_callback:
        callback = (*mine, tasks.c.type == int(TaskType.TRAIN_END_CALLBACK))
        if connection.execute(sa.select(tasks.c.id).where(*callback)).first() is None:
            connection.execute(tasks.insert().values(_callback_row(job)))
            return None
    state = FINISHED if failed is None else ABANDONED
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=state))
    return state


def _callback_row(job: DispatchJob) -> dict[str, Any]:
    # ElasticDL gives it the first records, for callbacks that export a model and need a batch for its shapes.
    piece = job.table.piece(0)
    return {
        "job": job.id,
        "type": int(TaskType.TRAIN_END_CALLBACK),
        "epoch": 0,
        "number": 0,
        "shard": piece.shard,
        "start": piece.start,
        "end": piece.end,
        "position": 0,
    }
