"""TaskDispatcher: hands the tasks of a job to workers that come and go, and accounts for each record once an epoch.

All state is in the database; any number of dispatchers (one in each worker, say) act on one job. A dispatch is a lease
with an id and a deadline by the database's clock. Only the holder of the lease in force can report on its task, so a
worker that was thought dead changes nothing when it comes back.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import sqlalchemy as sa

from ..core import hooks
from ..core.threads import Flag
from ..core.writing import ClosesOnExit
from ..readers.data import Mode, Task, TaskType
from . import accounts, jobs, queries
from .accounts import FailedTask, JobFailedError, LedgerEntry, Status
from .database import Database, Outage
from .schema import ABANDONED, DONE, FAILED, FINISHED, TODO, now, tasks, workers

if TYPE_CHECKING:
    from typing import Self

T = TypeVar("T")

_random = random.SystemRandom()
_MAX_REASON = 4000


class Dispatch(NamedTuple):
    """A task, and the lease under which it was handed out."""

    task: Task
    lease: int = 0
    """To be given to `report` and `renew`; 0 where there is nothing to report."""


class TaskDispatcher(ClosesOnExit):
    """The tasks of job `job` in the database at `url`.

    Made by `TaskDispatcher.create`, opened by its URL in each worker. Works in threads, in forked children and pickled.

    Args:
        url: `sqlite:///path` for the processes of one machine, `postgresql+psycopg://...` for those of many.
        job: the job's name.
        outage_seconds: how long calls wait for a database that does not answer, from the first one on that it failed.

    Raises `FileNotFoundError` if there is no such job, and an `OSError` if the tables are of another version.
    """

    def __init__(self, url: str, job: str = "default", *, outage_seconds: float = 120.0) -> None:
        self._database = Database(url, outage_seconds)
        self.job = job
        try:
            self._database.check()
            self._job: jobs.DispatchJob = self._database.run(
                "open", lambda connection: jobs.load_job(connection, job, self._database.url)
            )
        except BaseException:
            self._database.close()
            raise
        self._registered: set[str] = set()  # workers whose rows are in the database
        self.ended: Flag | None = None
        """When set, no call waits any more for a database that is away."""

    @classmethod
    def create(
        cls,
        url: str,
        job: str = "default",
        *,
        training: Any = None,
        evaluation: Any = None,
        prediction: Any = None,
        records_per_task: int,
        num_epochs: int = 1,
        seed: int | None = None,
        shuffle_records: bool = False,
        lease_seconds: float = 300.0,
        max_failures: int = 3,
        barrier: bool = True,
        train_end_callback: bool = True,
        exist_ok: bool = False,
        outage_seconds: float = 120.0,
    ) -> TaskDispatcher:
        """Create a job, and the tables if they are missing; return its dispatcher.

        Args:
            url, job, outage_seconds: as of the class.
            training, evaluation, prediction: data readers, or shards as their `create_shards` returns them. A job
                trains (and evaluates), or evaluates, or predicts.
            records_per_task: how many records a task has at most.
            num_epochs: how often the training shards are dispatched; 0 or less has no end.
            seed: of the order of the tasks, another one in each epoch; None keeps the order of the shards.
            shuffle_records: also shuffle the records within each task: a task then has `indices`.
            lease_seconds: how long a worker has until it reports or renews.
            max_failures: how often a task is tried again after a reported failure. It fails for good when another
                worker has failed on it, too, or there is no other. A lost worker is no failure; ten in succession that
                account for no record of a task are.
            barrier: begin an epoch only when every task of the one before has ended.
            train_end_callback: hand out one task of the type TRAIN_END_CALLBACK when training has ended.
            exist_ok: open a job of that name if it has the same shards and settings.

        Raises `FileExistsError` for a job that exists, `ValueError` for shards that overlap or hold no record.
        """
        settings = jobs.Settings(
            operator.index(records_per_task),
            operator.index(num_epochs),
            None if seed is None else operator.index(seed),
            shuffle_records,
            float(lease_seconds),
            operator.index(max_failures),
            barrier,
            train_end_callback,
        )
        sources = {Mode.TRAINING: training, Mode.EVALUATION: evaluation, Mode.PREDICTION: prediction}
        description = jobs.describe(job, settings, {mode: one for mode, one in sources.items() if one is not None})
        database = Database(url, outage_seconds)
        try:
            database.prepare()
            attempts: list[int] = []

            def insert(connection: sa.Connection) -> None:
                attempts.append(1)  # the first one may have been committed, though its connection was lost
                jobs.insert(connection, description, exist_ok or len(attempts) > 1, database.url)

            database.run("create", insert)
        finally:
            database.close()
        return cls(url, job, outage_seconds=outage_seconds)

    # ---- what a worker calls

    def get(self, worker_id: str | int, type: TaskType | None = None) -> Dispatch:
        """Lease the next task to a worker.

        Args:
            worker_id: the worker's name, unique among those that run.
            type: of the task; None takes evaluation tasks first, then those of the job's epochs.

        Returns a task of the type WAIT if none is free now but may be later, and one of the type NONE if the job has
        ended (for `type=EVALUATION`: if there is no evaluation task). Raises `JobFailedError` when the job has ended
        with tasks that failed.
        """
        worker = str(worker_id)
        lease = _random.getrandbits(62) | 1
        attempts: list[int] = []

        def claim(connection: sa.Connection) -> Dispatch | str:
            attempts.append(1)
            return self._claim(connection, worker, lease, self._types(type), again=len(attempts) > 1)

        with _recorded("dispatch.get", self._database.url):
            found: Dispatch | str | None = None
            try:
                found = self._quick(worker, lease, type)
            except Outage:
                attempts.append(1)  # the lease may have been taken
            if found is None:
                found = self._run("get", claim)
                self._registered.add(worker)
        if isinstance(found, Dispatch):
            return found
        if found == ABANDONED:
            raise JobFailedError(self.job, self.failed())
        return Dispatch(Task(type=TaskType.NONE if found == FINISHED else TaskType.WAIT))

    def report(self, task: Task, lease: int, success: bool = True, records: int | None = None, error: str = "") -> bool:
        """Report on a leased task; return False, and change nothing, if the lease is not in force any more.

        Args:
            task, lease: as `get` returned them.
            success: False counts as a failure of the task: it is tried again. So does a report with an `error`.
            records: how many of the task's records, in order, were processed under this lease; None is all of them
                after a success and none after a failure. The others are dispatched again.
            error: the reason of a failure.

        The same report may be made again: the second one returns True and changes nothing.
        """
        success = success and not error
        size = len(task.numbers())
        done = (size if success else 0) if records is None else operator.index(records)
        if not 0 <= done <= size:
            raise ValueError(f"a task of {size} records can't have {done} processed")
        if not success and done == size:
            raise ValueError(f"a task that failed can't have all of its {size} records processed")
        if task.type in (TaskType.WAIT, TaskType.NONE):
            raise ValueError(f"there is nothing to report on a task of the type {task.type.name}")
        values = {**self._lease(task, lease), "records": done}
        if not success:
            limit = {
                "error": _storable(error)[:_MAX_REASON] or "no reason was given",
                "max_failures": self._job.settings.max_failures,
            }
            return self._settle(queries.settle_failure, {**values, **limit}, (TODO, FAILED))
        if done == size:
            del values["records"]
            return self._settle(queries.settle, values, (DONE,))
        return self._settle(queries.settle_part, values, (TODO,))

    def renew(self, task: Task, lease: int, records: int = 0) -> bool:
        """Extend a lease by the job's `lease_seconds`, and account for `records` processed under it so far.

        Returns False, and changes nothing, if the lease is not in force any more: the task is another worker's. With
        all records it is a report: the task is done.
        """
        records = operator.index(records)  # SQLite would take an integer of NumPy for bytes
        if not 0 <= records <= len(task.numbers()):
            raise ValueError(f"a task of {len(task.numbers())} records can't have {records} processed")
        if records == len(task.numbers()):
            return self.report(task, lease)
        values = {**self._lease(task, lease), "records": records, "seconds": self._job.settings.lease_seconds}
        with _recorded("dispatch.renew", self._database.url):
            return self._run("renew", lambda connection: connection.execute(queries.extend, values).first()) is not None

    # ---- what a master calls

    def recover(self, worker_id: str | int) -> int:
        """Free the tasks of a worker that is gone, at no cost to them; return how many there were.

        Raises `LookupError` for a worker that never asked for a task.
        """
        worker = str(worker_id)

        def free(connection: sa.Connection) -> int:
            values = {"job_id": self._job.id, "of_worker": worker}
            freed = len(connection.execute(queries.release, values).all())
            known = sa.select(workers.c.name).where(workers.c.job == self._job.id, workers.c.name == worker)
            if not freed and connection.execute(known).first() is None:
                raise LookupError(f"no worker {worker!r} has asked for a task of job {self.job!r}")
            return freed

        return self._run("recover", free)

    def evaluate(self, model_version: int) -> int:
        """Lay out the evaluation shards as tasks for a version of the model; return how many tasks.

        A version is evaluated once: a second call returns 0. Raises `ValueError` for a job without evaluation shards
        or one that has ended.
        """
        version = operator.index(model_version)
        return self._run("evaluate", lambda connection: jobs.evaluate(connection, self._job, version))

    def failed(self) -> list[FailedTask]:
        """Return the tasks that failed for good, with their last reasons."""
        return self._run("failed", lambda connection: accounts.failed(connection, self._job))

    def failed_by(self, task: Task) -> str | None:
        """Return the worker that failed first on a task; None if none has."""
        first = sa.select(tasks.c.failed_by).where(tasks.c.job == self._job.id, tasks.c.id == task.task_id)
        return self._run("failed", lambda connection: connection.execute(first).scalar())

    def retry_failed(self) -> int:
        """Put the failed tasks back, with no failure counted, and let a failed job go on; return how many."""
        return self._run("retry", lambda connection: accounts.retry(connection, self._job))

    def reset(self) -> None:
        """Forget all that was done: the job begins again with its first epoch."""
        self._run("reset", lambda connection: accounts.reset(connection, self._job))

    def forget_epochs(self, before: int) -> int:
        """Remove the ledger of the epochs before `before` that are done; return how many tasks it had.

        States that were taken in those epochs can't be loaded any more.
        """
        mine = (tasks.c.job == self._job.id, tasks.c.type == self._job.type)
        old = tasks.delete().where(*mine, tasks.c.epoch < operator.index(before), tasks.c.state == DONE)
        return int(self._run("forget", lambda connection: connection.execute(old).rowcount))

    def status(self) -> Status:
        """Return the counters of the job."""
        return self._run("status", lambda connection: accounts.status(connection, self._job))

    def ledger(self, epoch: int = 0) -> Iterator[LedgerEntry]:
        """Yield the tasks of an epoch that were laid out, by number, with the records accounted for."""
        last = -1
        while True:
            read = functools.partial(accounts.ledger, job=self._job, epoch=operator.index(epoch), after=last)
            entries = self._run("ledger", read)
            yield from entries
            if not entries:
                return
            last = entries[-1].number

    def state_dict(self) -> dict[str, Any]:
        """Return what of the job is accounted for, as plain data, to be saved together with a model.

        Its size does not grow with the job: about a thousand tasks at most are laid out and not done.
        """
        return self._run("state_dict", lambda connection: accounts.state_of(connection, self._job))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Account again for what a state says, and for nothing else: the job goes on from there.

        Every lease ends. What was done after the state was taken is dispatched again, as a model of that time needs it.
        Raises `ValueError` for the state of another job, or of other shards or settings.
        """
        self._run("load_state_dict", lambda connection: accounts.restore(connection, self._job, state_dict))

    @property
    def lease_seconds(self) -> float:
        """Seconds that a worker has until it reports or renews."""
        return self._job.settings.lease_seconds

    @property
    def url(self) -> str:
        """The URL of the database, without its password."""
        return self._database.url

    def close(self) -> None:
        """Close the connections of this process; a later call connects again."""
        self._database.close()

    def __repr__(self) -> str:
        return f"TaskDispatcher({self._database.url!r}, {self.job!r})"

    def until(self, ended: Flag) -> Self:
        """Return a dispatcher by the same connections that waits for the database until `ended` alone."""
        other = copy.copy(self)
        other.ended = ended
        return other

    # ---- transactions

    def _run(self, operation: str, transaction: Callable[[sa.Connection], T]) -> T:
        return self._database.run(operation, transaction, self.ended)

    def _types(self, type: TaskType | None) -> tuple[TaskType, ...]:
        """Return the queues to look into, in order."""
        if type is None:
            return (TaskType.EVALUATION, self._job.type) if self._job.evaluates else (self._job.type,)
        if type not in (TaskType.TRAINING, TaskType.EVALUATION, TaskType.PREDICTION):
            raise ValueError(f"a worker can't ask for tasks of the type {type!r}")
        if type != self._job.type and not (type == TaskType.EVALUATION and self._job.evaluates):
            raise ValueError(f"job {self.job!r} has no tasks of the type {TaskType(type).name}")
        return (type,)

    def _quick(self, worker: str, lease: int, type: TaskType | None) -> Dispatch | None:
        """Lease a free task by one statement, or find by another that there is none yet, without a lock on the job."""
        types = self._types(type)
        if worker not in self._registered or len(types) > 1:
            return None
        values = self._candidate(worker, lease, types[0])
        if (row := self._database.once(queries.claim_todo, values)) is not None:
            return self._dispatch(row, lease)
        waits = types[0] == self._job.type and self._database.once(queries.waits_for_others, values) is not None
        return Dispatch(Task(type=TaskType.WAIT)) if waits else None

    def _claim(
        self, connection: sa.Connection, worker: str, lease: int, types: tuple[TaskType, ...], again: bool
    ) -> Dispatch | str:
        if worker not in self._registered:
            jobs.insert_missing(connection, workers, {"job": self._job.id, "name": worker, "joined": now()})
        for type in (*types, TaskType.TRAIN_END_CALLBACK) if again else ():
            held = {**self._candidate(worker, lease, type), "with_lease": lease}
            if (row := connection.execute(queries.held, held).first()) is not None:
                return self._dispatch(row, lease)
        for type in types:
            if (found := self._leased(connection, worker, lease, type)) is not None:
                return found
        if self._job.type not in types:
            held = {"job_id": self._job.id, "types": [int(one) for one in types]}
            return TaskType.WAIT.name if connection.execute(queries.any_doing, held).first() else FINISHED
        state = jobs.lay_out(connection, self._job)
        if state is not None:
            return state
        for type in (self._job.type, TaskType.TRAIN_END_CALLBACK):
            if (found := self._leased(connection, worker, lease, type)) is not None:
                return found
        return TaskType.WAIT.name

    def _leased(self, connection: sa.Connection, worker: str, lease: int, type: TaskType) -> Dispatch | None:
        """Lease the next free task of a type, or the one whose lease ended first; None if there is none."""
        values = self._candidate(worker, lease, type)
        if (row := connection.execute(queries.claim_todo, values).first()) is None:
            connection.execute(queries.fail_poisonous, values)
            if (row := connection.execute(queries.claim_late, values).first()) is None:
                return None
            if (instrument := hooks.active) is not None:
                instrument.record_event("retry", "dispatch.late", 1, self._database.url)
        return self._dispatch(row, lease)

    def _candidate(self, worker: str, lease: int, type: TaskType) -> dict[str, Any]:
        return {
            "job_id": self._job.id,
            "task_type": int(type),
            "new_lease": lease,
            "new_worker": worker,
            "seconds": self._job.settings.lease_seconds,
        }

    def _lease(self, task: Task, lease: int) -> dict[str, Any]:
        return {"task_id": task.task_id, "job_id": self._job.id, "with_lease": lease}

    def _dispatch(self, row: Any, lease: int) -> Dispatch:
        type, start = TaskType(row.type), row.start + row.progress
        version, indices = -1, None
        if type == TaskType.EVALUATION:
            version = row.epoch
        elif self._job.settings.shuffle_records and type == self._job.type:
            piece = self._job.table.piece(row.number)
            indices = jobs.shuffled_numbers(piece, self._job.settings.seed, row.epoch, row.number)[row.progress :]
            start = row.start
        return Dispatch(Task(row.id, row.shard, start, row.end, type, version, indices), lease)

    def _settle(self, statement: Any, values: dict[str, Any], expected: tuple[int, ...]) -> bool:
        def settle(connection: sa.Connection) -> bool:
            if connection.execute(statement, values).first() is not None:
                return True
            # Either the lease is over, or this very report was made before.
            keys = {name: values[name] for name in ("task_id", "job_id", "with_lease")}
            return connection.execute(queries.current_state, keys).scalar() in expected

        with _recorded("dispatch.report", self._database.url):
            with contextlib.suppress(Outage):
                if self._database.once(statement, values) is not None:
                    return True
            return self._run("report", settle)


def _storable(text: str) -> str:
    """Return text as a database takes it: without half surrogate pairs, and without the NUL that PostgreSQL has not."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


@contextlib.contextmanager
def _recorded(name: str, url: str) -> Iterator[None]:
    """Record a `request` span for the block, if an instrument is installed."""
    instrument = hooks.active
    if instrument is None:
        yield
        return
    begin, error = time.monotonic_ns(), ""
    try:
        yield
    except BaseException as exc:
        error = type(exc).__name__
        raise
    finally:
        instrument.record_span("request", name, begin, 0, url, error)
