"""Fetching ahead of reading: `prefetch` in the epoch's order, `warm` for a whole tree, `pin` for what is to stay."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..core import keys, process
from ..core.fs import FS, TreeCounts
from ..core.threads import Flag, in_threads
from . import batches

if TYPE_CHECKING:
    from ..core.blobs import Blob
    from .files import CachedFile, CachedFiles

BATCH = 64
"""Files that are looked at together."""
MOST_AHEAD = 4 * 10**9
"""Bytes that a prefetch is ahead of the reader, if the cache has no limit."""
_PAUSE = 0.01


def fetch_missing(
    files: CachedFiles, wanted: Sequence[str], concurrency: int | None
) -> Iterator[tuple[int, int] | OSError]:
    """Fetch files; yields the size of each, and how many bytes of it were not cached, or why it can't be fetched."""

    def one(key: str) -> tuple[int, int] | OSError:
        try:
            return _fetch_one(files, key)
        except OSError as exc:
            return exc

    workers = min(concurrency or files.inner.default_concurrency, len(wanted))
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        files.stats.list_for(batch)
        small = {key: file for key in batch if (file := _small_and_missing(files, key)) is not None}
        fetched = dict(zip(small, map(len, batches.fetch(files, [*small.items()], concurrency)), strict=False))
        others = [key for key in batch if key not in fetched]
        one_by_one = in_threads(one, others, workers)
        for key in batch:
            yield (fetched[key], fetched[key]) if key in fetched else next(one_by_one)


def _small_and_missing(files: CachedFiles, key: str) -> CachedFile | None:
    if files.stat_is_request and files.stats.fresh(key, files.inner._url(key)) is None:
        return None  # its stat takes a request, which may be for its content
    try:
        file = files.find(key)
    except OSError:  # found again by itself
        return None
    if file.small is None or not file.admit or files.contents().contains(file.small):
        return None
    return file


def _found(files: CachedFiles, key: str) -> tuple[CachedFile, Blob | None]:
    """Return what `find_or_open` does; a directory is an `IsADirectoryError`, on every store."""
    file, opened = files.find_or_open(key)
    if file.stat.directory:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return file, opened


def _fetch_one(files: CachedFiles, key: str) -> tuple[int, int]:
    file, opened = _found(files, key)
    with opened if opened is not None else contextlib.nullcontext():
        if file.entry is None:
            return file.stat.size, 0
        if file.small is None:
            with contextlib.closing(files.block_blob(files.inner, key, file, opened)) as blob:
                return file.stat.size, blob.warm()
        if files.contents().contains(file.small):
            return file.stat.size, 0
        return file.stat.size, len(files.whole(key, file, opened=opened)[0])


def most_ahead(files: CachedFiles) -> int:
    """Return how far a prefetch goes if nothing else is said."""
    disk = files.contents().disk
    return MOST_AHEAD if disk is None or disk.limits.max_bytes is None else disk.limits.max_bytes // 2


class Prefetch:
    """Files being fetched ahead by a thread of this process."""

    def __init__(self, files: CachedFiles, wanted: Sequence[str], concurrency: int | None, ahead: int) -> None:
        self._files = files
        self._wanted = wanted
        self._concurrency = concurrency
        self._ahead = max(1, ahead)  # with nothing ahead it would never begin
        self._order = files.prefetched
        self._outstanding: deque[tuple[int, int]] = deque()  # position and size of what is fetched and not read yet
        self._held = self._largest = 0  # bytes of that, and of the largest file so far
        self._stop = Flag()
        self._generation = process.generation()
        self._counts = TreeCounts()
        self._failed = 0
        self._thread = threading.Thread(target=self._run, name="fsabs-prefetch", daemon=True)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> TreeCounts:
        """Wait for the end, or so many seconds; returns what is done by then. A forked child does not wait."""
        if self._generation == process.generation():
            self._thread.join(timeout)
        return self._counts

    @property
    def done(self) -> bool:
        """True if it has ended."""
        return self._generation != process.generation() or not self._thread.is_alive()

    @property
    def failed(self) -> int:
        """The number of files that couldn't be fetched."""
        return self._failed

    def cancel(self) -> None:
        """End it, as soon as what is under way has arrived."""
        self._stop.set()
        self.wait()

    def _run(self) -> None:
        start = 0
        while start < len(self._wanted) and (count := self._wait_for_reader()):
            fetched = fetch_missing(self._files, self._wanted[start : start + count], self._concurrency)
            for position, found in enumerate(fetched, start):
                if isinstance(found, OSError):  # raised again when it is read
                    self._failed += 1
                    continue
                size = found[0]
                self._counts = _with(self._counts, *found)
                self._outstanding.append((position, size))
                self._held, self._largest = self._held + size, max(self._largest, size)
            start += count

    def _wait_for_reader(self) -> int:
        """Return how many files may be fetched now, going by the largest so far; 0 if no more are wanted."""
        while not self._stop.is_set():
            while self._outstanding and self._outstanding[0][0] <= self._order.cursor:
                self._held -= self._outstanding.popleft()[1]
            if (room := self._ahead - self._held) > 0:
                return max(1, min(BATCH, room // max(1, self._largest))) if self._counts.files else 1
            if self._files.prefetched is not self._order:  # nobody says any more how far reading has come
                break
            self._stop.wait(_PAUSE)
        return 0

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a prefetch is a thread of its process, and can't be pickled")


def warm(
    files: CachedFiles, fs: FS, key: str, progress: Callable[[int, int], None] | None, concurrency: int | None
) -> TreeCounts:
    """Fetch all files of `fs` at or below `key`."""
    wanted = list(_sizes(files, fs, key))
    done = TreeCounts()
    with _shown(progress, len(wanted), sum(size for _, size in wanted)) as show:
        for found in fetch_missing(files, [name for name, _ in wanted], concurrency):
            if isinstance(found, OSError):
                raise found
            done = _with(done, *found)
            show(done.files, done.bytes)
    return done


def _with(done: TreeCounts, size: int, fetched: int) -> TreeCounts:
    """Return the counts with one more file of `size` bytes, so many of which were fetched."""
    return done._replace(files=done.files + 1, bytes=done.bytes + size, fetched=done.fetched + fetched)


def _sizes(files: CachedFiles, fs: FS, key: str) -> Iterator[tuple[str, int]]:
    found, asked = fs._stat(key), time.time()
    if not found.directory:
        yield key, found.size
        return
    for member in fs._walk(key):
        if not member.directory:
            path = keys.join(key, member.filename)
            files.stats.remember_listed(path, member, asked)
            yield path, member.size


@contextlib.contextmanager
def _shown(
    progress: Callable[[int, int], None] | None, files: int, size: int
) -> Iterator[Callable[[int, int], object]]:
    """Give the user's callback, or what shows the same in tqdm's bar, or nothing."""
    if progress is not None:
        yield progress
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda files, size: None
        return
    with tqdm(total=size, unit="B", unit_scale=True, desc=f"warming {files} files", disable=None) as bar:
        yield lambda _, done: bar.update(done - bar.n)


def pin(files: CachedFiles, key: str) -> int:
    """Fetch a file and exempt it from eviction; return how many bytes of it are on the disk now, and stay there."""
    file, opened = _found(files, key)
    contents = files.contents()
    with opened if opened is not None else contextlib.nullcontext():
        if file.entry is None or not file.admit:
            return 0
        if file.small is not None:
            data = files.whole(key, file, opened=opened)[0]
            files.absent.discard((key,))
            return len(data) if contents.pin(file.small, data) else 0
        kept = 0
        with contextlib.closing(files.block_blob(files.inner, key, file, opened)) as blob:
            for number in range(len(blob.blocks)):
                size, offset = blob.blocks.place(number)
                entry = blob.blocks.entry(number)
                if contents.pin(entry) or contents.pin(entry, blob.pread(size, offset)):
                    kept += size
        return kept
