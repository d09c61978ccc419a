"""Reading through a cache: from a key to a file's entry, and from there to its content, cached or fetched.

A batch is read in windows. The hits of a window are looked up, and its misses are fetched by one call of the inner FS,
together with whole files that the same call reads.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Generator, Iterator, Sequence

from ..core import errors, process
from ..core.blobs import Blob
from ..core.fs import FS, FileStat
from ..core.identity import Identity
from ..core.threads import in_threads
from . import inner as inners
from .blocks import BlockBlob, Blocks, WholeBlob
from .content import ContentCache, EntryKey, in_groups
from .freshness import Freshness
from .policy import ReadOrder
from .state import FILES_KEPT, CachedFile, CacheState

WINDOW_MISSES = 256
WINDOW_BYTES = 32 * 1024 * 1024
"""What is fetched together, and held in memory."""
WINDOW_SPAN = 1024
"""Files among which those are."""
_ATTEMPTS = 4


class CachedFiles:
    """The files of `fs`, a `CachedFS` around `inner`. Files up to `whole_size` are one entry, others one a block."""

    def __init__(
        self,
        fs: FS,
        inner: FS,
        state: process.PerProcess[CacheState],
        stats: Freshness,
        block_size: int,
        whole_size: int,
    ) -> None:
        self.inner = inner
        self.stats = stats
        self.whole_size = whole_size
        self.largest: float = math.inf
        """Bytes of the largest file that is cached."""
        self.order: ReadOrder = ReadOrder()
        """The order of an epoch, by which entries are evicted."""
        self.prefetched: ReadOrder = ReadOrder()
        """The order of what is being fetched ahead of its reader."""
        self._fs = fs
        self._state = state
        self._block_size = block_size
        self.in_batches: bool = not inner.capabilities.stat_is_request
        """Whether a stat costs no request."""

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

    def find(self, key: str) -> CachedFile:
        """Return what is known of a file, asked for now or within the check interval."""
        url = self.inner._url(key)
        return self._found(key, url, self.stats.current(key, url))

    def _found(self, key: str, url: str, stat: FileStat) -> CachedFile:
        """Return the file of a stat: the one of the last time, if that was the same and may be stored."""
        files = self.state().files
        file = files.get(key)
        if file is None or file.stat != stat:
            file = self._file(url, stat)
            if file.admit and stat.version is not None:
                if len(files) >= FILES_KEPT:
                    files.clear()
                files[key] = file
        return file

    def _file(self, url: str, stat: FileStat, settled: bool = False) -> CachedFile:
        version = stat.version
        if stat.directory or not 0 < stat.size <= self.largest or (version is None and self.stats.max_age is None):
            return CachedFile(stat, None, False)
        admit = settled or version is None or self.inner._is_settled(version)
        if version is None:
            version = self.stats.aged_version(url, stat)
        name = Identity(self._state.get().store, url, version, stat.size).encode()
        return CachedFile(stat, EntryKey(name, url), admit)

    def find_or_open(self, key: str) -> tuple[CachedFile, Blob | None]:
        """As `find`; a file that was never cached is opened for that, if it takes no more requests."""
        url = self.inner._url(key)
        if self.in_batches or not self.stats.is_new(key, url):
            return self._found(key, url, self.stats.current(key, url)), None
        blob = self.inner._open_from_start(key)
        file = self._new(key, blob.size, blob.version)
        if file.entry is not None and self.contents().contains(file.entry):
            self.remember(file)  # what isn't there is remembered when its content was read
        return file, blob

    def _new(self, key: str, size: int, version: str | None) -> CachedFile:
        """Return what a response with the content tells of a file."""
        return self._file(self.inner._url(key), FileStat(key.rpartition("/")[2], size, version=version), settled=True)

    def remember(self, file: CachedFile) -> None:
        """Remember a file that is cached."""
        assert file.entry is not None
        self.stats.remember(file.entry.url, file.stat, file.admit)

    # ---- one file

    def open(self, key: str, open_inner: Callable[[str], Blob]) -> Blob:
        """Return a blob of a file."""
        file, opened = self.find_or_open(key)
        if file.entry is None:
            return open_inner(key) if opened is None else opened
        if file.stat.size > self.whole_size:
            return self.block_blob(key, file, opened)
        data, version = self.whole(key, file, open_inner, opened)
        return WholeBlob(self._fs, key, data, version)

    def read(self, key: str) -> bytes:
        """Return the content of a file."""
        state = self._state.get()
        known = None if self.in_batches else state.files.get(key)
        if known is not None and known.entry is not None and known.stat.size <= self.whole_size:
            record = self.stats.fresh(key, known.entry.url, state.records)
            if record is not None and record.stat == known.stat:
                state.contents.order = self.order
                data = state.contents.lookup(known.entry)
                if data is not None and len(data) == known.stat.size:
                    return data
        for _ in range(_ATTEMPTS):
            file, opened = self.find_or_open(key)
            if file.entry is None and opened is None:
                break
            if file.entry is not None and file.stat.size <= self.whole_size:
                return self.whole(key, file, self.inner._open_from_start, opened)[0]
            with (
                contextlib.suppress(errors.StaleFileError),  # it changed between its stat and its reading
                self.block_blob(key, file, opened) if file.entry is not None or opened is None else opened as blob,
            ):
                data = blob.read_all()
                self.inner._check_content(key, blob.version, data)
                return data
            self.stats.invalidate(self.inner._url(key))
        return self.inner._read_bytes(key)

    def block_blob(self, key: str, file: CachedFile, opened: Blob | None = None) -> BlockBlob:
        """Return the blob of a large file."""
        assert file.entry is not None
        blocks = Blocks(*file.entry, file.stat.size, self._block_size)
        self.remember(file)
        open_inner = self.inner._open_blob
        return BlockBlob(self._fs, key, file.stat.version, blocks, self.contents, open_inner, file.admit, opened)

    def whole(
        self, key: str, file: CachedFile, open_inner: Callable[[str], Blob], opened: Blob | None = None
    ) -> tuple[bytes, str | None]:
        """Return the content of a small file, and its version: that of `file`, unless it changed meanwhile.

        `opened` is used, once, in place of what `open_inner` returns, and closed.
        """
        data = self.lookup(file)
        if data is None:
            with opened if opened is not None else contextlib.nullcontext():
                return self._fetch_whole(key, file, inners.FileOpener(open_inner, opened))
        if opened is not None:
            opened.close()
        return data, file.stat.version

    def _fetch_whole(self, key: str, file: CachedFile, opener: inners.FileOpener) -> tuple[bytes, str | None]:
        for _ in range(_ATTEMPTS):
            if file.entry is None or file.stat.size > self.whole_size:
                break
            read = functools.partial(self._read, key, file, opener)
            try:
                [data] = self.contents().fetch([file.entry], read, file.admit)
            except errors.StaleFileError:  # it changed between its stat and its reading
                self.stats.invalidate(file.entry.url)
                file = self.find(key)
                if (found := self.lookup(file)) is not None:
                    return found, file.stat.version
                continue
            if file.entry is not None and self.contents().contains(file.entry):
                self.remember(file)
            return data, file.stat.version
        with self.inner._open_blob(key) as blob:
            return blob.read_all(), blob.version

    def lookup(self, file: CachedFile) -> bytes | None:
        """Return the content of a small file, if it is cached."""
        data = self.state().contents.lookup(file.entry) if file.entry is not None else None
        return data if data is not None and len(data) == file.stat.size else None

    def _read(self, key: str, file: CachedFile, open_inner: Callable[[str], Blob], _: Sequence[int]) -> list[bytes]:
        with open_inner(key) as blob:
            if (blob.size, blob.version) != (file.stat.size, file.stat.version):
                raise errors.stale(self.inner._url(key))
            return [blob.read_all()]

    # ---- many files

    def read_many(
        self, wanted: Sequence[str], concurrency: int | None, reached: Callable[[str], None]
    ) -> Iterator[bytes]:
        """Yield the contents of files; `reached(key)` is called before each is fetched or returned."""
        start = 0
        while start < len(wanted):
            key = wanted[start]
            if (data := self._hit(key, reached)) is not None:
                yield data
                del data
                start += 1
                continue
            window = _Window(self, wanted[start : start + WINDOW_SPAN], concurrency, reached)
            yield from window.contents()
            start += len(window.keys)

    def _hit(self, key: str, reached: Callable[[str], None]) -> bytes | None:
        """Return the content of a small file that is cached, if its stat takes no request."""
        url = self.inner._url(key)
        record = self.stats.fresh(key, url)
        if record is None and not self.in_batches:
            return None
        file = self._found(key, url, self.stats.current(key, url) if record is None else record.stat)
        if file.entry is None or file.stat.size > self.whole_size:
            return None
        if (data := self.lookup(file)) is not None:
            reached(key)
        return data

    def find_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[CachedFile | OSError | None]:
        """Yield what is known of files, None for those that are fetched without asking for their stat."""
        if self.in_batches:
            yield from map(self._find_or_error, wanted)
            return
        urls = [self.inner._url(key) for key in wanted]
        self.stats.list_for(wanted)
        fresh = [self.stats.fresh(key, url) is not None for key, url in zip(wanted, urls, strict=True)]
        new = [not fresh[at] and self.stats.is_new(key, urls[at], by_listing=False) for at, key in enumerate(wanted)]
        unknown = [key for at, key in enumerate(wanted) if not fresh[at] and not new[at]]
        width = min(concurrency or self.inner.default_concurrency, len(unknown))
        asked = in_threads(self._find_or_error, unknown, width) if width > 1 else map(self._find_or_error, unknown)
        for at, key in enumerate(wanted):
            yield None if new[at] else self._find_or_error(key) if fresh[at] else next(asked)

    def _find_or_error(self, key: str) -> CachedFile | OSError:
        url = self.inner._url(key)
        try:
            return self._found(key, url, self.stats.current(key, url, by_listing=False))
        except OSError as exc:  # raised when its turn comes
            return exc

    def fetch(self, wanted: Sequence[str], files: Sequence[CachedFile], concurrency: int | None) -> dict[int, bytes]:
        """Return the contents of small files that are not cached, by number; none of them where one has changed."""
        found: dict[int, bytes] = {}
        for admit in (True, False):
            numbers = [at for at, file in enumerate(files) if file.admit is admit]
            entries = [entry for at in numbers if (entry := files[at].entry) is not None]

            def read(chosen: Sequence[int], numbers: list[int] = numbers) -> Iterator[bytes]:
                return self._read_together([(wanted[numbers[at]], files[numbers[at]]) for at in chosen], concurrency)

            if numbers:
                with contextlib.suppress(OSError):  # each by itself then, and an error in its turn
                    found |= zip(numbers, self.contents().fetch(entries, read, admit), strict=True)
                    for at in numbers:
                        self.remember(files[at])
        return found

    def _read_together(self, wanted: Sequence[tuple[str, CachedFile]], concurrency: int | None) -> Iterator[bytes]:
        """Read files by one call of the inner FS, and admit them."""
        files = dict(wanted)
        others: dict[str, CachedFile] = {}

        def admits(key: str) -> bool:
            file = self._find_or_error(key)
            if isinstance(file, OSError) or file.entry is None or not file.admit or file.stat.size > self.whole_size:
                return False
            others[key] = file
            return not self.contents().contains(file.entry)

        along = inners.with_neighbours(self.inner, list(files), admits)
        found: dict[str, bytes] = {}
        for key, (data, version) in zip(along, self.inner._read_many_versioned(along, concurrency), strict=True):
            file = files.get(key) or others[key]
            if (len(data), version) != (file.stat.size, file.stat.version):
                raise errors.stale(self.inner._url(key))
            if key in files:
                found[key] = data
            elif file.entry is not None:
                self.contents().admit(file.entry, data)
                self.remember(file)
        return (found[key] for key, _ in wanted)

    def read_new(
        self, wanted: Sequence[str], concurrency: int | None, reached: Callable[[str], None]
    ) -> Generator[bytes, None, None]:
        """Yield the contents of files that were never cached, and admit them as what the responses say they are."""
        fetched = zip(wanted, self.inner._read_many_versioned(wanted, concurrency), strict=True)
        for group in in_groups(fetched, lambda one: len(one[1][0])):
            self._admit_new(group, reached)
            yield from (data for _, (data, _) in group)

    def _admit_new(self, group: Sequence[tuple[str, tuple[bytes, str | None]]], reached: Callable[[str], None]) -> None:
        files: list[CachedFile] = []
        parts: list[tuple[EntryKey, bytes]] = []
        for key, (data, version) in group:
            reached(key)
            file = self._new(key, len(data), version)
            if file.entry is None:
                continue
            files.append(file)
            if len(data) <= self.whole_size:
                parts.append((file.entry, data))
            else:
                blocks = Blocks(*file.entry, len(data), self._block_size)
                parts += [(blocks.entry(at), block) for at, block in enumerate(blocks.cut(data))]
        contents = self.contents()
        contents.count_misses([file.entry for file in files if file.entry is not None])
        admitted = contents.admit_many(parts)
        stored = {entry.url for (entry, _), is_stored in zip(parts, admitted, strict=True) if is_stored}
        for file in files:
            if file.entry is not None and file.entry.url in stored:
                self.remember(file)


class _Window:
    """Files that follow one another in a batch, as many as are fetched together."""

    def __init__(
        self, files: CachedFiles, wanted: Sequence[str], concurrency: int | None, reached: Callable[[str], None]
    ) -> None:
        self.keys: list[str] = []
        self._files = files
        self._concurrency = concurrency
        self._reached = reached
        self._data: dict[int, bytes] = {}
        self._new: list[str] = []
        self._found: dict[int, CachedFile] = {}
        self._missing: dict[int, CachedFile] = {}
        room = WINDOW_BYTES
        for key, file in zip(wanted, files.find_many(wanted, concurrency), strict=True):
            if isinstance(file, OSError):
                if not self.keys:
                    raise file
                break
            at = len(self.keys)
            self.keys.append(key)
            if file is None or (file.entry is None and file.stat.size and not file.stat.directory):
                self._new.append(key)  # never seen, or of no version: it is read with the others
                continue
            self._found[at] = file
            if file.entry is None or file.stat.size > files.whole_size:
                continue
            if (data := files.lookup(file)) is not None:
                self._data[at] = data
                room -= len(data)
            else:
                self._missing[at] = file
                room -= file.stat.size
            if room <= 0 or len(self._missing) >= WINDOW_MISSES:
                break

    def contents(self) -> Iterator[bytes]:
        """Yield the contents."""
        files, keys = self._files, self.keys
        if self._missing:
            for key in keys if not self._new else ():
                self._reached(key)
            missing = list(self._missing)
            found = files.fetch([keys[at] for at in missing], [*self._missing.values()], self._concurrency)
            self._data |= {missing[at]: data for at, data in found.items()}
        with contextlib.closing(files.read_new(self._new, self._concurrency, self._reached)) as new:
            for at, key in enumerate(keys):
                if at not in self._found:
                    yield next(new)
                    continue
                if self._new or not self._missing:
                    self._reached(key)
                data = self._data.pop(at, None)
                yield self._alone(key, self._found[at]) if data is None else data

    def _alone(self, key: str, file: CachedFile) -> bytes:
        """Return the content of a file that is large, not cached, or could not be fetched with the others."""
        if file.entry is None or file.stat.size > self._files.whole_size:
            return self._files.read(key)
        return self._files.whole(key, file, self._files.inner._open_from_start)[0]
