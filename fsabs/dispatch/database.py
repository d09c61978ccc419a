"""The connection to the database of a dispatcher: one engine for each process, transactions that outlast an outage.

Every transaction is a function that may be run again: a connection that is lost in the middle of one, even in its
commit, leaves open if it took place. The functions of `dispatcher` are written so that the second run finds what the
first one did.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import random
import stat as stat_bits
import sys
import tempfile
import time
import urllib.parse
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy import exc as failures

from ..core import errors, process, redaction
from . import schema

T = TypeVar("T")

BUSY_SECONDS = 60.0
"""How long a writer of SQLite waits for its turn."""
MAX_DELAY = 2.0
"""Seconds between two attempts at most."""
IDLE_SECONDS = 30
"""How long a worker of PostgreSQL that is suspended, or gone without a word, holds up others by a transaction."""
SILENT_SECONDS = 25
"""How long PostgreSQL, or a host on the way to it, may acknowledge nothing before a connection is given up."""
_random = random.SystemRandom()

# SQLite must not carry an open connection over a fork: the child's library would take the parent's locks for its own.
# So threads take turns at SQLite (it has one writer anyway), and a fork waits for its turn and closes what is open.
_sqlite_turn = process.Lock()
_sqlite_engines: weakref.WeakSet[_Engines] = weakref.WeakSet()
_any_turn = contextlib.nullcontext()


def _before_fork() -> None:
    _sqlite_turn.__enter__()
    for engines in list(_sqlite_engines):
        engines.close()


def _after_fork() -> None:
    _sqlite_turn.__exit__(None, None, None)


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


class Outage(Exception):
    """A statement failed; whether it took effect is not known."""


class Database:
    """A database, by its URL: `sqlite:///path` or `postgresql+psycopg://user@host/name`.

    Works in threads, in forked children and pickled: each process connects for itself. `outage_seconds` bounds how
    long an operation is tried again while the database does not answer.
    """

    def __init__(self, url: str, outage_seconds: float = 120.0) -> None:
        try:
            parsed = sa.make_url(url)
        except failures.ArgumentError:  # whose text may be a password
            raise ValueError("not the URL of a database, as sqlite:///PATH and postgresql://HOST/NAME are") from None
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise ValueError(f"tasks are kept in SQLite or PostgreSQL, not in {parsed.get_backend_name()}")
        if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
            raise ValueError("a database in memory can't be shared by workers: name a file, sqlite:///PATH")
        if parsed.drivername == "postgresql":
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.url = redaction.without_secrets(parsed.render_as_string(hide_password=True))
        self.outage_seconds = outage_seconds
        self._sqlite = parsed.get_backend_name() == "sqlite"
        self._path = ""
        if self._sqlite:
            parsed, self._path = _of_file(parsed)
            _refuse_planted(self._path)
        self._file: tuple[int, int] | None = None  # device and inode of the file at `_path`, once it was opened
        secret = parsed.render_as_string(hide_password=False)
        self._generation = process.generation()
        self._engines = process.PerProcess(functools.partial(_Engines, secret), _Engines.close)

    # What a finalizer needs is bound: when the interpreter ends, the names of modules, SQLAlchemy's too, may be gone.
    def __del__(
        self,
        inherited: Callable[[int], bool] = process.inherited,
        is_finalizing: Callable[[], bool] = sys.is_finalizing,
    ) -> None:
        if hasattr(self, "_engines") and not is_finalizing() and not inherited(self._generation):
            self._engines.close()  # a forked child leaves its parent's connections alone

    def __repr__(self) -> str:
        return f"Database({self.url!r})"

    def run(self, operation: str, transaction: Callable[[sa.Connection], T]) -> T:
        """Return what `transaction` returns for a connection; commit if it returns, roll back if it raises.

        It is run again while the database is away, for up to `outage_seconds`. Raises an `OSError` with errno, URL and
        operation for what is wrong with the database; other errors of `transaction` go through.
        """
        deadline, attempt = time.monotonic() + self.outage_seconds, 0
        while True:
            self._check_file(operation)
            try:
                with self._turn(), self._engines.get().transactions.begin() as connection:
                    return transaction(connection)
            except failures.DBAPIError as exc:
                attempt += 1
                delay = min(MAX_DELAY, 0.02 * 2.0 ** min(attempt, 10)) * _random.uniform(0.5, 1)
                if not _is_transient(exc) or time.monotonic() + delay > deadline:
                    raise self._error(exc, operation) from exc
                time.sleep(delay)
            except ImportError as exc:
                message = f"{self.url} needs a driver: pip install 'fsabs[sql]'"
                raise errors.MissingDependencyError(message, name=exc.name or "psycopg") from exc

    def claim(self, statement: sa.Executable, values: Mapping[str, Any]) -> sa.Row[Any] | None:
        """Return the row of a statement that leases a task or finds none; `Outage` if it failed in any way.

        PostgreSQL does not wait for its disk here: a lease that it forgets in a crash is one that is not in force.
        """
        return self._once(self._engines.get().leasing, statement, values)

    def settle(self, statement: sa.Executable, values: Mapping[str, Any]) -> sa.Row[Any] | None:
        """Return the row of a statement that accounts for records, which is then on disk; `Outage` if it failed."""
        return self._once(self._engines.get().settling, statement, values)

    def _once(self, engine: sa.Engine, statement: sa.Executable, values: Mapping[str, Any]) -> sa.Row[Any] | None:
        self._check_file("lease")
        try:
            with self._turn(), engine.begin() as connection:
                return connection.execute(statement, dict(values)).first()
        except (failures.DBAPIError, ImportError) as exc:
            raise Outage from exc

    def prepare(self) -> None:
        """Make the tables, or migrate those of an older version; `OSError` for those of a newer one."""
        if self._sqlite and not os.path.lexists(self._path):
            try:
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
            except OSError as exc:
                raise errors.named(exc, "create the tables", self.url) from None
        self.run("create the tables", _prepare)

    def check(self) -> None:
        """Raise `FileNotFoundError` if there are no tables, `OSError` if they are of another version."""
        self.run("open", functools.partial(_check, url=self.url))

    def close(self) -> None:
        """Close the connections of this process."""
        with self._turn():
            self._engines.close()

    def _check_file(self, operation: str) -> None:
        """Raise `StaleFileError` if the file of SQLite is another one: a connection would keep the one it opened."""
        if not self._sqlite:
            return
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            reason = "no job was created in this database: there is no such file"
            raise errors.error(errno.ENOENT, operation, self.url, reason) from None
        except OSError as exc:
            raise errors.named(exc, operation, self.url) from None
        now = found.st_dev, found.st_ino
        if self._file is None:
            self._file = now
        elif self._file != now:
            raise errors.stale(self.url, "the database was replaced by another file: open it anew", operation)

    def _turn(self) -> contextlib.AbstractContextManager[Any]:
        """Return what is held while a connection is in use."""
        return _sqlite_turn if self._sqlite else _any_turn

    def _error(self, exc: failures.DBAPIError, operation: str) -> OSError:
        reason = str(exc.orig).strip().partition("\n")[0]
        lower = reason.lower()
        if "readonly" in lower or "read-only" in lower or "permission denied" in lower:
            code = errno.EROFS if "permission" not in lower else errno.EACCES
        elif self._sqlite and ("unable to open" in lower or "disk i/o" in lower):
            found = _disk_error(self._path)
            code = found or (errno.EIO if "disk i/o" in lower else errno.ENOENT)
        elif "does not exist" in lower:
            code = errno.ENOENT
        elif "authentication" in lower or "password" in lower:
            code = errno.EACCES
        elif "full" in lower:
            code = errno.ENOSPC
        else:
            code = errno.ETIMEDOUT if _is_transient(exc) else errno.EIO
        return errors.error(code, operation, self.url, reason)


def _of_file(url: sa.URL) -> tuple[sa.URL, str]:
    """Return a URL of SQLite by which no file is made, and the path of the file."""
    database = url.database or ""
    if database.startswith("file:"):
        return url, os.path.abspath(urllib.parse.unquote(urllib.parse.urlsplit(database).path))
    path = os.path.abspath(database)
    return url.set(database=f"file:{urllib.parse.quote(path)}").update_query_dict({"mode": "rw", "uri": "true"}), path


def _refuse_planted(path: str) -> None:
    """Raise `PermissionError` for a link of another user: it may lead to a file of this one."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        status = os.lstat(path)
        if stat_bits.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EACCES, "the link belongs to another user", path)


def _disk_error(path: str) -> int | None:
    """Return the errno of writing beside a file of SQLite, which reports most of them as one; None if it works."""
    try:
        with tempfile.TemporaryFile(buffering=0, dir=os.path.dirname(os.path.abspath(path))) as file:
            file.write(bytes(4096))
    except OSError as exc:
        return exc.errno
    return None


_PERMANENT = (
    *("unable to open", "readonly", "full", "disk i/o error", "not a database", "no such table", "no such column"),
    *("read-only", "does not exist", "authentication", "password", "no such user", "no such database"),
)
"""Words in the messages of SQLite, PostgreSQL and its poolers for errors that every attempt meets. A missing socket
('No such file') is not permanent: PostgreSQL removes its own when it ends, and creates it when it starts."""


def _is_transient(exc: failures.DBAPIError) -> bool:
    """Return True for an error that may be none in the next attempt."""
    if exc.connection_invalidated:
        return True
    text = str(exc.orig).lower()
    if isinstance(exc, failures.OperationalError):
        return not any(words in text for words in _PERMANENT)
    return "deadlock" in text or "could not serialize" in text


class _Engines:
    """The connections of a process."""

    def __init__(self, url: str) -> None:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            engine = sa.create_engine(parsed, connect_args={"timeout": BUSY_SECONDS}, pool_size=4, max_overflow=60)
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            self.transactions = engine
            self.settling = self.leasing = engine
            _sqlite_engines.add(self)
            return
        given = parsed.query.get("options", "")
        own = given if isinstance(given, str) else " ".join(given)
        options = {
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 1000 * SILENT_SECONDS,  # no keepalive is sent while a request is unacknowledged
        }
        connect = functools.partial(sa.create_engine, parsed, pool_size=4, max_overflow=60, pool_recycle=1800)
        unflushed = {**options, "options": f"{own} -c synchronous_commit=off"}
        self.transactions = connect(connect_args=options)
        event.listen(self.transactions, "connect", _configure_postgresql)
        self.settling = connect(connect_args=options, isolation_level="AUTOCOMMIT")
        self.leasing = connect(connect_args=unflushed, isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        """Close the connections that are not in use."""
        self.settling.dispose()
        self.leasing.dispose()
        self.transactions.dispose()


def _configure_postgresql(connection: Any, _: Any) -> None:
    # By a statement, since poolers refuse most options of a connection.
    connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_SECONDS}s'")
    connection.commit()


def _configure_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # the driver begins no transaction by itself
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _tables(connection: sa.Connection) -> int | None:
    """Return the version of the tables, None if there are none."""
    if not sa.inspect(connection).has_table(schema.version.name):
        return None
    found = connection.execute(sa.select(schema.version.c.version)).scalar()
    return int(found) if found is not None else None


def _prepare(connection: sa.Connection) -> None:
    if connection.dialect.name == "postgresql":  # of two that begin at once, one makes the tables
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7203711)"))
    found = _tables(connection)
    if found is None:
        schema.metadata.create_all(connection)
        connection.execute(schema.version.insert().values(version=schema.VERSION))
        return
    while found in schema.MIGRATIONS and found < schema.VERSION:
        schema.MIGRATIONS[found](connection)
        found += 1
        connection.execute(schema.version.update().values(version=found))
    _require(found, redaction.without_secrets(connection.engine.url.render_as_string()))


def _check(connection: sa.Connection, url: str) -> None:
    found = _tables(connection)
    if found is None:
        raise errors.error(errno.ENOENT, "open", url, "no job was created in this database")
    _require(found, url)


def _require(found: int, url: str) -> None:
    if found != schema.VERSION:
        newer = "a newer fsabs made them" if found > schema.VERSION else "TaskDispatcher.create migrates them"
        reason = f"the tables have version {found}, and this fsabs reads version {schema.VERSION}: {newer}"
        raise errors.error(errno.EPROTO, "open", url, reason)
