"""The page: which parts the report has, in which order. It needs no other file, and its policy forbids to fetch any."""

from __future__ import annotations

import base64
import hashlib
import os

from .. import units
from ..headlines import Headline, bad_first, costs, headlines
from ..markup import empty, section, sentence, text
from ..results import (
    Analysis,
    Finding,
)
from ..schema import (
    INSTANTS,
)
from . import charts, tables
from .script import SCRIPT
from .style import STYLE

HISTOGRAMS = 24
"""Latencies of so many operations are drawn."""
SHOWN = 6
"""So many of them at once."""

_PARTS = {
    "findings": "Findings", "breakdown": "Where the time went", "time": "Over time", "processes": "Processes",
    "steps": "Steps", "sizes": "Sizes", "latency": "Latency", "layers": "Layers", "operations": "Operations",
    "files": "Files", "slowest": "Slowest calls", "notes": "Notes",
}  # fmt: skip


def render(analysis: Analysis) -> str:
    """The whole document, of some 100 KB, and less than 1.5 MB for the thousand files that an analysis has at most."""
    name = os.path.basename(os.path.normpath(analysis.folder))
    title = f"Trace {name}" if name not in ("", ".") else "Trace"
    parts = [
        _header(analysis, title), '<main id="main">', _figures(analysis), _findings(analysis),
        _breakdown(analysis), _time(analysis),
        _processes(analysis), _steps(analysis), _sizes(analysis), _latencies(analysis), _layers(analysis),
        _operations(analysis), _files(analysis), _slowest(analysis), _notes(analysis), "</main>",
        f'<footer><p>{units.moment(analysis.begin)}. Made by fsabs; this page fetches nothing.</p></footer>',
        '<div id="tip" role="status" aria-live="polite" hidden></div>',
    ]  # fmt: skip
    return _document(title, "\n".join(parts))


def _document(title: str, body: str) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><meta name="referrer" content="no-referrer"><title>{text(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head>'
        f"<body>\n{body}\n<script>{SCRIPT}</script></body></html>\n"
    )


def _header(analysis: Analysis, title: str) -> str:
    programs = sorted({one.program for one in analysis.processes if one.program})
    hosts = sorted({one.host for one in analysis.processes if one.host})
    facts = [units.moment(analysis.begin), ", ".join(programs[:3]), ", ".join(hosts[:4]) + (" …" if len(hosts) > 4 else "")]  # noqa: E501  # fmt: skip
    links = "".join(f'<a href="#{code}">{name}</a>' for code, name in _PARTS.items())
    return (
        f'<a class="skip" href="#main">Skip to the figures</a><header><div><h1>{text(title)}</h1>'
        f"<p>{' · '.join(text(fact) for fact in facts if fact)}</p></div>"
        '<button id="theme" type="button" hidden aria-pressed="false">Dark</button></header>'
        f'<nav aria-label="Parts of the report">{links}</nav>'
    )


def _figures(analysis: Analysis) -> str:
    tiles = "".join(_tile(one) for one in headlines(analysis))
    return (
        '<section aria-labelledby="figures-h"><h2 id="figures-h" class="unseen">Headline figures</h2>'
        f'<dl class="tiles">{tiles}</dl></section>'
    )


def _tile(one: Headline) -> str:
    return (
        f'<div class="tile {one.state}" data-figure="{one.code}"><dt>{text(one.name)}</dt><dd class="value">'
        f'{text(one.value)}</dd><dd class="note">{text(one.note)}</dd></div>'
    )


def _findings(analysis: Analysis) -> str:
    shown = "".join(f"<li>{_finding(analysis, one)}</li>" for one in analysis.findings)
    body = f'<ol class="findings">{shown}</ol>' if shown else ""
    return section("findings", _PARTS["findings"], body, bad_first(analysis))


def _finding(analysis: Analysis, one: Finding) -> str:
    figures = "".join(
        f"<div><dt>{text(name)}</dt><dd>{text(units.evidence(name, value))}</dd></div>"
        for name, value in one.evidence.items()
    )
    severity = one.severity if one.severity in ("high", "medium", "low") else "low"
    return (
        f'<article class="finding {severity}"><h3><span class="badge">{text(one.severity)}</span> {text(one.title)}'
        f" <small>{text(one.code)}</small></h3>"
        f"<p>{text(costs(analysis, one))}</p><p>{sentence(one.advice)}</p>"
        f'<dl class="evidence">{figures}</dl></article>'
    )


def _breakdown(analysis: Analysis) -> str:
    if not analysis.breakdown:
        body = empty("No step was marked: `fsabs.trace.steps(loader)` marks them.")
        return section("breakdown", _PARTS["breakdown"], body)
    body = charts.breakdown(analysis.breakdown) + tables.breakdown(analysis.breakdown)
    lead = "The time of the training steps. Waiting is divided among what the workers did meanwhile; parts add up."
    return section("breakdown", _PARTS["breakdown"], body, lead)


def _time(analysis: Analysis) -> str:
    body = charts.over_time(analysis) if len(analysis.timeline.asked) else empty("There are no events.")
    return section("time", _PARTS["time"], body)


def _processes(analysis: Analysis) -> str:
    body = charts.heat_map(analysis.heat) if any(analysis.heat.busy) else empty("There are no events.")
    if analysis.processes:
        body += f"<details><summary>Table of processes</summary>{tables.processes_table(analysis)}</details>"
    lead = (
        "A line is a process, a column a piece of time: the stronger its colour, the more of it went to traced calls."
    )
    return section("processes", _PARTS["processes"], body, lead)


def _steps(analysis: Analysis) -> str:
    if analysis.stall is None:
        return section("steps", _PARTS["steps"], empty("No step was marked: `fsabs.trace.steps(loader)` marks them."))
    stall = analysis.stall
    lead = (
        f"{units.count(stall.steps)} steps: {units.duration(stall.wait)} waiting for data, "
        f"{units.duration(stall.compute)} computing."
    )
    if len(analysis.steps) < stall.steps:
        lead += f" The first {units.count(len(analysis.steps))} are drawn."
    return section("steps", _PARTS["steps"], charts.steps(analysis.steps) if analysis.steps else "", lead)


def _sizes(analysis: Analysis) -> str:
    drawn = charts.histogram("Reads", analysis.read_sizes, "bytes that a read gave")
    drawn += charts.histogram("Requests", analysis.request_sizes, "bytes that a request moved", "fetched")
    return section("sizes", _PARTS["sizes"], f'<div class="many">{drawn}</div>' if drawn else empty("Nothing was read."))  # noqa: E501  # fmt: skip


def _latencies(analysis: Analysis) -> str:
    typical = {f"{row.kind} {row.layer}.{row.operation}": row for row in analysis.operations}
    timed = [name for name in analysis.latencies if name.partition(" ")[0] not in INSTANTS]
    heavy = sorted(timed, key=lambda name: -typical[name].seconds if name in typical else 0.0)
    drawn = []
    for name in heavy[:HISTOGRAMS]:
        row = typical.get(name)
        note = f"p50 {units.duration(row.p50)}, p99 {units.duration(row.p99)}" if row else ""
        colour = "asked" if name.startswith("fs ") else "fetched" if name.startswith("request ") else "compute"
        if figure := charts.histogram(name.partition(" ")[2] or name, analysis.latencies[name], note, colour):
            drawn.append(figure)
    if not drawn:
        return section("latency", _PARTS["latency"], empty("Nothing was timed."))
    body = f'<div class="many">{"".join(drawn[:SHOWN])}</div>'
    if rest := drawn[SHOWN:]:
        body += f'<details><summary>{len(rest)} more</summary><div class="many">{"".join(rest)}</div></details>'
    lead = "How long calls took, in powers of two; the operations with the most time first."
    return section("latency", _PARTS["latency"], body, lead)


def _layers(analysis: Analysis) -> str:
    body = tables.layers(analysis) if analysis.layers else empty("Nothing was called.")
    return section("layers", _PARTS["layers"], body, "Time is summed up over all that ran at once.")


def _operations(analysis: Analysis) -> str:
    body = tables.operations(analysis) if analysis.operations else empty("Nothing was called.")
    return section("operations", _PARTS["operations"], body)


def _files(analysis: Analysis) -> str:
    if not analysis.files:
        return section("files", _PARTS["files"], empty("No file is named in the trace."))
    shown, seen = len(analysis.files), max(analysis.files_seen, len(analysis.files))
    lead = f"{units.count(shown)} of {units.count(seen)} files: those with the most time." if shown < seen else ""
    return section("files", _PARTS["files"], tables.files(analysis), lead)


def _slowest(analysis: Analysis) -> str:
    body = tables.slowest(analysis) if analysis.slowest else empty("There are no events.")
    return section("slowest", _PARTS["slowest"], body)


def _notes(analysis: Analysis) -> str:
    notes = "".join(f"<li>{text(note)}</li>" for note in analysis.notes)
    body = f'<ul class="notes">{notes}</ul>' if notes else empty("The trace is whole.")
    return section("notes", _PARTS["notes"], body)
