"""CachedFS: a layer that keeps what is read in memory and on the local disk, for all processes of a user.

What is kept is named by the file's URL, version and size, so that another version is never given for the one that the
store has; the store is asked for the version at each open, unless an option says that less will do.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from .. import errors, keys, process
from ..blobs import Blob
from ..files import Writer
from ..fs import FS, FileStat, Path
from ..identity import Identity
from ..index_cache import cache_directory
from ..layers import LayerFS
from . import filling, identity
from .blocks import BlockBlob, Blocks, WholeBlob
from .disk import Limits, prepare
from .here import Found, Here, Opener, ToldWriter
from .http import Pause
from .options import share_of_disk, size_of
from .policy import Order
from .tiers import CLAIM_TIMEOUT, Part, Tiers

KB, MB = 1024, 1024 * 1024
_ATTEMPTS = 4
_ANSWERS = (
    FileNotFoundError,
    FileExistsError,
    NotADirectoryError,
    IsADirectoryError,
    PermissionError,
    io.UnsupportedOperation,
    errors.CorruptFileError,
    errors.StaleFileError,
)
"""Errors that are an answer: with these, a store is not down."""


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
        check_interval: seconds for which a file is taken to be unchanged after its store was asked, by whichever
            process; 0 asks at each open, `math.inf` never again.
        max_age: seconds for which a file of a store that tells no version is taken to be unchanged, as long as its size
            and time stay the same; None caches no such file.
        offline: when the store can't be reached, give what is here of it, as it was when it could. Files and listings
            are remembered for that.
        claim_timeout: seconds to wait for another's fetch of the same thing.
        namespace: tells stores apart whose URLs are alike; part of every name in the cache.
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
        check_interval: float = 0.0,
        max_age: float | None = None,
        offline: bool = False,
        claim_timeout: float = CLAIM_TIMEOUT,
        namespace: str = "",
    ) -> None:
        super().__init__(inner)
        self._block_size = size_of(block_size, "block_size", least=4 * KB)
        self._whole_size = size_of(whole_file_size, "whole_file_size")
        if check_interval < 0 or (max_age is not None and max_age < 0) or claim_timeout < 0 or "\0" in namespace:
            raise ValueError("check_interval, max_age and claim_timeout are not negative; a namespace has no NUL")
        self._check_interval = check_interval
        self._max_age = max_age
        self._offline = offline
        self._namespace = namespace
        self._order = Order()
        self._down = Pause()
        self._updated: frozenset[str] = frozenset()
        self._warned_offline = False
        prepare()
        folder = os.path.abspath(dir) if dir is not None else _default_folder()
        floor = share_of_disk(folder) if min_free is None else size_of(min_free, "min_free")
        limits = Limits(None if max_bytes is None else size_of(max_bytes, "max_bytes"), floor)
        memory = size_of(memory_bytes, "memory_bytes")
        self._here = process.PerProcess(functools.partial(Here, inner, folder, limits, memory, claim_timeout))

    # ---- what a file is in the cache

    def _now(self) -> Here:
        here = self._here.get()
        here.tiers.order = self._order
        return here

    def _tiers(self) -> Tiers:
        return self._now().tiers

    def _current(self, here: Here, key: str, url: str) -> FileStat:
        """What the file is, asked now or lately enough."""
        if self._check_interval and key not in self._updated:
            record = here.records.recall_since(url, time.time() - self._check_interval)
            if record is not None:
                return record.stat
        stat = self._ask(here, key, url)
        if self._check_interval and not stat.directory:
            here.records.save(url, here.records.note(url, stat))
        return stat

    def _ask(self, here: Here, key: str, url: str) -> FileStat:
        """What the store says, or where it can't be reached, what it said; the latter offline only."""
        if not self._offline:
            return self.inner._stat(key)
        if self._down.begin():
            began = time.monotonic()
            try:
                stat = self.inner._stat(key)
            except OSError as exc:
                if isinstance(exc, _ANSWERS):
                    raise
                self._down.failed(began)
                return self._remembered(here, key, url, exc)
            self._down.worked()
            return stat
        return self._remembered(here, key, url, None)

    def _remembered(self, here: Here, key: str, url: str, exc: OSError | None) -> FileStat:
        record = here.records.recall(url)
        if record is None:
            raise exc if exc is not None else _unreachable()
        self._tell_offline(exc)
        return record.stat

    def _tell_offline(self, exc: OSError | None) -> None:
        if not self._warned_offline:
            self._warned_offline = True
            where = self._url(self._root)
            warnings.warn(f"{where} can't be reached ({exc}): going on with the cache", RuntimeWarning, stacklevel=2)

    def _find(self, key: str) -> Found:
        here, url = self._now(), self._url(key)
        stat = self._current(here, key, url)
        version = stat.version
        if stat.directory or not stat.size:
            return Found(stat, None, False)
        if version is None:
            if self._max_age is None:
                return Found(stat, None, False)
            version = self._aged(here, url, stat)
        keep = stat.version is None or self.inner._is_settled(version)
        return Found(stat, self._part(here, url, version, stat.size), keep)

    def _part(self, here: Here, url: str, version: str, size: int) -> Part:
        return Part(Identity(here.store, url, version, size, self._namespace).encode(), url)

    def _look_up(self, key: str) -> tuple[Found, Blob | None]:
        """As `_find`; a file that was never kept is opened for that, if it takes no more than the question would."""
        here, url = self._now(), self._url(key)
        by_question = not here.by_request or self._offline or self._max_age is not None or key in self._updated
        if by_question:
            return self._find(key), None
        if here.records.recall(url) is not None if self._check_interval else here.records.knows(url):
            return self._find(key), None
        blob = self.inner._open_from_start(key)
        stat = FileStat(key.rpartition("/")[2], blob.size, version=blob.version)
        if blob.version is None or not blob.size:
            return Found(stat, None, False), blob
        part = self._part(here, url, blob.version, blob.size)
        if here.tiers.has(part):
            here.records.jot(url, stat)
        return Found(stat, part, True), blob

    def _aged(self, here: Here, url: str, stat: FileStat) -> str:
        """A version for a file that has none: since when it looks as it does, begun anew when that is too long ago."""
        assert self._max_age is not None
        record = here.records.recall(url)
        same = record is not None and (record.stat.size, record.stat.last_modified) == (stat.size, stat.last_modified)
        if record is None or not same or time.time() - record.since > self._max_age:
            here.records.forget(url)
            record = here.records.note(url, stat)
            here.records.save(url, record)
        return f"since {record.since}"

    # ---- reading

    def _open_blob(self, key: str) -> Blob:
        self._reached(key)
        return self._open_cached(key, self.inner._open_blob)

    def _open_from_start(self, key: str) -> Blob:
        self._reached(key)
        return self._open_cached(key, self.inner._open_from_start)

    def _read_bytes(self, key: str) -> bytes:
        self._reached(key)
        return self._fetched(key)

    def _reached(self, key: str) -> None:
        """A file is read, which counts for the order."""
        if self._order:
            self._order.reached(self._url(key))

    def _fetched(self, key: str) -> bytes:
        """The content of a file."""
        found, opened = self._look_up(key)
        if found.part is None and opened is None:
            return self.inner._read_bytes(key)
        if found.part is not None and found.stat.size <= self._whole_size:
            return self._whole(key, found, self.inner._open_from_start, opened)[0]
        with self._block_blob(key, found, opened) if found.part is not None or opened is None else opened as blob:
            return blob.read_all()

    def _open_cached(self, key: str, open_inner: Callable[[str], Blob]) -> Blob:
        found, opened = self._look_up(key)
        if found.part is None:
            return open_inner(key) if opened is None else opened
        if found.stat.size <= self._whole_size:
            data, version = self._whole(key, found, open_inner, opened)
            return WholeBlob(self, key, data, version)
        return self._block_blob(key, found, opened)

    def _block_blob(self, key: str, found: Found, opened: Blob | None = None) -> BlockBlob:
        here = self._now()
        assert found.part is not None
        blocks = Blocks(*found.part, found.stat.size, self._block_size)
        self._note(here, found)
        return BlockBlob(self, key, found.stat.version, blocks, self._tiers, self.inner._open_blob, found.keep, opened)

    def _whole(
        self, key: str, found: Found, open_inner: Callable[[str], Blob], opened: Blob | None = None
    ) -> tuple[bytes, str | None]:
        """The content of a small file, and its version: that of `found`, unless the file changed meanwhile.

        `opened` is used, once, in place of what `open_inner` gives, and closed.
        """
        with opened if opened is not None else contextlib.nullcontext():
            return self._whole_by(key, found, Opener(open_inner, opened))

    def _whole_by(self, key: str, found: Found, open_inner: Callable[[str], Blob]) -> tuple[bytes, str | None]:
        here = self._now()
        for _ in range(_ATTEMPTS):
            assert found.part is not None
            data = self._kept(found)
            if data is not None:
                return data, found.stat.version
            try:
                [data] = here.tiers.fill([found.part], self._reader(key, found, open_inner), found.keep)
            except errors.StaleFileError:  # between being asked for its version and being read
                here.records.forget(found.part.url)
                found = self._find(key)
                if found.part is None or found.stat.size > self._whole_size:
                    break
                continue
            self._note(here, found)
            return data, found.stat.version
        with self.inner._open_blob(key) as blob:
            return blob.read_all(), blob.version

    def _kept(self, found: Found) -> bytes | None:
        """The content of a small file, if the cache has it."""
        data = self._now().tiers.get(found.part) if found.part is not None else None
        return data if data is not None and len(data) == found.stat.size else None

    def _at_hand(self, key: str) -> bytes | None:
        """The content of a small file that the cache has, if its store needn't be asked."""
        if not self._check_interval or key in self._updated:
            return None
        if self._now().records.recall_since(self._url(key), time.time() - self._check_interval) is None:
            return None
        found = self._find(key)
        return self._kept(found) if found.stat.size <= self._whole_size else None

    def _reader(
        self, key: str, found: Found, open_inner: Callable[[str], Blob]
    ) -> Callable[[Sequence[int]], Iterable[bytes]]:
        def read(numbers: Sequence[int]) -> Iterable[bytes]:
            with open_inner(key) as blob:
                if (blob.size, blob.version) != (found.stat.size, found.stat.version):
                    raise errors.stale(self._url(key))
                return [blob.read_all()]

        return read

    def _note(self, here: Here, found: Found) -> None:
        """Remember a file that is kept, for when the store can't be reached, and for what to ask it next time."""
        assert found.part is not None
        if here.by_request and not self._offline:
            here.records.jot(found.part.url, found.stat)
        elif self._offline and found.keep:
            url = found.part.url
            before = here.records.recall(url)
            if before is None or before.stat != found.stat:
                here.records.save(url, here.records.note(url, found.stat))

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        if self.inner.default_concurrency > 1 and not identity.knows_its_members(self.inner):
            return filling.at_hand_first(self, wanted, concurrency or self.default_concurrency)
        if not (self.inner.capabilities.versions or self._max_age is not None):
            return self.inner._read_many(wanted, concurrency)
        return filling.in_windows(self, wanted, concurrency, self._reached)

    # ---- looking

    def _stat(self, key: str) -> FileStat:
        return self._ask(self._now(), key, self._url(key)) if self._offline else self.inner._stat(key)

    def _list(self, key: str) -> Iterator[FileStat]:
        return self._listing(key, "list", self.inner._list) if self._offline else self.inner._list(key)

    def _walk(self, key: str) -> Iterator[FileStat]:
        return self._listing(key, "walk", self.inner._walk) if self._offline else self.inner._walk(key)

    def _listing(self, key: str, kind: str, ask: Callable[[str], Iterator[FileStat]]) -> Iterator[FileStat]:
        """The store's listing, which is remembered, or the remembered one."""
        here, url = self._now(), self._url(key)
        found: list[FileStat] = []
        cause: OSError | None = None
        if self._down.begin():
            began = time.monotonic()
            try:
                for member in ask(key):
                    found.append(member)
                    yield member
                self._down.worked()
                here.records.keep_list(url, kind, found)
                return
            except OSError as exc:
                if found or isinstance(exc, _ANSWERS):
                    raise
                self._down.failed(began)
                cause = exc
        members = here.records.recall_list(url, kind)
        if members is None:
            raise cause if cause is not None else _unreachable()
        self._tell_offline(cause)
        yield from members

    # ---- writing: what changes is asked for anew

    def _forget(self, *changed: str) -> None:
        records = self._now().records
        for key in changed:
            records.forget(self._url(key))

    def _forget_tree(self, key: str, members: Iterable[str]) -> None:
        self._forget(key, *(keys.join(key, member) for member in members))

    def _below(self, key: str) -> list[str]:
        """What is below a directory that is going to change, where it is remembered without asking again."""
        if not (self._check_interval or self._offline or self._max_age is not None):
            return []
        try:
            return [member.filename for member in self.inner._walk(key)]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _create(self, key: str, exclusive: bool) -> Writer:
        return ToldWriter(self.inner._create(key, exclusive), functools.partial(self._forget, key))

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        written: list[str] = []

        def noted() -> Iterator[tuple[str, bytes]]:
            for key, data in pairs:
                written.append(key)
                yield key, data

        try:
            return self.inner._write_many(noted(), concurrency)
        finally:
            self._forget(*written)

    def _append(self, key: str) -> Writer:
        self._updated |= {key}
        return ToldWriter(self.inner._append(key), functools.partial(self._forget, key))

    def _open_update(self, key: str) -> io.BufferedIOBase:
        self._updated |= {key}
        self._forget(key)
        return self.inner._open_update(key)

    def _rename(self, src: str, dst: str) -> None:
        members = self._below(src)
        self.inner._rename(src, dst)
        self._forget_tree(src, members)
        self._forget_tree(dst, members)

    def _remove(self, key: str) -> None:
        self.inner._remove(key)
        self._forget(key)

    def _remove_tree(self, key: str) -> None:
        members = self._below(key)
        self.inner._remove_tree(key)
        self._forget_tree(key, members)

    def _copy(self, src: str, dst: str) -> None:
        self.inner._copy(src, dst)
        self._forget(dst)

    # ---- the cache itself

    def set_order(self, paths: Iterable[Path], *, position: int = 0) -> None:
        """Set the order in which files will be read: what is needed last goes first when space is short.

        Give the whole epoch's order, of all workers, to each of them; the next epoch's may follow in the same list.
        Holds for this process and those forked from it or given this FS from now on; an empty one takes it back.

        Args:
            paths: in the order of reading.
            position: the number in `paths` of the file that is read next, where an epoch is resumed.
        """
        self._order = Order((self._url(self._key(path, "set_order")) for path in paths), position)

    def prefetch(
        self, paths: Iterable[Path], *, concurrency: int | None = None, max_bytes: int | str | None = None
    ) -> filling.Prefetch:
        """Fetch what is missing of `paths` ahead of their being read in that order, in a thread; `set_order` is done.

        The thread stays at most `max_bytes` ahead of what this process has read (half of the cache's limit, or 4 GB).
        It ends with the process: a forked child has none, and starts its own if it wants one. A file that can't be
        fetched is left to be read, and to fail, in its turn. `wait()` of what is returned waits, `cancel()` ends it.
        """
        wanted = [self._key(path, "prefetch") for path in paths]
        self._order = Order(map(self._url, wanted))
        ahead = size_of(max_bytes, "max_bytes") if max_bytes is not None else filling.most_ahead(self)
        return filling.Prefetch(self, wanted, concurrency, ahead)

    def warm(
        self,
        path: Path = "",
        *,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> filling.Filled:
        """Fetch all files at or below `path` that the cache hasn't got; what can't be fetched is raised.

        `progress(files, bytes)` is called with what is done; without it there is a progress bar, where tqdm is
        installed and standard error is a terminal.
        """
        return filling.warm(self, self._key(path, "warm"), progress, concurrency)

    def pin(self, paths: Iterable[Path]) -> int:
        """Fetch files, and keep them whatever else needs space; returns how many bytes they have."""
        return filling.pin(self, [self._key(path, "pin") for path in paths])

    def unpin(self, paths: Iterable[Path]) -> None:
        """Take `pin` back."""
        filling.unpin(self, [self._key(path, "unpin") for path in paths])

    def verify(self) -> list[str]:
        """Read all that is kept on disk, for whichever FS; what was damaged (now gone), by URL and version."""
        disk = self._now().tiers.disk
        return disk.verify() if disk is not None else []

    def clear(self) -> None:
        """Empty the cache: the folder, for all that share it, and this process's memory."""
        tiers = self._now().tiers
        tiers.memory.clear()
        if tiers.disk is not None:
            tiers.disk.clear()

    def status(self) -> dict[str, Any]:
        """What the cache holds and may hold, in bytes, and what became of this process's reads; goes through JSON."""
        tiers = self._now().tiers
        counts = tiers.counts
        return {
            "disk": tiers.disk.status() if tiers.disk is not None else None,
            "memory": {"items": len(tiers.memory), "bytes": tiers.memory.size},
            "hits": counts.hits,
            "memory_hits": counts.memory_hits,
            "misses": counts.misses,
        }

    def _close(self) -> None:
        self._here.close()
        self.inner._close()

    def _abort(self) -> None:
        self._here.close()
        self.inner._abort()


def _unreachable() -> OSError:
    return ConnectionError(errno.ECONNABORTED, "the store can't be reached, and the cache has nothing of it")


def _default_folder() -> str | None:
    base = cache_directory()
    return os.path.join(base, "files") if base is not None else None
