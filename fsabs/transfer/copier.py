"""Many files: small ones in batches that are read and written many at once, large ones in pieces, some at a time, and
those that the store can copy itself without their bytes.

Each file is whole at its target or not there, and has the permissions and the time of its source where both keep them.
Its bytes are counted, and verified as `files` says. The error of one file is reported, and the others go on. At most
`BUDGET` bytes of contents are in memory.
"""

from __future__ import annotations

import errno
import functools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..core import errors, writemany
from ..core.layers import copied_by_store, stored_in
from ..core.threads import TaskOutcome, Threads
from .files import check_size, check_version, copy_file, reads_back, refuse_same

if TYPE_CHECKING:
    from ..core.fs import FS
    from ..core.stats import FileStat

T = TypeVar("T")
SMALL = 1024 * 1024
"""Files up to this size are read and written as a whole, many at once."""
BUDGET = 256 * 1024 * 1024
"""Bytes of contents under way together."""
_SENT = 64  # results of small files
_COST_OF_LARGE = 128 * 1024 * 1024  # of the budget, at most: a large file is in memory as some pieces and parts


def batches(
    items: Iterable[T],
    size_of: Callable[[T], int],
    *,
    in_order: bool = True,
    max_files: int = 1024,
    max_bytes: int = 32 * 1024 * 1024,
) -> Iterator[list[T]]:
    """Yield small files together, and each file above `SMALL` alone.

    Args:
        items: the files.
        size_of: gives the size of a file in bytes.
        in_order: keep the order of the files; else a large one may come before small ones.
        max_files, max_bytes: how many small files, and about how many bytes, are together.
    """
    batch: list[T] = []
    size = 0
    for item in items:
        if (more := size_of(item)) > SMALL:
            if in_order and batch:
                yield batch
                batch, size = [], 0
            yield [item]
            continue
        batch.append(item)
        size += more
        if len(batch) >= max_files or size >= max_bytes:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class FileCopy(NamedTuple):
    """A file that is to be copied."""

    src: str
    """Its key on the source."""
    dst: str
    """Its key on the target."""
    stat: FileStat
    """Its stat on the source."""


class CopyResult(NamedTuple):
    """The end of the copy of one file."""

    file: FileCopy
    size: int
    """Bytes that were copied."""
    error: OSError | ValueError | None
    """What went wrong; None if the file is at its target."""


class Copier:
    """Copies files from one FS to another; a context manager, at whose end no copy is running.

    Args:
        source, target: the two FS, which may be one.
        report: called with the end of each copy, in the thread of the caller.
        count: called with the size of each piece of a file that is copied, in the thread of the caller.
        concurrency: how many files are under way at once; by default, what suits the two FS.
        move: remove each file of the source once its copy is done, which must be another file. Of an archive that is
            written nothing is there before it is closed: `arrived` has the files that are for then.
        verify: compare what was written with what was read.
        keep_modes: give the copies the permissions of their stats; by default, if the source keeps permissions.
    """

    def __init__(
        self,
        source: FS,
        target: FS,
        report: Callable[[CopyResult], None],
        count: Callable[[int], None],
        concurrency: int | None = None,
        *,
        move: bool = False,
        verify: bool = True,
        keep_modes: bool | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._count = count
        self._concurrency = concurrency
        self._move = move
        self._verify = verify
        self._keep_modes = source.capabilities.modes if keep_modes is None else keep_modes
        self._sets_times = target.capabilities.settable_times and not target.capabilities.modes
        self._size = concurrency or max(source.default_concurrency, target.default_concurrency)
        self._threads = Threads[None](self._size, wait=True)
        self._done: SimpleQueue[int | list[CopyResult] | _Ended] = SimpleQueue()
        self._in_flight = 0
        self._cost = 0
        self.arrived: list[FileCopy] = []
        """Files in an archive that is not yet closed, of which `remove_source` is to be called."""
        self._origin = stored_in(source)
        self._server_side = copied_by_store(source, target)

    def run(self, files: Iterable[FileCopy]) -> None:
        """Copy files, which are asked for as there is room for them; return when all are done."""
        if self._server_side:
            for file in files:
                self._submit(functools.partial(self._copy_alone, file, self._copy_server_side), 0)
        else:
            for batch in batches(files, lambda file: file.stat.size, in_order=False):
                if (size := batch[0].stat.size) > SMALL:
                    self._submit(
                        functools.partial(self._copy_alone, batch[0], self._copy_large), min(size, _COST_OF_LARGE)
                    )
                else:
                    cost = max(BUDGET // 4, sum(file.stat.size for file in batch))
                    self._submit(functools.partial(self._copy_batch, batch), cost)
        while self._in_flight:
            self._wait()

    def remove_source(self, file: FileCopy) -> OSError | None:
        """Remove a file of the source that is at its target; return what went wrong.

        It stays if it is the target, or may be, and if it is not as it was when it was listed.
        """
        source, src = self._source, file.src
        try:
            refuse_same(source, src, self._target, file.dst, "move", may_be=True)
            now, then = source._stat(src), file.stat
            same = (now.size, now.last_modified) == (then.size, then.last_modified)  # in stores, of whole seconds
            if source.capabilities.content_versions and then.version is not None:
                same = same and now.version == then.version
            if not same:
                raise errors.stale(source._url(src), "the file changed while it was moved: it stays", "move")
            source._remove(src)
        except OSError as exc:
            source._named(exc, "remove", src)
            return exc
        return None

    def _submit(self, job: Callable[[], None], cost: int) -> None:
        while self._in_flight and (self._cost + cost > BUDGET or self._in_flight >= self._size):
            self._wait()
        self._in_flight += 1
        self._cost += cost
        ended = functools.partial(_Ended, cost)
        self._threads.submit(job, lambda outcome: self._done.put(ended(outcome)))

    def _wait(self) -> None:
        """Take one report of a thread."""
        done = self._done.get()
        if isinstance(done, int):
            self._count(done)
        elif isinstance(done, list):
            for result in done:
                self._report(result)
        else:
            self._in_flight -= 1
            self._cost -= done.cost
            done.outcome.result()

    def _check_wanted(self) -> None:
        """Raise in a thread whose work is no longer wanted."""
        if self._threads.stopping:
            raise InterruptedError(errno.EINTR, "the copy was given up")

    def _passed(self, size: int) -> None:
        self._check_wanted()
        if size:
            self._done.put(size)

    # ---- in threads

    def _finished(self, results: list[CopyResult]) -> list[CopyResult]:
        """Return the results of files, of which those at their targets are removed from the source in a move."""
        if not self._move:
            return results
        arrived = [result.file for result in results if result.error is None]
        if not self._target.capabilities.read:
            self.arrived += arrived
            return results
        try:
            self._target.backing._make_durable([file.dst for file in arrived])
        except OSError as exc:
            return [result if result.error is not None else result._replace(error=exc) for result in results]
        return [
            result if result.error is not None else result._replace(error=self.remove_source(result.file))
            for result in results
        ]

    def _failed(self, file: FileCopy, exc: OSError | ValueError) -> CopyResult:
        """Return the result of a file that failed; raise if the copies are no longer wanted."""
        if isinstance(exc, InterruptedError):
            self._check_wanted()
        if isinstance(exc, OSError):
            self._source._named(exc, "copy", file.src)
        return CopyResult(file, 0, exc)

    def _copy_alone(self, file: FileCopy, copy: Callable[[FileCopy], int]) -> None:
        """Copy a file by a function that returns its size."""
        try:
            size = copy(file)
        except (OSError, ValueError) as exc:
            self._done.put([self._failed(file, exc)])
        else:
            self._done.put(self._finished([CopyResult(file, size, None)]))

    def _copy_server_side(self, file: FileCopy) -> int:
        """Have the store copy a file."""
        self._check_wanted()
        self._target._copy(self._origin, file.src, file.dst)
        self._passed(file.stat.size)
        return file.stat.size

    def _copy_large(self, file: FileCopy) -> int:
        source, target, stat = self._source, self._target, self._kept(file.stat)
        move, verify = self._move, self._verify
        return copy_file(source, file.src, target, file.dst, self._passed, stat=stat, moved=move, verify=verify)

    def _copy_batch(self, batch: list[FileCopy]) -> None:
        """Copy small files: many are read at once, and written while the next are read."""
        waiting = deque(batch)
        results = _Results(self._done, self._finished)
        read: list[tuple[FileCopy, bytes]] = []
        can = self._target.capabilities
        if can.modes or not can.replace:
            self._write_each(self._contents(waiting, None, results), results)
        else:
            try:
                pairs = ((file.dst, content) for file, content in self._contents(waiting, read, results))
                self._target._write_many(pairs, self._concurrency)
            except (OSError, ValueError) as exc:
                if isinstance(exc, InterruptedError):
                    self._check_wanted()
                # Of files that are written together the first failure ends all: which others are there is not known.
                for _ in self._contents(waiting, read, results):
                    pass
                self._write_each(iter(read), results)
            else:
                for file, content in read:
                    results.add(self._written(file, content))
        results.send()

    def _write_each(self, contents: Iterator[tuple[FileCopy, bytes]], results: _Results) -> None:
        """Write files one by one, each with an outcome of its own; several at once where that suits the store."""
        target = self._target
        files: dict[str, FileCopy] = {}

        def pairs() -> Iterator[tuple[str, bytes]]:
            for file, content in contents:
                files[file.dst] = file
                yield file.dst, content

        def write(dst: str, content: bytes) -> None:
            self._check_wanted()
            file = files.pop(dst)
            try:
                with target._naming("copy", dst):
                    target._write_bytes(dst, content, self._kept(file.stat), self._move)
                results.add(self._written(file, content))
            except (OSError, ValueError) as exc:
                results.add(self._failed(file, exc))

        workers = self._concurrency or target.default_concurrency
        if workers == 1 or not target.capabilities.replace:  # a container is written in order
            writemany.one_by_one(write, pairs())
        else:
            writemany.in_threads(write, pairs(), workers)

    def _contents(
        self, waiting: deque[FileCopy], read: list[tuple[FileCopy, bytes]] | None, results: _Results
    ) -> Iterator[tuple[FileCopy, bytes]]:
        """Yield files of `waiting` and contents, which are kept in `read`; add results of those that can't be read."""
        while waiting:
            contents = self._read(list(waiting))
            try:
                for content in contents:
                    self._check_wanted()
                    file = waiting[0]
                    check_size(self._source, file.src, file.stat, len(content))
                    waiting.popleft()
                    if read is not None:
                        read.append((file, content))
                    yield file, content
            except (OSError, ValueError) as exc:
                if not waiting:
                    raise
                results.add(self._failed(waiting.popleft(), exc))
            finally:
                if hasattr(contents, "close"):
                    contents.close()

    def _read(self, files: list[FileCopy]) -> Iterator[bytes]:
        """Return the contents of files; what is moved is compared with what was listed."""
        wanted = [file.src for file in files]
        if self._move and self._source.capabilities.content_versions:
            return self._checked(files, self._source._read_many(wanted, self._concurrency, True))
        return self._source._read_many(wanted, self._concurrency)

    def _checked(self, files: list[FileCopy], found: Iterator[tuple[bytes, str | None]]) -> Iterator[bytes]:
        try:
            for file, (content, version) in zip(files, found, strict=True):
                check_version(self._source, file.src, file.stat, version)
                yield content
        finally:
            if hasattr(found, "close"):
                found.close()

    def _written(self, file: FileCopy, content: bytes) -> CopyResult:
        """Compare a small file that was written, give it its time, and return the result."""
        target, dst = self._target, file.dst
        try:
            if self._verify or self._sets_times:
                with target._naming("copy", dst):
                    if self._verify and reads_back(target, dst) and next(target._read_many((dst,))) != content:
                        raise errors.corrupt(target._url(dst), "what is read is not what was written", "copy")
                    if self._sets_times and file.stat.last_modified is not None:
                        target._set(dst, file.stat._replace(mode=0))
        except (OSError, ValueError) as exc:
            return self._failed(file, exc)
        return CopyResult(file, len(content), None)

    def _kept(self, stat: FileStat) -> FileStat:
        return stat if self._keep_modes else stat._replace(mode=0)

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.__exit__(*exc)


class _Results:
    """The results of small files, which are sent together: to wake another thread for each takes longer than a file."""

    def __init__(self, to: SimpleQueue[Any], finished: Callable[[list[CopyResult]], list[CopyResult]]) -> None:
        self._to = to
        self._finished = finished
        self._results: list[CopyResult] = []

    def add(self, result: CopyResult) -> None:
        """Add a result."""
        self._results.append(result)
        if len(self._results) >= _SENT:
            self.send()

    def send(self) -> None:
        """Send those that were added, and the bytes of their files."""
        results, self._results = self._results, []
        self._to.put(sum(result.size for result in results))
        self._to.put(self._finished(results))


class _Ended(NamedTuple):
    """The end of a job of a thread."""

    cost: int
    outcome: TaskOutcome[None]
