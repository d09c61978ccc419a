"""`analyse`: one pass over a trace, in bounded memory, to all that tables and reports show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from .breakdown import StepBreakdown
from .facts import Calls
from .figures import Grid, UnderWay
from .findings import find
from .intervals import Array
from .notebook import ShownAnalysis
from .reading import TraceSource, sources
from .results import (
    Amplification,
    Analysis,
    CacheUse,
    HeatMap,
    Row,
    Stall,
    Timeline,
)
from .schema import (
    READS,
    ProcessInfo,
    operation,
)
from .tables import Columns, FileTable, Key, OperationTable, Slowest, Steps, columns

AT_ONCE = 16 * 1024
"""Events that are turned into arrays together."""
FILES = 1000
SLOWEST = 100
FEW_BATCHES, FEW_CALLS = 5, 50
"""Of a process that has made fewer, nothing is concluded."""
UPWARD = frozenset({"put", "post", "upload", "upload_part", "write", "append", "commit", "complete", "create"})
"""Operations of requests whose bytes go to the store."""


class _Sum:
    """Calls, and how long they took."""

    def __init__(self) -> None:
        self.count = self.nanoseconds = 0

    def add(self, durations: Array) -> None:
        """Add some."""
        self.count += len(durations)
        self.nanoseconds += int(durations.sum())


class _Pass:
    """The one pass."""

    def __init__(self, zero: int) -> None:
        self.zero = zero
        self.table = OperationTable()
        self.files = FileTable()
        self.slowest = Slowest(SLOWEST)
        self.steps = Steps()
        self.breakdown = StepBreakdown()
        self.asked, self.fetched, self.reads, self.requests, self.errors = (Grid(zero) for _ in range(5))
        self.processes: list[ProcessInfo] = []
        self.calls: list[Calls] = []
        self.busy: list[Grid] = []
        self.bytes: list[Grid] = []
        self.failed_requests = 0
        self.begin = 0
        self.end = 0

    def process(self, source: TraceSource) -> None:
        """All that a process left."""
        busy, data = Grid(self.zero), Grid(self.zero)
        under_way = UnderWay(_spreader(busy))
        calls, batches = _Sum(), _Sum()
        first, last = source.header["monotonic_ns"] + source.offset, 0
        numbers: dict[Key, int] = {}
        for chunk in _together(source.chunks()):
            some = columns(chunk, source.offset, numbers)
            self._add(some, source.number)
            mine = some.of("fs")
            under_way.add(some.begin[mine], some.end[mine])
            reads = some.reads()
            data.spread(some.begin[reads], _after(some, reads), _rate(some, reads))
            calls.add(some.duration[mine])
            batches.add(some.duration[some.of("fetch")])
            first, last = min(first, int(some.begin.min())), max(last, int(some.end.max()))
        under_way.total()
        self.table.end_process((source.tally or {}).get("histograms", ()))
        self.steps.end_process(source.number)
        self.breakdown.end_process(source.header)
        self.busy.append(busy)
        self.bytes.append(data)
        info = _info(source, first, max(first, last))
        self.processes.append(info)
        done = batches if batches.count >= FEW_BATCHES else calls
        if done is batches or done.count >= FEW_CALLS:
            self.calls.append(Calls(info.label, done.count, done.nanoseconds / 1e9, info.begin, info.end))
        if last:
            self.begin = min(self.begin or first, first)
            self.end = max(self.end, last)

    def _add(self, some: Columns, process: int) -> None:
        self.table.add(some)
        self.files.add(some)
        self.slowest.add(some, process)
        self.steps.add(some)
        self.breakdown.add(some)
        reads, requests = some.reads(), some.of("request")
        down = requests & ~_upward(some)
        self.asked.spread(some.begin[reads], _after(some, reads), _rate(some, reads))
        self.fetched.spread(some.begin[down], _after(some, down), _rate(some, down))
        self.reads.spread(some.begin[reads], some.end[reads], 1.0)
        self.requests.spread(some.begin[requests], some.end[requests], 1.0)
        self.errors.count(some.end[some.failed], 1)
        self.failed_requests += int(some.duration[requests & some.failed].sum())

    def timeline(self) -> tuple[Timeline, HeatMap]:
        """On one grid."""
        grids = [self.asked, self.fetched, self.reads, self.requests, self.errors, *self.busy, *self.bytes]
        span = max(1, self.end - self.zero)
        for grid in grids:
            grid.widen(span)
        width = max(grid.width for grid in grids)
        asked, fetched, reads, requests, errors, *rest = (grid.slices(width, span) for grid in grids)
        busy, data = rest[: len(self.busy)], rest[len(self.busy) :]
        seconds = width / 1e9
        return (
            Timeline(
                seconds, (asked / seconds).tolist(), (fetched / seconds).tolist(), (reads / width).tolist(),
                (requests / width).tolist(), [int(count) for count in errors],
            ),
            HeatMap(
                seconds, [process.label for process in self.processes],
                [(row / width).clip(0, 1).tolist() for row in busy], [(row / seconds).tolist() for row in data],
            ),
        )  # fmt: skip


def analyse(folder: str | os.PathLike[str]) -> Analysis:
    """Analyse a trace, of processes that have ended, were killed, or still run.

    It takes some seconds for each million of events. Raises `FileNotFoundError` where the folder is none of a trace.
    """
    found, notes = sources(folder)
    zero = min((source.header["monotonic_ns"] + source.offset for source in found), default=0)
    taken = _Pass(zero)
    for source in found:
        taken.process(source)
        notes += source.notes
    timeline, heat = taken.timeline()
    table, steps = taken.table, taken.steps
    steps.rows.sort(key=lambda step: step.begin)
    keys = list(table.all)
    read = [key for key in keys if key[0] == "fs" and operation(key[1]) in READS]
    requests = [key for key in keys if key[0] == "request"]
    operations = table.operations()
    analysis = ShownAnalysis(
        folder=os.fspath(folder),
        begin=taken.zero,
        seconds=max(0, taken.end - taken.zero) / 1e9,
        processes=taken.processes,
        events=sum(process.events for process in taken.processes),
        dropped=sum(process.dropped for process in taken.processes),
        operations=operations,
        layers=table.layers(),
        amplification=_amplification(operations),
        cache=CacheUse(*(_calls(operations, kind) for kind in ("hit", "miss", "evict"))),
        retries=_calls(operations, "retry"),
        retry_seconds=taken.failed_requests / 1e9,
        timeline=timeline,
        heat=heat,
        read_sizes=table.sizes(read),
        request_sizes=table.sizes(requests),
        latencies=table.latencies(),
        files=taken.files.rows(FILES),
        files_seen=taken.files.seen,
        slowest=taken.slowest.rows(),
        steps=steps.rows,
        stall=Stall(steps.count, steps.wait, max(0.0, steps.seconds - steps.wait)) if steps.count else None,
        breakdown=taken.breakdown.rows(),
        findings=(),
        notes=notes,
    )
    return analysis._replace(findings=find(analysis, taken.calls, taken.files.stats_first))


def _together(chunks: Iterator[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Chunks of a good size for arrays; none is empty."""
    kept: list[dict[str, Any]] = []
    for chunk in chunks:
        kept += chunk
        if len(kept) >= AT_ONCE:
            yield kept
            kept = []
    if kept:
        yield kept


def _spreader(grid: Grid) -> Callable[[Array, Array], None]:
    return lambda begins, ends: grid.spread(begins, ends, 1.0)


def _after(some: Columns, which: Array) -> Array:
    """The ends, each at least a nanosecond after the begin."""
    import numpy as np

    ends: Array = np.maximum(some.end[which], some.begin[which] + 1)
    return ends


def _rate(some: Columns, which: Array) -> Array:
    """Bytes a nanosecond."""
    return some.size[which] / some.duration[which].clip(1)


def _upward(some: Columns) -> Array:
    import numpy as np

    return np.isin(some.key, [number for number, (_, name) in enumerate(some.keys) if operation(name) in UPWARD])


def _info(source: TraceSource, begin: int, end: int) -> ProcessInfo:
    header = source.header
    return ProcessInfo(
        source.number, header["host"], header["pid"], header["rank"], header["worker"], header["program"],
        begin, end, source.read, source.dropped, source.footer is not None,
    )  # fmt: skip


def _amplification(operations: list[Row]) -> Amplification:
    asked = sum(row.bytes for row in operations if row.kind == "fs" and row.operation in READS)
    requests = [row for row in operations if row.kind == "request"]
    fetched = sum(row.bytes for row in requests if row.operation not in UPWARD)
    return Amplification(asked, fetched if requests else None)


def _calls(operations: list[Row], kind: str) -> int:
    """Return how often an event happened; events of `index_cache`, which is no cache of data, are left out."""
    return sum(row.calls for row in operations if row.kind == kind and row.layer != "index_cache")
