"""ODPSDataReader: the rows of a MaxCompute (ODPS) table, by PyODPS.

PyODPS keeps the protocol and its own retries. What is added here is what a training job needs: a read that failed goes
on at the row where it stopped, rows are counted against what was asked for, so that neither a cut stream nor a retry
loses or repeats one, and errors are Python's. The options are those of ElasticDL's reader of the same name.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from ...core import errors, keys, process
from ...core.errors import CorruptFileError, MissingDependencyError
from ...core.threads import in_threads
from .base import Metadata, SlicedDataReader, runs

Values = Literal["text", "typed"]
PIECE = 10_000  # rows that one of several threads reads at once


class ODPSDataReader(SlicedDataReader):
    """The rows of a table, or of one partition of it; a record is the list of a row's values.

    The rows of a partitioned table are those of its partitions, in the order of their names.

    Args:
        table: `table`, or `project.table`.
        project, access_id, access_key, endpoint, tunnel_endpoint: as PyODPS has them.
        partition: the partition to read, `"pt=20240101,region=eu"`; None is the whole table.
        columns: names of the columns of a record, those of the partition included; None is all but the partition's.
        num_processes: how many ranges of a task are read at once, each by a thread of its own.
        records_per_task: rows of a shard, the last one having the rest; None is all.
        values: "text" (as ElasticDL: `str` of each value, None for NULL) or "typed" (as PyODPS gives them: bigint as
            int, double as float, string as str, boolean as bool, datetime as a datetime in local time).
        max_attempts: how often one row is tried for before the read fails. What another attempt can't mend (a missing
            table, a refusal, a wrong argument) fails at once.

    Raises `FileNotFoundError` for a missing table or partition, `PermissionError`, `ValueError` for unknown columns,
    `StaleFileError` when the number of rows changed, `CorruptFileError` for rows whose checksum is wrong or that don't
    come, and `OSError` for what else the service says.
    """

    def __init__(
        self,
        table: str,
        *,
        project: str,
        access_id: str,
        access_key: str,
        endpoint: str | None = None,
        tunnel_endpoint: str | None = None,
        partition: str | None = None,
        columns: Sequence[str] | None = None,
        num_processes: int = 1,
        records_per_task: int | None = None,
        values: Values = "text",
        max_attempts: int = 5,
    ) -> None:
        if values not in ("text", "typed"):
            raise ValueError(f"values is 'text' or 'typed', not {values!r}")
        if num_processes < 1 or max_attempts < 1:
            raise ValueError("num_processes and max_attempts are at least 1")
        name = table
        if "." in table:
            project, _, table = table.partition(".")
        url = f"odps://{project}/{table}" + (f"/{keys.to_url_path(partition)}" if partition else "")
        super().__init__(name, records_per_task, url)
        connect = functools.partial(_connect, project, table, access_id, access_key, endpoint, tunnel_endpoint)
        self._table: process.PerProcess[Any] = process.PerProcess(connect)
        self._partition = partition
        self._chosen = None if columns is None else list(columns)
        self._threads = num_processes
        self._text = values == "text"
        self._max_attempts = max_attempts
        self._counts: dict[str | None, int] = {}  # rows of each partition that is read, in order
        self._counted = False
        self._columns: list[tuple[str, str]] | None = None

    def __len__(self) -> int:
        """The number of rows, as it was when first asked for."""
        if not self._counted:
            for partition in self._partitions():
                self._retried(functools.partial(self._open, partition))
            self._counted = True
        return sum(self._counts.values())

    def _partitions(self) -> list[str | None]:
        return [self._partition] if self._partition is not None else self._retried(self._partition_names)

    def _retried(self, call: Callable[..., Any]) -> Any:
        """Return what `call(again)` returns, which is called again after errors that may pass."""
        for attempt in itertools.count(1):
            try:
                return call(attempt > 1)
            except OSError as exc:
                self._wait_or_raise(exc, attempt)
        raise AssertionError("unreachable")

    def _read(self, numbers: Sequence[int]) -> Iterator[list[Any]]:
        for start, end in runs(numbers):
            yield from self._rows(start, end) if self._threads == 1 else self._in_threads(start, end)

    @property
    def records_output_types(self) -> str | None:
        """Text, where the values are."""
        return "string" if self._text else None

    @property
    def metadata(self) -> Metadata:
        """Names and types (`"bigint"`) of the columns of a record."""
        columns = self._column_types()
        return Metadata([name for name, _ in columns], [kind for _, kind in columns])

    def close(self) -> None:
        """Forget the connection of this process; reading makes another."""
        self._table.close()

    # ---- columns

    def _column_types(self) -> list[tuple[str, str]]:
        if self._columns is None:
            with self._translating("metadata"):
                schema = self._table.get().table_schema
                types = {column.name: str(column.type) for column in schema.columns}
                simple = [column.name for column in schema.simple_columns]
            chosen = simple if self._chosen is None else self._chosen
            absent = [name for name in chosen if name not in types]
            if absent:
                raise ValueError(f"{self._url} has no columns {absent}; it has {list(types)}")
            self._columns = [(name, types[name]) for name in chosen]
        return self._columns

    # ---- partitions

    def _partition_names(self, again: bool) -> Sequence[str | None]:
        """Return the names of the table's partitions, or None for a table that has none."""
        with self._translating("open"):
            table = self._table.get()
            if not table.table_schema.partitions:
                return [None]
            return sorted(str(partition.name).replace("'", "") for partition in table.partitions)

    # ---- rows

    def _rows(self, start: int, end: int) -> Iterator[list[Any]]:
        """The rows from `start` to `end`, of whichever partitions they are in."""
        first = 0
        for partition, count in list(self._counts.items()):
            if start < first + count and end > first:
                yield from self._rows_of(partition, max(start - first, 0), min(end - first, count))
            first += count

    def _rows_of(self, partition: str | None, start: int, end: int) -> Iterator[list[Any]]:
        """The rows of one partition from `start` to `end`, each once, whatever it takes."""
        at, attempt = start, 0
        while at < end:
            try:
                for row in self._attempt(partition, at, end, attempt > 0):
                    at, attempt = at + 1, 0
                    yield row
                if at < end:
                    reason = f"the service sent rows {start} to {at}, and {start} to {end} were asked for"
                    raise errors.corrupt(self._url, reason)
            except OSError as exc:
                attempt += 1
                self._wait_or_raise(exc, attempt)

    def _attempt(self, partition: str | None, start: int, end: int, again: bool) -> Iterator[list[Any]]:
        """Yield the rows of one attempt, at most those that were requested."""
        names = [name for name, _ in self._column_types()]
        given = dict(part.split("=", 1) for part in partition.split(",")) if partition else {}
        stored = [name for name in names if name not in given]
        reader = self._open(partition, again)
        with self._translating("read"):
            records = reader.read(start=start, count=end - start, columns=stored)
            for record in itertools.islice(records, end - start):
                yield [self._value(given[name] if name in given else record[name]) for name in names]

    def _value(self, value: Any) -> Any:
        if not self._text or value is None:
            return value
        return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)

    def _open(self, partition: str | None, again: bool) -> Any:
        """PyODPS's reader; the partition must have as many rows as before."""
        with self._translating("open"):
            reader = self._table.get().open_reader(partition=partition, reopen=again)
            count = reader.count
        if (known := self._counts.setdefault(partition, count)) != count:
            raise errors.stale(self._url, f"{partition or 'the table'} has {count} rows, and had {known}")
        return reader

    def _in_threads(self, start: int, end: int) -> Iterator[list[Any]]:
        piece = max(1, min(PIECE, -(-(end - start) // self._threads)))

        def rows(at: int) -> list[list[Any]]:
            return list(self._rows(at, min(at + piece, end)))

        for found in in_threads(rows, range(start, end, piece), self._threads):
            yield from found

    # ---- errors

    def _wait_or_raise(self, exc: OSError, attempt: int) -> None:
        if attempt >= self._max_attempts or not _may_pass(exc):
            raise exc
        time.sleep(min(0.1 * 2**attempt, 10))

    @contextlib.contextmanager
    def _translating(self, operation: str) -> Iterator[None]:
        try:
            yield
        except MissingDependencyError:
            raise
        except Exception as exc:  # PyODPS raises its own, requests' and plain ones
            raise self._translated(exc, operation) from exc

    def _translated(self, exc: Exception, operation: str) -> OSError:
        """PyODPS's error, or that of what is below it, as one of Python's."""
        if isinstance(exc, OSError) and getattr(exc, "operation", None) is not None:
            return exc
        text = f"{type(exc).__name__}: {exc}"
        kinds = {kind.__name__ for kind in type(exc).__mro__}
        if "ChecksumError" in kinds:
            return errors.corrupt(self._url, text, operation)
        for names, code in _CODES.items():
            if kinds & names:
                return errors.error(code, operation, self._url, text)
        return errors.error(errno.EIO, operation, self._url, text)


def _may_pass(exc: OSError) -> bool:
    """Return True for an error that another attempt may mend: of the connection, the service, or the stream."""
    cause = exc.__cause__
    if cause is None or isinstance(exc, CorruptFileError):
        return isinstance(exc, CorruptFileError)
    status = getattr(cause, "status_code", None) or 0
    names = {*(kind.__name__ for kind in type(cause).__mro__), getattr(cause, "code", None)}
    return bool(names & _TRANSIENT) or status >= 500 or status in (408, 429)


_TRANSIENT = frozenset(
    {
        "ChunkedEncodingError",
        "ConnectionError",
        "HTTPError",  # urllib3's: a protocol error, an incomplete body
        "InternalServerError",
        "RequestQuotaExceeded",
        "StatusConflict",  # the session is over, as it is after 24 hours: another attempt opens a new one
        "StreamTruncatedException",
        "Timeout",
        "TimeoutError",
    }
)
# By the names of their classes, PyODPS's and requests'; the most telling first.
_CODES = {
    frozenset({"NoSuchObject", "NoSuchTable", "NoSuchPartition", "NoSuchProject"}): errno.ENOENT,
    frozenset({"NoPermission", "Unauthorized", "AuthorizationRequired", "SignatureNotMatch"}): errno.EACCES,
    frozenset({"Timeout", "RequestTimeTooSkewed"}): errno.ETIMEDOUT,
    frozenset({"ConnectionError", "ChunkedEncodingError"}): errno.ECONNRESET,
}


def _connect(
    project: str, table: str, access_id: str, access_key: str, endpoint: str | None, tunnel_endpoint: str | None
) -> Any:
    """PyODPS's object of the table."""
    try:
        from odps import ODPS  # type: ignore[import-untyped]
    except ImportError:
        raise errors.missing("pyodps", "odps", "reading a MaxCompute table") from None
    client = ODPS(access_id, access_key, project, endpoint=endpoint, tunnel_endpoint=tunnel_endpoint)
    return client.get_table(table)
