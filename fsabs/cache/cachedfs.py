"""CachedFS: a layer that keeps what is read in memory and on the local disk, for all processes of a user.

Only the methods of an FS are here: `reading` leads from a key to its content, `stats` has what is known without it,
`content` keeps the bytes. They are named by the file's identity, so that another version is never returned for the one
that the store has; the store is asked for the version at each open, unless an option says that less will do.
"""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..core import keys, process
from ..core.blobs import Blob
from ..core.fs import FS, FileStat, Path, TreeCounts, keys_of
from ..core.layers import LayerFS
from ..core.writing import LayerWriter, Writer
from ..disk import mounts
from ..disk.folders import cache_directory
from . import inner as inners
from . import warming
from .content import CLAIM_TIMEOUT, Counts
from .disk import prepare, warn_once
from .eviction import DiskLimits
from .freshness import Freshness
from .options import share_of_disk, size_of
from .policy import ReadOrder
from .reading import CachedFiles
from .state import CacheState, ResolvedStore

KB, MB = 1024, 1024 * 1024


class CachedFS(LayerFS):
    """An FS whose contents are kept in memory and on the local disk once they were read.

    Files up to `whole_file_size` are kept whole, larger ones by blocks; members of containers, too. All processes of a
    user that name the same `dir` share what is there, and fetch once what several of them want at the same time. What
    it writes, renames and removes is read anew. A cache that fails (full, read-only, damaged, removed) is a miss
    and one warning. Files of a store that tells no versions are not cached, but for `max_age`.

    Args:
        inner: what is cached.
        dir: a folder on a local disk; `files` in the cache directory (`$FSABS_CACHE_DIR`) if there is none.
        max_bytes: of disk, as a number or a text as `"50GB"`, `"1.5TiB"`; None for all that `min_free` leaves.
        min_free: what is left free of the disk, in the same ways; None for a tenth of it, at most 50 GB.
        memory_bytes: of memory, in each process, for what was used last; 0 for none.
        block_size: bytes that are fetched and kept together of a large file.
        whole_file_size: the largest file that is fetched and kept as a whole.
        check_interval: seconds for which a file is taken to be unchanged after its store was asked for it, or for a
            listing of its directory, where that takes a request: so long an object that was overwritten may be given
            as it was. 0 asks at each open, `math.inf` never again.
        max_age: seconds for which a file of a store that tells no version is taken to be unchanged, as long as its size
            and time stay the same; None caches no such file.
        offline: when the store can't be reached, give what is here of it, as it was when it could. Files and listings
            are remembered for that.
        claim_timeout: seconds to wait for another's fetch of the same thing.
    """

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
        claim_timeout: float = CLAIM_TIMEOUT,
    ) -> None:
        super().__init__(inner)
        blocks, whole = size_of(block_size, "block_size", least=4 * KB), size_of(whole_file_size, "whole_file_size")
        if check_interval < 0 or (max_age is not None and max_age < 0) or claim_timeout < 0:
            raise ValueError("check_interval, max_age and claim_timeout are not negative")
        prepare()
        folder = os.path.abspath(dir) if dir is not None else _default_folder()
        floor = share_of_disk(folder) if min_free is None else size_of(min_free, "min_free")
        limits = DiskLimits(None if max_bytes is None else size_of(max_bytes, "max_bytes"), floor)
        memory = size_of(memory_bytes, "memory_bytes")
        resolved = ResolvedStore(inner)
        resolved.get()  # now, so that no worker that is forked has to
        on_disk = offline or max_age is not None
        make = functools.partial(CacheState, inner, resolved, folder, limits, memory, claim_timeout, Counts(), on_disk)
        self._state: process.PerProcess[CacheState] = process.PerProcess(make)
        records = functools.partial(_records, self._state)
        self._stats = Freshness(inner, records, check_interval, max_age, offline)
        self._files = CachedFiles(self, inner, self._state, self._stats, blocks, whole)
        _warn_if_local(inner)

    # ---- reading

    def _open_blob(self, key: str) -> Blob:
        self._files.reached(key)
        return self._files.open(key, self.inner._open_blob)

    def _open_from_start(self, key: str) -> Blob:
        self._files.reached(key)
        return self._files.open(key, self.inner._open_from_start)

    def _read_bytes(self, key: str) -> bytes:
        files = self._files
        if files.order.is_known or files.prefetched.is_known:
            files.reached(key)
        return files.read(key)

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        return self._files.read_many(wanted, concurrency, self._files.reached)

    # ---- looking

    def _stat(self, key: str) -> FileStat:
        return self._stats.stat(key, self._url(key))

    def _list(self, key: str) -> Iterator[FileStat]:
        return self._listing(key, "list", self.inner._list)

    def _walk(self, key: str) -> Iterator[FileStat]:
        return self._listing(key, "walk", self.inner._walk)

    def _listing(self, key: str, kind: str, ask: Callable[[str], Iterator[FileStat]]) -> Iterator[FileStat]:
        return self._stats.listing(key, self._url(key), kind, ask) if self._stats.offline else ask(key)

    # ---- writing: what changes is asked for anew

    def _invalidate(self, *changed: str) -> None:
        self._stats.invalidate(*map(self._url, changed))

    def _invalidate_tree(self, key: str, members: Iterable[str]) -> None:
        self._invalidate(key, *(keys.join(key, member) for member in members))

    def _below(self, key: str) -> list[str]:
        """Return what is below a directory that is going to change, if it is remembered without asking again."""
        if not self._stats.remembers:
            return []
        try:
            return [member.filename for member in self.inner._walk(key)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _create(self, key: str, exclusive: bool) -> Writer:
        return _InvalidatingWriter(self.inner._create(key, exclusive), functools.partial(self._invalidate, key))

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

    def _append(self, key: str) -> Writer:
        self._stats.updated(key, self._url(key))
        return _InvalidatingWriter(self.inner._append(key), functools.partial(self._invalidate, key))

    def _open_update(self, key: str) -> io.BufferedIOBase:
        self._stats.updated(key, self._url(key))
        return self.inner._open_update(key)

    def _rename(self, src: str, dst: str) -> None:
        members = self._below(src)
        self.inner._rename(src, dst)
        self._invalidate_tree(src, members)
        self._invalidate_tree(dst, members)

    def _remove(self, key: str) -> None:
        self.inner._remove(key)
        self._invalidate(key)

    def _remove_tree(self, key: str) -> None:
        members = self._below(key)
        self.inner._remove_tree(key)
        self._invalidate_tree(key, members)

    def _copy(self, src: str, dst: str) -> None:
        self.inner._copy(src, dst)
        self._invalidate(dst)

    # ---- the cache itself

    def set_order(self, paths: Iterable[Path], *, position: int = 0) -> None:
        """Set the order in which files will be read: what is needed last goes first when space is short.

        Give the whole epoch's order, of all workers, to each of them; the next epoch's may follow in the same list.
        Holds for this process and those forked from it or given this FS from now on; an empty one takes it back.

        Args:
            paths: in the order of reading.
            position: the number in `paths` of the file that is read next, where an epoch is resumed.
        """
        self._files.order = ReadOrder(map(self._url, keys_of(self, paths, "set_order")), position)

    def prefetch(
        self, paths: Iterable[Path], *, concurrency: int | None = None, max_bytes: int | str | None = None
    ) -> warming.Prefetch:
        """Fetch what is missing of `paths` ahead of their being read in that order, in a thread.

        A full cache admits what it fetches only if that comes before what is there in the order of `set_order`.
        The thread stays at most `max_bytes` ahead of what this process has read (half of the cache's limit, or 4 GB).
        It ends with the process: a forked child has none, and starts its own if it wants one. A file that can't be
        fetched is left to be read, and to fail, in its turn. `wait()` of what is returned waits, `cancel()` ends it.
        """
        wanted = keys_of(self, paths, "prefetch")
        self._files.prefetched = ReadOrder(map(self._url, wanted))
        ahead = size_of(max_bytes, "max_bytes") if max_bytes is not None else warming.most_ahead(self._files)
        return warming.Prefetch(self._files, wanted, concurrency, ahead)

    def warm(
        self,
        path: Path = "",
        *,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> TreeCounts:
        """Fetch all files at or below `path` that are not cached; what can't be fetched is raised.

        `progress(files, bytes)` is called with what is done; without it there is a progress bar, where tqdm is
        installed and standard error is a terminal.
        """
        return warming.warm(self._files, self, self._key(path, "warm"), progress, concurrency)

    def pin(self, paths: Iterable[Path]) -> int:
        """Fetch files, and exempt them from eviction; return how many bytes of them are on the disk and stay there.

        That is less than the files have where there is no room, or no disk.
        """
        size = 0
        for key in keys_of(self, paths, "pin"):
            try:
                size += warming.pin(self._files, key)
            except OSError as exc:
                self._named(exc, "pin", key)
                raise
        return size

    def unpin(self, paths: Iterable[Path]) -> None:
        """Take `pin` back, of whichever version of the files."""
        self._files.contents().unpin(map(self._url, keys_of(self, paths, "unpin")))

    def verify(self) -> list[str]:
        """Read all that is on disk, of whichever FS; returns what was damaged, and is removed, by URL and version."""
        return self._files.contents().verify()

    def clear(self) -> None:
        """Empty the cache: the folder, for all that share it, and this process's memory."""
        self._files.contents().clear()

    def status(self) -> dict[str, Any]:
        """Return what the cache holds and may hold, in bytes, and its hits and misses; goes through JSON."""
        return self._files.contents().status()

    def _close(self) -> None:
        self._state.close()
        self.inner._close()

    def _abort(self) -> None:
        self._state.close()
        self.inner._abort()


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


def _records(state: process.PerProcess[CacheState]) -> Any:
    return state.get().records


def _warn_if_local(inner: FS) -> None:
    """Warn once that a cache around local files does not pay, unless they are on a network mount."""
    folder = inners.local_folder(inner)
    if folder is not None and not mounts.is_network(mounts.filesystem_of(folder)):
        message = (
            f"a cache around local files makes small ones slower: each is checked, and read from a copy ({folder})"
        )
        warn_once("local", message)


def _default_folder() -> str | None:
    base = cache_directory()
    return os.path.join(base, "files") if base is not None else None
