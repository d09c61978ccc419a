"""A job: its shards cut into numbered tasks, the order of the tasks in an epoch, creating it, and laying out its tasks.

A task's records follow from its number alone, and the number at each place of an epoch from (seed, epoch, place) alone:
the readers' shuffle. So tasks can be laid out in parts, by any process, at any time.
"""

from __future__ import annotations

import bisect
import errno
import functools
import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ..core import errors
from ..readers.data import Mode, Shard, TaskType, shards_of
from ..readers.data.order import Numbers, key_of, shuffled
from . import queries
from .schema import ABANDONED, FAILED, FINISHED, RUNNING, jobs, now, shards, tasks

_MAX = 2**63 - 1  # of the integers of the database
BATCH = 1000
"""How many tasks are laid out at once."""


class TaskRecords(NamedTuple):
    """The records of a task."""

    shard: str
    start: int
    end: int


class ShardTable:
    """Shards, each cut into tasks of `records_per_task` records and a rest."""

    def __init__(self, shards: Iterable[Shard], records_per_task: int) -> None:
        self.shards = list(shards)
        self.records_per_task = records_per_task
        self.first_tasks: list[int] = []
        self.tasks = 0
        for shard in self.shards:
            self.first_tasks.append(self.tasks)
            self.tasks += -(-shard.count // records_per_task)

    def piece(self, number: int) -> TaskRecords:
        """Return the records of task `number`."""
        at = bisect.bisect_right(self.first_tasks, number) - 1
        shard = self.shards[at]
        start = shard.start + (number - self.first_tasks[at]) * self.records_per_task
        return TaskRecords(shard.name, start, min(start + self.records_per_task, shard.end))


@functools.lru_cache(4)  # each batch of tasks that is laid out asks for it
def order_of(size: int, seed: int | None, epoch: int) -> Numbers:
    """Return the numbers of an epoch's tasks in the order of their dispatch; None as the seed is their own order."""
    numbers = np.arange(size, dtype=np.int64)
    if seed is None:
        return numbers
    return np.argsort(shuffled(numbers, key_of(seed, epoch)), kind="stable").astype(np.int64)


def shuffled_numbers(piece: TaskRecords, seed: int | None, epoch: int, number: int) -> tuple[int, ...]:
    """Return the record numbers of a task in a seeded order, for jobs that shuffle records."""
    records = np.arange(piece.start, piece.end, dtype=np.int64)
    places = np.argsort(shuffled(records, key_of(seed or 0, epoch), number + 1), kind="stable")
    return tuple(records[places].tolist())


def checked_shards(source: Any, mode: str) -> list[Shard]:
    """Return the shards of a data reader (or shards in one of the shapes of `create_shards`), checked.

    Raises `ValueError` if there is no record, or if two shards overlap; `TypeError` for an unknown shape. Empty shards
    are left out with a warning.
    """
    reader: Any = source if hasattr(source, "create_shards") else SimpleNamespace(create_shards=lambda mode: source)
    found = shards_of(reader, mode)
    empty = [shard.name for shard in found if not shard.count]
    shards = [shard for shard in found if shard.count]
    if not shards:
        raise ValueError(f"there is no record to dispatch: {len(empty)} shards for {mode}, all of them empty")
    if empty:
        warnings.warn(f"{len(empty)} shards have no records and are left out, {empty[0]!r} first", stacklevel=3)
    by_name = defaultdict(list)
    for shard in shards:
        by_name[shard.name].append(shard)
    for same in by_name.values():
        same.sort()
        for one, following in itertools.pairwise(same):
            if following.start < one.end:
                raise ValueError(f"shards overlap: {tuple(one)} and {tuple(following)}")
    return shards


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


# ---- laying out the tasks of epochs, in batches, when the queue is empty; and the end of a job


class DispatchJob(NamedTuple):
    """The facts of a job that do not change."""

    id: int
    name: str
    type: TaskType
    """Of the tasks of its epochs."""
    settings: Settings
    table: ShardTable
    evaluation: ShardTable | None
    """Its evaluation shards."""

    @property
    def evaluates(self) -> bool:
        """True if the job has evaluation shards beside those of its epochs."""
        return self.evaluation is not None and self.type != TaskType.EVALUATION


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
        Settings(*(getattr(row, name) for name in Settings._fields)),
        _table(connection, row.id, type, row.records_per_task),
        evaluation if evaluation.tasks else None,
    )


def _table(connection: sa.Connection, job: int, type: TaskType, records_per_task: int) -> ShardTable:
    rows = connection.execute(queries.shards_of_type, {"job_id": job, "task_type": int(type)})
    return ShardTable((Shard(*row) for row in rows), records_per_task)


def rows_of(job: DispatchJob, table: ShardTable, type: TaskType, epoch: int, places: range) -> list[dict[str, Any]]:
    """Return the rows of the tasks at these places of an epoch's order."""
    order = order_of(table.tasks, job.settings.seed if type == job.type else None, epoch)
    rows = []
    for place, number in zip(places, order[places.start : places.stop].tolist(), strict=True):
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
        last = job.settings.num_epochs > 0 and epoch + 1 >= job.settings.num_epochs
        if (last or job.settings.barrier) and queue.any_doing:
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
    if failed is None and job.type == TaskType.TRAINING and job.settings.train_end_callback:
        callback = (*mine, tasks.c.type == int(TaskType.TRAIN_END_CALLBACK))
        if connection.execute(sa.select(tasks.c.id).where(*callback)).first() is None:
            # ElasticDL gives it the first records, for callbacks that export a model and need a batch for its shapes.
            connection.execute(tasks.insert(), rows_of(job, job.table, TaskType.TRAIN_END_CALLBACK, 0, range(1)))
            return None
    state = FINISHED if failed is None else ABANDONED
    connection.execute(jobs.update().where(jobs.c.id == job.id).values(state=state))
    return state


# ---- creating a job: its settings and shards are checked first, then written in one transaction


_TYPES = {
    Mode.TRAINING: TaskType.TRAINING,
    Mode.EVALUATION: TaskType.EVALUATION,
    Mode.PREDICTION: TaskType.PREDICTION,
}


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
    row = connection.execute(queries.locked_job, {"job_id": job.id}).one()
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
