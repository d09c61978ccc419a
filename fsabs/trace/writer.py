"""From the ring to the trace file: a thread that drains the one into the other, and never holds the others up for long.

Each gzip member says which records it has, so that a reader of both files takes none twice: a process that is killed in
the middle of a member leaves a torn one, and its records are still in the ring.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import threading
import time
import zlib
from typing import Any

from ..threads import Flag
from .lines import CHUNK, FOOTER, HEADER, Lines, meta
from .recorder import EventRecorder, Recorder
from .ring import RECORD, Record

TICK = 0.05
"""Seconds between two looks at the ring."""
SECOND = 1.0
"""Seconds after which the counters are saved, and a gap is passed by."""
LATEST = 5.0
"""Seconds after which even a few records are written."""
PENDING = 4096
"""Records that are worth waking up for: the ring keeps them meanwhile, and to write many together costs less."""
MEMBER = 1024
"""Records of a gzip member."""
BATCH = 64
"""Records that are rendered before another thread may go on."""
MAX_BYTES = 512 * 1024 * 1024
"""What a process's trace file may grow to."""


class TraceFile:
    """The file of one process, of independent gzip members; it ends at `bound` bytes, or when the disk is full."""

    def __init__(self, path: str, header: dict[str, Any], bound: int = MAX_BYTES) -> None:
        """Make the file with its header. Raises `OSError`."""
        self.path = path
        self.pid: int = header["pid"]
        self.failure = ""
        """Why nothing more is written, if so."""
        self._bound = bound
        self._size = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        first = ["[\n", meta(HEADER, self.pid, header), meta("process_name", self.pid, {"name": title(header)})]
        try:
            self._put(_compressed(["".join(first)]))
        except BaseException:
            os.close(self._descriptor)
            os.unlink(path)
            raise

    def member(self, batches: list[str]) -> bool:
        """Write a member; False, for good, where there is no more room."""
        if self.failure:
            return False
        data = _compressed(batches)
        if self._size + len(data) > self._bound:
            self.failure = f"the trace file reached its bound of {self._bound} bytes"
            return False
        try:
            self._put(data)
        except OSError as exc:
            self.failure = f"the trace file could not be written: {os.strerror(exc.errno or 0)}"
            return False
        return True

    def close(self, footer: dict[str, Any] | None) -> bool:
        """End the file; False if the footer could not be written. None leaves it without one."""
        written = False
        if footer is not None and not self.failure:
            try:
                self._put(_compressed([meta(FOOTER, self.pid, footer)]))
                written = True
            except OSError:  # the ring stays, and has the counters
                pass
        try:
            os.close(self._descriptor)
        except OSError:  # a disk of the network tells now that it is full
            return False
        return written

    def _put(self, data: bytes) -> None:
        self._size += len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]


def title(header: dict[str, Any]) -> str:
    """Return the name of a process in a timeline."""
    parts = [f"{header['program']} {header['host']}:{header['pid']}"]
    parts += [f"{name} {header[name]}" for name in ("rank", "worker") if header[name] is not None]
    return " ".join(parts)


def _compressed(batches: list[str]) -> bytes:
    """One gzip member; other threads run meanwhile."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join([*(squeeze.compress(batch.encode()) for batch in batches), squeeze.flush()])


class Flusher:
    """Drains the ring of `recorder` into `file`, in a thread of its own once `start()` is called."""

    def __init__(self, recorder: Recorder, file: TraceFile) -> None:
        self._recorder = recorder
        self._events = recorder if isinstance(recorder, EventRecorder) else None
        self._file = file
        self._records = recorder.ring.records
        self._capacity = recorder.ring.capacity
        self._lines = Lines(file.pid, recorder.names, self._events.text) if self._events else None
        self._worth = min(PENDING, self._capacity // 4)
        self._next = 1
        self._lost = 0
        self._gap_since = 0.0
        self._gap_timeout = SECOND
        self._stopping = Flag()
        self._one = threading.Lock()

    def start(self) -> None:
        """Start the thread; where no thread can be started any more, the ring alone has the events.

        It is not waited for, neither here nor at the end, unlike a `threading.Thread`: a process may trace for no
        longer than that takes where CPUs are busy.
        """
        with contextlib.suppress(RuntimeError):  # the interpreter is ending
            _thread.start_new_thread(self._run, ())

    def finish(self) -> None:
        """Write all that there is, end the file, and remove the ring."""
        self._stopping.set()
        if not self._one.acquire(timeout=10):  # a disk that hangs: the ring stays, with all that is in it
            return
        try:
            self._gap_timeout = 0.0  # no thread will fill a gap any more
            self._drain()
            self._recorder.save_tally()
            if self._file.close(self._recorder.tally()):
                self._recorder.ring.remove()
        finally:
            self._one.release()

    def _run(self) -> None:
        saved = written = time.monotonic()
        while not self._stopping.wait(TICK):
            with self._one:
                if self._stopping.is_set():  # the file may have been closed
                    return
                now = time.monotonic()
                if now - written >= LATEST or self._gap_since or self._has(self._next + self._worth):
                    self._drain()
                    written = now
                if now - saved >= SECOND:
                    self._recorder.save_tally()
                    saved = now

    def _has(self, number: int) -> bool:
        """Return whether record `number` has been written, even if it is overwritten by now."""
        if not self._capacity:
            return False
        at = number % self._capacity * RECORD.size
        found: int = RECORD.unpack_from(self._records, at)[-1]
        return found >= number * RECORD.size

    def _drain(self) -> None:
        """Write all records that are there, a member at a time."""
        while self._lines is not None and self._events is not None and (records := self._take()):
            lost, self._lost = self._lost, 0
            numbers = {"from": records[0][-1] // RECORD.size, "to": records[-1][-1] // RECORD.size, "lost": lost}
            batches = [meta(CHUNK, self._file.pid, numbers)]
            batch = MEMBER if self._stopping.is_set() else BATCH  # who waits for the end goes before the others
            for at in range(0, len(records), batch):
                self._events.distribute(records[at : at + batch])
                batches.append(self._lines.render(records[at : at + batch]))
                time.sleep(0)  # threads that wait for the interpreter go first
            if self._file.member(batches):
                self._events.kept += len(records)

    def _take(self) -> list[Record]:
        """The next records, up to a member's, up to the first that is not there yet."""
        slot, room = self._next % self._capacity, MEMBER
        while room > BATCH and not self._has(self._next + room // 2):  # a page that is touched is made, and takes time
            room //= 2
        data = bytes(self._records[slot * RECORD.size : min(slot + room, self._capacity) * RECORD.size])
        found: list[Record] = [*RECORD.iter_unpack(data)]
        first = self._next * RECORD.size
        if [record[-1] for record in found] == [*range(first, first + len(data), RECORD.size)]:  # all of them are there
            self._next += len(found)
            self._gap_since = 0.0
            return found
        found.clear()
        for record in RECORD.iter_unpack(data):
            number = record[-1] // RECORD.size
            if number > self._next and not found:
                self._skip_to(number - self._capacity + self._capacity // 8)
                return self._take()
            if number != self._next:
                break
            found.append(record)
            self._next += 1
        if found:
            self._gap_since = 0.0
            return found
        return self._past_gap()

    def _skip_to(self, number: int) -> None:
        """Give up what was overwritten, and some more, which will be while it is read."""
        self._lost += max(0, number - self._next)
        self._next = max(number, self._next + 1)

    def _past_gap(self) -> list[Record]:
        """Skip a missing record that later ones follow, once it has been missing for a while, and return what follows.

        Its thread is about to write it, or was interrupted.
        """
        later = next((step for step in range(1, 64) if self._has(self._next + step)), 0)
        if not later:
            return []
        now = time.monotonic()
        if not self._gap_since:
            self._gap_since = now
        if now - self._gap_since < self._gap_timeout:
            return []
        self._lost += later
        self._next += later
        return self._take()
