"""The tables of the report: rows of cells, which the template lays out and the script lets one sort and filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .. import units
from ..headlines import COUNTED, moved
from ..results import CAUSES, Analysis
from ..schema import INSTANTS


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    key: float | None = None
    """What it is sorted by, if that is not its text."""
    style: str = ""
    """`bad`, `url`, or nothing."""


Rows = list[list[Cell]]


def causes(analysis: Analysis) -> tuple[Sequence[str], Rows]:
    """Seconds of each cause, in all of the time and in each epoch."""
    rows = analysis.breakdown
    heads = ["cause", *(f"epoch {one.epoch}" if one.epoch else "all" for one in rows)]
    found = [
        [Cell(text), *(_share(one.causes[cause], one.seconds) for one in rows)]
        for cause, text in CAUSES.items()
        if any(one.causes[cause] for one in rows)
    ]
    return heads, [*found, [Cell("together"), *(_time(one.seconds) for one in rows)]]


def operations(analysis: Analysis) -> tuple[Sequence[str], Rows]:
    """One line for each operation."""
    heads = (
        "operation", "kind", "calls", "bytes", "throughput", "time", "min", "p50", "p95", "p99", "max", "errors",
        "retries",
    )  # fmt: skip
    found = []
    for row in analysis.operations:
        timeless, speed = row.kind in INSTANTS, row.throughput if moved(row) else 0.0
        times = [Cell("", -1) if timeless else _time(value) for value in (row.seconds, *row[9:14])]
        rate = Cell(units.rate(speed) if speed else units.NOTHING, speed)
        name = f"{row.layer}.{row.operation}" if row.operation else row.layer
        found.append(
            [Cell(name), Cell(row.kind), _count(row.calls), _size(moved(row)), rate, *times, _wrong(row.errors),
             _count(row.retries) if row.retries else Cell(units.NOTHING, 0)]
        )  # fmt: skip
    return heads, found


def files(analysis: Analysis) -> tuple[Sequence[str], Rows]:
    """The files with the most time."""
    return ("file", "opens", "reads", "bytes", "time", "slowest", "errors"), [
        [Cell(units.address(row.where), None, "url"), _count(row.opens), _count(row.reads), _size(row.bytes),
         _time(row.seconds), _time(row.slowest), _wrong(row.errors)]
        for row in analysis.files
    ]  # fmt: skip


def slowest(analysis: Analysis) -> tuple[Sequence[str], Rows]:
    """The slowest calls and requests."""
    labels = [process.label for process in analysis.processes]
    return ("call", "where", "error", "process", "took", "began", "bytes", "offset"), [
        [
            Cell(f"{event.name} {event.kind}"),
            Cell(units.address(event.where) if event.where else units.NOTHING, None, "url"),
            Cell(event.error or units.NOTHING, None, "bad" if event.error else ""),
            Cell(labels[event.process] if 0 <= event.process < len(labels) else str(event.process)),
            _time(event.duration / 1e9),
            _time(max(0, event.begin - analysis.begin) / 1e9),
            _size(0 if event.kind in COUNTED else event.size),
            Cell(units.NOTHING, -1) if event.offset < 0 else _count(event.offset),
        ]
        for event in analysis.slowest
    ]


def processes(analysis: Analysis) -> tuple[Sequence[str], Rows]:
    """The traced processes."""
    return ("process", "program", "ran", "events", "dropped", "end"), [
        [Cell(one.label), Cell(one.program), _time((one.end - one.begin) / 1e9), _count(one.events),
         _wrong(one.dropped), Cell("in order") if one.ended else Cell("killed, or running", None, "bad")]
        for one in analysis.processes
    ]  # fmt: skip


def _share(seconds: float, whole: float) -> Cell:
    return Cell(f"{units.duration(seconds)} ({units.percent(seconds / whole if whole else 0.0)})", seconds)


def _count(value: int) -> Cell:
    return Cell(units.count(value), value)


def _size(value: int) -> Cell:
    return Cell(units.size(value), value) if value else Cell(units.NOTHING, 0)


def _time(seconds: float) -> Cell:
    return Cell(units.duration(seconds), seconds if seconds == seconds else -1)


def _wrong(value: int) -> Cell:
    return Cell(units.count(value), value, "bad") if value else Cell(units.NOTHING, 0)
