"""The recorder: the instrument that counts all that happens in one process, and keeps each event in the ring.

It is called for every read, so that its two methods are written for speed: no object is made that outlives the call, no
lock is taken unless a URL or a name is seen for the first time, and an event is one `pack_into` of a mapped file at a
place of its own. Counters are lists that are added to in place, which no other thread can come between (CPython looks
for other threads at calls and at jumps, not between a list's item being read and written).
"""

from __future__ import annotations

import itertools
import json
import threading
from _thread import get_ident
from collections.abc import Iterable, Sequence
from time import monotonic_ns
from typing import Any

from .. import hooks
from . import clean
from .ring import LONGEST, RECORD, Record, Ring

OTHER = "other"
NAMES_BOUND = 1024
"""The limit of distinct kinds and names; those of a program beyond it are counted as `other`."""
LONGEST_NAME = 200
"""Characters of a name that are kept."""
BUCKETS = 65

_NO_TEXT = 0
_LONG = (1 << 63) - 1


class Counter:
    """The counts of one kind and name."""

    __slots__ = (
        "bytes",
        "calls",
        "errors",
        "kind",
        "latency",
        "least",
        "most",
        "name",
        "nanoseconds",
        "number",
        "sizes",
    )

    def __init__(self, kind: str, name: str, number: int) -> None:
        self.kind = kind
        self.name = name
        self.number = number
        self.latency = [0] * BUCKETS
        self.sizes = [0] * BUCKETS
        self.calls = self.nanoseconds = self.bytes = self.errors = self.most = 0
        self.least = _LONG

    def tally(self) -> dict[str, Any]:
        """As `schema.Tally` has it."""
        calls = self.calls or sum(self.latency)
        return {
            "kind": self.kind,
            "name": self.name,
            "calls": calls,
            "errors": self.errors,
            "bytes": self.bytes,
            "nanoseconds": self.nanoseconds,
            "least": 0 if self.least == _LONG else self.least,
            "most": self.most,
            "latency": _trimmed(self.latency),
            "sizes": _trimmed(self.sizes),
        }


def _trimmed(counts: list[int]) -> list[int]:
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return counts[:end]


class Recorder(hooks.Instrument):
    """Counts, and keeps no events."""

    calls = True

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.refused = 0
        """What could not be recorded, since its arguments made no sense."""
        self._lock = threading.RLock()  # a finalizer may tell of something while its thread holds the lock
        self._counters: dict[str, Counter] = {}
        self._more: dict[tuple[str, str], Counter] = {}
        self._errors: dict[str, int] = {"": 0}
        self.names: list[tuple[str, str]] = []
        """Kind and name (or `error` and a name), by their number."""
        self.by_number: dict[int, Counter] = {}
        self._number("error", "")
        self._other = self._number("span", OTHER)

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        """Count a piece of work that has ended now."""
        try:
            took = monotonic_ns() - begin if begin else 0  # 0: the trace was started in the middle of it
            try:
                counter = self._counters[name]
                if counter.kind is not kind:
                    counter = self.counter(kind, name)
            except KeyError:  # it is seen for the first time
                counter = self.counter(kind, name)
            bucket = took.bit_length()
            counter.latency[bucket] += 1
            counter.nanoseconds += took
            bucket = size.bit_length()
            counter.sizes[bucket] += 1
            counter.bytes += size
            if took > counter.most:
                counter.most = took
            if took < counter.least:
                counter.least = took
            if error:
                counter.errors += 1
        except Exception:  # whatever the arguments are: tracing must not break what it watches
            self.refused += 1

    def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """Count something with no duration."""
        try:
            self._count(kind, name, size)
        except Exception:  # as above
            self.refused += 1

    def tally(self) -> dict[str, Any]:
        """Return the counts so far: `FOOTER_FIELDS`."""
        counters = [counter.tally() for counter in [*self._more.values()]]
        recorded = sum(one["calls"] for one in counters)
        return {"recorded": recorded, "dropped": self.dropped(), "refused": self.refused, "histograms": counters}

    def dropped(self) -> int:
        """Events that were recorded, and that no file will have."""
        return 0

    def save_tally(self) -> None:
        """Write the counters where they outlive the process."""
        self.ring.save_tally(json.dumps(self.tally()).encode())

    def _count(self, kind: str, name: str, size: int) -> Counter:
        counter = self.counter(kind, name)
        bucket = size.bit_length()
        counter.latency[0] += 1
        counter.sizes[bucket] += 1
        counter.bytes += size
        return counter

    def counter(self, kind: str, name: str) -> Counter:
        """The counter of a kind and name; of two kinds with one name, the first one is found faster."""
        found = self._more.get((kind, name))
        if found is not None:
            return found
        with self._lock:
            found = self._more.get((kind, name))
            if found is None:
                shown = clean.url(name)[:LONGEST_NAME] if "://" in name else name[:LONGEST_NAME]
                number = self._number(kind, shown) if len(self._more) < NAMES_BOUND else self._other
                if number == self._other:
                    kind, name, shown = "span", OTHER, OTHER
                    if (found := self._more.get((kind, name))) is not None:
                        return found
                found = self.by_number[number] = Counter(kind, shown, number)
                self._counters.setdefault(name, found)
                self._more[kind, name] = found
            return found

    def _error(self, error: str) -> int:
        with self._lock:
            number = self._errors.get(error)
            if number is None:
                if len(self._errors) >= NAMES_BOUND:
                    return self._other
                number = self._errors[error] = self._number("error", error[:LONGEST_NAME])
            return number

    def _number(self, kind: str, name: str) -> int:
        """The next number; `other`'s where there is no more room."""
        if not self.ring.add_name(f"{kind}\t{name}"):
            return self._other
        self.names.append((kind, name))
        return len(self.names) - 1


class EventRecorder(Recorder):
    """Keeps every event in the ring, in place of what was there a whole turn of it ago.

    Calls, errors, bytes and nanoseconds are summed up at once; the histograms are made of the ring's records when it is
    emptied, by `distribute`.
    """

    def __init__(self, ring: Ring) -> None:
        super().__init__(ring)
        self.texts: dict[int, str] = {_NO_TEXT: ""}
        """URLs by their number: the last ones."""
        self.older_texts: dict[int, str] = {}
        self.kept = 0
        """Events that are in the file."""
        self.wheres: dict[str, int] = {"": _NO_TEXT}
        self._last_text = 0
        self.threads: dict[int, int] = {}
        self.claim = itertools.count(RECORD.size, RECORD.size).__next__
        self.records = ring.records
        self.mask = ring.capacity * RECORD.size - 1

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        """Count a piece of work that has ended now, and keep it."""
        try:
            took = monotonic_ns() - begin if begin else 0  # 0: the trace was started in the middle of it
            try:
                counter, thread = self._counters[name], self.threads[get_ident()]
                if counter.kind is not kind:
                    counter = self.counter(kind, name)
            except KeyError:  # something is seen for the first time
                counter, thread = self.counter(kind, name), self.thread()
            if (text := self.wheres.get(where)) is None:  # that is usual where many small files are read
                text = self.text_number(where)
            counter.calls += 1
            counter.bytes += size
            counter.nanoseconds += took
            failure = 0
            if error:
                counter.errors += 1
                failure = self._errors.get(error) or self._error(error)
            at = self.claim()
            _pack(
                self.records, at & self.mask,
                begin or monotonic_ns(), took, size, offset, text, thread, counter.number, failure, at,
            )  # fmt: skip
        except Exception:  # whatever the arguments are: tracing must not break what it watches
            self.refused += 1

    def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """Count something with no duration, and keep it."""
        now = monotonic_ns()
        try:
            counter, text, thread = self.counter(kind, name), self.text_number(where), self.thread()
            counter.calls += 1
            counter.bytes += size
            at = self.claim()
            _pack(self.records, at & self.mask, now, 0, size, -1, text, thread, counter.number, 0, at)
        except Exception:  # as above
            self.refused += 1

    def distribute(self, records: Iterable[Record]) -> None:
        """Count records of the ring in the histograms; each once."""
        counters = self.by_number
        for _, took, size, _, _, _, number, _, _ in records:
            if (counter := counters.get(number)) is not None:
                counter.latency[took.bit_length()] += 1
                counter.sizes[size.bit_length()] += 1
                if took > counter.most:
                    counter.most = took
                if took < counter.least:
                    counter.least = took

    def dropped(self) -> int:
        """Events that are neither in the file nor waiting to be."""
        return max(0, sum(counter.calls for counter in [*self._more.values()]) - self.kept)

    def text(self, number: int) -> str:
        """The URL of that number, as long as it is kept."""
        return self.texts.get(number) or self.older_texts.get(number, "")

    def text_number(self, where: str) -> int:
        if (known := self.wheres.get(where)) is not None:
            return known
        with self._lock:
            return self.wheres.get(where) or self._add_text(where)

    def text_numbers(self, wheres: Sequence[str]) -> list[int]:
        """Return the numbers of URLs."""
        with self._lock:
            add = self._add_text
            return [self.wheres.get(where) or add(where) for where in wheres]

    def _add_text(self, where: str) -> int:
        """Give a URL the next number; the lock is held."""
        if not where:
            return _NO_TEXT
        shown = clean.url(where)
        if len(shown) > LONGEST:
            shown = shown[:LONGEST]
        number = self._last_text + 1
        if self.ring.add_text(shown, number):
            self.older_texts = self.texts
            self.texts = {_NO_TEXT: ""}
            self.wheres = {"": _NO_TEXT}
        self._last_text = self.wheres[where] = number
        self.texts[number] = shown
        return number

    def thread(self) -> int:
        if (known := self.threads.get(get_ident())) is not None:
            return known
        if len(self.threads) > 4096:  # threads come and go: a number that is used again is found again
            self.threads.clear()
        number = self.threads[get_ident()] = threading.get_native_id()
        return number


_pack = RECORD.pack_into
assert RECORD.size == 64, "as EventRecorder has it"
