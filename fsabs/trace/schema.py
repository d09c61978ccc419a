"""The schema of traces: files and events; data definitions only.

A trace is a folder, with a file `trace-HOST-PID-START.fstrace` for each process that was traced; `chunks` has its
format. START is the time when the process began to trace, so that a pid that is used again names another file. `merge`
makes one timeline of them, in Chrome's "Trace Event Format", as Perfetto and chrome://tracing take it.

An event is of a *kind* (`KINDS`) and has a name `LAYER.OPERATION`: `zip.read`, `s3.get`. The layer is what did the
work. URLs in a trace have neither credentials nor query.
"""

from __future__ import annotations

from typing import NamedTuple, TypedDict

SCHEMA = 2
"""The version of the files; a reader refuses a newer one."""

KINDS: dict[str, str] = {
    "fs": "a call of the user's on a traced FS, or a read of a file of it: open, read, stat, list, write, ...",
    "request": "one attempt at a store; they overlap one another on one thread",
    "connect": "a new connection",
    "wait": "`steps.next` is for the next batch (its size and offset as a fetch's), `*.read_ahead` for what is read "
    "ahead; the others are a part of a request or come before it: `*.transfer` (of its body), `*.throttle` (a turn), "
    "`*.backoff`",
    "decompress": "one decompression; its size is that of what came out",
    "batch": "ranges that are read together",
    "cache": "filling or validating an entry of a cache",
    "fetch": "one batch being made by a DataLoader's worker: reading, decoding, collating; its size as a span's, and "
    "its offset those in which it was ready for one that others had",
    "span": "a user's own, by `fsabs.trace.span`; its size is the nanoseconds in which its thread had a CPU",
    "step": "a training step, from one `fsabs.trace.step()` to the next; its size is its number",
    "retry": "an attempt that is made again (no duration)",
    "hit": "a cache had it (no duration); its size is 1, or bytes, as the cache counts it",
    "miss": "a cache did not have it (no duration)",
    "grid": "an epoch begins whose lanes are read by several processes each (no duration); its size is their number",
    "evict": "a cache let go of entries (no duration); its size is how many, or bytes",
}
"""What kinds of events there are; another is kept as it is."""

INSTANTS = frozenset({"retry", "hit", "miss", "grid", "evict"})
"""The kinds with no duration."""

OVERLAPPING = frozenset({"request", "connect", "batch"})
"""The kinds of which one thread has several under way at once."""

READS = frozenset({"read", "read_bytes", "read_many"})
"""The operations of the kind `fs` whose size is bytes that the user asked for and got."""

METADATA = frozenset({"stat", "list", "glob", "usage", "open", "open_container"})
"""The operations of the kind `fs` that find files."""

UPWARD = frozenset({"put", "post", "upload", "upload_part", "write", "append", "commit", "complete", "create"})
"""The operations of the kind `request` whose bytes go to the store."""


def layer(name: str) -> str:
    """Return the first part of an event's name, `LAYER.OPERATION`."""
    return name.partition(".")[0]


def operation(name: str) -> str:
    """Return the rest of an event's name."""
    return name.partition(".")[2] or name


def trimmed(counts: list[int]) -> list[int]:
    """Return the counts of a histogram without the empty buckets at the end."""
    while counts and not counts[-1]:
        counts = counts[:-1]
    return counts


class Header(TypedDict):
    """The `process` of a chunk: the first one of a file has it."""

    schema: int  # SCHEMA
    host: str  # the machine's name
    boot: str  # tells one start of a machine from another, whose processes share a monotonic clock
    pid: int  # as the process itself sees it
    parent: int  # of the process that it was started by
    main: int  # the system's number of its main thread
    cores: int  # CPUs that it may use
    rank: int | None  # of distributed training, from RANK, OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID
    worker: int | None  # of a DataLoader, where torch was loaded; found at the first event
    program: str  # the base name of what is run
    monotonic_ns: int  # the machine's monotonic clock, and ...
    wall_ns: int  # ... nanoseconds since 1970, read at the same moment


TALLY_FIELDS: dict[str, str] = {
    "recorded": "int: events of this process, also those that its bound, or a full disk, kept out of the file",
    "refused": "int: what could not be recorded, since its arguments made no sense",
    "failure": "str: why events are not in the file",
}
"""The `tally` of a chunk."""


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
    """Where in the file a read began, or what `KINDS` says; -1 where that means nothing."""
    where: str
    """The URL of what it was done to, or an empty string."""
    error: str
    """The name of the exception that it ended by, with the status of a store's refusal: `OSError 503`; or empty."""
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
        return layer(self.name)

    @property
    def operation(self) -> str:
        """The operation: the rest of the name."""
        return operation(self.name)


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
    """Of the trace, where the process ended in an orderly way; else of its last event."""
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
    """The recorder's counts of one kind and name in its process, also of events that were dropped."""

    kind: str
    name: str
    calls: int
    errors: int
    bytes: int
    nanoseconds: int
    """The sum of the durations."""
