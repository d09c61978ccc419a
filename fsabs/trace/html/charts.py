"""The drawings of the report, as inline SVG: figures over time, the heat map, histograms, steps.

Each is drawn in units of its own and stretched to its box by the browser, so that one drawing serves a phone and a wide
screen. How many points there are is bounded here, whatever the trace has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import units
from ..markup import axes, figure, legend, number, plot, text
from ..results import (
    PARTS,
    Analysis,
    Breakdown,
    HeatMap,
    Histogram,
    Step,
)

POINTS = 240
EPOCHS = 12
"""Epochs whose breakdown is drawn."""
COLUMNS = 96
"""Of the heat map."""
ROWS = 64
LEVELS = 9
HEIGHT = 100
CUT = 3.0
"""Columns of steps are drawn up to so many times the height that 95 % of them have."""
STEPS = 160
"""Columns of the chart of steps."""


def over_time(analysis: Analysis) -> str:
    """Bandwidth, and what is in flight."""
    line = analysis.timeline
    slices = len(line.asked)
    span = line.width * slices
    asked, fetched, reads, requests = (
        _rebinned(one, POINTS) for one in (line.asked, line.fetched, line.reads, line.requests)
    )
    errors = _sums(line.errors, POINTS)
    has_requests = any(fetched) or any(requests)  # without a store, a line at zero would say nothing
    bandwidth = [("asked", "asked for", asked), ("fetched", "fetched from stores", fetched)]
    flight = [("asked", "reads", reads), ("fetched", "requests", requests)]
    return _curves("Bandwidth", bandwidth[: 1 + has_requests], errors, span, units.rate) + _curves(
        "In flight", flight[: 1 + has_requests], errors, span, lambda value: f"{value:.3g}"
    )


def breakdown(rows: Sequence[Breakdown]) -> str:
    """A stacked bar for all steps together, and one for each of the first epochs."""
    names = list(PARTS)
    items = [(f"part{at}", PARTS[part]) for at, part in enumerate(names) if any(one.parts[part] for one in rows)]
    return legend(*items) + f'<div class="stacks">{"".join(map(_stack, rows[: 1 + EPOCHS]))}</div>'


def _stack(row: Breakdown) -> str:
    parts = [(at, text, row.parts[part]) for at, (part, text) in enumerate(PARTS.items()) if row.parts[part]]
    shown = [f"{name}: {units.duration(value)} ({units.percent(value / row.seconds)})" for _, name, value in parts]
    bars = "".join(
        f'<i class="part{at}" style="flex:{value / row.seconds:.5f} 0 0" title="{text(tip)}"></i>'
        for (at, _, value), tip in zip(parts, shown, strict=True)
    )
    name = f"epoch {row.epoch}" if row.epoch else "all steps"
    return (
        f'<div class="who">{name}</div><div class="stack" role="img" aria-label="{text("; ".join(shown))}">{bars}</div>'
        f'<div class="mean">{units.duration(row.seconds)}</div>'
    )


def heat_map(heat: HeatMap) -> str:
    """A strip for each process: how busy it was, and when."""
    span = heat.width * max((len(row) for row in heat.busy), default=0)
    rows = [
        _strip(label, _rebinned(busy, COLUMNS), _rebinned(data, COLUMNS), span)
        for label, busy, data in list(zip(heat.rows, heat.busy, heat.bytes, strict=True))[:ROWS]
    ]
    scale = "".join(f'<i class="h{level}"></i>' for level in range(LEVELS))
    more = len(heat.rows) - ROWS
    note = f'<p class="lead">{more} more processes are not drawn.</p>' if more > 0 else ""
    ticks = "".join(f"<span>{units.duration(span * part / 4)}</span>" for part in range(5))
    return (
        f'<div class="heat">{"".join(rows)}<div class="ticks" aria-hidden="true">{ticks}</div></div>'
        f'<p class="scale" aria-hidden="true"><span>idle</span>{scale}<span>always busy</span></p>{note}'
    )


def histogram(title: str, counted: Histogram, note: str = "", colour: str = "asked") -> str:
    """Columns, one for each power of two, from the first bucket that isn't empty to the last."""
    counts = list(counted.counts)
    used = [bucket for bucket, count in enumerate(counts) if count]
    if not used:
        return ""
    first, last = max(0, min(used) - 1), max(used) + 1
    counts = counts[first : last + 1] + [0] * (last + 1 - len(counts))
    peak, total, many = max(counts), counted.total, len(counts)
    bars = "".join(
        f'<path d="M{index + 0.08:.2f} {HEIGHT}h.84V{number(HEIGHT * (1 - _height(count, peak)))}h-.84z"/>'
        for index, count in enumerate(counts)
        if count
    )
    tips = [_bucket_tip(counted.unit, first + index, count, total) for index, count in enumerate(counts)]
    biggest = first + counts.index(peak)
    label = f"{title}: {units.count(total)} in all, most of them {_bucket(counted.unit, biggest)}"
    every = max(1, -(-many // 5))
    ticks = [
        ((index + 0.0) / many, _bound(counted.unit, first + index)) for index in range(every // 2, many, every)
    ]  # at the column's left edge, which is the bucket's lower bound
    drawn = plot(label, f'<g class="{colour}">{bars}</g>', many, HEIGHT, tips)
    return figure(title, axes(drawn, [(1.0, units.short_count(peak)), (0.0, "0")], ticks), note)


def steps(rows: Sequence[Step]) -> str:
    """Wait and compute of the steps, in their order, stacked; what is far longer than the others is cut."""
    bins = _binned_steps(rows)
    longest = sorted(wait + compute for _, _, wait, compute in bins)
    peak = min(longest[-1], CUT * longest[int(0.95 * (len(longest) - 1))] or longest[-1]) or 1.0
    cut = sum(1 for one in longest if one > peak)
    waits, computes, tips = [], [], []
    for index, (first, last, wait, compute) in enumerate(bins):
        low = HEIGHT * min(compute / peak, 1.0)
        high = min(HEIGHT * wait / peak, HEIGHT - low)
        computes.append(f"M{index} {HEIGHT}v-{number(low)}h1v{number(low)}z")
        waits.append(f"M{index} {number(HEIGHT - low)}v-{number(high)}h1v{number(high)}z")
        which = f"step {first}" if first == last else f"steps {first} to {last}, mean"
        part = wait / (wait + compute) if wait + compute else 0.0
        tips.append(f"{which}\nwait {units.duration(wait)} ({units.percent(part)})\ncompute {units.duration(compute)}")
    drawing = f'<path class="compute" d="{"".join(computes)}"/><path class="fetched" d="{"".join(waits)}"/>'
    wait, every = sum(step.wait for step in rows), sum(step.seconds for step in rows)
    label = (
        f"Steps: waiting {units.duration(wait)} of {units.duration(every)}; the longest {units.duration(longest[-1])}"
    )
    columns = [(0.0, f"step {bins[0][0]}"), (1.0, f"{bins[-1][1]}")]
    drawn = axes(plot(label, drawing, len(bins), HEIGHT, tips), _scale(peak, units.duration), columns)
    note = f"{cut} higher than drawn, at most {units.duration(longest[-1])}" if cut else ""
    return figure("Time of a step", legend(("fetched", "wait for data"), ("compute", "compute")) + drawn, note)


def _curves(
    title: str,
    curves: Sequence[tuple[str, str, Sequence[float]]],
    errors: Sequence[int],
    span: float,
    shown: Callable[[float], str],
) -> str:
    """The first one as an area, the others as lines; where errors were, a mark."""
    many = len(curves[0][2])
    peak = max((max(values, default=0.0) for _, _, values in curves), default=0.0)
    top = peak or 1.0
    drawing = "".join(
        f'<path class="line {kind}" d="{_path(values, top)}"/>'
        + (f'<path class="under {kind}" d="{_path(values, top)}V{HEIGHT}H0z"/>' if not index else "")
        for index, (kind, _, values) in enumerate(curves)
    )
    marks = "".join(f"M{at + 0.5} 0v{HEIGHT}" for at, count in enumerate(errors) if count)
    drawing += f'<path class="marks" d="{marks}"/>' if marks else ""
    tips = [
        f"{units.duration((at + 0.5) * span / many)}\n"
        + "\n".join(f"{name}: {shown(values[at])}" for _, name, values in curves)
        + (f"\nerrors: {errors[at]}" if errors[at] else "")
        for at in range(many)
    ]
    sums = ", ".join(
        f"{name} {shown(sum(values) / many)} on average, at most {shown(max(values))}" for _, name, values in curves
    )
    kinds = [(kind, name) for kind, name, _ in curves] + ([("marks", "errors")] if marks else [])
    columns = [(part / 4, units.duration(span * part / 4)) for part in range(5)]
    drawn = axes(plot(f"{title} over time: {sums}", drawing, many, HEIGHT, tips), _scale(top, shown), columns)
    return figure(title, legend(*kinds) + drawn)


def _path(values: Sequence[float], top: float) -> str:
    """Steps: a slice is as high over all of its width."""
    parts, before = [], None
    for at, value in enumerate(values):
        height = number(HEIGHT * (1 - value / top))
        if height != before:
            parts.append(f"M0 {height}" if not at else f"H{at}V{height}")
            before = height
    return "".join(parts) + f"H{len(values)}"


def _scale(top: float, shown: Callable[[float], str]) -> list[tuple[float, str]]:
    return [(1.0, shown(top)), (0.5, shown(top / 2)), (0.0, "0")]


def _strip(label: str, busy: Sequence[float], data: Sequence[float], span: float) -> str:
    """One process: the columns of one level are one path."""
    many = len(busy)
    levels: list[list[str]] = [[] for _ in range(LEVELS)]
    for at, part in enumerate(busy):
        levels[_level(part)].append(f"M{at} 0h1v1h-1z")
    drawing = "".join(
        f'<path class="h{level}" d="{"".join(cells)}"/>' for level, cells in enumerate(levels) if cells and level
    )
    tips = [
        f"{units.duration((at + 0.5) * span / many)}\nbusy {units.percent(part)}\n{units.rate(data[at])}"
        for at, part in enumerate(busy)
    ]
    mean = sum(busy) / many if many else 0.0
    label_text = f"{label}: busy {units.percent(mean)} of the time"
    return (
        f'<div class="who">{text(label)}</div>{plot(label_text, drawing, max(1, many), 1, tips)}'
        f'<div class="mean">{units.percent(mean)}</div>'
    )


def _level(part: float) -> int:
    """0 is idle; whatever is more is at least 1."""
    return min(LEVELS - 1, 1 + int(part * (LEVELS - 1))) if part > 0.001 else 0


def _height(count: int, peak: int) -> float:
    """Return the height of a bar; one that is not 0 is always visible."""
    return max(count / peak, 0.012)


def _bound(unit: str, bucket: int) -> str:
    least = Histogram.bounds(bucket)[0]
    return units.size(least) if unit == "bytes" else units.duration(least / 1e9) if least else "0"


def _bucket(unit: str, bucket: int) -> str:
    if not bucket:
        return "0 bytes" if unit == "bytes" else "0 s"
    return f"{_bound(unit, bucket)} to {_bound(unit, bucket + 1)}"


def _bucket_tip(unit: str, bucket: int, count: int, total: int) -> str:
    return f"{_bucket(unit, bucket)}\n{units.count(count)} ({units.percent(count / total)})"


def _binned_steps(rows: Sequence[Step]) -> list[tuple[int, int, float, float]]:
    """First and last number, mean wait, mean compute."""
    each = max(1, -(-len(rows) // STEPS))
    found = []
    for at in range(0, len(rows), each):
        some = rows[at : at + each]
        wait = sum(step.wait for step in some) / len(some)
        compute = sum(max(0.0, step.seconds - step.wait) for step in some) / len(some)
        numbers = [step.number for step in some]
        found.append((min(numbers), max(numbers), wait, compute))
    return found


def _cuts(many: int, most: int) -> list[tuple[int, int]]:
    parts = min(many, most)
    return [(part * many // parts, (part + 1) * many // parts) for part in range(parts)]


def _rebinned(values: Sequence[float], most: int) -> list[float]:
    """At most so many, each the mean of as many neighbours."""
    return [sum(values[begin:end]) / (end - begin) for begin, end in _cuts(len(values), most)]


def _sums(values: Sequence[int], most: int) -> list[int]:
    return [sum(values[begin:end]) for begin, end in _cuts(len(values), most)]
