"""What is known of files beside their content: their stats, and for how long these hold.

A stat that was asked for, or came with a response or a listing, holds for the check interval. Where a stat is a
request, files are asked for by listings: a page has a thousand of them. Only what outlives the process (`offline`,
`max_age`) is kept on disk, too, under a name of the file's URL alone, as JSON: the times of the last question and of
the first one with the same answer, in seconds since 1970, then the fields of `FileStat`.
"""

from __future__ import annotations

import errno
import io
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..core import errors, identity, keys, process
from ..core.fs import FS, FileStat
from ..core.limits import parse_json
from .backoff import Backoff
from .content import ContentCache

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
LONGEST = 200_000
"""Records that a process keeps in memory; then it forgets them all."""
PAGES_IN_ORDER = 16
"""Pages by which a directory is listed from its beginning; one that has more is listed where files are read."""
_DIRECTORIES = 10_000


class FileRecord(NamedTuple):
    """A file as it was when it was asked for."""

    asked: float
    """When, in seconds since 1970."""
    since: float
    """When the answer was first this one."""
    stat: FileStat


class FileRecords:
    """The records of one process; `store` and `url` name a file. They are read from the disk if `on_disk`."""

    def __init__(self, store: str, contents: ContentCache, on_disk: bool) -> None:
        self._store = identity.encode(store)
        self._contents = contents
        self._disk = contents.disk if on_disk else None
        self._known: dict[str, FileRecord] = {}
        self.directories: dict[str, ListedDirectory] = {}
        """How far the directories of files were listed: a forked child has neither them nor what they say."""

    def recall(self, url: str) -> FileRecord | None:
        """Return the last stat of a file, however old."""
        found = self._known.get(url)
        return self._load(url) if found is None and self._disk is not None else found

    def recall_since(self, url: str, after: float) -> FileRecord | None:
        """Return a file's stat if it was asked for after that time."""
        found = self._known.get(url)
        if (found is None or found.asked < after) and self._disk is not None:
            found = self._load(url)
        return found if found is not None and after <= found.asked <= time.time() else None

    def remember(self, url: str, stat: FileStat) -> FileRecord:
        """Remember, in this process, what a file is now."""
        now, before = time.time(), self._known.get(url)
        same = before is not None and _content(before.stat) == _content(stat)
        record = FileRecord(now, before.since if before is not None and same else now, stat)
        if len(self._known) >= LONGEST:
            self._known = {}
        self._known[url] = record
        return record

    def save(self, url: str, record: FileRecord) -> None:
        """Remember it for other processes, too."""
        if self._disk is not None:
            text = json.dumps([record.asked, record.since, *record.stat])
            self._disk.put(self._name(url), url, text.encode(), self._contents.order)

    def forget(self, url: str) -> None:
        """A file has changed."""
        self._known.pop(url, None)
        if self._disk is not None:
            self._disk.remove(self._name(url), url)

    def save_list(self, url: str, kind: str, members: list[FileStat]) -> None:
        """Remember what a directory holds; `kind` tells one sort of listing from another."""
        if self._disk is not None:
            self._disk.put(self._name(url, kind), url, json.dumps(members).encode(), self._contents.order)

    def recall_list(self, url: str, kind: str) -> list[FileStat] | None:
        """Return the last listing of a directory."""
        data = self._disk.get(self._name(url, kind), url) if self._disk is not None else None
        try:
            return [FileStat(*fields) for fields in parse_json(data)] if data is not None else None
        except (ValueError, TypeError):  # of another release
            return None

    def _load(self, url: str) -> FileRecord | None:
        data = self._disk.get(self._name(url), url) if self._disk is not None else None
        if data is None:
            return None
        try:
            asked, since, *fields = parse_json(data.decode())
            record = FileRecord(float(asked), float(since), FileStat(*fields))
        except (ValueError, TypeError):  # of another release
            return None
        self._known[url] = record
        return record

    def _name(self, url: str, kind: str = "stat") -> bytes:
        return self._store + identity.encode(url, kind)


class ListedDirectory:
    """How far a directory was listed, and how often a file of it was asked for."""

    __slots__ = ("after", "checks", "complete", "listed", "pages")

    def __init__(self) -> None:
        self.listed: float = time.time()
        self.after = ""
        self.pages = self.checks = 0
        self.complete = False


class Freshness:
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
        can = inner.capabilities
        self.by_request: bool = can.stat_is_request and can.content_versions and not can.commits
        """Whether a file's content may be requested in place of its stat, and tell its version; the stats of a commit
        are listed once, and hold."""
        self.remembers: bool = bool(check_interval or offline or max_age is not None)
        """Whether what is remembered may be used without asking the store."""
        self._inner = inner
        self._records = records
        # What costs no request is asked for each time.
        self._check_interval = check_interval if inner.capabilities.stat_is_request else 0.0
        self._updated: frozenset[str] = frozenset()
        self._listing = process.Lock()
        self._backoff = Backoff()
        self._warned = False

    # ---- stats

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
        """Return what is remembered of a file, if that holds; `records` are this process's, if the caller has them."""
        if not self._check_interval or key in self._updated:
            return None
        return (records or self._records()).recall_since(url, time.time() - self._check_interval)

    def current(self, key: str, url: str, *, by_listing: bool = True) -> FileStat:
        """Return the stat of a file, asked for now or within the check interval; by a listing, if that is better."""
        if not self._check_interval:
            return self.stat(key, url)
        record = self.fresh(key, url)
        if record is None and by_listing and self._lists(key):
            self._list_page(key)
            record = self.fresh(key, url)
        if record is not None:
            return record.stat
        stat = self.stat(key, url)
        if not stat.directory:
            self._records().save(url, self._records().remember(url, stat))
        return stat

    def is_new(self, key: str, url: str, *, by_listing: bool = True) -> bool:
        """Return if nothing is known of a file, so that a request for its content is worth more than for its stat."""
        if not self.by_request or self.offline or self.max_age is not None or key in self._updated:
            return False
        if self._records().recall(url) is not None:
            return False
        if not by_listing:
            return True
        if self._lists(key) and self._directory(key).checks:  # it is likely that more of its directory is read
            self._list_page(key)
            return self._records().recall(url) is None
        self._directory(key).checks += 1
        return True

    def list_for(self, wanted: Sequence[str]) -> None:
        """List the directories of files that are going to be asked for, if that takes fewer requests."""
        unknown = sorted(key for key in wanted if self._lists(key) and self.fresh(key, self._inner._url(key)) is None)
        pages = len(unknown) // 8
        for key in unknown:
            if pages > 0 and self.fresh(key, self._inner._url(key)) is None:
                pages -= self._list_page(key)

    def _lists(self, key: str) -> bool:
        """Return whether stats come by listings."""
        can_list = self._check_interval > 0 and not self.offline and self.max_age is None
        return can_list and key not in self._updated

    def _directory(self, key: str) -> ListedDirectory:
        """Return what is known of the directory of a file; anew when its listing doesn't hold any more."""
        name, directories = keys.parent(key), self._records().directories
        found = directories.get(name)
        if found is None or not 0 <= time.time() - found.listed < self._check_interval:
            if len(directories) >= _DIRECTORIES:
                directories.clear()
            found = directories[name] = ListedDirectory()
        return found

    def _list_page(self, key: str) -> bool:
        """Ask for a page of a file's directory, if that is likely to be of use; return whether there was a request."""
        with self._listing:
            return self.fresh(key, self._inner._url(key)) is None and self._listed(key)

    def _listed(self, key: str) -> bool:
        directory, name = self._directory(key), keys.name(key)
        directory.checks += 1
        in_order = directory.pages < PAGES_IN_ORDER
        if directory.complete or (in_order and name <= directory.after) or not (in_order or directory.checks % 2):
            return False
        try:
            page = self._inner._list_page(keys.parent(key), directory.after if in_order else name[:-1])
        except OSError:  # of no directory, or one that may not be listed: its files are asked for one by one
            page = None
        if page is None:
            directory.complete = True
            return False
        for stat in page.files:
            self.remember_listed(keys.join(keys.parent(key), stat.filename), stat)
        directory.pages += 1
        if in_order:
            directory.after, directory.complete = page.last, not page.more
        return True

    # ---- what is remembered

    def remember_listed(self, key: str, stat: FileStat) -> None:
        """Remember a file that a listing has shown just now."""
        if self._check_interval and not stat.directory and stat.version is not None and key not in self._updated:
            self._records().remember(self._inner._url(key), stat._replace(filename=keys.name(key)))

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

    def remember(self, url: str, stat: FileStat, settled: bool) -> None:
        """Remember a file that is cached, as it was just now."""
        records = self._records()
        if self.offline:
            before = records.recall(url)
            if settled and (before is None or before.stat != stat):
                records.save(url, records.remember(url, stat))
        elif self.by_request and self.fresh(url, url, records) is None:
            records.remember(url, stat)

    def invalidate(self, *urls: str) -> None:
        """Forget files that have changed."""
        for url in urls:
            self._records().forget(url)

    def updated(self, key: str, url: str) -> None:
        """Ask for a file at each open from now on: it may change while it is open for writing."""
        self._updated |= {key}
        self.invalidate(url)

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

    def _warn_offline(self, exc: OSError | None) -> None:
        if not self._warned:
            self._warned = True
            where = self._inner._url(self._inner._root)
            warnings.warn(f"{where} can't be reached ({exc}): going on with the cache", RuntimeWarning, stacklevel=3)


def _content(stat: FileStat) -> tuple[object, ...]:
    return stat.size, stat.last_modified, stat.version


def _unreachable() -> OSError:
    return ConnectionError(errno.ECONNABORTED, "the store can't be reached, and the cache has nothing of it")
