"""`analyze`: all that tables and reports show, in bounded memory.

One pass over a trace makes the tables, and a second one, by slices of the time, the attribution.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence

from . import figures, rules, units
from .attribution import Attributed, Outline, attributed, machine
from .facts import LISTINGS, Batches, Ceiling, Facts
from .figures import Grid, Sharing
from .intervals import Array, Collector
from .reading import Columns, TraceSource, sources
from .results import WAITS, Amplification, Analysis, Breakdown, CacheUse, HeatMap, Row, Stall, Timeline
from .schema import READS, UPWARD, ProcessInfo, operation
from .tables import FileTable, Misses, OperationTable, RequestTable, Slowest

FILES = 500
SLOWEST = 100
FEW_BATCHES, FEW_CALLS = 5, 50
"""Of a process that has made fewer, nothing is concluded."""


class _Durations:
    """The durations of the batches, or calls, of a process."""

    def __init__(self) -> None:
        import numpy as np

        self.count = 0
        self.sum = self.first = 0.0
        """Seconds."""
        self.fine = np.zeros(figures.FINE_BUCKETS, np.int64)

    def add(self, durations: Array) -> None:
        """Add nanoseconds."""
        import numpy as np

        if len(durations) and not self.count:
            self.first = int(durations[0]) / 1e9
        self.count += len(durations)
        self.sum += int(durations.sum()) / 1e9
        self.fine += np.bincount(figures.fine_buckets(durations), minlength=figures.FINE_BUCKETS)


class _Pass:
    """The pass for the tables."""

    def __init__(self, zero: int) -> None:
        self.zero = zero
        self.table = OperationTable()
        self.files = FileTable()
        self.slowest = Slowest(SLOWEST)
        self.misses = Misses()
        self.for_data, self.for_reads = RequestTable(), RequestTable()
        self.outlines: list[Outline] = []
        self.asked, self.fetched, self.reads, self.requests, self.errors = (Grid(zero) for _ in range(5))
        self.shared, self.shared_by_reads = Sharing(), Sharing()
        self.processes: list[ProcessInfo] = []
        self.batches: list[Batches] = []
        self.cores: dict[str, int] = {}
        self.had_cpu: dict[str, int] = collections.Counter()  # nanoseconds, of `fetch` and `next`
        self.ready: dict[str, int] = collections.Counter()  # for a CPU that others had
        self.failures: dict[tuple[str, str], int] = collections.Counter()
        self.busy: list[Grid] = []
        self.failed_requests = 0
        self.begin = 0
        self.end = 0

    def process(self, source: TraceSource) -> None:
        """All that a process left."""
        busy, under_way, outline = Grid(self.zero), Collector(), Outline(source)
        calls, batches = _Durations(), _Durations()
        first, last = source.header["monotonic_ns"] + source.offset, 0
        for some in source.columns():
            self._add(some, source.number)
            outline.add(some)
            mine = some.of("fs")
            under_way.add(some.begin[mine], some.end[mine])
            for sums, which in ((calls, mine), (batches, some.of("fetch"))):
                sums.add(some.duration[which])
            first, last = min(first, int(some.begin.min())), max(last, int(some.end.max()))
        busy.spread(*under_way.get(), 1.0)
        self.table.end_process()
        self.for_data.end_process()
        self.for_reads.end_process()
        if last and not source.dropped:  # else what was dropped is not known to be outside of steps
            last = max(last, source.end)
        info = source.info(first, max(first, last))
        if last:
            outline.label, outline.span = info.label, (first, last)
            self.outlines.append(outline)
            self.begin, self.end = min(self.begin or first, first), max(self.end, last)
        self.busy.append(busy)
        self.processes.append(info)
        self.cores[machine(source.header)] = max(1, source.header["cores"])
        fetches = batches.count >= FEW_BATCHES
        made = batches if fetches else calls
        if fetches or made.count >= FEW_CALLS:
            rank = f"{machine(source.header)} {info.rank}"
            typical = figures.percentile(made.fine, 0.5) / 1e9
            self.batches.append(
                Batches(info.label, rank, made.count, made.sum, typical, made.first, info.begin, info.end, fetches)
            )

    def _add(self, some: Columns, process: int) -> None:
        import numpy as np

        self.table.add(some)
        self.files.add(some)
        self.slowest.add(some, process)
        self.misses.add(some)
        reads, requests = some.reads(), some.of("request")
        down = some.which(lambda key: key[0] == "request" and operation(key[1]) not in UPWARD | LISTINGS)
        self.for_data.add(some, down)
        self.for_reads.add(some, reads)
        self.asked.spread(some.begin[reads], _after(some, reads), _rate(some, reads))
        self.fetched.spread(some.begin[down], _after(some, down), _rate(some, down))
        self.reads.spread(some.begin[reads], some.end[reads], 1.0)
        self.requests.spread(some.begin[requests], some.end[requests], 1.0)
        for shared, which in ((self.shared, down), (self.shared_by_reads, reads)):
            shared.add(some.begin[which], some.end[which], some.size[which])
        self.errors.count(some.end[some.failed], 1)
        for name, which in (("fetch", some.of("fetch")), ("next", some.which(lambda key: key[1] == "steps.next"))):
            self.had_cpu[name] += int(some.size[which].sum())
            self.ready[name] += int(some.offset[which].clip(0).sum())
        for kind in ("fs", "request"):
            ended = some.error[some.failed & some.of(kind)]
            for number, count in zip(*np.unique(ended, return_counts=True), strict=True):
                self.failures[kind, some.errors[number]] += int(count)
        self.failed_requests += int(some.duration[requests & some.failed].sum())

    def ceiling(self) -> Ceiling | None:
        """Return what is shared and full, if anything is."""
        found = (self.shared if self.shared.count else self.shared_by_reads).ceiling()
        if found is None:
            return None
        by_bytes, most, part = found
        name = "the disk" if not self.shared.count else "the link" if by_bytes else "the store"
        return Ceiling(name, units.rate(most) if by_bytes else f"{most:,.3g} a second", part)

    def facts(self, analysis: Analysis, job: Attributed) -> Facts:
        """Return what the rules look at."""
        name = "fetch" if self.had_cpu["fetch"] else "next"
        ranks = 1 if name == "fetch" else max(1, sum(job.ranks.values()))
        known = self.had_cpu[name] and (name == "fetch" or not job.makers)
        return Facts(
            analysis,
            self.batches,
            missed_again=self.misses.again,
            for_data=self.for_data if self.for_data.count else self.for_reads,
            cores=self.cores,
            ranks=job.ranks,
            lag=job.lag,
            computed=self.had_cpu[name] / ranks / 1e9 if known else None,
            ready=self.ready[name] / ranks / 1e9 if known else 0.0,
            makers=job.makers or job.breakdown[0].causes["decode"] if job.breakdown else 0.0,
            ceiling=self.ceiling(),
        )

    def timeline(self) -> tuple[Timeline, HeatMap]:
        """On one grid."""
        grids = [self.asked, self.fetched, self.reads, self.requests, self.errors, *self.busy]
        span = max(1, self.end - self.zero)
        for grid in grids:
            grid.widen(span)
        width = max(grid.width for grid in grids)
        asked, fetched, reads, requests, errors, *busy = (grid.slices(width, span) for grid in grids)
        seconds = width / 1e9
        return (
            Timeline(
                seconds, (asked / seconds).tolist(), (fetched / seconds).tolist(), (reads / width).tolist(),
                (requests / width).tolist(), [int(count) for count in errors],
            ),
            HeatMap(
                seconds, [process.label for process in self.processes],
                [(row / width).clip(0, 1).tolist() for row in busy],
            ),
        )  # fmt: skip


def analyze(folder: str | os.PathLike[str]) -> Analysis:
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
    table = taken.table
    job = attributed(taken.outlines)
    keys = list(table.all)
    read = [key for key in keys if key[0] == "fs" and operation(key[1]) in READS]
    requests = [key for key in keys if key[0] == "request"]
    operations = table.operations()
    analysis = Analysis(
        folder=os.fspath(folder),
        begin=taken.zero,
        seconds=max(0, taken.end - taken.zero) / 1e9,
        processes=taken.processes,
        events=sum(process.events for process in taken.processes),
        dropped=sum(process.dropped for process in taken.processes),
        operations=operations,
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
        slowest=taken.slowest.rows,
        failures=dict(taken.failures),
        steps=job.steps,
        stall=_stall(job.breakdown),
        breakdown=job.breakdown,
        findings=(),
        notes=notes,
    )
    return analysis._replace(findings=rules.find(taken.facts(analysis, job)))


def _stall(breakdown: Sequence[Breakdown]) -> Stall | None:
    if len(breakdown) < 2:
        return None
    wait = sum(row.causes[cause] for row in breakdown[1:] for cause in WAITS)
    return Stall(breakdown[0].steps, wait, sum(row.seconds for row in breakdown[1:]) - wait)


def _after(some: Columns, which: Array) -> Array:
    """The ends, each at least a nanosecond after the begin."""
    import numpy as np

    ends: Array = np.maximum(some.end[which], some.begin[which] + 1)
    return ends


def _rate(some: Columns, which: Array) -> Array:
    """Bytes a nanosecond."""
    return some.size[which] / some.duration[which].clip(1)


def _amplification(operations: list[Row]) -> Amplification:
    asked = sum(row.bytes for row in operations if row.kind == "fs" and row.operation in READS)
    requests = [row for row in operations if row.kind == "request"]
    fetched = sum(row.bytes for row in requests if row.operation not in UPWARD | LISTINGS)
    return Amplification(asked, fetched if requests else None)


def _calls(operations: list[Row], kind: str) -> int:
    """Return how often an event happened; events of `index_cache`, which is no cache of data, are left out."""
    return sum(row.calls for row in operations if row.kind == kind and row.layer != "index_cache")
