"""The statements of a dispatcher, built once: SQLAlchemy keeps their compiled form by the object."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from .schema import DOING, DONE, FAILED, MAX_DISPATCHES, RUNNING, TODO, jobs, now, shards, tasks, unflushed, workers

_value = sa.bindparam
_ONE: sa.ColumnElement[int] = sa.literal_column("1")
"""The limit of a queue. With constants in the text, PostgreSQL plans a prepared statement once for all values."""


def _is(state: int) -> sa.ColumnElement[bool]:
    return tasks.c.state == sa.literal_column(str(state))


_mine = (
    tasks.c.id == _value("task_id"),
    tasks.c.job == _value("job_id"),
    tasks.c.lease == _value("with_lease"),
    tasks.c.state + sa.literal_column("0") == sa.literal_column(str(DOING)),
    tasks.c.deadline > now(),
)
"""The condition that a lease is in force.

The sum keeps PostgreSQL from the index of leased tasks, which it prefers to the primary key as long as it has no
statistics of the table: that index has an entry for each dispatch since the last vacuum.
"""

_DISPATCHED = (
    tasks.c.id,
    tasks.c.type,
    tasks.c.epoch,
    tasks.c.number,
    tasks.c.shard,
    tasks.c.start,
    tasks.c.end,
    tasks.c.progress,
)


_late = sa.or_(
    tasks.c.deadline <= now(),
    tasks.c.deadline > now() + _value("seconds", type_=sa.Float) + sa.literal_column("1"),
)
"""The condition that a lease of `seconds` is over: by its deadline, or because the clock was set back since."""


def _claim(candidate: sa.Select[Any]) -> sa.Update:
    return (
        tasks.update()
        .where(tasks.c.id == candidate.limit(_ONE).with_for_update(skip_locked=True).scalar_subquery())
        .values(
            state=DOING,
            lease=_value("new_lease"),
            worker=_value("new_worker"),
            deadline=now() + _value("seconds", type_=sa.Float),
            dispatches=tasks.c.dispatches + 1,
            before=tasks.c.progress,
        )
        .returning(*_DISPATCHED, unflushed().label("unflushed"))
    )


_poisonous = tasks.c.dispatches >= sa.literal_column(str(MAX_DISPATCHES))
_of_type = (tasks.c.job == _value("job_id"), tasks.c.type == _value("task_type"))
_queue = sa.select(tasks.c.id).where(*_of_type, ~_poisonous)

claim_todo = _claim(_queue.where(_is(TODO)).order_by(tasks.c.failures, tasks.c.position))
"""Lease the next free task of a type; those that failed come last."""
claim_late = _claim(_queue.where(_is(DOING), _late).order_by(tasks.c.deadline))
"""Lease the task of a type whose lease ended first."""
fail_poisonous = (
    tasks.update()
    .where(*_of_type, sa.or_(_is(TODO), sa.and_(_is(DOING), _late)), _poisonous)
    .values(
        state=FAILED,
        lease=None,
        reason=sa.literal(f"{MAX_DISPATCHES} workers disappeared with it, the last one: ")
        + sa.func.coalesce(tasks.c.worker, "one that was recovered"),
    )
)
"""Fail the tasks of a type whose workers disappear, each before it accounts for a record."""
suspects = (
    sa.select(tasks.c.shard, tasks.c.start, tasks.c.end, tasks.c.dispatches)
    .where(tasks.c.job == _value("job_id"), sa.or_(_is(TODO), _is(DOING)), tasks.c.dispatches > 2)
    .order_by(tasks.c.dispatches.desc(), tasks.c.id)
    .limit(10)
)
"""The tasks that were dispatched most often without a record accounted for."""
held = sa.select(*_DISPATCHED).where(
    tasks.c.job == _value("job_id"),
    tasks.c.type == _value("task_type"),
    _is(DOING),
    tasks.c.lease == _value("with_lease"),
)
"""The task that a lease is of."""

_reported = tasks.c.before + _value("records", type_=sa.BigInteger)
_gained = sa.case((_reported > tasks.c.progress, _reported), else_=tasks.c.progress)  # never less than before

settle = tasks.update().where(*_mine).values(state=DONE, progress=tasks.c.end - tasks.c.start).returning(tasks.c.id)
"""Account for all records of a leased task."""
settle_part = (
    tasks.update().where(*_mine).values(state=TODO, progress=_gained, dispatches=0, worker=None).returning(tasks.c.id)
)
"""Account for some records of a leased task; the others are free again."""
_others_can_try = sa.and_(
    sa.func.coalesce(tasks.c.failed_by, tasks.c.worker) == tasks.c.worker,
    sa.exists().where(workers.c.job == _value("job_id"), workers.c.name != tasks.c.worker),
)
"""The condition that a worker alone has failed on a task, and is not the only one of the job."""
_is_final = sa.and_(tasks.c.failures >= _value("max_failures", type_=sa.Integer), ~_others_can_try)
settle_failure = (
    tasks.update()
    .where(*_mine)
    .values(
        progress=_gained,
        dispatches=0,
        failures=tasks.c.failures + 1,
        failed_by=sa.func.coalesce(tasks.c.failed_by, tasks.c.worker),
        reason=_value("error"),
        worker=None,
        state=sa.case((_is_final, FAILED), else_=TODO),
    )
    .returning(tasks.c.state)
)
"""Record a failure of a leased task: it is free again, or fails for good."""
extend = (
    tasks.update()
    .where(*_mine)
    .values(
        deadline=now() + _value("seconds", type_=sa.Float),
        progress=_gained,
        dispatches=sa.case((_reported > tasks.c.progress, 0), else_=tasks.c.dispatches),
    )
    .returning(tasks.c.id)
)
"""Extend a lease, and account for some records."""
current_state = sa.select(tasks.c.state).where(
    tasks.c.id == _value("task_id"), tasks.c.job == _value("job_id"), tasks.c.lease == _value("with_lease")
)
"""The state of a task whose last dispatch had this lease."""

count_by_state = (
    sa.select(tasks.c.state, sa.func.count(), sa.func.sum(tasks.c.progress))
    .where(tasks.c.job == _value("job_id"), tasks.c.type == _value("task_type"))
    .group_by(tasks.c.state)
)
count_of_epoch = count_by_state.where(tasks.c.epoch == _value("of_epoch"))


def _any(state: int) -> sa.Select[Any]:
    """Return the query for one task of some types in a state."""
    types = tasks.c.type.in_(sa.bindparam("types", expanding=True))
    return sa.select(tasks.c.id).where(tasks.c.job == _value("job_id"), types, _is(state)).limit(_ONE)


any_doing, any_todo = _any(DOING), _any(TODO)
queue = sa.select(
    sa.exists().where(*_of_type, _is(TODO)).label("any_todo"),
    sa.exists().where(*_of_type, _is(DOING)).label("any_doing"),
)
"""Whether a queue has free tasks, and leased ones."""
_is_last_epoch = sa.and_(jobs.c.num_epochs > 0, jobs.c.epoch + 1 >= jobs.c.num_epochs)
waits_for_others = sa.select(jobs.c.id).where(
    jobs.c.id == _value("job_id"),
    jobs.c.state == RUNNING,
    jobs.c.laid_out >= jobs.c.tasks,
    sa.or_(jobs.c.barrier, _is_last_epoch),
    sa.exists().where(*_of_type, _is(DOING)),
    ~sa.exists().where(*_of_type, _is(TODO)),
    ~sa.exists().where(*_of_type, _is(DOING), _late),
)
"""The job, if all tasks of its epoch are done or leased, and nothing follows before the leased ones are done."""
locked_job = sa.select(jobs).where(jobs.c.id == _value("job_id")).with_for_update(key_share=True)
"""The job's row, locked for a change of its state. A full lock would wait for every transaction that refers to the row
by a foreign key. Those of workers that register do, and then wait for the row themselves: a deadlock."""
mark_laid_out = (
    jobs.update().where(jobs.c.id == _value("job_id")).values(epoch=_value("of_epoch"), laid_out=_value("count"))
)
all_failed = (  # in the order of `FailedTask`
    sa.select(
        *(tasks.c.id, tasks.c.type, tasks.c.epoch, tasks.c.shard, tasks.c.start, tasks.c.end, tasks.c.progress),
        *(tasks.c.failures, tasks.c.reason),
    )
    .where(tasks.c.job == _value("job_id"), _is(FAILED))
    .order_by(tasks.c.epoch, tasks.c.number)
)
by_worker = (
    sa.select(tasks.c.worker, sa.func.count(), sa.func.sum(sa.case((_late, 1), else_=0)))
    .where(tasks.c.job == _value("job_id"), _is(DOING))
    .group_by(tasks.c.worker)
)
release = (
    tasks.update()
    .where(
        tasks.c.job == _value("job_id"),
        tasks.c.worker == _value("of_worker"),
        _is(DOING),
    )
    .values(state=TODO, worker=None, lease=None)
    .returning(tasks.c.id)
)
"""Free the tasks of a worker that is gone."""
all_shards = (
    sa.select(shards.c.type, shards.c.name, shards.c.start, shards.c.count)
    .where(shards.c.job == _value("job_id"))
    .order_by(shards.c.type, shards.c.number)
)
