"""The speed of a store, for `fsabs doctor`: round trips, bandwidth, refusals and kept connections, measured by reading
one file, and what is out of the ordinary of them.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator

from ..core.fs import FS, FileStat
from .checking import CheckFinding, ok, within
from .measuring import RequestLog

ROUND_TRIPS = 16
LARGE = 8 * 1024 * 1024
"""Bytes that are read at most to measure bandwidth."""
WORTH = 256 * 1024
"""Of fewer bytes, bandwidth is not measured."""
SLOW_ROUND_TRIP = 0.25
SLOW_BANDWIDTH = 2e6
"""Bytes a second."""
SECONDS = 20.0
"""Round trips are no longer measured after so many."""


def speed(fs: FS) -> Iterator[CheckFinding]:
    """Measure a store by reads of its largest file, of the first thousand."""
    try:
        found = within(_largest, fs)
    except OSError:  # as the check of the listing has found
        return
    if found is None:
        return
    try:
        with RequestLog() as log:
            within(_read_ends, fs, found)
            connections, trips = log.connections, list(log.milliseconds)
            begin = time.monotonic()
            size = within(_read, fs, found) if found.size >= WORTH else 0
            seconds = time.monotonic() - begin
    except OSError as exc:
        yield CheckFinding("speed", "fault", f"can't be measured: {exc.strerror or exc}", "see the checks above")
        return
    if not trips:
        return
    median = statistics.median(trips) / 1e3
    if log.retries:
        share = log.retries / max(1, log.requests)
        text = (
            f"{log.retries} of {log.requests} requests were refused or failed ({share:.0%}), {log.held_back:.1f} s lost"
        )
        yield CheckFinding(
            "refusals", "warning", text, "the store throttles or fails: fewer requests, or another endpoint"
        )
    else:
        yield ok("refusals", f"none of {log.requests} requests")
    text = f"median {median * 1e3:.3g} ms of {len(trips)} requests"
    advice = "use a store in this region or network; many requests in flight (read_many) hide it"
    yield CheckFinding("round trip", "warning", text, advice) if median > SLOW_ROUND_TRIP else ok("round trip", text)
    text = f"{connections} connections for {len(trips)} requests"
    advice = "the store or a proxy closes connections: each request pays a new one"
    kept = connections <= 1 + len(trips) // 4 + log.retries
    yield ok("keep-alive", text) if kept else CheckFinding("keep-alive", "warning", text, advice)
    if size:
        text = f"{size / seconds / 1e6:.3g} MB/s, of {size:,} bytes"
        slow = size / seconds < SLOW_BANDWIDTH
        advice = "look at the network between this machine and the store"
        yield CheckFinding("bandwidth", "warning", text, advice) if slow else ok("bandwidth", text)


def _largest(fs: FS) -> FileStat | None:
    stats = itertools.islice(fs.list("", recursive=True, detail=True), 1000)
    return max((stat for stat in stats if not stat.directory), key=lambda stat: stat.size, default=None)


def _read_ends(fs: FS, stat: FileStat) -> None:
    """Read single bytes of a file, one after another."""
    end = time.monotonic() + SECONDS
    with fs.open_blob(stat.filename) as blob:
        for number in range(ROUND_TRIPS):
            if time.monotonic() < end:
                blob.pread(1, number * max(0, stat.size - 1) // ROUND_TRIPS)


def _read(fs: FS, stat: FileStat) -> int:
    with fs.open_blob(stat.filename) as blob:
        return len(blob.pread(min(LARGE, stat.size), 0))
