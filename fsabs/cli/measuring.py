"""Costs of a data set, measured by a few requests: opening, listing, reading a sample; and an epoch, extrapolated."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ..core import hooks
from ..core.fs import FS, FileStat
from ..urls import opening
from .resolution import backend_of

T = TypeVar("T")
LISTED = 1000
"""Entries that are listed at most."""
SAMPLED = 16
"""Files that are read at most."""
SAMPLED_BYTES = 64 * 1024 * 1024


class Cost(NamedTuple):
    """The cost of an operation."""

    operation: str
    requests: int | None
    """Requests of the store; None if it does not count them."""
    bytes: int | None
    round_trips: int | None
    """Requests that wait for one another."""
    seconds: float | None
    note: str = ""


class RequestLog(hooks.Instrument):
    """Counts the requests that are made, and passes everything on to the instrument that was there before.

    A context manager.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0
        self.connections = 0
        self.retries = 0
        self.held_back = 0.0
        """Seconds in which requests waited for their turn, or for another attempt, since the store refused some."""
        self.transfer = 0.0
        """Seconds in which bodies were received, where that took time."""
        self.milliseconds: list[float] = []
        """How long each request took, up to some thousands of them."""
        self._before: hooks.Instrument | None = None

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: Any = "", error: str = "", offset: int = -1
    ) -> None:
        """Count a request, or a connection."""
        if kind == "request":
            self.requests += 1
            self.bytes += size
            if begin and len(self.milliseconds) < 100_000:
                self.milliseconds.append((time.monotonic_ns() - begin) / 1e6)
        self.connections += kind == "connect"
        if kind == "wait" and begin:
            seconds = (time.monotonic_ns() - begin) / 1e9
            self.held_back += seconds if name.endswith((".throttle", ".backoff")) else 0.0
            self.transfer += seconds if name.endswith(".transfer") else 0.0
        if self._before is not None:
            self._before.record_span(kind, name, begin, size, where, error, offset)

    def record_event(self, kind: str, name: str, size: int = 1, where: Any = "") -> None:
        """Count a retry."""
        self.retries += size if kind == "retry" else 0
        if self._before is not None:
            self._before.record_event(kind, name, size, where)

    def __enter__(self) -> RequestLog:
        self._before = hooks.install(self)
        self.calls = self._before is not None and self._before.calls
        return self

    def __exit__(self, *exc: object) -> None:
        hooks.install(self._before)


def costs(url: str) -> list[Cost]:
    """Return what opening, listing and one epoch over the data set at a URL cost."""
    with RequestLog() as log:
        counts = _Counted(log)
        fs = counts.run("opening", lambda: opening.from_url(url))
        with fs:
            stats = counts.run(
                "listing", lambda: list(itertools.islice(fs.list("", recursive=True, detail=True), LISTED))
            )
            files = [stat for stat in stats if not stat.directory]
            complete = len(stats) < LISTED
            counts.note("listing", f"{len(files):,} files" if complete else f"of the first {len(stats):,} entries")
            sample = _sample(files)
            read = counts.run("reading", lambda: sum(map(len, fs.read_many([stat.filename for stat in sample]))))
            counts.note("reading", f"{len(sample)} files of {read:,} bytes")
            counted = backend_of(fs)._notes.records_requests
    found = [cost if counted else cost._replace(requests=None, bytes=None, round_trips=None) for cost in counts.found]
    if sample:
        found.append(_epoch(fs, files, sample, found[-1], complete))
    if log.milliseconds:
        note = f"median of {len(log.milliseconds)} requests; {log.connections} connections, {log.retries} retries"
        found.append(Cost("round trip", None, None, 1, statistics.median(log.milliseconds) / 1e3, note))
    return found


class _Counted:
    """Runs operations, and collects what they cost."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log
        self.found: list[Cost] = []

    def run(self, operation: str, function: Callable[[], T]) -> T:
        """Return the result of `function`, whose cost is collected."""
        log = self._log
        requests, size, begin = log.requests, log.bytes, time.monotonic()
        result = function()
        seconds, made = time.monotonic() - begin, log.requests - requests
        spent = sum(log.milliseconds[requests:]) / 1e3
        trips = min(made, max(1, round(made * seconds / spent))) if made and spent else made
        self.found.append(Cost(operation, made, log.bytes - size, trips, seconds))
        return result

    def note(self, operation: str, note: str) -> None:
        """Add a note to an operation that was run."""
        self.found = [cost._replace(note=note) if cost.operation == operation else cost for cost in self.found]


def _sample(files: list[FileStat]) -> list[FileStat]:
    """Return some files from all over a listing, of a bounded size."""
    step = max(1, len(files) // SAMPLED)
    found: list[FileStat] = []
    size = 0
    for stat in files[::step][:SAMPLED]:
        if found and size + stat.size > SAMPLED_BYTES:
            break
        found.append(stat)
        size += stat.size
    return found


def _epoch(fs: FS, files: list[FileStat], sample: list[FileStat], reading: Cost, complete: bool) -> Cost:
    """Return what an epoch over all files costs, extrapolated from reading a sample of them."""
    factor = len(files) / len(sample)
    size, sampled = sum(stat.size for stat in files), sum(stat.size for stat in sample)
    weight = size / sampled if sampled else factor
    requests = None if reading.requests is None else round(reading.requests * factor)
    moved = None if reading.bytes is None else round(reading.bytes * weight)
    trips = None if requests is None else -(-requests // fs.default_concurrency)
    seconds = None if reading.seconds is None else reading.seconds * max(factor, weight)
    if seconds is not None and trips and reading.round_trips:  # as many in flight as there are, not as in the sample
        seconds = min(seconds, trips * (reading.seconds or 0.0) / reading.round_trips * max(1.0, weight / factor))
    of_what = f"{len(files):,} files of {size:,} bytes" + ("" if complete else ", as far as they were listed")
    return Cost("an epoch", requests, moved, trips, seconds, f"estimate for {of_what}, by read_many in one process")
