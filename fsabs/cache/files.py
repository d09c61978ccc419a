"""The files of a `CachedFS`: from a key to its stat, its name in the cache, and its content, cached or fetched."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from ..core import errors, identity, keys, process
from ..core.blobs import Blob, Hint
from ..core.fs import FS, FileStat
from ..core.identity import Identity
from ..core.layers import compared
from .blocks import BlockBlob, Blocks, WholeBlob
from .content import AbsentFiles, ContentCache, Counts
from .disk import EntryKey, open_disk
from .eviction import DiskLimits
from .freshness import FileRecords, Freshness
from .policy import ReadOrder

FILES_KEPT = 10_000
"""Files that a process remembers as they were found; then it forgets them all."""
_FILE_BYTES, _RECORD_BYTES = 600, 320
"""Bytes of memory of such a file, and of a stat that is remembered, about."""
_ATTEMPTS = 4


class CachedFile(NamedTuple):
    """The stat and the identity of a file that is being opened."""

    stat: FileStat
    entry: EntryKey | None
    """Its name in the cache; None if it is not cached."""
    small: EntryKey | None
    """The same of a file that is cached as a whole."""
    admit: bool
    """Whether it may be stored: its version is that of no other content."""
    asked: float
    """When its store was asked for it, in seconds since 1970."""


class CacheState:
    """The per-process state of a `CachedFS` around `inner`."""

    def __init__(
        self,
        inner: FS,
        folder: str | None,
        limits: DiskLimits,
        memory_bytes: int,
        counts: Counts,
        records_on_disk: bool,
    ) -> None:
        disk = open_disk(folder, limits) if folder is not None else None
        self.store: str = identity.store(inner)
        self.contents: ContentCache = ContentCache(disk, memory_bytes, counts)
        asking = f"{self.store} {identity.principal(inner)}" if records_on_disk else ""
        self.records: FileRecords = FileRecords(asking, self.contents, records_on_disk)
        self.files: dict[str, CachedFile] = {}
        """The last ones that were found, by key."""


class CachedFiles:
    """The files of a `CachedFS` around `inner`. Files up to `whole_size` are one entry, others one a block."""

    def __init__(
        self,
        inner: FS,
        state: process.PerProcess[CacheState],
        stats: Freshness,
        block_size: int,
        whole_size: int,
    ) -> None:
        self.inner = inner
        self.stats = stats
        self._whole_size = whole_size
        self.largest: float = math.inf
        """Bytes of the largest file that is cached."""
        self.order: ReadOrder = ReadOrder()
        """The order of an epoch, by which entries are evicted."""
        self.prefetched: ReadOrder = ReadOrder()
        """The order of what is being fetched ahead of its reader."""
        self.absent: AbsentFiles = AbsentFiles()
        """The files that are known not to be in a full cache."""
        self.stat_is_request: bool = stats.takes_requests
        self._state = state
        self._block_size = block_size

    def state(self) -> CacheState:
        """Return this process's state."""
        state = self._state.get()
        state.contents.order = self.order
        return state

    def contents(self) -> ContentCache:
        """Return this process's cache of contents."""
        return self.state().contents

    def remembered(self) -> dict[str, int]:
        """Return of how many files this process remembers something, and about how many bytes that takes."""
        state = self.state()
        files, records = len(state.files), len(state.records)
        return {"items": files + records, "bytes": files * _FILE_BYTES + records * _RECORD_BYTES}

    def refuses(self) -> bool:
        """Return whether what is not in the cache is read past it now, since it is full of what is used."""
        return not self.stats.offline and self.contents().refuses()

    def reached(self, key: str) -> None:
        """Note that a file is read: what is before it in an order is not needed any more."""
        for order in (self.order, self.prefetched):
            if order.is_known:
                order.reached(self.inner._url(key))

    # ---- from a key to its entry

    def known(self, key: str) -> tuple[CachedFile | None, bytes | None]:
        """Return what is known of a file without a request, None for nothing, and its content, if it is small and
        cached.
        """
        state = self.state()
        file = state.files.get(key)
        url = self.inner._url(key) if file is None or file.entry is None else file.entry.url
        if self.stat_is_request:
            record = self.stats.fresh(key, url, state.records)
            if record is None:
                return None, None
            stat = record.stat
        else:
            stat = self.stats.stat(key, url) if self.stats.offline else self.inner._stat(key)
        if file is None or file.stat != stat:
            file = self.found(key, url, stat, time.time())
        return file, self.cached(file, state.contents)

    def cached(self, file: CachedFile, contents: ContentCache) -> bytes | None:
        """Return the content of a file if it is small and cached, or if its store has said that it is empty."""
        stat = file.stat
        if file.small is not None:
            data = contents.lookup(file.small)
            return data if data is not None and len(data) == stat.size else None
        is_empty = not stat.size and not stat.directory and stat.version is not None
        return b"" if is_empty and self.inner.capabilities.stat_is_request else None

    def _located(self, key: str, file: CachedFile | None) -> tuple[CachedFile, bytes | None, Blob | None]:
        """Return a file, if `known` has found nothing, and its content; with a blob, if it was opened for that."""
        if file is not None:
            return file, None, None
        file, opened = self.find_or_open(key)
        data = self.cached(file, self.contents())
        if data is not None and opened is not None:
            opened.close()
        return file, data, opened

    def find(self, key: str, *, by_listing: bool = True) -> CachedFile:
        """Return a file, asked for now or within the check interval."""
        url, asked = self.inner._url(key), time.time()
        return self.found(key, url, self.stats.current(key, url, by_listing=by_listing), asked)

    def find_or_open(self, key: str) -> tuple[CachedFile, Blob | None]:
        """As `find`; a file that was never cached is opened for that, if it takes no more requests."""
        asked = time.time()
        if not self.stat_is_request or not self.stats.is_new(key, self.inner._url(key)):
            return self.find(key), None
        blob = self.inner._open_blob(key, Hint.FROM_START)
        file = self.of_response(key, blob.size, blob.version, asked)
        if self.is_cached(file):
            self.remember(file)  # what isn't there is remembered when its content was read
        return file, blob

    def found(self, key: str, url: str, stat: FileStat, asked: float) -> CachedFile:
        """Return the file of a stat: the one of the last time, if that was the same and may be stored."""
        files = self.state().files
        file = files.get(key)
        if file is None or file.stat != stat:
            file = self._file(url, stat, asked)
            if file.admit and stat.version is not None:
                if len(files) >= FILES_KEPT:
                    files.clear()
                files[key] = file
        return file

    def of_response(self, key: str, size: int, version: str | None, asked: float) -> CachedFile:
        """Return the file that a response with content is of."""
        stat = FileStat(keys.name(key), size, version=version)
        return self._file(self.inner._url(key), stat, asked, strong=True)

    def is_cached(self, file: CachedFile) -> bool:
        """Return whether a file whose content was requested in place of its stat, or its beginning, was cached."""
        entry = file.small
        if entry is None and file.entry is not None:
            entry = self.blocks(file.entry, file.stat.size).entry(0)
        self.stats.likely_cached = entry is not None and self.contents().contains(entry)
        return self.stats.likely_cached

    def _file(self, url: str, stat: FileStat, asked: float, strong: bool = False) -> CachedFile:
        version = stat.version
        if stat.directory or not 0 < stat.size <= self.largest or (version is None and self.stats.max_age is None):
            return CachedFile(stat, None, None, False, asked)
        admit = strong or version is None or identity.is_strong(self.inner, version)
        if version is None:
            version = self.stats.aged_version(url, stat)
        name = Identity(self._state.get().store, url, version, stat.size).encode()
        entry = EntryKey.of(name, url)
        return CachedFile(stat, entry, entry if stat.size <= self._whole_size else None, admit, asked)

    def remember(self, file: CachedFile) -> None:
        """Remember a file that is cached."""
        if file.entry is not None and self.stats.notes_contents:
            self.stats.remember(file.entry.url, file.stat, file.asked, file.admit)

    # ---- from there to its content

    def open(self, fs: FS, key: str, hint: Hint) -> Blob:
        """Return a blob of a file of `fs`."""
        self.reached(key)
        for _ in range(_ATTEMPTS):
            known, data = self.known(key)
            file, data, opened = self._located(key, known) if known is None or data is None else (known, data, None)
            if data is not None:
                return WholeBlob(fs, key, data, file.stat.version)
            if file.entry is None:
                return self.inner._open_blob(key, hint) if opened is None else opened
            if file.small is not None:
                return WholeBlob(fs, key, *self.whole(key, file, hint, opened))
            with contextlib.suppress(errors.StaleFileError):  # it changed since it was asked for, and nothing was read
                if opened is None and not self._is_begun(file.entry, file.stat.size):
                    opened = self._opened_as(file, Hint.ANY, key)
                return compared(self.inner, key, self.block_blob(fs, key, file, opened))
        return self.inner._open_blob(key, hint)

    def _is_begun(self, entry: EntryKey, size: int) -> bool:
        """Return whether the first or the last block of a large file is cached."""
        blocks = self.blocks(entry, size)
        return any(self.contents().contains(blocks.entry(number)) for number in {0, len(blocks) - 1})

    def read(self, key: str, known: CachedFile | None) -> bytes:
        """Return the content of a file of which `known` has found no content."""
        for _ in range(_ATTEMPTS):
            file, data, opened = self._located(key, known)
            if data is not None:
                return data
            if file.entry is None and opened is None:
                break
            if file.small is not None:
                return self.whole(key, file, opened=opened)[0]
            with (
                contextlib.suppress(errors.StaleFileError),  # it changed between its stat and its reading
                compared(self.inner, key, self.block_blob(self.inner, key, file, opened))
                if file.entry is not None or opened is None
                else opened as blob,
            ):
                return blob.read_all()
            self.stats.invalidate(self.inner._url(key))
            known = None
        return next(self.inner._read_many((key,)))

    def block_blob(self, fs: FS, key: str, file: CachedFile, opened: Blob | None = None) -> BlockBlob:
        """Return a blob of a large file of `fs`, which closes `opened`."""
        assert file.entry is not None
        blocks = self.blocks(file.entry, file.stat.size)
        self.remember(file)
        open_inner = functools.partial(self._opened_as, file, Hint.ANY)
        return BlockBlob(fs, key, file.stat.version, blocks, self.contents, open_inner, file.admit, opened)

    def _opened_as(self, file: CachedFile, hint: Hint, key: str) -> Blob:
        """Return a blob of a file in its store; if that has another version, it is asked for anew from now on."""
        blob = self.inner._open_blob(key, hint)
        if (blob.size, blob.version) != (file.stat.size, file.stat.version):
            blob.close()
            self.stats.invalidate(self.inner._url(key))
            raise errors.stale(self.inner._url(key))
        return blob

    def blocks(self, entry: EntryKey, size: int) -> Blocks:
        """Return the blocks of a large file."""
        return Blocks(entry.name, entry.url, size, self._block_size)

    def whole(
        self, key: str, file: CachedFile, hint: Hint = Hint.FROM_START, opened: Blob | None = None
    ) -> tuple[bytes, str | None]:
        """Fetch a small file; return its content and its version: that of `file`, unless it changed meanwhile.

        `opened` is used, once, in place of what is opened with `hint`, and closed.
        """

        def read(_: Sequence[int]) -> list[bytes]:
            nonlocal opened
            blob, opened = opened or self._opened_as(file, hint, key), None
            with blob:
                return [blob.read_all()]

        if opened is None and file.small is not None and self.refuses():
            self.contents().count_misses([file.small.url])
            self.absent.add((key,))
            return next(self.inner._read_many((key,), None, True))
        try:
            for _ in range(_ATTEMPTS):
                if (entry := file.small) is None:
                    break
                try:
                    [data] = self.contents().fetch([entry], read, file.admit)
                except errors.StaleFileError:  # it changed between its stat and its reading
                    self.stats.invalidate(entry.url)
                    file = self.find(key)
                    continue
                self.absent.discard((key,))
                if self.stats.notes_contents and self.contents().contains(entry):
                    self.remember(file)
                return data, file.stat.version
        finally:
            if opened is not None:
                opened.close()
        with self.inner._open_blob(key) as blob:
            return blob.read_all(), blob.version
