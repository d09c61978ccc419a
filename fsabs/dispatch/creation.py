"""Creating a job: its settings and shards are checked first, then written in one transaction."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..core import errors
from ..readers.data import Mode, Shard, TaskType
from .layout import DispatchJob, load_job, rows_of
from .plan import ShardTable, checked_shards
from .schema import RUNNING, jobs, now, shards, tasks

_TYPES = {
    Mode.TRAINING: TaskType.TRAINING,
    Mode.EVALUATION: TaskType.EVALUATION,
    Mode.PREDICTION: TaskType.PREDICTION,
}
_MAX = 2**63 - 1


class Settings(NamedTuple):
    """The settings of a job; as of `TaskDispatcher.create`."""

    records_per_task: int
    num_epochs: int
    seed: int | None
    shuffle_records: bool
    lease_seconds: float
    max_failures: int
    barrier: bool
    train_end_callback: bool

    def check(self) -> None:
        """Raise `ValueError` for a value that makes no sense."""
        if self.records_per_task < 1:
            raise ValueError(f"records_per_task is at least 1, not {self.records_per_task}")
        if not (self.lease_seconds > 0 and math.isfinite(self.lease_seconds)):
            raise ValueError(f"lease_seconds is positive and finite, not {self.lease_seconds}")
        if self.max_failures < 0:
            raise ValueError(f"max_failures is not negative, as {self.max_failures} is")
        if self.seed is not None and not -_MAX <= self.seed <= _MAX:
            raise ValueError(f"seed has at most 63 bits, and {self.seed} has more")
        if self.shuffle_records and self.seed is None:
            raise ValueError("shuffle_records needs a seed")


class Description(NamedTuple):
    """A job that is to be written."""

    settings: Settings
    type: TaskType
    """Of the tasks of its epochs."""
    tables: dict[TaskType, ShardTable]

    def row(self) -> dict[str, Any]:
        """Return the values of the job's row."""
        values = self.settings._asdict()
        values["num_epochs"] = max(0, self.settings.num_epochs)
        return {**values, "type": int(self.type), "tasks": self.tables[self.type].tasks}


def describe(settings: Settings, sources: Mapping[str, Any]) -> Description:
    """Return the description of a job with these settings and sources of shards, by mode.

    Raises `ValueError` and `TypeError` for what can't be a job.
    """
    settings.check()
    if Mode.TRAINING in sources and Mode.PREDICTION in sources:
        raise ValueError("a job trains or predicts, not both: create two jobs")
    if not sources:
        raise ValueError("a job needs training, evaluation or prediction shards")
    tables = {
        _TYPES[mode]: ShardTable(checked_shards(source, mode), settings.records_per_task)
        for mode, source in sources.items()
    }
    main = next(type for type in (TaskType.TRAINING, TaskType.PREDICTION, TaskType.EVALUATION) if type in tables)
    if main != TaskType.TRAINING:
        settings = settings._replace(num_epochs=1)  # evaluating and predicting is one pass
    return Description(settings, main, tables)


def insert(connection: sa.Connection, name: str, description: Description, exist_ok: bool, url: str) -> None:
    """Write a job, or find it written with `exist_ok`; `FileExistsError`."""
    values = {**description.row(), "name": name, "created": now(), "state": RUNNING}
    if not insert_missing(connection, jobs, values):
        there = load_job(connection, name, url)
        if not exist_ok:
            raise errors.error(errno.EEXIST, "create", url, f"there is a job {name!r}: exist_ok=True opens it")
        if not _same(connection, there, description):
            raise errors.error(errno.EEXIST, "create", url, f"job {name!r} has other shards or settings")
        return
    job = connection.execute(sa.select(jobs.c.id).where(jobs.c.name == name)).scalar_one()
    for type, table in description.tables.items():
        rows = [
            {
                "job": job,
                "type": int(type),
                "number": number,
                "name": shard.name,
                "start": shard.start,
                "count": shard.count,
                "first_task": first,
            }
            for number, (shard, first) in enumerate(zip(table.shards, table.first_tasks, strict=True))
        ]
        connection.execute(shards.insert(), rows)


def _same(connection: sa.Connection, there: DispatchJob, description: Description) -> bool:
    wanted = description.row()
    row = connection.execute(sa.select(*(jobs.c[name] for name in wanted)).where(jobs.c.id == there.id)).one()
    tables: dict[TaskType, list[Shard]] = {there.type: there.table.shards}
    if there.evaluation is not None:
        tables[TaskType.EVALUATION] = there.evaluation.shards
    return dict(row._mapping) == wanted and tables == {type: table.shards for type, table in description.tables.items()}


def evaluate(connection: sa.Connection, job: DispatchJob, model_version: int) -> int:
    """Lay out the evaluation shards for a version of the model; return how many tasks are new."""
    if job.evaluation is None or job.type == TaskType.EVALUATION:
        raise ValueError(f"job {job.name!r} has no evaluation shards beside those of its epochs")
    row = connection.execute(sa.select(jobs.c.state).where(jobs.c.id == job.id).with_for_update()).one()
    if row.state != RUNNING:
        raise ValueError(f"job {job.name!r} is {row.state}: there is nothing more to evaluate")
    laid_out = sa.select(tasks.c.id).where(
        tasks.c.job == job.id, tasks.c.type == int(TaskType.EVALUATION), tasks.c.epoch == model_version
    )
    if connection.execute(laid_out.limit(1)).first() is not None:
        return 0
    rows = rows_of(job, job.evaluation, TaskType.EVALUATION, model_version, range(job.evaluation.tasks))
    connection.execute(tasks.insert(), rows)
    return len(rows)


def insert_missing(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless there is one of that key; return True if it was inserted."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(**values).on_conflict_do_nothing().returning(sa.literal(1))
    return connection.execute(statement).first() is not None
