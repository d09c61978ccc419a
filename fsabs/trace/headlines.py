"""The headline figures of an analysis: what the report and the terminal begin with."""

from __future__ import annotations

from typing import NamedTuple

from . import units
from .results import Analysis, Breakdown, Finding, Row
from .schema import INSTANTS, READS

STALL_BOUNDS = (10.0, 30.0)
"""Per cent of the steps' time: a data stall from which one should look, and from which it is grave."""
AMPLIFICATION_BOUNDS = (2.0, 10.0)
HIT_RATE_BOUND = 0.5
COUNTED = INSTANTS | {"step", "fetch", "span"}
"""Kinds whose sizes are numbers, or numbers and bytes mixed."""


class Headline(NamedTuple):
    """One figure."""

    code: str
    """A name for programs: `stall`."""
    name: str
    value: str
    note: str
    """What it is made of; may be empty."""
    state: str = ""
    """`bad`, `warn`, or nothing."""


def headlines(analysis: Analysis) -> list[Headline]:
    """All of them, in order; what is not known has a dash."""
    return [Headline(code, name, *figure(analysis)) for code, name, figure in _FIGURES]


def bad_first(analysis: Analysis) -> str:
    """Return one sentence: what a reader should look at first, and what it costs."""
    if not analysis.findings:
        return "There is nothing to be found." if analysis.breakdown else "There are no events."
    first, *more = analysis.findings
    price = f" It costs {units.duration(first.seconds)}{_of_all(analysis, first)}." if first.seconds else ""
    others = f" {_many(len(more), 'more finding')}." if more else ""
    return f"{first.title[:1].upper()}{first.title[1:]}.{price}{others}"


def _of_all(analysis: Analysis, finding: Finding) -> str:
    whole = analysis.breakdown[0].seconds if analysis.breakdown else 0.0
    return f", {units.percent(finding.seconds / whole)} of the time" if whole else ""


def costs(analysis: Analysis, finding: Finding) -> str:
    """Return what a finding costs and by which model, as sentences; empty where that is not known."""
    if not finding.seconds:
        return ""
    return f"Costs about {units.duration(finding.seconds)}{_of_all(analysis, finding)}. Model: {finding.model}"


def part_of(breakdown: Breakdown, cause: str) -> float:
    """Return the share, 0 to 1, of a cause in the time."""
    return breakdown.causes[cause] / breakdown.seconds if breakdown.seconds else 0.0


def calls(analysis: Analysis) -> list[Row]:
    """The user's calls, by operation."""
    return [row for row in analysis.operations if row.kind == "fs"]


# ---- each figure: its value, note and state


def _seconds(analysis: Analysis) -> tuple[str, ...]:
    note = f"{_many(len(analysis.processes), 'process', 'processes')}, {_many(analysis.events, 'event')}"
    return units.duration(analysis.seconds), note


def _stall(analysis: Analysis) -> tuple[str, ...]:
    stall = analysis.stall
    if stall is None:
        return units.NOTHING, "no step was marked"
    note = f"{units.duration(stall.wait)} of {_many(stall.steps, 'step')}"
    return units.percent(stall.percentage / 100), note, _state(stall.percentage, *STALL_BOUNDS)


def _asked(analysis: Analysis) -> tuple[str, ...]:
    reads = sum(row.calls for row in calls(analysis) if row.operation in READS)
    return units.size(analysis.amplification.asked), f"by {_many(reads, 'read')}"


def _throughput(analysis: Analysis) -> tuple[str, ...]:
    seconds = analysis.seconds
    value = units.rate(analysis.amplification.asked / seconds) if seconds else units.NOTHING
    peak = max(analysis.timeline.asked, default=0.0)
    return value, f"at most {units.rate(peak)}" if peak else ""


def _amplification(analysis: Analysis) -> tuple[str, ...]:
    ratio, fetched = analysis.amplification.ratio, analysis.amplification.fetched
    if fetched is None:
        return units.NOTHING, "no store recorded requests"
    note = f"{units.size(fetched)} fetched"
    return (units.NOTHING, note) if ratio is None else (f"{ratio:.2f} ×", note, _state(ratio, *AMPLIFICATION_BOUNDS))


def _cache(analysis: Analysis) -> tuple[str, ...]:
    use = analysis.cache
    if use.hit_rate is None:
        return units.NOTHING, "no cache was asked"
    note = f"{units.count(use.hits)} of {units.count(use.hits + use.misses)}"
    note += f", {units.count(use.evictions)} evicted" if use.evictions else ""
    return units.percent(use.hit_rate), note, "warn" if use.hit_rate < HIT_RATE_BOUND else ""


def _retries(analysis: Analysis) -> tuple[str, ...]:
    note = f"{units.duration(analysis.retry_seconds)} in failed attempts" if analysis.retry_seconds else ""
    return units.count(analysis.retries), note, "warn" if analysis.retries else ""


def _errors(analysis: Analysis) -> tuple[str, ...]:
    errors = sum(row.errors for row in calls(analysis))
    failed = sum(row.errors for row in analysis.operations if row.kind == "request")
    note = f"and {_many(failed, 'failed attempt')}" if failed else "of the program's calls"
    names = sorted(analysis.failures.items(), key=lambda one: -one[1])[:2]
    note += "".join(f", {units.count(count)} × {name}" for (_, name), count in names)
    return units.count(errors), note, "bad" if errors else ""


_FIGURES = (
    ("seconds", "Duration", _seconds),
    ("stall", "Data stall", _stall),
    ("bytes", "Bytes read", _asked),
    ("throughput", "Throughput", _throughput),
    ("amplification", "Read amplification", _amplification),
    ("hits", "Cache hit rate", _cache),
    ("retries", "Retries", _retries),
    ("errors", "Errors", _errors),
)


def _state(value: float, warn: float, bad: float) -> str:
    return "bad" if value >= bad else "warn" if value >= warn else ""


def _many(number: int, one: str, more: str = "") -> str:
    return f"{units.count(number)} {one if number == 1 else more or one + 's'}"


def moved(row: Row) -> int:
    """The bytes of an operation or layer; 0 where its sizes are no bytes."""
    return 0 if row.kind in COUNTED or row.layer == "steps" else row.bytes
