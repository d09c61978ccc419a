"""Reading a trace folder: the files of each process, what a killed one left in its ring, and one time axis for all.

Nothing here needs more memory than a few members of one file. What is torn or cannot be read is left out, with a note.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from . import ring
from .lines import CHUNK, FOOTER, HEADER, Lines, parsed
from .schema import (
    SCHEMA,
    Event,
)

PIECE = 64 * 1024
"""Bytes that are read at once: what follows a member in them is copied for each member."""
SUFFIX = ".json.gz"


class TraceSource:
    """The files of one process, read once from front to back by `chunks()`; the rest is known after that."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.header: dict[str, Any] = {}
        self.footer: dict[str, Any] | None = None
        """What the process said at its orderly end."""
        self.tally: dict[str, Any] | None = None
        """The counters, at most a second old where there is no footer."""
        self.number = 0
        self.notes: list[str] = []
        self.read = 0
        """Events that were read."""
        self.recorded = 0
        """Events that there were."""
        self.offset = 0
        """What makes its clock's nanoseconds those since 1970."""
        self._kept = 0  # records up to here are in the file

    @property
    def dropped(self) -> int:
        """Events that there were, and that could not be read."""
        return max(0, self.recorded - self.read) if self.header.get("events") else 0

    @property
    def name(self) -> str:
        """For notes."""
        return os.path.basename(self.base)

    def open(self) -> bool:
        """Read the header; False, and a note, where there is none."""
        for member in self._members():
            for event in member:
                if event.get("name") == HEADER:
                    self.header = event["args"]
            break
        if not self.header and (left := self._left()) is not None:
            self.header = left.header
        self.notes.clear()  # what is wrong further on is noted when it is read for good
        if not self.header:
            self.notes.append(f"{self.name}: no header can be read, so it is left out")
        elif self.header["schema"] > SCHEMA:
            self.notes.append(f"{self.name}: of a newer version of fsabs, so it is left out")
            self.header = {}
        self.offset = self.header["wall_ns"] - self.header["monotonic_ns"] if self.header else 0
        return bool(self.header)

    def chunks(self) -> Iterator[list[dict[str, Any]]]:
        """The events, as in the file, some thousand at a time; first those of the file, then those of the ring."""
        left = self._left()
        for member in self._members(left is None):
            found = []
            for event in member:
                if event["ph"] != "M":
                    found.append(event)
                elif event["name"] == CHUNK:
                    self._kept = event["args"]["to"]
                elif event["name"] == FOOTER:
                    self.footer = self.tally = event["args"]
            self.read += len(found)
            yield found
        if left is not None:
            yield from self._of_ring(left)
        if self.tally is not None:
            self.recorded = max(self.recorded, self.tally["recorded"])
        self.recorded = max(self.recorded, self._kept)
        if self.dropped:
            self.notes.append(f"{self.name}: {self.dropped} events were dropped")
        if self.footer is None:
            self.notes.append(f"{self.name}: the process did not end in an orderly way, or is still running")

    def _of_ring(self, left: ring.Left) -> Iterator[list[dict[str, Any]]]:
        names = [(kind, name) for kind, _, name in (text.partition("\t") for text in left.names)]
        lines = Lines(self.header["pid"], names, lambda number: left.texts.get(number, ""))
        records = [record for record in left.records if record[-1] > self._kept]
        self.recorded, self.tally = left.recorded, left.tally or self.tally
        for at in range(0, len(records), 1024):
            found = parsed(lines.render(records[at : at + 1024]).encode())
            self.read += len(found)
            yield found

    def _left(self) -> ring.Left | None:
        path = self.base + ".ring"
        try:
            return ring.read(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as exc:
            self.notes.append(f"{self.name}: the ring can't be read: {exc}")
            return None

    def _members(self, torn_lines: bool = False) -> Iterator[list[dict[str, Any]]]:
        """The events of each gzip member; of a torn one at the end the whole lines, if `torn_lines`."""
        text, at = b"", 0
        try:
            for text, whole, at in _texts(self.base + SUFFIX):
                if whole:
                    yield parsed(text)
                    continue
                self.notes.append(f"{self.name}: the file is torn from byte {at} on, and was trimmed there")
                if torn_lines:
                    yield parsed(text[: text.rfind(b"\n") + 1])
        except FileNotFoundError:
            self.notes.append(f"{self.name}: there is only a ring")
        except (OSError, ValueError, KeyError) as exc:
            self.notes.append(f"{self.name}: can't be read from byte {at} on: {exc}")


def _texts(path: str) -> Iterator[tuple[bytes, bool, int]]:
    """The text of each gzip member of a file, whether it is whole, and where in the file it begins."""
    with open(path, "rb") as file:
        begin, at, found = 0, 0, bytearray()
        inflate, rest = zlib.decompressobj(31), b""
        while True:
            data = rest or file.read(PIECE)
            if not data:
                break
            try:
                found += inflate.decompress(data)
            except zlib.error:
                break
            rest = inflate.unused_data
            at += len(data) - len(rest)
            if inflate.eof:
                yield bytes(found), True, begin
                begin, found, inflate = at, bytearray(), zlib.decompressobj(31)
        if at > begin or data:
            yield bytes(found), False, begin


def sources(folder: str | os.PathLike[str]) -> tuple[list[TraceSource], list[str]]:
    """The processes of a trace, in the order in which they began, on one time axis; and notes.

    Raises `FileNotFoundError` where the folder is none of a trace.
    """
    bases = set()
    for name in os.listdir(folder):
        stem, suffix = os.path.splitext(name.removesuffix(".gz"))
        if name.startswith("trace-") and (name.endswith(SUFFIX) or suffix == ".ring"):
            bases.add(os.path.join(folder, stem))
    if not bases:
        raise FileNotFoundError(2, "there is no trace here", os.fspath(folder))
    every = [TraceSource(base) for base in sorted(bases)]
    found = [source for source in every if source.open()]
    notes = [note for source in every if not source.header for note in source.notes]
    found.sort(key=lambda source: (source.header["wall_ns"], source.base))
    offsets: dict[str, int] = {}
    for number, source in enumerate(found):
        source.number = number
        # Processes of one machine share its monotonic clock: they are placed by one offset, the first one's.
        source.offset = offsets.setdefault(source.header["boot"], source.offset)
    return found, notes


def events(folder: str | os.PathLike[str]) -> Iterator[Event]:
    """All events of a trace, process by process, in each in the order in which they ended.

    Raises `FileNotFoundError` where the folder is none of a trace.
    """
    found, _ = sources(folder)
    for source in found:
        for chunk in source.chunks():
            yield from as_events(source, chunk)


def as_events(source: TraceSource, chunk: Iterable[dict[str, Any]]) -> Iterator[Event]:
    """Events of a file as `Event`."""
    for event in chunk:
        args = event["args"]
        yield Event(
            round(event["ts"] * 1000) + source.offset,
            round(event.get("dur", 0) * 1000),
            event["cat"],
            event["name"],
            args["size"],
            args.get("offset", -1),
            args.get("where", ""),
            args.get("error", ""),
            source.number,
            event["tid"],
        )


def read_json(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The events of a merged file. Raises `ValueError` for what is no JSON."""
    import gzip

    with gzip.open(path) as file:
        found: list[dict[str, Any]] = json.load(file)
    return found
