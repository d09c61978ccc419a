"""Copying files and whole trees between any two FS: small files many at once, large ones in pieces."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from . import errors, keys
from .files import committing
from .readahead import ReadAhead
from .stats import FileStat
from .threads import Outcome, Threads

if TYPE_CHECKING:
    import io

    from .blobs import Blob
    from .core import Core

PIECE = 8 * 1024 * 1024
"""Bytes of a large file that are read at once."""
_SMALL = 1024 * 1024  # files up to this size are read as a whole, many at once
_BATCH_FILES = 256
_BATCH_BYTES = 32 * 1024 * 1024


def pieces(blob: Blob, start: int = 0) -> Generator[bytes, None, None]:
    """Yield the bytes of `blob` from `start` on, from front to back."""
    with closing(ReadAhead(blob)) as source:
        for offset in range(start, blob.size, PIECE):
            yield source.pread(PIECE, offset)


def pump(blob: Blob, target: Core, key: str, count: Callable[[int], None] | None = None) -> None:
    """Write the whole of `blob` to the file `key` of `target`, whose errors name it."""
    try:
        with committing(target._create(key, False)) as writer:
            for piece in pieces(blob):
                writer.write(piece)
                if count is not None:
                    count(len(piece))
    except OSError as exc:
        target._named(exc, "copy", key)
        raise


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file, which may take less at once."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


class CopiedTree(NamedTuple):
    """The number of files and bytes that `FS.copy_tree` has copied."""

    files: int
    directories: int
    """Those that were there to be made; a store with implied directories is given the empty ones alone."""
    bytes: int
    """The sizes of the files, added up."""


class TreeCopy:
    """One run of `FS.copy_tree`."""

    def __init__(
        self,
        source: Core,
        src: str,
        target: Core,
        dst: str,
        progress: Callable[[int, int], None] | None,
        concurrency: int | None,
    ) -> None:
        self._source = source
        self._src = src
        self._target = target
        self._dst = dst
        self._progress = progress
        self._concurrency = concurrency
        self._files = self._directories = self._bytes = 0

    def run(self) -> CopiedTree:
        """Copy everything."""
        self._check()
        size = self._concurrency or max(self._source.default_concurrency, self._target.default_concurrency)
        batch: list[FileStat] = []
        total = 0
        with CopyThreads(size, self._count) as threads:
            for stat in self._files_to_copy():
                if self._source is self._target:
                    threads.submit(self._copy_within, stat)
                elif stat.size > _SMALL:
                    threads.submit(self._copy_large, stat)
                else:
                    batch.append(stat)
                    total += stat.size
                    if len(batch) >= _BATCH_FILES or total >= _BATCH_BYTES:
                        self._copy_batch(batch, threads)
                        batch, total = [], 0
            self._copy_batch(batch, threads)
            threads.finish()
        return CopiedTree(self._files, self._directories, self._bytes)

    def _check(self) -> None:
        """Refuse what is no directory, and a copy of a directory into itself, which would never end."""
        source, target = (
            fs._url(key).rstrip("/") for fs, key in ((self._source, self._src), (self._target, self._dst))
        )
        if f"{target}/".startswith(f"{source}/"):
            raise errors.error(errno.EINVAL, "copy_tree", self._source._url(self._src), "can't copy a tree into itself")
        try:
            if not self._source._stat(self._src).directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except OSError as exc:
            self._source._named(exc, "copy_tree", self._src)
            raise

    def _files_to_copy(self) -> Iterator[FileStat]:
        """Make the directories, in their order, and yield the files between them."""
        implied = self._target.capabilities.implied_directories
        last = FileStat.of_directory("")
        if not implied:
            self._make(last)
        for stat in self._walk():
            # A directory's members follow it: one that something else follows is empty.
            if implied and last.directory and not stat.filename.startswith(last.filename and last.listed()):
                self._make(last)
            last = stat
            if not stat.directory:
                yield stat
            elif not implied:
                self._make(stat)
        if implied and last.directory:
            self._make(last)

    def _walk(self) -> Iterator[FileStat]:
        try:
            yield from self._source._walk(self._src)
        except OSError as exc:
            self._source._named(exc, "copy_tree", self._src)
            raise

    def _make(self, directory: FileStat) -> None:
        key = keys.join(self._dst, directory.filename)
        if not self._target.capabilities.mkdir:
            return
        try:
            self._target._makedirs(key, 0o777)
        except FileExistsError as exc:
            if not self._target._is(key, directory=True):
                self._target._named(exc, "copy_tree", key)
                raise
        except OSError as exc:
            self._target._named(exc, "copy_tree", key)
            raise
        self._directories += bool(directory.filename)

    def _copy_batch(self, batch: list[FileStat], threads: CopyThreads) -> None:
        """Small files: read many at once, and written while the next are read."""
        wanted = [keys.join(self._src, stat.filename) for stat in batch]
        contents = self._source._read_many(wanted, self._concurrency) if wanted else iter(())
        at = 0
        try:
            for content in contents:
                threads.submit(self._write_small, batch[at], content)
                at += 1
        except OSError as exc:
            self._source._named(exc, "copy_tree", wanted[min(at, len(wanted) - 1)])
            raise
        finally:
            if hasattr(contents, "close"):
                contents.close()

    def _write_small(self, stat: FileStat, content: bytes, count: Callable[[int], None]) -> None:
        key = keys.join(self._dst, stat.filename)
        try:
            with committing(self._target._create(key, False)) as writer:
                writer.write(content)
        except OSError as exc:
            self._target._named(exc, "copy_tree", key)
            raise
        count(len(content))

    def _copy_large(self, stat: FileStat, count: Callable[[int], None]) -> None:
        key = keys.join(self._src, stat.filename)
        try:
            with self._source._open_from_start(key) as blob:
                pump(blob, self._target, keys.join(self._dst, stat.filename), count)
        except OSError as exc:
            self._source._named(exc, "copy_tree", key)
            raise

    def _copy_within(self, stat: FileStat, count: Callable[[int], None]) -> None:
        key = keys.join(self._src, stat.filename)
        try:
            self._source._copy(key, keys.join(self._dst, stat.filename))
        except OSError as exc:
            self._source._named(exc, "copy_tree", key)
            raise
        count(stat.size)

    def _count(self, files: int, size: int) -> None:
        self._files += files
        self._bytes += size
        if self._progress is not None:
            self._progress(self._files, self._bytes)


class CopyThreads:
    """Threads that each copy one file at a time; what they have done is counted in the thread that waits for them.

    A job is called as `job(*arguments, count)`, and calls `count(size)` for each piece that it has copied. The first
    error of a job is raised by the next `submit` or `finish`. At the end of the block no job is running.
    """

    def __init__(self, size: int, count: Callable[[int, int], None]) -> None:
        self._size = size
        self._count = count
        self._in_flight = 0
        self._threads = Threads[None](size, wait=True)
        self._done: SimpleQueue[int | Outcome[None]] = SimpleQueue()  # sizes of pieces, and the ends of jobs

    def submit(self, job: Callable[..., None], *arguments: object) -> None:
        """Have the job done, now if there is one thread only; wait while too many are in flight."""
        if self._size == 1:
            job(*arguments, functools.partial(self._count, 0))
            self._count(1, 0)
            return
        while self._in_flight >= 2 * self._size:
            self._wait()
        self._in_flight += 1
        self._threads.submit(functools.partial(job, *arguments, self._passed), self._done.put)

    def finish(self) -> None:
        """Wait until all jobs are done."""
        while self._in_flight:
            self._wait()

    def _passed(self, size: int) -> None:
        """Count a piece; raise in a thread whose work is no longer wanted."""
        if self._threads.stopping:
            raise InterruptedError(errno.EINTR, "the copy was given up")
        self._done.put(size)

    def _wait(self) -> None:
        done = self._done.get()
        if isinstance(done, int):
            self._count(0, done)
            return
        done.result()
        self._in_flight -= 1
        self._count(1, 0)

    def __enter__(self) -> CopyThreads:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.__exit__(*exc)
