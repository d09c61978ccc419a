"""The accounts of a job: its counters, ledger and failed tasks; what puts tasks back; and its state as plain data.

Each function with a connection is (part of) a transaction.

Tasks are laid out in batches, so that those which are laid out and not done are few: a state lists them, and every
other task that was laid out by then is done. Putting a job back to a state removes the tasks that were laid out later
and opens those that were done later.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from ..readers.data import TaskType
from . import queries
from .jobs import BATCH, DispatchJob, rows_of
from .schema import DONE, FAILED, RUNNING, STATES, TODO, jobs, tasks


class JobFailedError(OSError):
    """The job has ended, and tasks of it failed for good; `failed` lists them."""

    def __init__(self, job: str, failed: list[FailedTask]) -> None:
        self.job = job
        self.failed = failed
        first = f": {failed[0].shard_name} {failed[0].start} to {failed[0].end}: {failed[0].reason}" if failed else ""
        super().__init__(errno.ECANCELED, f"{len(failed)} tasks of job {job!r} failed{first}")

    def __reduce__(self) -> tuple[type[JobFailedError], tuple[str, list[FailedTask]]]:
        return JobFailedError, (self.job, self.failed)


class FailedTask(NamedTuple):
    """A task that failed more often than the job allows."""

    task_id: int
    type: TaskType
    epoch: int
    shard_name: str
    start: int
    end: int
    records: int
    """How many of its records were accounted for before."""
    failures: int
    reason: str


class Counters(NamedTuple):
    """Tasks by state, and records accounted for."""

    todo: int = 0
    """Free to be dispatched; tasks of the epoch that are not laid out yet are among them."""
    doing: int = 0
    done: int = 0
    failed: int = 0
    records: int = 0


class Status(NamedTuple):
    """The state of a job."""

    job: str
    state: str
    """`running`, `finished` or `failed`."""
    epoch: int
    num_epochs: int
    """0 if there is no end."""
    tasks: Counters
    """Of the current epoch."""
    evaluation: Counters
    """Of all model versions."""
    workers: dict[str, int]
    """How many tasks each worker holds now."""
    late: int
    """Tasks whose lease is over and that were not dispatched again yet."""
    suspects: dict[str, int]
    """Tasks that may end their workers: how often each was dispatched, thrice at least, without a record of it."""


class LedgerEntry(NamedTuple):
    """A task of an epoch, and how many of its records are accounted for."""

    number: int
    shard_name: str
    start: int
    end: int
    records: int
    state: str


PAGE = 10_000
"""Entries of the ledger that are read at once."""


def status(connection: sa.Connection, job: DispatchJob) -> Status:
    """Return the counters of a job."""
    row = connection.execute(sa.select(jobs).where(jobs.c.id == job.id)).one()
    values = {"job_id": job.id, "task_type": int(job.type)}
    current = _counters(connection.execute(queries.count_of_epoch, {**values, "of_epoch": row.epoch}))
    current = current._replace(todo=current.todo + row.tasks - row.laid_out)
    evaluation = Counters()
    if job.evaluates:
        values["task_type"] = int(TaskType.EVALUATION)
        evaluation = _counters(connection.execute(queries.count_by_state, values))
    held = connection.execute(queries.by_worker, {"job_id": job.id, "seconds": job.settings.lease_seconds}).all()
    holders = {name: count for name, count, _ in held if name is not None}
    late = sum(late for _, _, late in held)
    found = connection.execute(queries.suspects, {"job_id": job.id})
    suspects = {f"{shard} {start} to {end}": count for shard, start, end, count in found}
    return Status(job.name, row.state, row.epoch, row.num_epochs, current, evaluation, holders, late, suspects)


def _counters(rows: Any) -> Counters:
    counts, records = dict.fromkeys(STATES, 0), 0
    for state, count, progress in rows:
        counts[STATES[state]] = count
        records += int(progress)
    return Counters(**counts, records=records)


def ledger(connection: sa.Connection, job: DispatchJob, epoch: int, after: int) -> list[LedgerEntry]:
    """Return the next tasks of an epoch after number `after`; none at its end."""
    wanted = (tasks.c.job == job.id, tasks.c.type == job.type, tasks.c.epoch == epoch, tasks.c.number > after)
    page = sa.select(tasks).where(*wanted).order_by(tasks.c.number).limit(PAGE)
    return [
        LedgerEntry(row.number, row.shard, row.start, row.end, row.progress, STATES[row.state])
        for row in connection.execute(page)
    ]


def failed(connection: sa.Connection, job: DispatchJob) -> list[FailedTask]:
    """Return the tasks that failed for good."""
    rows = connection.execute(queries.all_failed, {"job_id": job.id})
    return [FailedTask(id, TaskType(type), *others) for id, type, *others in rows]


def retry(connection: sa.Connection, job: DispatchJob) -> int:
    """Put the failed tasks back; return how many."""
    mine = (tasks.c.job == job.id, tasks.c.state == FAILED)
    back = connection.execute(
        tasks.update().where(*mine).values(state=TODO, failures=0, failed_by=None, dispatches=0).returning(tasks.c.id)
    ).all()
    if back:
        connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=RUNNING))
    return len(back)


def reset(connection: sa.Connection, job: DispatchJob) -> None:
    """Forget all that was done."""
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=RUNNING, epoch=0, laid_out=0))
    connection.execute(tasks.delete().where(tasks.c.job == job.id))


FORMAT = 3


# ---- states


def state_of(connection: sa.Connection, job: DispatchJob) -> dict[str, Any]:
    """Return the state of a job."""
    # The job's row first: while it is locked, no tasks are laid out.
    row = connection.execute(queries.locked_job, {"job_id": job.id}).one()
    left = sa.select(tasks).where(tasks.c.job == job.id, tasks.c.state != DONE).order_by(tasks.c.id)
    done = tasks.c.type != int(job.type)  # evaluations and the callback are listed, done or not
    others = sa.select(tasks.c.type, tasks.c.epoch, tasks.c.number).where(tasks.c.job == job.id, done)
    return {
        "format": FORMAT,
        "job": job.name,
        "content": _content(job),
        "epoch": row.epoch,
        "laid_out": row.laid_out,
        "open": [[one.type, one.epoch, one.number, one.progress, one.failures] for one in connection.execute(left)],
        "others": [list(one) for one in connection.execute(others)],
    }


def _content(job: DispatchJob) -> list[Any]:
    shards = job.table.shards
    return [
        int(job.type),
        job.table.records_per_task,
        job.settings.seed,
        len(shards),
        sum(shard.count for shard in shards),
        hashlib.sha256(repr([job.settings.shuffle_records, *map(tuple, shards)]).encode()).hexdigest(),
    ]


def restore(connection: sa.Connection, job: DispatchJob, state: Mapping[str, Any]) -> None:
    """Put a job back to a state; `ValueError` for one of another job."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT or "job" not in state:
        raise ValueError(f"not a state of a job: {state!r}")
    content = _content(job)
    if state["job"] != job.name or state["content"] != content:
        raise ValueError(
            f"the state is of job {state['job']!r} with (type, records_per_task, seed, shards, records, digest of the "
            f"shards) {state['content']}, not of {job.name!r} with {content}"
        )
    row = connection.execute(queries.locked_job, {"job_id": job.id}).one()
    begin = row.epoch * job.table.tasks + row.laid_out
    end = state["epoch"] * job.table.tasks + state["laid_out"]
    for at in range(begin, end, BATCH):  # a database that is older than the state lacks some of its tasks
        connection.execute(tasks.insert(), rows_of(job, job.type, range(at, min(at + BATCH, end))))
    mine = tasks.c.job == job.id
    is_of_epoch = tasks.c.type == int(job.type)
    is_later = sa.and_(tasks.c.epoch >= state["epoch"], tasks.c.position >= end)
    connection.execute(tasks.delete().where(mine, sa.or_(~is_of_epoch, is_later)))
    for type, epoch, number in state["others"]:
        position = epoch * job.tables.get(TaskType(type), job.table).tasks + number
        connection.execute(tasks.insert(), rows_of(job, TaskType(type), [position]))
    # What was open then and is not listed would have to be done; what is listed is open again.
    connection.execute(
        tasks.update()
        .where(mine, tasks.c.state != DONE)
        .values(state=DONE, progress=tasks.c.end - tasks.c.start, lease=None, worker=None)
    )
    for type, epoch, number, progress, failures in state["open"]:
        one = (mine, tasks.c.type == type, tasks.c.epoch == epoch, tasks.c.number == number)
        values = {"progress": progress, "before": progress, "failures": failures}
        found = connection.execute(tasks.update().where(*one).values(state=TODO, lease=None, worker=None, **values))
        if found.rowcount != 1:
            raise ValueError(
                f"task {number} of epoch {epoch} is gone: was job {job.name!r} reset, or were epochs forgotten?"
            )
    there = {"state": RUNNING, "epoch": state["epoch"], "laid_out": state["laid_out"]}
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(**there))
