"""The recorder: the instrument that keeps each event of one process, and appends them to its trace file.

An event is a tuple in a list. A thread counts the waiting events every `PERIOD` seconds, sooner at first, and writes
them as one chunk. A thread that records `CROWD` events within that time writes them itself; a fork and the end of the
process write them, too. A process that is killed loses the events of the last `PERIOD`.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
from _thread import get_ident
from collections.abc import Callable, Sequence
from time import monotonic_ns
from typing import Any

from ..core import hooks
from ..core.threads import Flag
from ..disk.descriptors import write_all
from . import chunks
from .schema import Tally

PERIOD = 0.25
"""Seconds between two flushes."""
FIRST_PERIOD = 0.02
"""Seconds until the first one: a pool's workers may live no longer, and are killed at its end."""
CROWD = 1 << 15
"""Events that are written together at most: a thread that finds so many waiting writes them."""
MOST = 8 * CROWD
"""Events that wait at most, while a disk hangs; further ones are counted, and dropped."""
HANG = 3.0
"""Seconds that a thread waits for room; then events are dropped until something could be written."""
MAX_BYTES = 512 * 1024 * 1024
"""What a process's trace file may grow to."""
NAMES_BOUND = 1024
"""Distinct kinds and names that are counted; those of a program beyond it are counted as `other`."""


class Counter:
    """The counts of one kind and name."""

    __slots__ = ("bytes", "calls", "errors", "nanoseconds")

    def __init__(self) -> None:
        self.calls = self.nanoseconds = self.bytes = self.errors = 0

    def add(self, durations: Sequence[int], sizes: Sequence[int], failed: bool) -> None:
        """Count some, at least one."""
        self.calls += len(durations)
        self.nanoseconds += sum(durations)
        self.bytes += sum(sizes)
        self.errors += len(durations) if failed else 0

    def tally(self, kind: str, name: str) -> Tally:
        """Return the counts so far."""
        return Tally(kind, chunks.cleaned(name), self.calls, self.errors, self.bytes, self.nanoseconds)


class Recorder(hooks.Instrument):
    """Keeps every event of this process, and counts them.

    The file is made at the first flush, the thread at the first event. `describe` returns the process's header;
    `failed` is called once with the `OSError` of a file that can't be made.
    """

    calls = True

    def __init__(
        self,
        folder: str,
        describe: Callable[[], dict[str, Any]],
        *,
        max_bytes: int = MAX_BYTES,
        failed: Callable[[OSError], None] = lambda exc: None,
    ) -> None:
        self.path = ""
        self.failure = ""
        """Why no more events are written, if so."""
        self._folder, self._describe, self._max_bytes, self._failed = folder, describe, max_bytes, failed
        self._descriptor = -1
        self._rows: list[chunks.Row] = []
        self._append = self._rows.append
        self._room = 0  # until the thread has been started
        self._threads: dict[int, int] = {}
        self._counters: dict[tuple[str, str], Counter] = {}
        self._recorded = self._dropped = self._refused = self._size = self._described = 0
        self._flushing = threading.RLock()
        self._dropping = threading.RLock()
        self._writes = self._hangs = False
        self._stopping = Flag()

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: Any = "", error: str = "", offset: int = -1
    ) -> None:
        """Keep a piece of work that has ended now."""
        now = monotonic_ns()
        if len(self._rows) >= self._room and not self._make_room():
            return
        try:
            thread = self._threads[get_ident()]
        except KeyError:
            thread = self._thread()
        try:
            self._append((begin or now, now - begin if begin else 0, size, offset, thread, where, kind, name, error))
        except TypeError:  # a begin that is no number
            self._append((now, 0, size, offset, thread, where, kind, None, error))  # type: ignore[arg-type] # refused

    def record_event(self, kind: str, name: str, size: int = 1, where: Any = "") -> None:
        """Keep something with no duration."""
        self.record_span(kind, name, 0, size, where)

    def tallies(self) -> list[Tally]:
        """Return the counts of each kind and name so far."""
        self.flush()
        return [counter.tally(*key) for key, counter in self._counters.items()]

    def flush(self, timeout: float = -1) -> bool:
        """Count what has been recorded, and write it; return False if a disk that hangs leaves no time for it."""
        if not self._flushing.acquire(timeout=timeout):
            return False
        try:
            self._flush()
        finally:
            self._flushing.release()
        return True

    def finish(self) -> None:
        """Write what is left and the counts, and close the file; after `finish` nothing is recorded."""
        self._stopping.set()
        if not self._flushing.acquire(timeout=10):  # a disk that hangs
            return
        try:
            self.flush()
            self._room = -1
            if self._make_file():
                end = chunks.framed(chunks.content({}, tally=self._tally(), end=monotonic_ns()))
                if not self._put(end, reserve=0) and self._described + len(end) <= chunks.RESERVED:
                    with contextlib.suppress(OSError):
                        os.pwrite(self._descriptor, end, self._described)
                with contextlib.suppress(OSError):
                    os.close(self._descriptor)
                self._descriptor = -1
        finally:
            self._flushing.release()

    def open(self) -> None:
        """Make the file now. Raises `OSError`."""
        with self._flushing:
            self._open()

    def _thread(self) -> int:
        if len(self._threads) > 4096:  # threads come and go: a number that is used again is found again
            self._threads.clear()
        number = self._threads[get_ident()] = threading.get_native_id()
        return number

    def _make_room(self) -> bool:
        """Start the thread at the first event; write, if so many events wait; return whether one more may."""
        if self._room < 0:
            return False
        if not self._room:
            with self._dropping:
                if not self._room:
                    self._room = CROWD
                    with contextlib.suppress(RuntimeError):  # the interpreter is ending
                        _thread.start_new_thread(self._run, ())
            return True
        full = len(self._rows) >= MOST
        if not self.flush(HANG if full and not self._hangs else 0) and full:
            self._hangs = True
            with self._dropping:
                self._dropped += 1
            return False
        return True

    def _run(self) -> None:
        period = FIRST_PERIOD
        while not self._stopping.wait(period):
            period = min(PERIOD, 2 * period)
            with self._flushing:
                if self._stopping.is_set():
                    return
                self.flush()

    # ---- under the lock `_flushing`

    def _flush(self) -> None:
        if self._writes:  # a finalizer recorded something in the middle of it
            return
        self._writes = True
        try:
            while rows := self._rows[:CROWD]:
                del self._rows[: len(rows)]
                self._write(rows)
                self._hangs = False
        finally:
            self._writes = False

    def _write(self, rows: list[chunks.Row]) -> None:
        self._recorded += len(rows)
        try:
            groups = chunks.grouped(rows)
            content = chunks.content(groups)
            if len(content) > chunks.MAX_CONTENT:
                raise ValueError("too long for a chunk")
            for (kind, name, error), (_, durations, sizes, *_) in groups.items():
                (self._counters.get((kind, name)) or self._counter(kind, name)).add(durations, sizes, bool(error))
        except Exception:  # whatever the arguments were: tracing must not break what it watches
            if len(rows) == 1:
                self._refused += 1
                self._recorded -= 1
                return
            self._recorded -= len(rows)
            for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                self._write(part)
            return
        if self._make_file():
            self._put(chunks.framed(content))

    def _counter(self, kind: str, name: str) -> Counter:
        if len(self._counters) >= NAMES_BOUND:
            kind, name = "span", "other"
        return self._counters.setdefault((kind, name), Counter())

    def _tally(self) -> dict[str, Any]:
        return {
            "recorded": self._recorded + self._dropped,
            "refused": self._refused,
            "failure": self.failure,
        }

    def _make_file(self) -> bool:
        if self._descriptor < 0 and not self.failure:
            try:
                self._open()
            except OSError as exc:
                self.failure = f"the trace file could not be made: {exc.strerror}"
                self._failed(exc)
        return self._descriptor >= 0

    def _open(self) -> None:
        header = self._describe()
        os.makedirs(self._folder, exist_ok=True)
        host = "".join(char if char.isascii() and (char.isalnum() or char in ".-") else "_" for char in header["host"])
        path = os.path.join(self._folder, f"trace-{host}-{header['pid']}-{header['wall_ns']:x}.fstrace")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            described = chunks.framed(chunks.content({}, process=header))
            write_all(descriptor, described.ljust(chunks.RESERVED, b"\0"))
        except BaseException as exc:
            os.close(descriptor)
            os.unlink(path)
            if isinstance(exc, OSError) and exc.filename is None:
                exc.filename = path
            raise
        self._descriptor, self.path, self._described, self._size = descriptor, path, len(described), chunks.RESERVED

    def _put(self, data: bytes, reserve: int = chunks.RESERVED) -> bool:
        """Append a chunk, whole or not at all; return False, for good, where there is no more room."""
        if self._descriptor < 0 or (self.failure and reserve):
            return False
        if self._size + len(data) + reserve > self._max_bytes + chunks.RESERVED:
            self.failure = f"the trace file reached its bound of {self._max_bytes} bytes"
            return False
        try:
            write_all(self._descriptor, data)
        except OSError as exc:
            self.failure = f"the trace file could not be written: {exc.strerror}"
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
                os.lseek(self._descriptor, self._size, os.SEEK_SET)
            return False
        self._size += len(data)
        return True
