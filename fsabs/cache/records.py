"""The records of `CachedFS` about files beside their bytes: a file's last stat, and the time of that request.

A record is kept in this process, and on disk under a name of the file's URL alone, as JSON: the times of the last
question and of the first one with the same answer, in seconds since 1970, then the fields of `FileStat`.
"""

from __future__ import annotations

import json
import time
from typing import NamedTuple

from .. import identity
from ..fs import FileStat
from .content import ContentCache

LONGEST = 100_000
"""Records that a process keeps in memory; then it forgets them all."""


class FileRecord(NamedTuple):
    """A file as it was when it was asked for."""

    asked: float
    """When, in seconds since 1970."""
    since: float
    """When the answer was first this one."""
    stat: FileStat


class FileRecords:
    """The records of one process; `store` and `url` name a file."""

    def __init__(self, store: str, contents: ContentCache) -> None:
        self._store = identity.encode(store)
        self._contents = contents
        self._known: dict[str, FileRecord] = {}

    def recall(self, url: str) -> FileRecord | None:
        """Return the last stat of a file, however old."""
        found = self._known.get(url)
        return found if found is not None else self._load(url)

    def recall_since(self, url: str, after: float) -> FileRecord | None:
        """Return a file's stat if this or another process has requested it after that time."""
        found = self._known.get(url)
        if found is None or found.asked < after:
            found = self._load(url)
        return found if found is not None and after <= found.asked <= time.time() else None

    def remember(self, url: str, stat: FileStat) -> FileRecord:
        """Remember, in this process, what a file is now."""
        now = time.time()
        before = self._known.get(url)
        same = before is not None and _content(before.stat) == _content(stat)
        record = FileRecord(now, before.since if before is not None and same else now, stat)
        if len(self._known) >= LONGEST:
            self._known = {}
        self._known[url] = record
        return record

    def is_marked(self, url: str) -> bool:
        """Return if a file was marked; a hint."""
        disk = self._contents.disk
        return url in self._known if disk is None else disk.is_marked(url)

    def mark(self, url: str, stat: FileStat) -> None:
        """Mark a file as one that was cached."""
        if self._contents.disk is not None:
            self._contents.disk.mark(url)
        else:
            self.remember(url, stat)

    def remember_on_disk(self, url: str, stat: FileStat) -> None:
        """Remember a file that was asked for now, for other processes, too; once."""
        if self.recall(url) is None:
            self.save(url, self.remember(url, stat))

    def save(self, url: str, record: FileRecord) -> bool:
        """Remember it for other processes, too; whether it is on disk now."""
        if self._contents.disk is not None:
            name, text = self._name(url), json.dumps([record.asked, record.since, *record.stat])
            return self._contents.disk.put(name, url, text.encode(), self._contents.order)
        return False

    def forget(self, url: str) -> None:
        """A file has changed."""
        self._known.pop(url, None)
        if self._contents.disk is not None:
            self._contents.disk.remove(self._name(url), url)
            self._contents.disk.mark(url, False)

    def save_list(self, url: str, kind: str, members: list[FileStat]) -> None:
        """Remember what a directory holds; `kind` tells one sort of listing from another."""
        if self._contents.disk is not None:
            name = self._name(url, kind)
            text = json.dumps(members)
            self._contents.disk.put(name, url, text.encode(), self._contents.order)

    def recall_list(self, url: str, kind: str) -> list[FileStat] | None:
        """Return the last listing of a directory."""
        data = self._contents.disk.get(self._name(url, kind), url) if self._contents.disk is not None else None
        try:
            return [FileStat(*fields) for fields in json.loads(data)] if data is not None else None
        except (ValueError, TypeError):  # of another release
            return None

    def _load(self, url: str) -> FileRecord | None:
        data = self._contents.disk.get(self._name(url), url) if self._contents.disk is not None else None
        if data is None:
            return None
        try:
            asked, since, *fields = json.loads(data.decode())
            record = FileRecord(float(asked), float(since), FileStat(*fields))
        except (ValueError, TypeError):  # of another release
            return None
        self._known[url] = record
        return record

    def _name(self, url: str, kind: str = "stat") -> bytes:
        return self._store + identity.encode(url, kind)


def _content(stat: FileStat) -> tuple[object, ...]:
    return stat.size, stat.last_modified, stat.version
