"""An analysis as text of 100 columns: headline figures, findings, operations, the slowest files.

With rich (the extra `cli`), it has tables and, on a terminal, colours; else plain text says the same.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from . import units
from .headlines import bad_first, costs, headlines, moved, part_of
from .results import (
    PARTS,
    Analysis,
    Finding,
    Row,
)

WIDTH = 100
FILES = 10
EPOCHS = 3
"""Epochs whose breakdown is shown."""
_COLOURS = {"high": "bold red", "medium": "yellow", "low": "cyan", "bad": "bold red", "warn": "yellow", "": "bold"}

_OPERATION = ("operation", "kind", "calls", "bytes", "time", "p50", "p99", "max", "errors", "retries")
_FILE = ("file", "reads", "bytes", "time", "slowest", "errors")

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, heads, lines; the first column is text."""


def summary(analysis: Analysis) -> str:
    """Return an analysis as text for a terminal of 100 columns or more; it ends with a newline."""
    return _rich(analysis) if importlib.util.find_spec("rich") is not None else plain(analysis)


def plain(analysis: Analysis) -> str:
    """As `summary`, without rich."""
    lines = [_title(analysis), ""]
    for one in headlines(analysis):
        lines.append(f"{one.name + ':':<20} {one.value:<12} {one.note}".rstrip())
    lines += ["", bad_first(analysis)]
    for finding in analysis.findings:
        lines += _wrapped(f"{finding.severity.upper()} {finding.code} {finding.title}", "  ")
        for text in (costs(analysis, finding), _evidence(finding), finding.advice):
            lines += _wrapped(text, "      ") if text else []
    for title, heads, rows in _tables(analysis):
        lines += ["", title, *_columns([heads, *rows])]
    lines += (
        ["", "Notes", *(line for note in analysis.notes for line in _wrapped(note, "  "))] if analysis.notes else []
    )
    return "\n".join(lines) + "\n"


def _rich(analysis: Analysis) -> str:
    # By name, so that a type checker needs no rich.
    console_of: Any = importlib.import_module("rich.console")
    text_of: Any = importlib.import_module("rich.text").Text
    table_of: Any = importlib.import_module("rich.table").Table
    file = io.StringIO()
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = console_of.Console(file=file, width=WIDTH, force_terminal=terminal, force_jupyter=False, highlight=False)
    console.print(text_of(_title(analysis), style="bold"))
    tiles = table_of.grid(padding=(0, 2))
    for one in headlines(analysis):
        tiles.add_row(one.name, text_of(one.value, style=_COLOURS[one.state]), text_of(one.note, style="dim"))
    console.print(tiles)
    console.print()
    console.print(text_of(bad_first(analysis)))
    for finding in analysis.findings:
        head = text_of(units.visible(f"{finding.severity.upper()} "), style=_COLOURS.get(finding.severity, ""))
        console.print(head.append(units.visible(f"{finding.code} {finding.title}"), style="bold"))
        for text in (costs(analysis, finding), _evidence(finding), finding.advice):
            for line in _wrapped(text, "    ") if text else ():
                console.print(text_of(line))
    for title, heads, rows in _tables(analysis):
        table = table_of(
            title=title, title_justify="left", title_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False
        )
        for column, head in enumerate(heads):
            table.add_column(head, justify="right" if column else "left", overflow="fold", no_wrap=bool(column))
        for row in rows:
            table.add_row(*(text_of(units.visible(cell)) for cell in row))
        console.print()
        console.print(table)
    console.print()
    for note in analysis.notes:
        console.print(text_of("note: " + units.visible(note), style="dim"))
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _title(analysis: Analysis) -> str:
    return units.visible(f"Trace of {units.moment(analysis.begin)}")


def _evidence(finding: Finding) -> str:
    return ", ".join(f"{name}: {units.evidence(name, value)}" for name, value in finding.evidence.items())


def _tables(analysis: Analysis) -> list[Table]:
    found: list[Table] = []
    if analysis.breakdown:
        found.append(("Where the steps' time went", *_breakdown(analysis)))
    if analysis.operations:
        found.append(("Operations", _OPERATION, _fitting(_OPERATION, [_operation(row) for row in analysis.operations])))
    if analysis.files:
        slow = sorted(analysis.files, key=lambda row: -row.slowest)[:FILES]
        lines = [
            (
                units.address(row.where, 50), units.count(row.reads), units.size(row.bytes),
                units.short_duration(row.seconds), units.short_duration(row.slowest), units.count(row.errors),
            )
            for row in slow
        ]  # fmt: skip
        found.append(("Slowest files", _FILE, _fitting(_FILE, lines)))
    return found


def _breakdown(analysis: Analysis) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Return heads and lines: a part in each line, a column for all epochs and for each of the first ones."""
    shown = analysis.breakdown[: 1 + EPOCHS]
    heads = ["part", *(f"epoch {one.epoch}" if one.epoch else "all" for one in shown)]
    lines = [
        [text, *(f"{units.short_duration(one.parts[part])} {units.percent(part_of(one, part))}" for one in shown)]
        for part, text in PARTS.items()
        if shown[0].parts[part]
    ]
    return heads, [*lines, ["together", *(units.short_duration(one.seconds) for one in shown)]]


def _fitting(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[Sequence[str]]:
    """Return the rows, with first cells cut so that no line is longer than the width."""
    rest = sum(max(len(cell) for cell in column) + 2 for column in list(zip(heads, *rows, strict=True))[1:])
    room = max(len(heads[0]), WIDTH - rest)
    return [(row[0] if len(row[0]) <= room else row[0][: room - 1] + "…", *row[1:]) for row in rows]


def _operation(row: Row) -> Sequence[str]:
    name = units.visible(f"{row.layer}.{row.operation}")
    times = [units.short_duration(value) for value in (row.seconds, row.p50, row.p99, row.most)]
    return (
        name, units.visible(row.kind)[:10], units.short_count(row.calls),
        units.size(moved(row)) if moved(row) else units.NOTHING, *times,
        units.short_count(row.errors), units.short_count(row.retries),
    )  # fmt: skip


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(units.visible(text), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [
        indent.rstrip()
    ]
