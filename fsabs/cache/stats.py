"""Stats of a cached FS's files: asked of the store, or remembered where options allow it."""

from __future__ import annotations

import errno
import io
import time
import warnings
from collections.abc import Callable, Iterator

from .. import errors
from ..fs import FS, FileStat
from .backoff import Backoff
from .records import FileRecord, FileRecords

ANSWERS = (
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    io.UnsupportedOperation,
    errors.CorruptFileError,
    errors.StaleFileError,
)
"""Errors of a store that can be reached."""


class FileStats:
    """The stats of an FS's files; arguments as of `CachedFS`, `records` returns this process's."""

    def __init__(
        self,
        inner: FS,
        records: Callable[[], FileRecords],
        check_interval: float,
        max_age: float | None,
        offline: bool,
    ) -> None:
        self.max_age = max_age
        self.offline = offline
        self.remembers: bool = bool(check_interval or offline or max_age is not None)
        """Whether what is remembered may be used without asking the store."""
        self._inner = inner
        self._records = records
        self._check_interval = check_interval
        self._updated: frozenset[str] = frozenset()
        self._backoff = Backoff()
        self._warned = False

    def stat(self, key: str, url: str) -> FileStat:
        """Return what the store says, or if it can't be reached, and only offline, what it said."""
        if not self.offline:
            return self._inner._stat(key)
        cause: OSError | None = None
        if self._backoff.begin():
            began = time.monotonic()
            try:
                stat = self._inner._stat(key)
            except OSError as exc:
                if isinstance(exc, ANSWERS):
                    raise
                self._backoff.failed(began)
                cause = exc
            else:
                self._backoff.worked()
                return stat
        record = self._records().recall(url)
        if record is None:
            raise cause if cause is not None else _unreachable()
        self._warn_offline(cause)
        return record.stat

    def fresh(self, key: str, url: str, records: FileRecords | None = None) -> FileRecord | None:
        """Return what is remembered of a file, if it was asked for within the check interval.

        `records` are this process's, if the caller has them.
        """
        if not self._check_interval or key in self._updated:
            return None
        return (records or self._records()).recall_since(url, time.time() - self._check_interval)

    def current(self, key: str, url: str) -> FileStat:
        """Return the stat of a file, asked for now or within the check interval."""
        record = self.fresh(key, url)
        if record is not None:
            return record.stat
        stat = self.stat(key, url)
        if self._check_interval and not stat.directory:
            self._records().save(url, self._records().remember(url, stat))
        return stat

    def needs_stat(self, key: str) -> bool:
        """Return if a file can't be opened without its stat."""
        return self.offline or self.max_age is not None or key in self._updated

    def was_cached(self, url: str) -> bool:
        """Return if a file has been cached: then its stat is worth a request."""
        records = self._records()
        return records.recall(url) is not None if self._check_interval else records.is_marked(url)

    def aged_version(self, url: str, stat: FileStat) -> str:
        """Return a version for a file that has none: since when it is as it is; a new one if that is too long ago."""
        assert self.max_age is not None
        records = self._records()
        record = records.recall(url)
        same = record is not None and (record.stat.size, record.stat.last_modified) == (stat.size, stat.last_modified)
        if record is None or not same or time.time() - record.since > self.max_age:
            records.forget(url)
            record = records.remember(url, stat)
            records.save(url, record)
        return f"since {record.since}"

    def remember(self, url: str, stat: FileStat, by_request: bool, settled: bool) -> None:
        """Remember a file that is cached: for when the store can't be reached, and for `was_cached`."""
        records = self._records()
        if by_request and not self.offline:
            if self._check_interval:
                records.remember_on_disk(url, stat)
            else:
                records.mark(url, stat)
        elif self.offline and settled:
            before = records.recall(url)
            if before is None or before.stat != stat:
                records.save(url, records.remember(url, stat))

    def listing(self, key: str, url: str, kind: str, ask: Callable[[str], Iterator[FileStat]]) -> Iterator[FileStat]:
        """Yield the store's listing, which is remembered, or the remembered one."""
        found: list[FileStat] = []
        cause: OSError | None = None
        if self._backoff.begin():
            began = time.monotonic()
            try:
                for member in ask(key):
                    found.append(member)
                    yield member
                self._backoff.worked()
                self._records().save_list(url, kind, found)
                return
            except OSError as exc:
                if found or isinstance(exc, ANSWERS):
                    raise
                self._backoff.failed(began)
                cause = exc
        members = self._records().recall_list(url, kind)
        if members is None:
            raise cause if cause is not None else _unreachable()
        self._warn_offline(cause)
        yield from members

    def invalidate(self, *urls: str) -> None:
        """Forget files that have changed."""
        for url in urls:
            self._records().forget(url)

    def updated(self, key: str, url: str) -> None:
        """Ask for a file at each open from now on: it may change while it is open for writing."""
        self._updated |= {key}
        self.invalidate(url)

    def _warn_offline(self, exc: OSError | None) -> None:
        if not self._warned:
            self._warned = True
            where = self._inner._url(self._inner._root)
            warnings.warn(f"{where} can't be reached ({exc}): going on with the cache", RuntimeWarning, stacklevel=3)


def _unreachable() -> OSError:
    return ConnectionError(errno.ECONNABORTED, "the store can't be reached, and the cache has nothing of it")
