"""The state of a job as plain data, and a job put back to such a state.

Tasks are laid out in batches, so that those which are laid out and not done are few: a state lists them, and every
other task that was laid out by then is done. Putting a job back removes the tasks that were laid out later and opens
those that were done later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import sqlalchemy as sa

from ..readers.data import TaskType
from .layout import DispatchJob
from .plan import permutation
from .schema import DONE, RUNNING, TODO, jobs, tasks

FORMAT = 1
_CHUNK = 500
"""Tasks that a statement names at most."""


def take(connection: sa.Connection, job: DispatchJob) -> dict[str, Any]:
    """Return the state of a job."""
    # The job's row first: while it is locked, no tasks are laid out.
    row = connection.execute(sa.select(jobs).where(jobs.c.id == job.id).with_for_update()).one()
    left = sa.select(tasks).where(tasks.c.job == job.id, tasks.c.state != DONE).order_by(tasks.c.id)
    done = tasks.c.type != int(job.type)  # evaluations and the callback are listed, done or not
    others = sa.select(tasks.c.type, tasks.c.epoch, tasks.c.number).where(tasks.c.job == job.id, done)
    return {
        "format": FORMAT,
        "job": job.name,
        "content": _content(job),
        "epoch": row.epoch,
        "laid_out": row.laid_out,
        "open": [
            [one.type, one.epoch, one.number, one.progress, one.failures, one.position]
            for one in connection.execute(left)
        ],
        "others": [list(one) for one in connection.execute(others)],
    }


def _content(job: DispatchJob) -> list[Any]:
    shards = job.table.shards
    return [int(job.type), job.table.records_per_task, job.seed, len(shards), sum(shard.count for shard in shards)]


def restore(connection: sa.Connection, job: DispatchJob, state: Mapping[str, Any]) -> None:
    """Put a job back to a state; `ValueError` for one of another job."""
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise ValueError(f"not a state of a job: {state!r}")
    if state["job"] != job.name or state["content"] != _content(job):
        raise ValueError(
            f"the state is of job {state['job']!r} with (type, records_per_task, seed, shards, records) "
            f"{state['content']}, not of {job.name!r} with {_content(job)}"
        )
    row = connection.execute(sa.select(jobs).where(jobs.c.id == job.id).with_for_update()).one()
    epoch, laid_out = state["epoch"], state["laid_out"]
    if (row.epoch, row.laid_out) < (epoch, laid_out):
        raise ValueError(f"job {job.name!r} is not as far as the state says: was it reset?")
    mine = (tasks.c.job == job.id,)
    connection.execute(tasks.delete().where(*mine, tasks.c.type == int(job.type), tasks.c.epoch > epoch))
    later = range(laid_out, row.laid_out if row.epoch == epoch else job.table.tasks)
    for numbers in _chunks(map(permutation(job.table.tasks, job.seed, epoch), later)):
        of_epoch = (*mine, tasks.c.type == int(job.type), tasks.c.epoch == epoch)
        connection.execute(tasks.delete().where(*of_epoch, tasks.c.number.in_(numbers)))
    _keep_others(connection, job, {tuple(one) for one in state["others"]})
    # What was open then and is not listed would have to be done; what is listed is open again.
    connection.execute(
        tasks.update()
        .where(*mine, tasks.c.state != DONE)
        .values(state=DONE, progress=tasks.c.end - tasks.c.start, lease=None, worker=None)
    )
    for type, of, number, progress, failures, position in state["open"]:
        one = (*mine, tasks.c.type == type, tasks.c.epoch == of, tasks.c.number == number)
        values = {"progress": progress, "before": progress, "failures": failures, "position": position}
        found = connection.execute(tasks.update().where(*one).values(state=TODO, lease=None, worker=None, **values))
        if found.rowcount != 1:
            raise ValueError(f"task {number} of epoch {of} is not there any more: was job {job.name!r} reset?")
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=RUNNING, epoch=epoch, laid_out=laid_out))


def _keep_others(connection: sa.Connection, job: DispatchJob, kept: set[tuple[Any, ...]]) -> None:
    """Remove evaluations and the callback that were laid out later."""
    found = sa.select(tasks.c.id, tasks.c.type, tasks.c.epoch, tasks.c.number).where(
        tasks.c.job == job.id, tasks.c.type.in_([int(TaskType.EVALUATION), int(TaskType.TRAIN_END_CALLBACK)])
    )
    if job.type == TaskType.EVALUATION:
        found = found.where(tasks.c.type != int(job.type))
    gone = [one.id for one in connection.execute(found).all() if tuple(one)[1:] not in kept]
    for ids in _chunks(gone):
        connection.execute(tasks.delete().where(tasks.c.id.in_(ids)))


def _chunks(values: Iterable[int]) -> Iterator[Sequence[int]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk
