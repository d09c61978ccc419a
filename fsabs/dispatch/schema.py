"""The tables of a dispatcher: data definitions, the schema's version, and how an older one is migrated.

A job has shards; an epoch of it is cut into tasks, numbered from 0. The row of a task is also the ledger: (job, type,
epoch, number) is unique, and a row in the state `DONE` accounts for its records once. Tasks are laid out in batches
when they are needed, so that creating a job and beginning an epoch cost as little with a million tasks as with ten.
Times are seconds since 1970 by the database's clock.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles

from ..core import errors

VERSION = 3
"""The version of this schema. A change gets the next number and a step in `MIGRATIONS`."""

TODO, DOING, DONE, FAILED = range(4)
"""States of a task."""
STATES = ("todo", "doing", "done", "failed")
MAX_DISPATCHES = 10
"""How often a task is dispatched to workers that disappear before they account for a record of it."""

RUNNING, FINISHED, ABANDONED = "running", "finished", "failed"
"""States of a job."""

metadata = sa.MetaData()
_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # SQLite numbers rows of INTEGER alone

version = sa.Table("fsabs_dispatch", metadata, sa.Column("version", sa.Integer, nullable=False))

jobs = sa.Table(
    "fsabs_job",
    metadata,
    sa.Column("id", _id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    sa.Column("state", sa.Text, nullable=False, server_default=RUNNING),
    sa.Column("type", sa.SmallInteger, nullable=False),  # of the tasks of its epochs: TRAINING or PREDICTION
    sa.Column("num_epochs", _id, nullable=False),  # 0: endless
    sa.Column("records_per_task", _id, nullable=False),
    sa.Column("seed", _id),  # None: in the order of the shards
    sa.Column("shuffle_records", sa.Boolean, nullable=False),
    sa.Column("lease_seconds", sa.Float, nullable=False),
    sa.Column("max_failures", sa.Integer, nullable=False),
    sa.Column("barrier", sa.Boolean, nullable=False),
    sa.Column("train_end_callback", sa.Boolean, nullable=False),
    sa.Column("tasks", _id, nullable=False),  # of one epoch
    sa.Column("epoch", _id, nullable=False, server_default="0"),  # the last one that tasks are laid out of
    sa.Column("laid_out", _id, nullable=False, server_default="0"),  # how many of its tasks
    sa.Column("created", sa.Float, nullable=False),
)

shards = sa.Table(
    "fsabs_shard",
    metadata,
    sa.Column("job", _id, sa.ForeignKey("fsabs_job.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("type", sa.SmallInteger, primary_key=True),
    sa.Column("number", _id, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("start", _id, nullable=False),
    sa.Column("count", _id, nullable=False),
    sa.Column("first_task", _id, nullable=False),  # the number of its first task
)

tasks = sa.Table(
    "fsabs_task",
    metadata,
    sa.Column("id", _id, primary_key=True),
    sa.Column("job", _id, sa.ForeignKey("fsabs_job.id", ondelete="CASCADE"), nullable=False),
    sa.Column("type", sa.SmallInteger, nullable=False),
    sa.Column("epoch", _id, nullable=False),  # of an evaluation: the model's version
    sa.Column("number", _id, nullable=False),
    sa.Column("shard", sa.Text, nullable=False),
    sa.Column("start", _id, nullable=False),
    sa.Column("end", _id, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("position", _id, nullable=False),  # the order of dispatch, through all epochs
    sa.Column("lease", _id),  # of the last dispatch
    sa.Column("worker", sa.Text),
    sa.Column("deadline", sa.Float),
    sa.Column("dispatches", sa.Integer, nullable=False, server_default="0"),  # without a record accounted for
    sa.Column("progress", _id, nullable=False, server_default="0"),  # records accounted for
    sa.Column("before", _id, nullable=False, server_default="0"),  # the progress when it was dispatched last
    sa.Column("failures", sa.Integer, nullable=False, server_default="0"),
    sa.Column("reason", sa.Text),  # of the last failure
    sa.Column("failed_by", sa.Text),  # the worker that failed on it first
    sa.UniqueConstraint("job", "type", "epoch", "number"),
)

_todo, _doing, _failed = (tasks.c.state == state for state in (TODO, DOING, FAILED))
_queue = (tasks.c.job, tasks.c.type, tasks.c.failures, tasks.c.position)
_queued = sa.Index("fsabs_queue", *_queue, sqlite_where=_todo, postgresql_where=_todo)
sa.Index("fsabs_doing", tasks.c.job, tasks.c.type, tasks.c.deadline, sqlite_where=_doing, postgresql_where=_doing)
sa.Index("fsabs_failed", tasks.c.job, sqlite_where=_failed, postgresql_where=_failed)

workers = sa.Table(
    "fsabs_worker",
    metadata,
    sa.Column("job", _id, sa.ForeignKey("fsabs_job.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("joined", sa.Float, nullable=False),
)


def _reorder(connection: sa.Connection) -> None:
    """Have the tasks of an epoch come in the readers' order; a job that is in the midst of the former one can't."""
    midst = sa.or_(sa.and_(jobs.c.laid_out > 0, jobs.c.laid_out < jobs.c.tasks), jobs.c.shuffle_records)
    seeded = sa.select(jobs.c.name).where(jobs.c.state == RUNNING, jobs.c.seed.is_not(None), midst)
    if (name := connection.execute(seeded).scalar()) is not None:
        raise errors.error(errno.EPROTO, "migrate", "", f"job {name!r} has begun: finish it with the former release")


def _queue_by_failures(connection: sa.Connection) -> None:
    """Have the tasks that failed come last by their number of failures, in place of another position."""
    connection.execute(sa.text("ALTER TABLE fsabs_task ADD COLUMN failed_by TEXT"))
    connection.execute(sa.text("DROP INDEX fsabs_todo"))
    _queued.create(connection)


MIGRATIONS: dict[int, Callable[[sa.Connection], None]] = {1: _reorder, 2: _queue_by_failures}
"""The step from a version to the next one, by the older version."""


class now(sa.sql.functions.FunctionElement[float]):  # noqa: N801 - an SQL function
    """The database's clock, in seconds since 1970; not the time at which the transaction began."""

    inherit_cache = True
    type = sa.Float()


class unflushed(sa.sql.functions.FunctionElement[str]):  # noqa: N801 - an SQL function
    """Have the transaction not wait for the disk, where PostgreSQL would: a lease that it forgets is not in force."""

    inherit_cache = True
    type = sa.Text()


@compiles(unflushed, "sqlite")
def _unflushed_of_sqlite(element: unflushed, compiler: Any, **options: Any) -> str:
    return "''"


@compiles(unflushed, "postgresql")
def _unflushed_of_postgresql(element: unflushed, compiler: Any, **options: Any) -> str:
    return "set_config('synchronous_commit', 'off', true)"


@compiles(now, "sqlite")
def _now_of_sqlite(element: now, compiler: Any, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_of_postgresql(element: now, compiler: Any, **options: Any) -> str:
    return "extract(epoch from clock_timestamp())::float8"
