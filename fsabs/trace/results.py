"""The results of an analysis: tables, figures over time, the breakdown of the steps, findings; definitions only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .schema import Event, ProcessInfo


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
    """A line of the summary table: one operation."""

    kind: str
    layer: str
    operation: str
    calls: int
    bytes: int
    errors: int
    retries: int
    """Attempts that were made again; for a store's operations."""
    seconds: float
    """The sum of the durations; more than the trace's own where things overlap."""
    busy: float
    """Seconds, summed over processes, in which at least one was under way."""
    least: float
    """Seconds, as those that follow; those between `least` and `most` are right to 1.6 %."""
    p50: float
    p95: float
    p99: float
    most: float

    @property
    def throughput(self) -> float:
        """Bytes a second while at least one was under way; 0 where nothing has a size."""
        return self.bytes / self.busy if self.busy > 0 else 0.0


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


CAUSES: dict[str, str] = {
    "connect": "store: connecting",
    "first_byte": "store: first byte",
    "transfer": "store: transfer",
    "throttle": "store: throttled",
    "backoff": "store: backing off",
    "list": "listing and opening",
    "disk": "reading disk, memory or cache",
    "decompress": "decompressing",
    "decode": "decoding, transforming (own code)",
    "read_ahead": "batches on their way",
    "startup": "starting workers",
    "checkpoint": "writing (checkpoints)",
    "step": "the step itself",
    "outside": "outside of steps",
}
"""What an instant of a process can go to: exactly one of these."""

STORE = ("connect", "first_byte", "transfer", "throttle", "backoff")
"""The causes that are waiting for a store."""
WAITS = tuple(cause for cause in CAUSES if cause not in ("checkpoint", "step", "outside"))
"""The causes that data is waited for."""


class Step(NamedTuple):
    """A training step of the job: it ends with its last rank, and its time is that of the critical one."""

    process: int
    """That of the critical rank."""
    number: int
    begin: int
    """Nanoseconds since 1970."""
    seconds: float
    causes: Mapping[str, float]
    """Seconds, by the names of `CAUSES`, without zeros; they add up to `seconds`."""

    @property
    def wait(self) -> float:
        """Seconds in which data was waited for."""
        return sum(self.causes.get(cause, 0.0) for cause in WAITS)


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


class Lag(NamedTuple):
    """The time for which ranks wait for one another."""

    label: str
    """`ProcessInfo.label` of the rank that is waited for most."""
    seconds: float
    """Of the job, for which the typical rank waits for this one."""
    every: float
    """Those for which it waits for any."""
    together: bool
    """True if the ranks end their steps together; else they wait at the end."""


class Breakdown(NamedTuple):
    """The time of a job, by cause."""

    epoch: int
    """From 1: the steps of one loop over `fsabs.trace.steps`; 0 for the whole time, with what is outside of steps."""
    steps: int
    seconds: float
    """Of the whole, the wall time; of an epoch, the time inside of steps."""
    processes: int
    """Those that train: the ranks."""
    workers: int
    """Other processes that make batches for one of them."""
    threads: int
    """Other threads of one of them that make batches."""
    causes: Mapping[str, float]
    """Seconds, by the names of `CAUSES`; they add up to `seconds`."""


class Finding(NamedTuple):
    """Something that costs time, why one may say so, and what to do."""

    code: str
    """`F001`, ...: stable, for scripts and documentation."""
    severity: str
    """`high`, `medium`, or `note`: what costs less than a second, or less than 5 % of the time."""
    title: str
    """One line, with its main figure."""
    evidence: Mapping[str, float | int | str]
    """The figures that it rests on, by a name for people."""
    advice: str
    """One or two sentences."""
    seconds: float = 0.0
    """The cost: what the advice would have saved, by the model that `model` says."""
    model: str = ""
    """How the cost is computed."""


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
    """How many were read."""
    dropped: int
    operations: Sequence[Row]
    """By kind in the order of `KINDS`, then by seconds, falling."""
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
    """Those with the most seconds, at most 500."""
    files_seen: int
    """How many there were; a lower bound once there were more than are kept count of."""
    slowest: Sequence[Event]
    """The slowest calls, requests and spans, at most 100, the slowest first."""
    failures: Mapping[tuple[str, str], int]
    """How many ended by an exception, by kind and the exception's name."""
    steps: Sequence[Step]
    """In order of their begin; at most 10,000 (the first ones)."""
    stall: Stall | None
    """None where no step was marked."""
    breakdown: Sequence[Breakdown]
    """Of the whole time, then of each epoch; empty where there are no events."""
    findings: Sequence[Finding]
    """The most expensive first."""
    notes: Sequence[str]
    """Limits of the figures: dropped events, torn files, processes that were killed."""
