"""The state of a job as values: counters, failed tasks, and the error of a job that failed."""

from __future__ import annotations

import errno
from typing import NamedTuple

from ..readers.data import TaskType


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


class LedgerEntry(NamedTuple):
    """A task of an epoch, and how many of its records are accounted for."""

    number: int
    shard_name: str
    start: int
    end: int
    records: int
    state: str
