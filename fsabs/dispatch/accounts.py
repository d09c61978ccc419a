"""The accounts of a job: its counters, ledger and failed tasks; and what puts tasks back.

Each function is (part of) a transaction.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from ..readers.data import TaskType
from . import queries
from .layout import DispatchJob
from .schema import FAILED, RUNNING, STATES, TODO, jobs, tasks
from .status import Counters, FailedTask, LedgerEntry, Status

PAGE = 10_000
"""Entries of the ledger that are read at once."""


def status(connection: sa.Connection, job: DispatchJob) -> Status:
    """Return the counters of a job."""
    row = connection.execute(sa.select(jobs).where(jobs.c.id == job.id)).one()
    values = {"job_id": job.id, "task_type": int(job.type)}
    current = _counters(connection.execute(queries.count_of_epoch, {**values, "of_epoch": row.epoch}))
    current = current._replace(todo=current.todo + row.tasks - row.laid_out)
    evaluation = Counters()
    if job.evaluates and job.type != TaskType.EVALUATION:
        values["task_type"] = int(TaskType.EVALUATION)
        evaluation = _counters(connection.execute(queries.count_by_state, values))
    held = connection.execute(queries.by_worker, {"job_id": job.id, "seconds": job.lease_seconds}).all()
    holders = {name: count for name, count, _ in held if name is not None}
    late = sum(late for _, _, late in held)
    return Status(job.name, row.state, row.epoch, row.num_epochs, current, evaluation, holders, late)


def _counters(rows: Any) -> Counters:
    counts, records = dict.fromkeys(STATES, 0), 0
    for state, count, progress in rows:
        counts[STATES[state]] = count
        records += int(progress)
    return Counters(**counts, records=records)


def ledger(connection: sa.Connection, job: DispatchJob, epoch: int, after: int) -> list[LedgerEntry]:
    """Return the next tasks of an epoch behind number `after`; none at its end."""
    wanted = (tasks.c.job == job.id, tasks.c.type == job.type, tasks.c.epoch == epoch, tasks.c.number > after)
    page = sa.select(tasks).where(*wanted).order_by(tasks.c.number).limit(PAGE)
    return [
        LedgerEntry(row.number, row.shard, row.start, row.end, row.progress, STATES[row.state])
        for row in connection.execute(page)
    ]


def failed(connection: sa.Connection, job: DispatchJob) -> list[FailedTask]:
    """Return the tasks that failed for good."""
    return [
        FailedTask(
            row.id, TaskType(row.type), row.epoch, row.shard, row.start, row.end, row.progress, row.failures, row.reason
        )
        for row in connection.execute(queries.all_failed, {"job_id": job.id})
    ]


def retry(connection: sa.Connection, job: DispatchJob) -> int:
    """Put the failed tasks back; return how many."""
    mine = (tasks.c.job == job.id, tasks.c.state == FAILED)
    back = connection.execute(tasks.update().where(*mine).values(state=TODO, failures=0).returning(tasks.c.id)).all()
    if back:
        connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=RUNNING))
    return len(back)


def reset(connection: sa.Connection, job: DispatchJob) -> None:
    """Forget all that was done."""
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=RUNNING, epoch=0, laid_out=0))
    connection.execute(tasks.delete().where(tasks.c.job == job.id))
