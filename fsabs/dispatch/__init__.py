"""Dispatching the shards of a data set to workers that come and go; state in SQLite or PostgreSQL.

The names here are loaded when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core import errors
from ..core.lazy import exports

if TYPE_CHECKING:
    from ..readers.data import Mode, Task, TaskType
    from .accounts import Counters, FailedTask, JobFailedError, LedgerEntry, Status
    from .dispatcher import Dispatch, TaskDispatcher
    from .service import TaskDataService, get_dataset

_HOMES = {
    "Counters": "accounts",
    "Dispatch": "dispatcher",
    "FailedTask": "accounts",
    "JobFailedError": "accounts",
    "LedgerEntry": "accounts",
    "Mode": "jobs",
    "Status": "accounts",
    "Task": "dispatcher",
    "TaskDataService": "service",
    "TaskDispatcher": "dispatcher",
    "TaskType": "jobs",
    "get_dataset": "service",
}

__all__ = [
    "Counters",
    "Dispatch",
    "FailedTask",
    "JobFailedError",
    "LedgerEntry",
    "Mode",
    "Status",
    "Task",
    "TaskDataService",
    "TaskDispatcher",
    "TaskType",
    "get_dataset",
]

errors.required("sqlalchemy", "SQLAlchemy", "sql", "dispatching tasks")  # nearly all modules here need it
__getattr__, __dir__ = exports(__name__, _HOMES)
