"""The per-process state of a `CachedFS`: its contents and records, and the files that it has found."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from ..core.fs import FS, FileStat
from . import inner as inners
from .content import ContentCache, Counts, EntryKey
from .disk import open_disk
from .eviction import DiskLimits
from .freshness import FileRecords

FILES_KEPT = 100_000
"""Files that a process remembers as they were found; then it forgets them all."""


class CachedFile(NamedTuple):
    """The stat and the identity of a file that is being opened."""

    stat: FileStat
    entry: EntryKey | None
    """Its name in the cache; None if it is not cached."""
    admit: bool
    """Whether it may be stored: its version is that of no other content."""


class ResolvedStore:
    """The store of an FS, and the principal that the store knows it as; a forked child has those of its parent.

    To resolve those of S3 takes a client, 20 to 150 ms: forked workers that read from the cache alone make none. They
    are resolved again for another FS (`lazify` makes one in each process), and in another environment.
    """

    def __init__(self, inner: FS) -> None:
        self._inner = inner
        self._resolved: tuple[FS, dict[str, str], str, str] | None = None

    def get(self) -> tuple[str, str]:
        """Return `_resolved_store()` and `_principal()` of the FS."""
        backend, settings, known = inners.backend_of(self._inner), dict(os.environ), self._resolved
        if known is None or known[0] is not backend or known[1] != settings:
            known = backend, settings, self._inner._resolved_store(), self._inner._principal()
            self._resolved = known
        return known[2:]

    def __reduce__(self) -> tuple[Any, ...]:
        return ResolvedStore, (self._inner,)


class CacheState:
    """The per-process state of a `CachedFS` around `inner`, of which `resolved` is the store."""

    def __init__(
        self,
        inner: FS,
        resolved: ResolvedStore,
        folder: str | None,
        limits: DiskLimits,
        memory_bytes: int,
        timeout: float,
        counts: Counts,
        records_on_disk: bool,
    ) -> None:
        disk = open_disk(folder, limits) if folder is not None else None
        store, principal = resolved.get()
        self.store: str = store
        self.contents: ContentCache = ContentCache(disk, memory_bytes, timeout, counts)
        self.records: FileRecords = FileRecords(f"{store} {principal}", self.contents, records_on_disk)
        self.files: dict[str, CachedFile] = {}
        """The last ones that were found, by key."""
