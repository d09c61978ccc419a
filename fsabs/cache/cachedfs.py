"""CachedFS: a layer that keeps what is read in memory and on the local disk, for all processes of a user.

`CachedFS` has the methods of an FS; `files` leads from a key to its content, cached or fetched: `freshness` has what is
known of a file without its content, `content` keeps the bytes. They are named by the file's identity, so that another
version is never returned for the one that the store has; the store is asked for the version at each open, unless an
option says that less will do.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..backends.local import Local
from ..core import keys, process
from ..core.blobs import Blob, Hint
from ..core.fs import FS, FileStat, StrPath, TreeCounts, keys_of
from ..core.layers import LayerFS
from ..core.writing import LayerWriter, Writer
from ..disk import folders
from ..disk.folders import cache_directory
from . import batches, warming
from .content import Counts
from .disk import warn_once
from .eviction import DiskLimits
from .files import CachedFiles, CacheState
from .freshness import FileRecords, Freshness
from .policy import ReadOrder

if TYPE_CHECKING:
    from typing_extensions import Buffer

KB, MB = 1024, 1024 * 1024


class CachedFS(LayerFS):
    """An FS whose contents are kept in memory and on the local disk once they were read.

    Files up to `whole_file_size` are kept whole, larger ones by blocks; members of containers, too. All processes of a
    user that name the same `dir` share what is there, and fetch the blocks of a file above 64 MiB once. What it writes,
    renames and removes is read anew. A cache that fails (full, read-only, damaged, removed) is a miss
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
        if key in files.absent:
            if files.refuses():
                return next(batches.read_past(files, [key], None))
            files.absent.discard((key,))
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
        `bytes` and `free`; `memory` has `items` and `bytes` of the contents in this process, with their overhead,
        and `files` those of what it remembers of files beside that. `hits`, `memory_hits` of them, and `misses` are
        those of this process and of those that were forked from it.
        """
        return {**self._files.contents().status(), "files": self._files.remembered()}

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
