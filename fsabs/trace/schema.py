"""The schema of traces: files, events, and the figures of an analysis; data definitions only.

A trace is a folder, with two files for each process that was traced:

`trace-HOST-PID-START.json.gz`
    Chrome's trace events, one a line, in independent gzip members: what is there can be read while it is being written,
    and after the process was killed. The format is Chrome's "Trace Event Format" (the JSON array, whose `]` may be
    missing) as Perfetto and chrome://tracing take it: `ph` is `X` (a piece of work), `i` (something with no duration)
    or `M` (about the process), `ts` and `dur` are microseconds with three digits behind the point. `ts` counts on the
    machine's monotonic clock. The first line is `[`; the second is the *header*, an `M` event of the name
    `fsabs.process`, whose `args` are `HEADER_FIELDS`. The last line, where the process ended in an orderly way, is the
    *footer*, an `M` event of the name `fsabs.end`, whose `args` are `FOOTER_FIELDS`.
`trace-HOST-PID-START.ring`
    The newest events as fixed records in a mapped file (see `ring.py`), which outlives its process whatever it died of.
    It is removed when the process ends in an orderly way; what it holds and the other file doesn't is read from it.

START is the time when the process began to trace, so that a pid that is used again names another file. A merge makes
`merged.json.gz` of them, one valid JSON array on one time axis.

An event is of a *kind* (`KINDS`) and has a name `LAYER.OPERATION`: `zip.read`, `s3.get`. The layer is what did the
work. URLs in a trace have neither credentials nor query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

SCHEMA = 1
"""The version of the files; a reader refuses a newer one."""

KINDS: dict[str, str] = {
    "fs": "a call of the user's on a traced FS, or a read of a file of it: open, read, stat, list, write, ...",
    "request": "one attempt at a store; they overlap one another on one thread",
    "connect": "a new connection",
    "wait": "for a lock, for a turn, for a free connection; `steps.next` is for the next batch",
    "decompress": "one decompression; its size is that of what came out",
    "batch": "ranges that are read together",
    "cache": "filling or validating an entry of a cache",
    "span": "a user's own, by `fsabs.trace.span`",
    "step": "a training step, from one `fsabs.trace.step()` to the next; its size is its number",
    "retry": "an attempt that is made again (no duration)",
    "hit": "a cache had it (no duration); its size is 1, or bytes, as the cache tells it",
    "miss": "a cache did not have it (no duration)",
    "evict": "a cache let go of entries (no duration); its size is how many, or bytes",
}
"""What kinds of events there are; another is kept as it is."""

INSTANTS = frozenset({"retry", "hit", "miss", "evict"})
"""The kinds with no duration."""

OVERLAPPING = frozenset({"request", "connect", "batch"})
"""The kinds of which one thread has several under way at once."""

READS = frozenset({"read", "read_bytes", "read_many", "stream"})
"""The operations of the kind `fs` whose size is bytes that the user asked for and got."""

HEADER_FIELDS: dict[str, str] = {
    "schema": "int: SCHEMA",
    "host": "str: the machine's name",
    "boot": "str: what tells one start of a machine from another: processes with the same one share a monotonic clock",
    "pid": "int: as the process itself sees it",
    "parent": "int: of the process that it was started by",
    "rank": "int or null: of distributed training, from RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID",
    "worker": "int or null: of a DataLoader, where torch was loaded; found at the first event",
    "program": "str: the base name of what is run",
    "monotonic_ns": "int: the machine's monotonic clock, and ...",
    "wall_ns": "int: ... nanoseconds since 1970, read at the same moment",
    "events": "bool: whether there are events; else there are only histograms",
}
"""The `args` of a header."""

FOOTER_FIELDS: dict[str, str] = {
    "recorded": "int: events of this process, those that are not in the file included",
    "dropped": "int: events that are not in the file: the ring was overrun, or the file had reached its bound",
    "histograms": "list of `Tally` as objects: complete even where events were dropped",
}
"""The `args` of a footer."""


class Event(NamedTuple):
    """One event, on the trace's own time axis."""

    begin: int
    """Nanoseconds since 1970."""
    duration: int
    """Nanoseconds; 0 for `INSTANTS`."""
    kind: str
    """One of `KINDS`."""
    name: str
    """`LAYER.OPERATION`."""
    size: int
    """Bytes, or what `KINDS` says; 0 where there is nothing to count."""
    offset: int
    """Where in the file a read began; -1 where that means nothing."""
    where: str
    """The URL of what it was done to, or an empty string."""
    error: str
    """The name of the exception that it ended by, or an empty string."""
    process: int
    """The number of its process in `Analysis.processes`."""
    thread: int
    """The system's number of its thread."""

    @property
    def end(self) -> int:
        """Nanoseconds since 1970."""
        return self.begin + self.duration

    @property
    def layer(self) -> str:
        """The layer that did it: the first part of the name."""
        return self.name.partition(".")[0]

    @property
    def operation(self) -> str:
        """The operation: the rest of the name."""
        return self.name.partition(".")[2] or self.name


class ProcessInfo(NamedTuple):
    """One process that was traced."""

    number: int
    """What `Event.process` has."""
    host: str
    pid: int
    rank: int | None
    worker: int | None
    """Its number as a worker of a DataLoader, or None."""
    program: str
    begin: int
    """Of its first event, or of tracing: nanoseconds since 1970."""
    end: int
    """Of its last event."""
    events: int
    """How many were read."""
    dropped: int
    """How many it made that could not be kept."""
    ended: bool
    """Whether it ended in an orderly way; False: it was killed, or runs still."""

    @property
    def label(self) -> str:
        """A short name for people: `host:pid`, with rank and worker where they are known."""
        parts = [f"{self.host}:{self.pid}"]
        parts += [f"rank {self.rank}"] if self.rank is not None else []
        parts += [f"worker {self.worker}"] if self.worker is not None else []
        return " ".join(parts)


class Tally(NamedTuple):
    """The recorder's own counts of one kind and name in one process, also where events are off or were lost."""

    kind: str
    name: str
    calls: int
    errors: int
    bytes: int
    nanoseconds: int
    """The sum of the durations."""
    least: int
    """The shortest, in nanoseconds."""
    most: int
    """The longest."""
    latency: Sequence[int]
    """How many took `n` nanoseconds with `n.bit_length() == index`, as `Histogram.counts`."""
    sizes: Sequence[int]
    """How many were of `n` bytes with `n.bit_length() == index`."""


class Histogram(NamedTuple):
    """A log2 histogram: bucket 0 counts zeros, bucket `b` the integers from `2**(b-1)` to `2**b - 1`."""

    unit: str
    """`ns` or `bytes`."""
    counts: Sequence[int]
    """Ends with the last bucket that isn't empty."""

    @property
    def total(self) -> int:
        """The total of the counts."""
        return sum(self.counts)

    @staticmethod
    def bounds(bucket: int) -> tuple[int, int]:
        """The least and the greatest value of a bucket."""
        return (1 << (bucket - 1), (1 << bucket) - 1) if bucket else (0, 0)


class Row(NamedTuple):
    """A line of the summary table: one operation, or a whole layer (`operation` is empty then)."""

    kind: str
    layer: str
    operation: str
    calls: int
    bytes: int
    errors: int
    retries: int
    """Attempts that were made again; for a store's operations and layers."""
    seconds: float
    """The sum of the durations; more than the trace's own where things overlap."""
    busy: float
    """Seconds, summed over processes, in which at least one was under way; NaN where there are only histograms."""
    least: float
    """Seconds, as those that follow; those between `least` and `most` are right to 1.6 %."""
    p50: float
    p95: float
    p99: float
    most: float

    @property
    def throughput(self) -> float:
        """Bytes a second while at least one was under way; 0 where nothing has a size."""
        seconds = self.busy if self.busy == self.busy else self.seconds  # NaN is not itself
        return self.bytes / seconds if seconds > 0 else 0.0


class Amplification(NamedTuple):
    """The bytes that were read for those that were requested."""

    asked: int
    """Bytes that traced reads gave to the user."""
    fetched: int | None
    """The bytes that came from stores; None if no backend recorded requests (local files)."""

    @property
    def ratio(self) -> float | None:
        """Bytes fetched for each byte asked for: 1 is ideal, less is a cache at work; None where nothing is known."""
        return self.fetched / self.asked if self.fetched is not None and self.asked else None


class CacheUse(NamedTuple):
    """The lookups, hits and misses of the caches."""

    hits: int
    misses: int
    evictions: int

    @property
    def hit_rate(self) -> float | None:
        """Hits of all lookups, 0 to 1; None without lookups."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None


class Timeline(NamedTuple):
    """Figures over time: equal slices of `width` seconds from the trace's begin; all sequences are of one length."""

    width: float
    asked: Sequence[float]
    """Bytes a second that traced reads gave to the user."""
    fetched: Sequence[float]
    """Bytes a second that came from stores; all 0 if no backend recorded requests."""
    reads: Sequence[float]
    """Reads of the user's in flight, the mean over the slice, over all processes."""
    requests: Sequence[float]
    """Requests to stores in flight, the mean."""
    errors: Sequence[int]
    """Pieces of work that ended by an exception in the slice."""


class HeatMap(NamedTuple):
    """The waiting times of processes over time: a row for each process, in the order of `Analysis.processes`."""

    width: float
    """Seconds of a column."""
    rows: Sequence[str]
    """`ProcessInfo.label`."""
    busy: Sequence[Sequence[float]]
    """The part of the time, 0 to 1, in which the process had at least one traced call under way."""
    bytes: Sequence[Sequence[float]]
    """Bytes a second that its reads gave."""


class FileRow(NamedTuple):
    """The operations on one file (or directory, or object)."""

    where: str
    """Its URL."""
    opens: int
    reads: int
    bytes: int
    """That its reads gave."""
    seconds: float
    """In the user's calls on it."""
    slowest: float
    """Seconds of the slowest of them."""
    errors: int


class Step(NamedTuple):
    """A training step of one process."""

    process: int
    number: int
    begin: int
    """Nanoseconds since 1970."""
    seconds: float
    wait: float
    """Seconds of it in which its thread waited for data: in `fs` calls of its own, or for the DataLoader's next batch
    (`fsabs.trace.steps`). The rest is compute."""


class Stall(NamedTuple):
    """The training steps, all together."""

    steps: int
    wait: float
    """Seconds."""
    compute: float
    """Seconds."""

    @property
    def percentage(self) -> float:
        """The data stall: what part of the time steps waited for data, 0 to 100."""
        total = self.wait + self.compute
        return 100.0 * self.wait / total if total else 0.0


class Finding(NamedTuple):
    """Something that costs time, why one may say so, and what to do."""

    code: str
    """`F001`, ...: stable, for scripts and documentation."""
    severity: str
    """`high`, `medium` or `low`."""
    title: str
    """One line, with its main figure."""
    evidence: Mapping[str, float | int | str]
    """The figures that it rests on, by a name for people; what is crossed is named, too: `threshold`."""
    advice: str
    """One or two sentences."""


class Analysis(NamedTuple):
    """A whole trace, analysed: what tables, reports and exporters show."""

    folder: str
    """Where the trace is; only its last segment is for reports."""
    begin: int
    """Of the first event: nanoseconds since 1970."""
    seconds: float
    """From the first event's begin to the last one's end."""
    processes: Sequence[ProcessInfo]
    events: int
    """How many were read; 0 where there are only histograms, and then all that needs events is empty."""
    dropped: int
    operations: Sequence[Row]
    """By kind in the order of `KINDS`, then by seconds, falling."""
    layers: Sequence[Row]
    """The same, all operations of a kind and layer together."""
    amplification: Amplification
    cache: CacheUse
    retries: int
    retry_seconds: float
    """Of the attempts at a store that failed."""
    timeline: Timeline
    heat: HeatMap
    read_sizes: Histogram
    """Bytes of each read of the user's."""
    request_sizes: Histogram
    """Bytes of each request."""
    latencies: Mapping[str, Histogram]
    """Nanoseconds, by `KIND LAYER.OPERATION`."""
    files: Sequence[FileRow]
    """Those with the most seconds, at most 1000."""
    files_seen: int
    """How many there were; a lower bound once there were more than are kept count of."""
    slowest: Sequence[Event]
    """The slowest calls and requests, at most 100, the slowest first."""
    steps: Sequence[Step]
    """In order of their begin; at most 10,000 (the first ones)."""
    stall: Stall | None
    """None where no step was marked."""
    findings: Sequence[Finding]
    """The gravest first."""
    notes: Sequence[str]
    """What a reader must know: drops, torn tails, processes that were killed."""

    def _repr_html_(self) -> str:
        from .notebook import fragment

        return fragment(self)
