"""CachedFS: a layer that keeps what is read in memory and on the local disk, for all processes of a user.

`CachedFS` has the methods of an FS; `CachedFiles` leads from a key to its content, cached or fetched: `freshness` has
what is known of a file without its content, `content` keeps the bytes. They are named by the file's identity, so that
another version is never returned for the one that the store has; the store is asked for the version at each open,
unless an option says that less will do.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backends.local import Local
from ..core import errors, identity, keys, process
from ..core.blobs import Blob, Hint
from ..core.fs import FS, FileStat, StrPath, TreeCounts, keys_of
from ..core.identity import Identity
from ..core.layers import LayerFS, compared
from ..core.writing import LayerWriter, Writer
from ..disk import folders
from ..disk.folders import cache_directory
from . import batches, warming
from .blocks import BlockBlob, Blocks, WholeBlob
from .content import ContentCache, Counts
from .disk import EntryKey, open_disk, warn_once
from .eviction import DiskLimits
from .freshness import FileRecords, Freshness
from .policy import ReadOrder

if TYPE_CHECKING:
    from typing_extensions import Buffer

KB, MB = 1024, 1024 * 1024
FILES_KEPT = 100_000
"""Files that a process remembers as they were found; then it forgets them all."""
_ATTEMPTS = 4


class CachedFS(LayerFS):
    """An FS whose contents are kept in memory and on the local disk once they were read.

    Files up to `whole_file_size` are kept whole, larger ones by blocks; members of containers, too. All processes of a
    user that name the same `dir` share what is there, and fetch once what several of them want at the same time. What
    it writes, renames and removes is read anew. A cache that fails (full, read-only, damaged, removed) is a miss
    and one warning. Files of a store that has no versions are not cached, but for `max_age`.

    Args:
        inner: what is cached.
        dir: a folder on a local disk; `files` in the cache directory (`$FSABS_CACHE_DIR`) if there is none.
        max_bytes: of disk, as a number or a text as `"50GB"`, `"1.5TiB"`; None for all that `min_free` leaves.
        min_free: what is left free of the disk, in the same ways; None for a tenth of it, at most 50 GB.
        memory_bytes: of memory, in each process, for all that shares `dir` and its limits; 0 for none.
        block_size: bytes that are fetched and kept together of a large file.
        whole_file_size: the largest file that is fetched and kept as a whole.
        check_interval: seconds for which a file is taken to be unchanged after its store was asked for it, or for a
            page of a listing that it is in, where that takes a request: so long an object that was overwritten may be
            given as it was, unless a stat or a listing has shown it since. 0 asks at each open, `math.inf` never again.
        max_age: seconds for which a file of a store that has no versions is taken to be unchanged, as long as its size
            and time stay the same; None caches no such file.
        offline: when the store can't be reached, give what is here of it, as it was when it could. Files and listings
            are remembered for that.

    Raises `ValueError` for a size or a number of seconds that can't be.
    """

    keeps_content = True

    def __init__(
        self,
        inner: FS,
        dir: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int | str | None = None,
        min_free: int | str | None = None,
        memory_bytes: int | str = 64 * MB,
        block_size: int | str = MB,
        whole_file_size: int | str = 4 * MB,
        check_interval: float = 60.0,
        max_age: float | None = None,
        offline: bool = False,
    ) -> None:
        super().__init__(inner)
        blocks, whole = size_of(block_size, "block_size", least=4 * KB), size_of(whole_file_size, "whole_file_size")
        if check_interval < 0 or (max_age is not None and max_age < 0):
            raise ValueError("check_interval and max_age are not negative")
        folder = os.path.abspath(dir) if dir is not None else _default_folder()
        floor = _share_of_disk(folder) if min_free is None else size_of(min_free, "min_free")
        limits = DiskLimits(None if max_bytes is None else size_of(max_bytes, "max_bytes"), floor)
        memory = size_of(memory_bytes, "memory_bytes")
        on_disk = offline or max_age is not None
        make = functools.partial(CacheState, inner, folder, limits, memory, Counts(), on_disk)
        self._state: process.PerProcess[CacheState] = process.PerProcess(make)
        records = functools.partial(_records, self._state)
        self._stats = Freshness(inner, records, check_interval, max_age, offline)
        self._files = CachedFiles(inner, self._state, self._stats, blocks, whole)
        _warn_if_local(inner)

    # ---- reading

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        if stat is not None:
            self._stats.seen(self._url(key), stat)
        return self._files.open(self, key, Hint.FROM_START if hint is Hint.FILE else hint)  # its version is compared

    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        if versions:
            return FS._read_many(self, wanted, concurrency, True)
        if len(wanted) == 1:
            return map(self._content, wanted)
        return batches.read_many(self._files, wanted, concurrency)

    def _content(self, key: str) -> bytes:
        files = self._files
        if files.order.is_known or files.prefetched.is_known:
            files.reached(key)
        file, data = files.known(key)
        return files.read(key, file) if data is None else data

    def _named(self, exc: OSError, operation: str, key: str) -> None:
        super()._named(exc, operation, key)
        if isinstance(exc, ConnectionError | TimeoutError) and not hasattr(exc, "__notes__"):
            exc.add_note("While a store can't be reached, a cache gives what was read through one with offline=True.")

    # ---- looking

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        if not follow:
            return self.inner._stat(key, False)
        url, asked = self._url(key), time.time()
        try:
            stat = self._stats.stat(key, url)
        except (FileNotFoundError, NotADirectoryError):
            self._stats.seen(url, None)
            raise
        self._stats.seen(url, stat, asked)
        return stat

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        return self._listed(key, "list", self.inner._list)

    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[FileStat]:
        start = after if not self._stats.offline else ""  # the whole one is kept
        return self._listed(key, "walk", lambda key: self.inner._walk(key, True, start))

    def _listed(self, key: str, kind: str, ask: Callable[[str], Iterator[FileStat]]) -> Iterator[FileStat]:
        if self._stats.offline:
            return self._stats.listing(self._url(key), kind, lambda: ask(key))
        return self._stats.shown(key, ask(key))

    # ---- writing: what changes is asked for anew, and what may have changed where there was an error

    def _invalidate(self, *changed: str) -> None:
        self._stats.invalidate(*map(self._url, changed))

    @contextlib.contextmanager
    def _changing(self, *changed: str, members: Iterable[str] = ()) -> Iterator[None]:
        """Ask anew, after the block, for files that it changes, or directories with all their `members`."""
        try:
            yield
        finally:
            for key in changed:
                self._invalidate(key, *(keys.join(key, member) for member in members))

    def _below(self, key: str) -> list[str]:
        """Return what is below a directory that is going to change, if it is remembered without asking again."""
        if not self._stats.remembers:
            return []
        try:
            return [member.filename for member in self.inner._walk(key)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        if append or update:
            self._stats.updated(key, self._url(key))
        writer = self.inner._create(key, exclusive, append, update)
        return writer if update else _InvalidatingWriter(writer, functools.partial(self._invalidate, key))

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        written: list[str] = []

        def noted() -> Iterator[tuple[str, bytes]]:
            for key, data in pairs:
                written.append(key)
                yield key, data

        try:
            return self.inner._write_many(noted(), concurrency)
        finally:
            self._invalidate(*written)

    def write_if(self, path: StrPath, data: Buffer, version: str) -> None:
        """Replace a file that has still this `version`, where the store has such a method."""
        with self._changing(self._file_key(path, "write_if")):
            self._inner_here().write_if(path, data, version)

    def _rename(self, src: str, dst: str) -> None:
        with self._changing(src, dst, members=self._below(src)):
            self.inner._rename(src, dst)

    def _remove(self, key: str) -> None:
        with self._changing(key):
            self.inner._remove(key)

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        with self._changing(key, members=self._below(key)):
            self.inner._remove_tree(key, keep)

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        with self._changing(dst):
            super()._copy(source, src, dst)

    # ---- the cache itself

    def set_order(self, paths: Iterable[StrPath], *, position: int = 0) -> None:
        """Set the order in which files will be read: what is needed last goes first when space is short.

        Give the whole epoch's order, of all workers, to each of them; the next epoch's may follow in the same list.
        Holds for this process and those forked from it or given this FS from now on; an empty one takes it back.

        Args:
            paths: in the order of reading.
            position: the number in `paths` of the file that is read next, where an epoch is resumed.
        """
        self._files.order = ReadOrder(map(self._url, keys_of(self, paths, "set_order")), position)

    def prefetch(
        self, paths: Iterable[StrPath], *, concurrency: int | None = None, max_bytes: int | str | None = None
    ) -> warming.Prefetch:
        """Fetch what is missing of `paths` ahead of their being read in that order, in a thread.

        A full cache admits what it fetches only if that comes before what is there in the order of `set_order`.
        The thread stays at most `max_bytes` ahead of what this process has read (half of the cache's limit, or 4 GB),
        going by the largest file so far. It ends with the process: a forked child has none, and starts its own if it
        wants one. One that is so far ahead ends when another one begins, or this FS is closed. A file that can't be
        fetched is left to be read, and to fail, in its turn. `wait()` of what is returned waits, `cancel()` ends it.
        """
        wanted = keys_of(self, paths, "prefetch")
        self._files.prefetched = ReadOrder(map(self._url, wanted))
        ahead = size_of(max_bytes, "max_bytes") if max_bytes is not None else warming.most_ahead(self._files)
        return warming.Prefetch(self._files, wanted, concurrency, ahead)

    def warm(
        self,
        path: StrPath = "",
        *,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> TreeCounts:
        """Fetch all files at or below `path` that are not cached; what can't be fetched is raised.

        `progress(files, bytes)` is called with what is done; without it there is a progress bar, where tqdm is
        installed and standard error is a terminal. `concurrency` is that of `read_many`.

        Returns the number of the files, their bytes, and how many bytes were `fetched`.
        """
        return warming.warm(self._files, self, self._key(path, "warm"), progress, concurrency)

    def pin(self, paths: Iterable[StrPath]) -> int:
        """Fetch files, and exempt them from eviction; return how many bytes of them are on the disk and stay there.

        That is less than the files have where there is no room, or no disk, or where one was written just now, so that
        another content may still get its version. A directory is an `IsADirectoryError`. Earlier versions of the files
        are exempt no longer.
        """
        size, wanted = 0, list(keys_of(self, paths, "pin"))
        self._unpin(wanted)
        for key in wanted:
            with self._naming("pin", key):
                size += warming.pin(self._files, key)
        return size

    def unpin(self, paths: Iterable[StrPath]) -> None:
        """Take `pin` back, of whichever version of the files."""
        self._unpin(keys_of(self, paths, "unpin"))

    def _unpin(self, wanted: Iterable[str]) -> None:
        if (disk := self._files.contents().disk) is not None:
            disk.unpin(map(self._url, wanted))

    def verify(self) -> list[str]:
        """Read all that is on disk, of whichever FS; returns what was damaged, and is removed, by URL and version."""
        disk = self._files.contents().disk
        return disk.verify() if disk is not None else []

    def clear(self) -> None:
        """Empty the cache: the folder, for all that share it, and this process's memory."""
        self._files.contents().clear()

    def status(self) -> dict[str, Any]:
        """Return what the cache holds and may hold, in bytes, and its hits and misses; goes through JSON.

        `disk` (None without one) has `dir`, `max_bytes`, `min_free`, `evicted` and `usable`, and if it is, `entries`,
        `bytes` and `free`; `memory` has `items` and `bytes`. `hits`, `memory_hits` of them, and `misses` are those of
        this process and of those that were forked from it.
        """
        return self._files.contents().status()

    def _close(self) -> None:
        self._leave()
        super()._close()

    def _abort(self) -> None:
        self._leave()
        super()._abort()

    def _leave(self) -> None:
        self._files.prefetched = ReadOrder()  # a prefetch that waits for its reader ends
        self._state.close()


class _InvalidatingWriter(LayerWriter):
    """A writer whose file is asked for anew once it is there."""

    def __init__(self, inner: Writer, invalidate: Callable[[], None]) -> None:
        super().__init__(inner)
        self._invalidate = invalidate

    def commit(self) -> None:
        try:
            super().commit()
        finally:  # an error leaves it open what the file is now
            self._invalidate()


class SmallArchives(CachedFS):
    """The store below the containers of a URL: archives that are small are cached as files are, others are not."""

    LARGEST = 64 * MB
    """Bytes of the largest of them; a cache of less than twice as much has smaller ones."""

    def __init__(self, inner: FS, dir: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(inner, dir, **options)
        limit = options.get("max_bytes")
        self._files.largest = self.LARGEST if limit is None else min(self.LARGEST, size_of(limit, "max_bytes") // 2)
        self._stats.by_request = False  # the beginning of an archive is of no use where its blocks are cached


# ---- from a key to its content


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
                if self.stats.notes_contents and self.contents().contains(entry):
                    self.remember(file)
                return data, file.stat.version
        finally:
            if opened is not None:
                opened.close()
        with self.inner._open_blob(key) as blob:
            return blob.read_all(), blob.version


def _records(state: process.PerProcess[CacheState]) -> FileRecords:
    return state.get().records


def _warn_if_local(inner: FS) -> None:
    """Warn once that a cache around local files does not pay, unless they are on a network mount."""
    inner = inner.backing
    folder = f"/{inner._root}"
    if isinstance(inner, Local) and not folders.is_network(folders.filesystem_of(folder)):
        message = (
            f"a cache around local files makes small ones slower: each is checked, and read from a copy ({folder})"
        )
        warn_once("local", message)


def _default_folder() -> str | None:
    base = cache_directory()
    return os.path.join(base, "files") if base is not None else None


# ---- sizes as users write them


_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
LARGEST_FLOOR = 50 * 10**9
"""Bytes of a disk that a cache leaves free by default, at most: a tenth of a small disk."""


def size_of(value: int | str, name: str, least: int = 0) -> int:
    """A number of bytes: a number, or text as `"50GB"` (10**9), `"1.5TiB"` (2**40), `"4096"`; `ValueError`."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None or (match[3] and not match[2]):
            raise ValueError(f"{name} is a number of bytes, or text as '50GB' or '1.5TiB', not {value!r}")
        value = int(float(match[1]) * (_BINARY if match[3] else _UNITS)[match[2].lower()])
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is a number of bytes, at least {least}, not {value!r}")
    return value


def _share_of_disk(folder: str | None) -> int:
    """Return the default of `min_free`: a tenth of the disk that holds `folder`, or that will; at most 50 GB."""
    if folder is None:
        return 0
    status = os.statvfs(folders.existing(folder))
    return min(LARGEST_FLOOR, status.f_blocks * status.f_frsize // 10)
