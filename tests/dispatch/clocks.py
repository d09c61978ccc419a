"""Clocks of the SQLite databases of this process, in place of the system's."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import event
from sqlalchemy.pool import Pool


@contextlib.contextmanager
def sqlite_clock(now: Callable[[], float]) -> Iterator[None]:
    """Give each connection to SQLite that is made meanwhile a clock: `now()` is seconds since 1970."""

    def connected(connection: Any, record: Any) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.create_function("julianday", 1, lambda _: 2440587.5 + now() / 86400)

    event.listen(Pool, "connect", connected)
    try:
        yield
    finally:
        event.remove(Pool, "connect", connected)
