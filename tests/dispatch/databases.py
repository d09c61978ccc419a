"""Faults of the databases of this process: another clock of SQLite, commits that fail or whose answers are lost."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.pool import Pool


@contextlib.contextmanager
def listening(target: Any, name: str, listener: Callable[..., None]) -> Iterator[None]:
    """Have an event of SQLAlchemy call a function in the block."""
    event.listen(target, name, listener)
    try:
        yield
    finally:
        event.remove(target, name, listener)


@contextlib.contextmanager
def sqlite_clock(now: Callable[[], float]) -> Iterator[None]:
    """Give each connection to SQLite that is made meanwhile a clock: `now()` is seconds since 1970."""

    def connected(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.create_function("julianday", 1, lambda _: 2440587.5 + now() / 86400)

    with listening(Pool, "connect", connected):
        yield


@contextlib.contextmanager
def lost_commits(*made: bool) -> Iterator[list[bool]]:
    """Have the next commits be answered by an error; each took place or not. Gives those that are still to come."""
    left = [*made]

    def commit(connection: sa.Connection) -> None:
        if left:
            if left.pop(0):
                connection.connection.commit()
            raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))

    with listening(sa.Engine, "commit", commit):
        yield left
