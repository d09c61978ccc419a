"""The report: an analysis as one HTML file that needs nothing else, for people with a browser of any size.

What it looks like is in `report.html.j2`, `style.css` and `script.js`; charts are drawn by uPlot
(`vendor/`, github.com/leeoniya/uPlot). Here is which figures they get. Every text of a trace is shown as text: the
templates escape it, and what is invisible in it is spelled out.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import errors
from ...disk.files import Replacement
from .. import headlines, units
from ..results import CAUSES, Analysis, Breakdown, Histogram
from ..schema import INSTANTS
from . import tables

HISTOGRAMS = 12
"""Latencies of so many operations are drawn."""
STEPS_DRAWN = 600
"""Bars of steps at most; of a longer run, each bar is the mean of several steps."""
LEVELS, COLUMNS, PLACES = 8, 100, 8000
"""Of the heat map: its colours, besides the one for an idle process; the most places of a line, and of all."""
_FOLDER = Path(__file__).parent


def report(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Analyse the trace in `folder`, and write the report as an HTML file at `path`, which is whole or not there.

    What stood at `path` is replaced. Raises `FileNotFoundError` where the folder is none of a trace, what else
    `OSError` there is where the file can't be written, and `MissingDependencyError` without Jinja2.
    """
    from ..analysis import analyze

    text = render(analyze(folder))
    with Replacement(os.fspath(path), mode=0o600) as out:  # as private as the trace
        out.write(text.encode())


def render(analysis: Analysis) -> str:
    """Return the whole document, of some 150 KB, and less than 1 MB for the 500 files that an analysis has."""
    name = os.path.basename(os.path.normpath(analysis.folder))
    scripts = [_asset("vendor/uPlot.iife.min.js"), _asset("script.js")]
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    text: str = _template().render(
        analysis=analysis,
        CAUSES=CAUSES,
        units=units,
        headlines=headlines.headlines(analysis),
        bad_first=headlines.bad_first(analysis),
        costs=functools.partial(headlines.costs, analysis),
        shares=_shares,
        title=f"Trace {name}" if name not in ("", ".") else "Trace",
        programs=sorted({one.program for one in analysis.processes if one.program})[:3],
        hosts=sorted({one.host for one in analysis.processes if one.host})[:4],
        style=_asset("vendor/uPlot.min.css") + _asset("style.css"),
        scripts=scripts,
        policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src {allowed}; base-uri 'none'; form-action 'none'",
        charts=_charts(analysis),
        heat=_heat(analysis),
        tables=tables,
    )
    return text


@functools.cache
def _template() -> Any:
    jinja2 = errors.required("jinja2", "Jinja2", "cli", "the report of a trace")
    from markupsafe import Markup, escape

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: units.visible(value) if type(value) is str else value,
    )
    made.filters["code"] = lambda text: Markup(
        re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(units.visible(text))))
    )
    made.filters["json"] = lambda value: Markup(json.dumps(value, separators=(",", ":")).replace("<", "\\u003c"))
    return made.get_template("report.html.j2")


@functools.cache
def _asset(name: str) -> str:
    return (_FOLDER / name).read_text("utf-8")


def _shares(row: Breakdown) -> list[tuple[int, str, float, float]]:
    """Return number, name, seconds and part of the time of each cause that took time."""
    return [
        (number, text, row.causes[cause], row.causes[cause] / row.seconds)
        for number, (cause, text) in enumerate(CAUSES.items())
        if row.causes[cause]
    ]


# ---- what the script draws: lists of numbers


def _charts(analysis: Analysis) -> list[Mapping[str, Any]]:
    time, found = analysis.timeline, []
    if len(time.asked):
        xs = [(at + 0.5) * time.width for at in range(len(time.asked))]
        found.append(_chart("time", "Bandwidth", "bytes/s", xs, asked=time.asked, fetched=time.fetched))
        found.append(_chart("time", "In flight", "", xs, calls=time.reads, requests=time.requests, errors=time.errors))
    found += _steps(analysis)
    found += _histogram("sizes", "Bytes of reads", "bytes", analysis.read_sizes)
    found += _histogram("sizes", "Bytes of requests", "bytes", analysis.request_sizes)
    seconds = {f"{row.kind} {row.layer}.{row.operation}": row.seconds for row in analysis.operations}
    timed = [name for name in analysis.latencies if name.partition(" ")[0] not in INSTANTS]
    for name in sorted(timed, key=lambda name: -seconds.get(name, 0.0))[:HISTOGRAMS]:
        found += _histogram("latency", name.partition(" ")[2] or name, "ns", analysis.latencies[name])
    return found


def _chart(
    section: str, title: str, unit: str, xs: Sequence[float], *, bars: bool = False, **series: Sequence[float]
) -> Mapping[str, Any]:
    """Return a chart; what a reader of a screen is told of it are the maxima."""
    most = {name: max(values, default=0) for name, values in series.items()}
    formats: dict[str, Callable[[float], str]] = {"bytes/s": units.rate, "s": units.duration}
    format_value = formats.get(unit, "{:,.4g}".format)
    label = f"{title}: " + ", ".join(f"{name} at most {format_value(value)}" for name, value in most.items())
    data = [[_rounded(x) for x in xs], *([_rounded(value) for value in values] for values in series.values())]
    return {
        "section": section, "title": units.visible(title), "unit": unit, "bars": bars, "names": list(series),
        "label": units.visible(label), "data": data,
    }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.4g}") if value == value and abs(value) != float("inf") else 0.0


def _steps(analysis: Analysis) -> Iterable[Mapping[str, Any]]:
    """Bars of waiting and of all the rest, one a step, or the means of several."""
    if not analysis.steps:
        return
    together = -(-len(analysis.steps) // STEPS_DRAWN)
    groups = [analysis.steps[at : at + together] for at in range(0, len(analysis.steps), together)]
    xs = [together * number for number in range(len(groups))]
    waits = [sum(step.wait for step in group) / len(group) for group in groups]
    whole = [sum(step.seconds for step in group) / len(group) for group in groups]
    yield _chart("steps", "Steps", "s", xs, bars=True, together=whole, waiting=waits)


def _histogram(section: str, title: str, unit: str, counts: Histogram) -> Iterable[Mapping[str, Any]]:
    if counts.total:
        first = next(number for number, count in enumerate(counts.counts) if count)
        values = counts.counts[first:]
        yield _chart(section, title, unit, [first + at for at in range(len(values))], bars=True, count=values)


def _heat(analysis: Analysis) -> list[tuple[str, str, float]]:
    """Return a label, a CSS gradient and the mean of each process: how busy it was, from left to right."""
    found, columns = [], min(COLUMNS, max(10, PLACES // max(1, len(analysis.heat.rows))))
    for label, busy in zip(analysis.heat.rows, analysis.heat.busy, strict=True):
        together, stops, at = -(-len(busy) // columns) or 1, [], 0
        parts = [sum(some) / len(some) for some in (busy[n : n + together] for n in range(0, len(busy), together))]
        many = max(1, len(parts))
        for level, same in itertools.groupby(min(LEVELS, int(part * LEVELS + 0.999)) for part in parts):
            begin, at = at, at + len(list(same))
            stops.append(f"var(--h{level}) {100 * begin / many:.4g}% {100 * at / many:.4g}%")
        gradient = f"linear-gradient(90deg,{','.join(stops)})" if stops else "none"
        found.append((label, gradient, sum(parts) / many))
    return found
