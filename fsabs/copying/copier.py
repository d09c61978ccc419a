"""The engine of all copies of many files: small ones in batches that are read and written many at once, large ones in
pieces, some at a time, and those that the store can copy itself without their bytes.

Each file is whole at its target or not there, carries its time of modification where the target can keep it, and is
verified. The error of one file is reported, and the others go on. At most `BUDGET` bytes of contents are in memory.
"""

from __future__ import annotations

import errno
import functools
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from .. import errors
from ..threads import TaskOutcome, Threads
from .large import copy_large

if TYPE_CHECKING:
    from ..core import Core
    from ..stats import FileStat

SMALL = 1024 * 1024
"""Files up to this size are read and written as a whole, many at once."""
BUDGET = 256 * 1024 * 1024
"""Bytes of contents under way together."""
_BATCH_FILES = 1024
_BATCH_BYTES = 32 * 1024 * 1024
_COST_OF_LARGE = 128 * 1024 * 1024  # of the budget, at most: a large file is in memory as some pieces and parts


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
        move: remove each file of the source once it is at its target and verified.
    """

    def __init__(
        self,
        source: Core,
        target: Core,
        report: Callable[[CopyResult], None],
        count: Callable[[int], None],
        concurrency: int | None = None,
        move: bool = False,
    ) -> None:
        self._source = source
        self._target = target
        self._report = report
        self._count = count
        self._concurrency = concurrency
        self._move = move
        self._size = concurrency or max(source.default_concurrency, target.default_concurrency)
        self._threads = Threads[None](self._size, wait=True)
        self._done: SimpleQueue[int | list[CopyResult] | _Ended] = SimpleQueue()
        self._batch: list[FileCopy] = []
        self._batch_bytes = 0
        self._in_flight = 0
        self._cost = 0
        self._server_side = target._can_copy_from(source)

    def add(self, file: FileCopy) -> None:
        """Have a file copied; wait while too much is under way."""
        if self._server_side:
            self._submit(functools.partial(self._copy_server_side, file), 0)
            return
        if file.stat.size > SMALL:
            self._submit(functools.partial(self._copy_large, file), min(file.stat.size, _COST_OF_LARGE))
            return
        self._batch.append(file)
        self._batch_bytes += file.stat.size
        if len(self._batch) >= _BATCH_FILES or self._batch_bytes >= _BATCH_BYTES:
            self._submit_batch()

    def finish(self) -> None:
        """Wait until all files are copied."""
        self._submit_batch()
        while self._in_flight:
            self._wait()

    def remove_source(self, src: str) -> OSError | None:
        """Remove a file of the source, and return what went wrong."""
        try:
            self._source._remove(src)
        except OSError as exc:
            self._source._named(exc, "remove", src)
            return exc
        return None

    def _submit_batch(self) -> None:
        batch, self._batch = self._batch, []
        cost, self._batch_bytes = self._batch_bytes, 0
        if batch:
            self._submit(functools.partial(self._copy_batch, batch), max(cost, BUDGET // 4))

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

    def _end(self, file: FileCopy, size: int = 0, error: OSError | ValueError | None = None) -> None:
        self._done.put([CopyResult(file, size, error or self._arrived(file))])

    # ---- in threads

    def _copy_server_side(self, file: FileCopy) -> None:
        """Have the store copy a file."""
        self._check_wanted()
        try:
            self._target._copy_from(self._source, file.src, file.dst)
        except (OSError, ValueError) as exc:
            self._end(file, error=self._named(exc, file))
            return
        self._passed(file.stat.size)
        self._end(file, file.stat.size)

    def _copy_large(self, file: FileCopy) -> None:
        try:
            size = copy_large(self._source, file.src, self._target, file.dst, self._passed)
        except InterruptedError:
            self._check_wanted()
            raise
        except (OSError, ValueError) as exc:
            self._end(file, error=self._named(exc, file))
            return
        self._end(file, size)

    def _copy_batch(self, batch: list[FileCopy]) -> None:
        """Copy small files: read many at once, and written while the next are read."""
        waiting = deque(batch)
        read: list[tuple[FileCopy, bytes]] = []
        try:
            self._target._write_many(self._contents(waiting, read), self._concurrency)
            failed = set[int]()
        except InterruptedError:
            self._check_wanted()
            raise
        except (OSError, ValueError):
            failed = self._write_one_by_one(waiting, read)
        results = []
        for at, (file, content) in enumerate(read):
            if at not in failed:
                error = self._verify(file, content) or self._arrived(file)
                results.append(CopyResult(file, len(content), error))
        self._done.put(sum(result.size for result in results))
        self._done.put(results)

    def _contents(self, waiting: deque[FileCopy], read: list[tuple[FileCopy, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yield targets and contents of files, which move from `waiting` to `read`; report those that can't be read."""
        while waiting:
            contents = self._source._read_many([file.src for file in waiting], self._concurrency)
            try:
                for content in contents:
                    self._check_wanted()
                    file = waiting.popleft()
                    read.append((file, content))
                    yield file.dst, content
            except InterruptedError:
                raise
            except (OSError, ValueError) as exc:
                if not waiting:
                    raise
                file = waiting.popleft()
                self._done.put([CopyResult(file, 0, self._named(exc, file))])
            finally:
                if hasattr(contents, "close"):
                    contents.close()

    def _write_one_by_one(self, waiting: deque[FileCopy], read: list[tuple[FileCopy, bytes]]) -> set[int]:
        """Write what a batch has read, and what it has not, once more; report what fails, and return its numbers.

        Of files that are written together the first failure ends all: which others were written is not known.
        """
        for _ in self._contents(waiting, read):
            pass
        failed = set[int]()
        for at, (file, content) in enumerate(read):
            self._check_wanted()
            try:
                self._target._write_bytes(file.dst, content)
            except (OSError, ValueError) as exc:
                if isinstance(exc, OSError):
                    self._target._named(exc, "copy", file.dst)
                failed.add(at)
                self._done.put([CopyResult(file, 0, exc)])
        return failed

    def _verify(self, file: FileCopy, content: bytes) -> OSError | None:
        """Return the error of a file that is not as it was written."""
        if self._target.checks_writes or not self._target.capabilities.read:
            return None
        try:
            if self._target._read_bytes(file.dst) == content:
                return None
            return errors.corrupt(self._target._url(file.dst), "what is read is not what was written", "copy")
        except OSError as exc:
            self._target._named(exc, "copy", file.dst)
            return exc

    def _arrived(self, file: FileCopy) -> OSError | None:
        """Finish a file that is at its target; return what went wrong."""
        error = self._keep_time(file)
        return self.remove_source(file.src) if self._move and error is None else error

    def _keep_time(self, file: FileCopy) -> OSError | None:
        """Give a copied file the time of its source, where the target can keep it."""
        if file.stat.last_modified is None or not self._target.capabilities.settable_times:
            return None
        try:
            self._target._set_modified(file.dst, file.stat.last_modified)
        except OSError as exc:
            self._target._named(exc, "copy", file.dst)
            return exc
        return None

    def _named(self, exc: OSError | ValueError, file: FileCopy) -> OSError | ValueError:
        if isinstance(exc, OSError):
            self._source._named(exc, "copy", file.src)
        return exc

    def __enter__(self) -> Copier:
        return self

    def __exit__(self, *exc: object) -> None:
        self._threads.__exit__(*exc)


class _Ended(NamedTuple):
    """The end of a job of a thread."""

    cost: int
    outcome: TaskOutcome[None]
