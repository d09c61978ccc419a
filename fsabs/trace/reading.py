"""Reading a trace folder: the file of each process, and one time axis for all.

Nothing here needs more memory than a chunk of one file. What is torn, damaged or no trace is left out, with a note.
"""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
import re
import stat as stat_bits
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple, get_type_hints
from urllib.parse import quote

from ..core import errors, keys
from . import chunks
from .intervals import Array
from .schema import READS, SCHEMA, Event, Header, ProcessInfo, operation

SUFFIX = ".fstrace"
MOST_NAMES = 2048
"""Distinct kinds and names of a process, and errors; those beyond are `other`."""
FEW_STEPS, STEADY, NOTED = 5, 0.25, 200_000_000
"""Clocks are compared by so many steps, are off where the typical deviation of what is between them is that part of it,
and are noted from so many nanoseconds on."""
LONGEST = 10**18
"""Nanoseconds: no time of an event lies further from the begin of its process."""
# Of a text that is a path from the current directory: as it stands in a URL, with nothing to quote or to resolve.
_PLAIN = re.compile(r"(?!\.{0,2}/)(?!\.)[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
Key = tuple[str, str]
"""Kind and name."""


class Columns(NamedTuple):
    """Some thousand events of one process, as arrays of one length."""

    begin: Array
    """Nanoseconds since 1970."""
    end: Array
    duration: Array
    size: Array
    offset: Array
    thread: Array
    key: Array
    """Indexes of `keys`."""
    keys: list[Key]
    """All of the process so far."""
    error: Array
    """Indexes of `errors`; 0 is none."""
    errors: list[str]
    where: Array
    """Indexes of `urls`."""
    urls: list[str]

    def of(self, kind: str) -> Array:
        """Return a mask of the events of a kind."""
        return self.which(lambda key: key[0] == kind)

    def which(self, wanted: Any) -> Array:
        """Return a mask of the events whose key is wanted."""
        import numpy as np

        return np.array([bool(wanted(key)) for key in self.keys] or [False])[self.key]

    def reads(self) -> Array:
        """Return a mask of the user's own reads."""
        return self.which(lambda key: key[0] == "fs" and operation(key[1]) in READS)

    @property
    def failed(self) -> Array:
        """A mask of what ended by an exception; that something isn't there is an answer of a store's."""
        import numpy as np

        answer = np.array([error.partition(" ")[0] in ("", "FileNotFoundError") for error in self.errors])[self.error]
        return (self.error != 0) & ~(answer & self.of("request"))

    def event(self, at: int, process: int) -> Event:
        """Return one of them."""
        kind, name = self.keys[self.key[at]]
        return Event(
            int(self.begin[at]), int(self.duration[at]), kind, name, int(self.size[at]), int(self.offset[at]),
            self.urls[self.where[at]], self.errors[self.error[at]], process, int(self.thread[at]),
        )  # fmt: skip


class TraceSource:
    """The file of one process, read from front to back by `columns()`; the rest is known after that."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = os.path.basename(path)
        self.header: dict[str, Any] = {}
        self.number = 0
        """Of the process, in the order in which they began."""
        self.notes: list[str] = []
        self.read = 0
        """Events that were read."""
        self.index: list[tuple[int, int, int, int]] = []
        """Where each chunk with events is in the file, its first begin and its last end, and how many it has."""
        self.tally: dict[str, Any] = {}
        """The last counts that the process wrote."""
        self.end = 0
        """When it ended, in nanoseconds since 1970; 0 where it did not end in an orderly way."""
        self.offset = 0
        """What makes its clock's nanoseconds those since 1970."""

    @property
    def dropped(self) -> int:
        """Events that there were, and that could not be read."""
        recorded: int = self.tally.get("recorded", 0)
        return max(0, recorded - self.read)

    def open(self) -> bool:
        """Read the header; False, and a note, where there is none."""
        try:
            with _opened(self.path) as file:
                for chunk in chunks.read(file):
                    self.header = chunk.head.get("process", {})
                    break
        except (OSError, ValueError) as exc:
            self.notes.append(f"{self.name}: left out: {exc}")
        if not self.notes and not _fits(self.header, Header):
            self.notes.append(f"{self.name}: no header can be read, so it is left out")
        elif not self.notes and self.header["schema"] > SCHEMA:
            self.notes.append(f"{self.name}: of a newer version of fsabs, so it is left out")
        if self.notes:
            self.header = {}
            return False
        self.offset = self.header["wall_ns"] - self.header["monotonic_ns"]
        return True

    def columns(self) -> Iterator[Columns]:
        """The events, in the order in which they ended; none of the parts is empty."""
        keys: dict[Key, int] = {}
        errors: dict[str, int] = {"": 0}
        self.read = self.end = 0
        self.index = []
        try:
            with _opened(self.path) as file:
                for chunk in chunks.read(file):
                    self.tally = chunk.head.get("tally", self.tally)
                    if type(end := chunk.head.get("end")) is int:
                        self.end = min(max(end, self.header["monotonic_ns"]), LONGEST) + self.offset
                    if len(chunk.begin):
                        self.read += len(chunk.begin)
                        some = self._columns(chunk, keys, errors)
                        self.index.append((chunk.at, int(some.begin.min()), int(some.end.max()), len(some.begin)))
                        yield some
        except (OSError, ValueError) as exc:
            self.notes.append(f"{self.name}: can't be read further: {exc}")
        if type(self.tally.get("recorded", 0)) is not int:
            self.tally = {}
        if self.dropped:
            self.notes.append(f"{self.name}: {self.dropped} events were dropped")
        if self.tally.get("failure"):
            self.notes.append(f"{self.name}: {self.tally['failure']}")
        if not self.end:
            self.notes.append(f"{self.name}: the process did not end in an orderly way, or is still running")

    def between(self, begin: int, end: int) -> Iterator[Columns]:
        """The chunks, of those that `columns` has read, with events between two times; without their URLs."""
        with _opened(self.path) as file:
            for at, first, last, _ in self.index:
                if first < end and last > begin:
                    file.seek(at)
                    for chunk in itertools.islice(chunks.read(file), 1):
                        yield self._columns(chunk._replace(texts=()), {}, {"": 0})

    def info(self, begin: int, end: int) -> ProcessInfo:
        """What is known of the process, which is read by now."""
        header = self.header
        return ProcessInfo(
            self.number, header["host"], header["pid"], header["rank"], header["worker"], header["program"],
            begin, end, self.read, self.dropped, self.end > 0,
        )  # fmt: skip

    def _columns(self, chunk: chunks.Chunk, keys: dict[Key, int], errors: dict[str, int]) -> Columns:
        import numpy as np

        key = np.array([_number(keys, one[:2], ("span", "other")) for one in chunk.names], np.int64)[chunk.name]
        error = np.array([_number(errors, one[2], "other") for one in chunk.names], np.int64)[chunk.name]
        zero = self.header["monotonic_ns"]
        begin = chunk.begin.clip(zero - LONGEST, zero + LONGEST) + self.offset
        duration = chunk.duration.clip(0, LONGEST)
        return Columns(
            begin, begin + duration, duration, chunk.size.clip(0), chunk.offset, chunk.thread, key, list(keys), error,
            list(errors), chunk.where, [url(*text) for text in chunk.texts],
        )  # fmt: skip


def _number(known: dict[Any, int], one: Any, other: Any) -> int:
    """Return the number of a key, a new one if it is new; that of `other`, if there are too many."""
    if one not in known and len(known) >= MOST_NAMES:
        one = other
    return known.setdefault(one, len(known))


def url(text: str, folder: str, root: str) -> str:
    """Return the URL of a text of a trace: itself, or a path below an FS's current directory, or below its root."""
    if not folder:
        return text
    if _PLAIN.fullmatch(text):
        return f"{folder.rstrip('/')}/{text}"
    base = root if text.startswith("/") else folder
    path = posixpath.normpath(text.strip("/") or ".")
    return base if path == "." else f"{base.rstrip('/')}/{quote(path, safe='/!$&()*+,;=:@~')}"


def _fits(found: Any, fields: type) -> bool:
    """Return whether what was read of a file has the fields of a class, and none of their numbers is absurd."""
    return (
        isinstance(found, dict)
        and all(
            name in found and isinstance(found[name], kind) and not isinstance(found[name], bool)
            for name, kind in get_type_hints(fields).items()
        )
        and all(abs(value) < 1 << 62 for value in found.values() if isinstance(value, int))
    )


def _opened(path: str) -> BinaryIO:
    """Open a trace file; what is no regular file is a `ValueError`, and is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat_bits.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("no regular file")
    return open(descriptor, "rb")


def sources(folder: str | os.PathLike[str]) -> tuple[list[TraceSource], list[str]]:
    """The processes of a trace, in the order in which they began, on one time axis; and notes.

    Raises `FileNotFoundError` where the folder is none of a trace.
    """
    where = "file://" + keys.to_url_path(os.path.abspath(folder))
    try:
        names = [name for name in os.listdir(folder) if name.startswith("trace-") and name.endswith(SUFFIX)]
    except OSError as exc:
        raise errors.named(exc, "read the trace", where) from None
    if not names:
        raise errors.error(errno.ENOENT, "read the trace", where, "there is no trace here")
    every = [TraceSource(os.path.join(folder, name)) for name in sorted(names)]
    found = [source for source in every if source.open()]
    notes = [note for source in every if not source.header for note in source.notes]
    found.sort(key=lambda source: (source.header["wall_ns"], source.path))
    offsets: dict[str, int] = {}
    for number, source in enumerate(found):
        source.number = number
        # Processes of one machine share its monotonic clock: they are placed by one offset, the first one's.
        source.offset = offsets.setdefault(source.header["boot"], source.offset)
    return found, notes + _aligned(found)


def _aligned(found: list[TraceSource]) -> list[str]:
    """Move the machines whose clocks can't be right beside the first one: the ranks of a job run at the same time.

    Ranks end a step together: where a machine ends all of them earlier or later by the same time, its clock is off by
    that. Without steps, it is one whose ranks ran at another time altogether. Where a rank ran on two machines, the job
    was continued elsewhere, later, and nothing is moved.
    """
    import numpy as np

    ranks = {(source.header["boot"], source.header["rank"]) for source in found if source.header["rank"] is not None}
    if len({boot for boot, _ in ranks}) < 2 or len({rank for _, rank in ranks}) < len(ranks):
        return []
    spans: dict[str, tuple[int, int]] = {}
    ends: dict[str, list[int]] = {}
    for source in (one for one in found if one.header["worker"] is None):
        boot, steps = source.header["boot"], list[int]()
        for some in source.columns():
            begin, end = spans.get(boot, (1 << 63, 0))
            spans[boot] = min(begin, int(some.begin.min())), max(end, int(some.end.max()))
            steps += some.end[some.of("step")].tolist()
        source.notes.clear()
        if len(steps) > len(ends.get(boot, ())):
            ends[boot] = steps
    notes, moved = [], {}
    first, *others = spans or [""]
    for boot in others:
        (begin, end), (reference, until) = spans[boot], spans[first]
        count = min(len(ends.get(boot, ())), len(ends.get(first, ())))
        if count >= FEW_STEPS:
            apart = np.array(ends[boot][:count]) - np.array(ends[first][:count])
            off = int(np.median(apart))
            wrong = float(np.median(np.abs(apart - off))) < STEADY * abs(off)
        else:
            off = begin - reference
            wrong = max(begin - until, reference - end) > max(end - begin, until - reference, 10**9)
        if wrong:
            moved[boot] = -off
        if wrong and abs(off) >= NOTED:
            host = next(source.header["host"] for source in found if source.header["boot"] == boot)
            notes.append(f"the clock of {host} is about {off / 1e9:+.1f} s off that of the first machine")
    for source in found:
        source.offset += moved.get(source.header["boot"], 0)
    return notes


def events(folder: str | os.PathLike[str]) -> Iterator[Event]:
    """All events of a trace, process by process, in each in the order in which they ended.

    Raises `FileNotFoundError` where the folder is none of a trace.
    """
    found, _ = sources(folder)
    for source in found:
        for some in source.columns():
            for at in range(len(some.begin)):
                yield some.event(at, source.number)
