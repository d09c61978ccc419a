"""A job: its shards cut into numbered tasks, the order of the tasks in an epoch, creating it, and laying out its tasks.

A task's records follow from its number alone, and the number at each place of an epoch from (seed, epoch, place) alone:
the readers' shuffle. So tasks can be laid out in parts, by any process, at any time.
"""

from __future__ import annotations

import bisect
import dataclasses
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


@dataclasses.dataclass
class ShardTable:
    """Shards, each cut into tasks of `records_per_task` records and a rest."""

    shards: list[Shard]
    records_per_task: int

    def __post_init__(self) -> None:
        sizes = [-(-shard.count // self.records_per_task) for shard in self.shards]
        *self.first_tasks, self.tasks = itertools.accumulate(sizes, initial=0)

    def piece(self, number: int) -> Shard:
        """Return the records of task `number`."""
        at = bisect.bisect_right(self.first_tasks, number) - 1
        shard = self.shards[at]
        start = shard.start + (number - self.first_tasks[at]) * self.records_per_task
        return Shard(shard.name, start, min(self.records_per_task, shard.end - start))


@functools.lru_cache(4)  # each batch of tasks that is laid out asks for it
def order_of(size: int, seed: int | None, epoch: int) -> Numbers:
    """Return the numbers of an epoch's tasks in the order of their dispatch; None as the seed is their own order."""
    numbers = np.arange(size, dtype=np.int64)
    if seed is None:
        return numbers
    return np.argsort(shuffled(numbers, key_of(seed, epoch)), kind="stable").astype(np.int64)


def shuffled_numbers(piece: Shard, seed: int | None, epoch: int, number: int) -> tuple[int, ...]:
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

    id: int | None
    """None before it is written."""
    name: str
    type: TaskType
    """Of the tasks of its epochs."""
    settings: Settings
    tables: dict[TaskType, ShardTable]
    """Its shards: those of its epochs, and those of evaluations beside them."""

    @property
    def table(self) -> ShardTable:
        """The shards of its epochs."""
        return self.tables[self.type]

    @property
    def evaluates(self) -> bool:
        """True if the job has evaluation shards beside those of its epochs."""
        return len(self.tables) > 1


def load_job(connection: sa.Connection, name: str, url: str) -> DispatchJob:
    """Return a job; `FileNotFoundError` that names those there are."""
    row = connection.execute(sa.select(jobs).where(jobs.c.name == name)).first()
    if row is None:
        there = connection.execute(sa.select(jobs.c.name).order_by(jobs.c.name)).scalars().all()
        known = f"there are {', '.join(map(repr, there))}" if there else "there is none"
        raise errors.error(errno.ENOENT, "open", url, f"no job is called {name!r}; {known}")
    found: defaultdict[TaskType, list[Shard]] = defaultdict(list)
    for type, *shard in connection.execute(queries.all_shards, {"job_id": row.id}):
        found[TaskType(type)].append(Shard(*shard))
    settings = Settings(*(getattr(row, name) for name in Settings._fields))
    tables = {type: ShardTable(own, settings.records_per_task) for type, own in found.items()}
    return DispatchJob(row.id, name, TaskType(row.type), settings, tables)


def rows_of(job: DispatchJob, type: TaskType, positions: Iterable[int]) -> list[dict[str, Any]]:
    """Return the rows of the tasks at these positions, which count through all epochs."""
    table = job.tables.get(type, job.table)  # the callback has the first records of the job
    rows = []
    for position in positions:
        epoch, place = divmod(position, table.tasks)
        number = int(order_of(table.tasks, job.settings.seed if type == job.type else None, epoch)[place])
        piece = table.piece(number)
        rows.append(
            {
                "job": job.id,
                "type": int(type),
                "epoch": epoch,
                "number": number,
                "shard": piece.name,
                "start": piece.start,
                "end": piece.end,
                "position": position,
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
    end = min(laid_out + BATCH, row.tasks)
    positions = range(epoch * row.tasks + laid_out, epoch * row.tasks + end)
    connection.execute(tasks.insert(), rows_of(job, job.type, positions))
    connection.execute(queries.mark_laid_out, {"job_id": job.id, "of_epoch": epoch, "count": end})
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
            connection.execute(tasks.insert(), rows_of(job, TaskType.TRAIN_END_CALLBACK, [0]))
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


def describe(name: str, settings: Settings, sources: Mapping[str, Any]) -> DispatchJob:
    """Return the job with these settings and sources of shards, by mode, that is to be written.

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
    # Evaluating and predicting is one pass.
    num_epochs = max(0, settings.num_epochs) if main == TaskType.TRAINING else 1
    return DispatchJob(None, name, main, settings._replace(num_epochs=num_epochs), tables)


def insert(connection: sa.Connection, job: DispatchJob, exist_ok: bool, url: str) -> None:
    """Write a job, or find it written with `exist_ok`; `FileExistsError`."""
    values = {**job.settings._asdict(), "type": int(job.type), "tasks": job.table.tasks}
    if not insert_missing(connection, jobs, {**values, "name": job.name, "created": now(), "state": RUNNING}):
        if not exist_ok:
            raise errors.error(errno.EEXIST, "create", url, f"there is a job {job.name!r}: exist_ok=True opens it")
        if load_job(connection, job.name, url)._replace(id=None) != job:
            raise errors.error(errno.EEXIST, "create", url, f"job {job.name!r} has other shards or settings")
        return
    id = connection.execute(sa.select(jobs.c.id).where(jobs.c.name == job.name)).scalar_one()
    for type, table in job.tables.items():
        rows = [
            {
                "job": id,
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


def evaluate(connection: sa.Connection, job: DispatchJob, model_version: int) -> int:
    """Lay out the evaluation shards for a version of the model; return how many tasks are new."""
    if not job.evaluates:
        raise ValueError(f"job {job.name!r} has no evaluation shards beside those of its epochs")
    row = connection.execute(queries.locked_job, {"job_id": job.id}).one()
    if row.state != RUNNING:
        raise ValueError(f"job {job.name!r} is {row.state}: there is nothing more to evaluate")
    laid_out = sa.select(tasks.c.id).where(
        tasks.c.job == job.id, tasks.c.type == int(TaskType.EVALUATION), tasks.c.epoch == model_version
    )
    if connection.execute(laid_out.limit(1)).first() is not None:
        return 0
    count = job.tables[TaskType.EVALUATION].tasks
    rows = rows_of(job, TaskType.EVALUATION, range(model_version * count, (model_version + 1) * count))
    connection.execute(tasks.insert(), rows)
    return len(rows)


def insert_missing(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any]) -> bool:
    """Insert a row unless there is one of that key; return True if it was inserted."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(**values).on_conflict_do_nothing().returning(sa.literal(1))
    return connection.execute(statement).first() is not None
