"""The tables of the report: real tables with heads and captions, which the script lets one sort and filter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .. import units
from ..headlines import COUNTED, moved, processes
from ..markup import text
from ..results import (
    PARTS,
    Analysis,
    Breakdown,
    Row,
)
from ..schema import (
    INSTANTS,
)


class Cell(NamedTuple):
    """The HTML of a cell, and its sort key if that is different."""

    shown: str
    key: float | None = None


def breakdown(rows: Sequence[Breakdown]) -> str:
    """Seconds of each part, in all epochs and in each."""
    heads = ("part", *(f"epoch {one.epoch}" if one.epoch else "all steps" for one in rows))
    lines = [
        (Cell(text(name)), *(_part(one.parts[part], one.seconds) for one in rows))
        for part, name in PARTS.items()
        if any(one.parts[part] for one in rows)
    ]
    return table("Where the time went", heads, lines, words=1)


def _part(seconds: float, whole: float) -> Cell:
    return Cell(f"{units.duration(seconds)} ({units.percent(seconds / whole if whole else 0.0)})", seconds)


def operations(analysis: Analysis) -> str:
    """One line for each operation."""
    heads = (
        "operation", "kind", "calls", "bytes", "throughput", "time", "min", "p50", "p95", "p99", "max", "errors",
        "retries",
    )  # fmt: skip
    return table("Operations", heads, (_operation(row) for row in analysis.operations), words=2)


def layers(analysis: Analysis) -> str:
    """Calls, bytes and time of each layer, as bars."""
    rows = analysis.layers
    most = [max((value for row in rows for value in [_measures(row)[column]]), default=0.0) for column in range(3)]
    heads = ("layer", "kind", "calls", "bytes", "time")
    return table("Layers", heads, (_layer(row, most) for row in rows), words=2)


def files(analysis: Analysis) -> str:
    """The files with the most time."""
    heads = ("file", "opens", "reads", "bytes", "time", "slowest", "errors")
    rows = (
        (
            Cell(_address(row.where)), _number(row.opens), _number(row.reads), _size(row.bytes), _time(row.seconds),
            _time(row.slowest), _wrong(row.errors),
        )
        for row in analysis.files
    )  # fmt: skip
    return table("Files", heads, rows, words=1, filtered="files")


def slowest(analysis: Analysis) -> str:
    """The slowest calls and requests."""
    labels = processes(analysis)
    heads = ("what", "where", "error", "process", "took", "began", "bytes", "offset")
    rows = (
        (
            Cell(f"<b>{text(event.name)}</b> {text(event.kind)}"),
            Cell(_address(event.where)),
            Cell(f'<span class="bad">{text(event.error)}</span>' if event.error else units.NOTHING),
            Cell(text(labels[event.process] if 0 <= event.process < len(labels) else str(event.process))),
            _time(event.duration / 1e9),
            _time(max(0, event.begin - analysis.begin) / 1e9),
            _size(0 if event.kind in COUNTED else event.size),
            Cell(units.NOTHING, -1) if event.offset < 0 else _number(event.offset),
        )
        for event in analysis.slowest
    )
    return table("Slowest calls", heads, rows, words=4, filtered="calls")


def processes_table(analysis: Analysis) -> str:
    """Return the table of the traced processes."""
    heads = ("process", "program", "ran", "events", "dropped", "end")
    rows = (
        (
            Cell(text(one.label)), Cell(text(one.program)), _time((one.end - one.begin) / 1e9), _number(one.events),
            _wrong(one.dropped), Cell("in order" if one.ended else '<span class="bad">killed, or running</span>'),
        )
        for one in analysis.processes
    )  # fmt: skip
    return table("Processes", heads, rows, words=2)


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]], *, words: int, filtered: str = "") -> str:
    """A table in a box of its own, in which it scrolls.

    The first `words` columns are text, the first of them is the line's head. `filtered` is what its lines are, if one
    may look for some of them.
    """
    head = "".join(
        f'<th scope="col" class="{"word" if column < words else ""}">{text(name)}</th>'
        for column, name in enumerate(heads)
    )
    body = "".join(f"<tr>{_line(cells, words)}</tr>" for cells in rows)
    search = (
        f'<label class="filter" hidden>Filter {text(filtered)} <input type="search" autocomplete="off"> '
        f'<output aria-live="polite"></output></label>'
        if filtered
        else ""
    )
    return (
        f'<div class="tabular">{search}<div class="box" tabindex="0" role="region" aria-label="{text(caption)}">'
        f'<table><caption class="unseen">{text(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _line(cells: Sequence[Cell], words: int) -> str:
    found = []
    for column, cell in enumerate(cells):
        key = "" if cell.key is None else f' data-v="{cell.key:.12g}"'
        if not column:
            found.append(f'<th scope="row"{key}>{cell.shown}</th>')
        else:
            found.append(f"<td{' class=word' if column < words else ''}{key}>{cell.shown}</td>")
    return "".join(found)


def _operation(row: Row) -> list[Cell]:
    timeless, speed = row.kind in INSTANTS, row.throughput if moved(row) else 0.0
    times = [Cell("", -1) if timeless else _time(value) for value in (row.seconds, *row[9:14])]
    return [
        Cell(f"<b>{text(row.layer)}</b>.{text(row.operation)}"), Cell(text(row.kind)), _number(row.calls),
        _size(moved(row)), Cell(units.rate(speed) if speed else units.NOTHING, speed),
        *times, _wrong(row.errors), _number(row.retries) if row.retries else Cell(units.NOTHING, 0),
    ]  # fmt: skip


def _layer(row: Row, most: Sequence[float]) -> list[Cell]:
    shown = (units.count(row.calls), units.size(moved(row)), units.duration(row.seconds))
    bars = [
        Cell(_bar(column, 100 * value / most[column], shown[column]) if value else units.NOTHING, value)
        for column, value in enumerate(_measures(row))
    ]
    return [Cell(f"<b>{text(row.layer)}</b>"), Cell(text(row.kind)), *bars]


def _bar(column: int, percentage: float, shown: str) -> str:
    return f'<span class="bar c{column}" style="--v:{percentage:.1f}%">{shown}</span>'


def _measures(row: Row) -> tuple[float, float, float]:
    return float(row.calls), float(moved(row)), row.seconds


def _address(where: str) -> str:
    return f'<span class="url">{text(units.address(where))}</span>' if where else units.NOTHING


def _number(value: int) -> Cell:
    return Cell(units.count(value), value)


def _size(value: int) -> Cell:
    return Cell(units.size(value), value) if value else Cell(units.NOTHING, 0)


def _time(seconds: float) -> Cell:
    return Cell(units.duration(seconds), seconds if seconds == seconds else -1)


def _wrong(value: int) -> Cell:
    return Cell(f'<span class="bad">{units.count(value)}</span>' if value else units.NOTHING, value)
