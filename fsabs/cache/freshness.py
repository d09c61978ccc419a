"""What is known of files beside their content: their stats, and for how long these hold.

A stat that was asked for, or came with a response or a listing, holds for the check interval. Where a stat is a
request, files are asked for by pages of a listing, of a thousand names each. Only what outlives the process (`offline`,
`max_age`) is kept on disk, too, under a name of the file's URL alone, as JSON: the times of the last question and of
the first one with the same answer, in seconds since 1970, then the fields of `FileStat`.
"""

from __future__ import annotations

import bisect
import errno
import io
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ..core import errors, identity, keys, process
from ..core.fs import FS, FileStat
from ..core.layers import list_page
from ..core.limits import parse_json
from ..core.stats import LAST_NAME
from .backoff import Backoff
from .content import ContentCache
from .disk import EntryKey

T = TypeVar("T")
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
LONGEST = 50_000
"""Records that a process keeps in memory; then it forgets them all."""
PAGES = 8
"""Pages of a listing that may be asked for in vain; after these, one for so many files that were in none."""
IN_ORDER = 16
"""Pages that follow one another in a directory; of a larger one, every other page begins at the file."""


class FileRecord(NamedTuple):
    """A file as it was when it was asked for."""

    asked: float
    """When, in seconds since 1970."""
    since: float
    """When the answer was first this one."""
    stat: FileStat


class FileRecords:
    """The records of one process; `store` and `url` name a file. They are kept on the disk, too, if `on_disk`."""

    def __init__(self, store: str, contents: ContentCache, on_disk: bool) -> None:
        self._store = identity.encode(store)
        self._contents = contents
        self._disk = contents.disk if on_disk else None
        self._known: dict[str, FileRecord] = {}
        self._changed = 0.0
        self._changes: dict[str, float] = {}
        """When this process has changed files; what others asked for before may not be what they are."""
        self._forgotten = 0.0  # when these were forgotten
        self.listed: dict[str, Listed] = {}
        """What was listed, by the directory that an FS begins at; a forked child has neither that nor what it said."""

    def recall(self, url: str, age: float = math.inf) -> FileRecord | None:
        """Return the last stat of a file, if it was asked for at most `age` seconds ago."""
        found, now = self._known.get(url), time.time()
        if (found is None or now - found.asked > age) and self._disk is not None:
            found, now = self._load(url), time.time()
        return found if found is not None and 0 <= now - found.asked <= age else None

    def remember(self, url: str, stat: FileStat, asked: float) -> FileRecord:
        """Remember, in this process, what a file was when it was asked for.

        What was asked for before this process has changed a file is not remembered: it may be of that one.
        """
        before = self._known.get(url)
        same = before is not None and _content(before.stat) == _content(stat)
        record = FileRecord(asked, before.since if before is not None and same else asked, stat)
        if len(self._known) >= LONGEST:
            self._known = {}
        self._known[url] = record
        if asked <= self._changed:
            self._known.pop(url, None)
        return record

    def save(self, url: str, record: FileRecord) -> None:
        """Remember it for other processes, too, unless this one has changed a file since it was asked for."""
        if record.asked > self._changed:
            self._put(url, "stat", [record.asked, record.since, *record.stat])
        if record.asked <= self._changed and self._disk is not None:  # maybe it was changed meanwhile
            self._disk.remove(self._entry(url, "stat"))

    def forget(self, url: str) -> None:
        """A file has changed."""
        if len(self._changes) >= LONGEST:
            self._changes, self._forgotten = {}, time.time()
        self._changed = self._changes[url] = time.time()
        self._known.pop(url, None)
        if self._disk is not None:
            self._disk.remove(self._entry(url, "stat"))

    def __len__(self) -> int:
        """The number of files that are remembered in memory."""
        return len(self._known)

    def __contains__(self, url: str) -> bool:
        """Whether a file is remembered in memory."""
        return url in self._known

    def save_list(self, url: str, kind: str, members: list[FileStat]) -> None:
        """Remember what a directory holds; `kind` distinguishes sorts of listings."""
        self._put(url, kind, members)

    def recall_list(self, url: str, kind: str) -> list[FileStat] | None:
        """Return the last listing of a directory."""
        try:
            found = self._get(url, kind)
            return [FileStat(*fields) for fields in found] if found is not None else None
        except (ValueError, TypeError):  # of another release
            return None

    def _load(self, url: str) -> FileRecord | None:
        try:
            found = self._get(url, "stat")
            if found is None:
                return None
            asked, since, *fields = found
            record = FileRecord(float(asked), float(since), FileStat(*fields))
        except (ValueError, TypeError):  # of another release
            return None
        self._known[url] = record
        if record.asked <= self._changes.get(url, self._forgotten):
            self._known.pop(url, None)
            return None
        return record

    def _get(self, url: str, kind: str) -> Any:
        data = self._disk.get(self._entry(url, kind)) if self._disk is not None else None
        return parse_json(data) if data is not None else None

    def _put(self, url: str, kind: str, value: object) -> None:
        if self._disk is not None:
            self._disk.put(self._entry(url, kind), json.dumps(value).encode(), self._contents.order, replace=True)

    def _entry(self, url: str, kind: str) -> EntryKey:
        return EntryKey.of(self._store + identity.encode(url, kind), url)


class Listed:
    """The names that `pages` of a listing have covered, the first of them asked for at `since`."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.pages = 0
        self._ranges: list[tuple[str, str]] = []  # disjoint, in order: behind which name one begins, and its last one

    def __contains__(self, name: str) -> bool:
        at = bisect.bisect_left(self._ranges, (name,)) - 1
        return at >= 0 and name <= self._ranges[at][1]

    def end(self, name: str) -> str:
        """Return the last name of the last range that begins at or before `name`; an empty one if none does."""
        at = bisect.bisect_right(self._ranges, (name, LAST_NAME)) - 1
        return self._ranges[at][1] if at >= 0 else ""

    def add(self, start: str, last: str) -> None:
        """Add the names behind `start`, up to `last`."""
        apart = [one for one in self._ranges if one[1] < start or last < one[0]]
        joined = [one for one in self._ranges if not (one[1] < start or last < one[0])]
        bounds = min([start, *(one[0] for one in joined)]), max([last, *(one[1] for one in joined)])
        self._ranges = sorted([*apart, bounds])


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
        self.takes_requests: bool = can.stat_is_request and (offline or not can.commits)
        """Whether a stat takes a request; those of a commit are listed once, and hold until there is another one."""
        self.by_request: bool = self.takes_requests and can.content_versions
        """Whether a file's content may be requested in place of its stat, and tell its version."""
        self.notes_contents: bool = offline or self.by_request
        """Whether a file is remembered when its content is cached."""
        self.likely_cached: bool = False
        """Whether the last file whose content was requested in place of its stat was cached already."""
        self._inner = inner
        self._records = records
        # What costs no request is asked for each time.
        self._check_interval = check_interval if self.takes_requests else 0.0
        self.remembers: bool = bool(self._check_interval or offline or max_age is not None)
        """Whether what is remembered may be used without asking the store."""
        self._can_list = self._check_interval > 0 and not offline and max_age is None
        self._is_used = False
        self._updated: frozenset[str] = frozenset()
        self._credit: float = PAGES  # the pages that may be asked for now
        self._listing = process.Lock()
        self._backoff = Backoff()
        self._warned = False

    # ---- stats

    def stat(self, key: str, url: str) -> FileStat:
        """Return what the store says, or if it can't be reached, and only offline, what it said."""
        if not self.offline:
            return self._inner._stat(key)

        def remembered() -> FileStat | None:
            record = self._records().recall(url)
            return record.stat if record is not None else None

        return self._asked(lambda: self._inner._stat(key), remembered)

    def _asked(self, ask: Callable[[], T], remembered: Callable[[], T | None]) -> T:
        """Return the answer of a store, or if it can't be reached what is remembered of it, with a warning."""
        cause: OSError = ConnectionError(
            errno.ECONNABORTED, "the store can't be reached, and the cache has nothing of it"
        )
        if self._backoff.begin():
            began = time.monotonic()
            try:
                answer = ask()
                self._backoff.worked()
                return answer
            except OSError as exc:
                if isinstance(exc, ANSWERS):
                    raise
                self._backoff.failed(began)
                cause = exc
        found = remembered()
        if found is None:
            raise cause
        if not self._warned:
            self._warned = True
            where = self._inner._url(self._inner._root)
            warnings.warn(f"{where} can't be reached ({cause}): going on with the cache", RuntimeWarning, stacklevel=4)
        return found

    def fresh(self, key: str, url: str, records: FileRecords | None = None) -> FileRecord | None:
        """Return what is remembered of a file, if that holds; `records` are this process's, if the caller has them."""
        if not self._check_interval or key in self._updated:
            return None
        return (records or self._records()).recall(url, self._check_interval)

    def current(self, key: str, url: str, *, by_listing: bool = True) -> FileStat:
        """Return the stat of a file, asked for now or within the check interval; by a listing, if that is better."""
        if not self._check_interval:
            return self.stat(key, url)
        record = self.fresh(key, url)
        if record is None and by_listing:
            self._list_page(key)
            record = self.fresh(key, url)
        if record is not None:
            return record.stat
        asked = time.time()
        stat = self.stat(key, url)
        if not stat.directory:
            self._records().save(url, self._records().remember(url, stat, asked))
        return stat

    def is_new(self, key: str, url: str, *, by_listing: bool = True) -> bool:
        """Return if nothing is known of a file, so that a request for its content is worth more than for its stat."""
        if not self.by_request or self.offline or self.max_age is not None or key in self._updated:
            return False
        if self._records().recall(url) is not None:
            return False
        if by_listing:
            self._list_page(key)
        return self._records().recall(url) is None and not self.likely_cached

    def list_for(self, wanted: Sequence[str]) -> None:
        """Ask for pages of a listing with files that are going to be asked for, if that takes fewer requests."""
        unknown = [key for key in wanted if self.fresh(key, self._inner._url(key)) is None] if self._can_list else []
        self._is_used = self._is_used or len(unknown) > 1
        pages = max(1, len(unknown) // 4)
        for key in sorted(unknown):
            if self.fresh(key, self._inner._url(key)) is not None:  # the page of another one had it
                self._credit = min(PAGES, self._credit + 0.5)
            elif pages > 0:
                pages -= self._list_page(key)

    def _list_page(self, key: str) -> bool:
        """Ask for a page of names with a file's, if that is likely to be of use: the first one may be the only one.

        Return whether there was a request.
        """
        first, self._is_used = not self._is_used, True
        self._credit = min(PAGES, self._credit + 1 / PAGES)
        if first or not self._can_list or self._credit < 1 or key in self._updated:
            return False
        with self._listing:
            if self.fresh(key, self._inner._url(key)) is not None:  # another thread has asked for it
                return False
            asked = time.time()
            root, all_listed = self._inner._root, self._records().listed
            listed = all_listed.get(root)
            if listed is None or not 0 <= asked - listed.since < self._check_interval:
                all_listed[root] = listed = Listed(asked)
            name = keys.relative(key, root)
            if name in listed:  # and not in the listing, or without a version
                return False
            # Behind what is listed of its directory; in a very large one every other page begins at the file. Of a
            # directory of which nothing is listed, at its beginning, or every other time behind what is listed before.
            directory, start = name[: name.rfind("/") + 1], listed.end(name)
            if start > directory:
                start = name[:-1] if listed.pages >= IN_ORDER and listed.pages % 2 else start
            elif not start or listed.pages % 2 == 0:
                start = directory
            self._credit -= 1
            listed.pages += 1
            try:
                page = list_page(self._inner, root, start)
            except OSError:  # of what may not be listed
                page = None
            for stat in page.files if page is not None else ():
                self.remember_listed(keys.join(root, stat.filename), stat, asked)
            listed.add(*(("", LAST_NAME) if page is None else (start, page.last)))
            if self.fresh(key, self._inner._url(key)) is not None:
                self._credit += 0.5
            return True

    # ---- what is remembered

    def remember_listed(self, key: str, stat: FileStat, asked: float) -> None:
        """Remember a file that a listing has shown, which was asked for at a time."""
        if self._check_interval and not stat.directory and stat.version is not None and key not in self._updated:
            self._records().remember(self._inner._url(key), stat._replace(filename=keys.name(key)), asked)

    def seen(self, url: str, stat: FileStat | None, asked: float | None = None) -> None:
        """Note the stat that the caller has been given of a file, None if that is gone: what is remembered otherwise is
        not given any more. Offline it takes the place of that, if it is known when the store was `asked` for it.
        """
        records = self._records()
        record = records.recall(url) if self.remembers else None
        if record is None or (stat is not None and not _is_other(record.stat, stat)):
            return
        if not self.offline or stat is None:
            self.invalidate(url)
        elif asked is not None:
            records.save(url, records.remember(url, stat, asked))

    def shown(self, key: str, members: Iterator[FileStat]) -> Iterator[FileStat]:
        """Yield the members of the directory `key`; forget what is remembered of a file that is another one by now."""
        records = self._records()
        for stat in members:
            if self._check_interval and len(records):
                url = self._inner._url(keys.join(key, stat.filename))
                if url in records:
                    self.seen(url, stat)
            yield stat

    def aged_version(self, url: str, stat: FileStat) -> str:
        """Return a version for a file that has none: since when it is as it is; a new one if that is too long ago."""
        assert self.max_age is not None
        records = self._records()
        record = records.recall(url)
        same = record is not None and (record.stat.size, record.stat.last_modified) == (stat.size, stat.last_modified)
        if record is None or not same or time.time() - record.since > self.max_age:
            records.forget(url)
            record = records.remember(url, stat, time.time())
            records.save(url, record)
        return f"since {record.since}"

    def remember(self, url: str, stat: FileStat, asked: float, strong: bool) -> None:
        """Remember a file that is cached, as it was when it was asked for; offline, only under a strong version."""
        records = self._records()
        if self.offline:
            before = records.recall(url)
            if strong and (before is None or before.stat != stat):
                records.save(url, records.remember(url, stat, asked))
        elif self.fresh(url, url, records) is None:
            records.remember(url, stat, asked)

    def invalidate(self, *urls: str) -> None:
        """Forget files that have changed."""
        for url in urls:
            self._records().forget(url)

    def updated(self, key: str, url: str) -> None:
        """Ask for a file at each open from now on: it may change while it is open for writing."""
        self._updated |= {key}
        self.invalidate(url)

    def listing(self, url: str, kind: str, ask: Callable[[], Iterator[FileStat]]) -> Iterator[FileStat]:
        """Yield the store's listing, which is remembered, or the remembered one."""
        records = self._records()

        def listed() -> list[FileStat]:
            members = [*ask()]
            records.save_list(url, kind, members)
            return members

        yield from self._asked(listed, lambda: records.recall_list(url, kind))


def _content(stat: FileStat) -> tuple[object, ...]:
    return stat.size, stat.last_modified, stat.version


def _is_other(one: FileStat, other: FileStat) -> bool:
    """Return whether two stats are of two contents; the response with a content has no time."""
    if one.version is not None and other.version is not None:
        return (one.size, one.version) != (other.size, other.version)
    return _content(one) != _content(other)
