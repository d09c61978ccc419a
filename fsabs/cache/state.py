"""The per-process state of a `CachedFS`: its contents and records, and the files that it has found."""

from __future__ import annotations

from typing import NamedTuple

from ..fs import FS, FileStat
from . import inner as inners
from .content import ContentCache, EntryKey
from .disk import open_disk
from .eviction import DiskLimits
from .records import FileRecords

FILES_KEPT = 100_000
"""Files that a process remembers as they were found; then it forgets them all."""


class CachedFile(NamedTuple):
    """The stat and the identity of a file that is being opened."""

    stat: FileStat
    entry: EntryKey | None
    """Its name in the cache; None if it is not cached."""
    admit: bool
    """Whether it may be stored: its version is that of no other content."""


class CacheState:
    """The per-process state of a `CachedFS`."""

    def __init__(self, inner: FS, folder: str | None, limits: DiskLimits, memory_bytes: int, timeout: float) -> None:
        disk = open_disk(folder, limits) if folder is not None else None
        self.store: str = inner._resolved_store()
        self.by_request: bool = inners.is_asked_by_request(inner)
        self.contents: ContentCache = ContentCache(disk, memory_bytes, timeout)
        self.records: FileRecords = FileRecords(f"{self.store} {inner._principal()}", self.contents)
        self.files: dict[str, CachedFile] = {}
        """The last ones that were found, by key."""
