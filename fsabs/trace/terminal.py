"""An analysis as text of 100 columns: headline figures, findings, operations, the slowest files."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from . import units
from .headlines import bad_first, costs, headlines, moved, part_of
from .results import CAUSES, Analysis, Finding, Row

WIDTH = 100
FILES = 10
EPOCHS = 3
"""Epochs whose breakdown is shown."""

_OPERATION = ("operation", "kind", "calls", "bytes", "time", "p50", "p99", "max", "errors", "retries")
_FILE = ("file", "reads", "bytes", "time", "slowest", "errors")

Table = tuple[str, Sequence[str], Sequence[Sequence[str]]]
"""Title, heads, lines; the first column is text."""


def summary(analysis: Analysis) -> str:
    """Return an analysis as text for a terminal of 100 columns or more; it ends with a newline."""
    lines = [_title(analysis), *_wrapped(bad_first(analysis), ""), ""]
    if analysis.breakdown:
        heads, rows = _breakdown(analysis)
        lines += ["Where the time went", *_columns([heads, *rows]), ""]
    for one in headlines(analysis):
        lines.append(f"{one.name + ':':<20} {one.value:<12} {one.note}".rstrip())
    lines += ["", "Findings"] if analysis.findings else []
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


def _title(analysis: Analysis) -> str:
    return units.visible(f"Trace of {units.moment(analysis.begin)}")


def _evidence(finding: Finding) -> str:
    return ", ".join(f"{name}: {units.evidence(name, value)}" for name, value in finding.evidence.items())


def _tables(analysis: Analysis) -> list[Table]:
    found: list[Table] = []
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
    heads = ["cause", *(f"epoch {one.epoch}" if one.epoch else "all" for one in shown)]
    lines = [
        [text, *(f"{units.short_duration(one.causes[cause])} {units.percent(part_of(one, cause))}" for one in shown)]
        for cause, text in CAUSES.items()
        if shown[0].causes[cause]
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
