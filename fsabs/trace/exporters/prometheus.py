"""Prometheus' text exposition (format 0.0.4) of what a running recorder counts, and of an analysis.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. Labels are kind, layer and operation, never a URL,
so that there are as many series as there are operations. The buckets are the same for all: powers of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from ...core import hooks
from ..results import Analysis, Histogram, Row
from ..schema import INSTANTS, READS, Tally, layer, operation

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What a server says that it is."""
TIMES = range(10, 38)
"""`n.bit_length()` of the buckets of durations: from 1 µs to 137 s."""
SIZES = range(8, 37, 2)
"""Of sizes: from 255 bytes to 64 GiB."""


def _labels(one: Tally) -> str:
    pairs = (("kind", one.kind), ("layer", layer(one.name)), ("operation", operation(one.name)))
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)


def _in_bytes(one: Tally) -> bool:
    """Return True if its size is in bytes; that of a step is a number, and that of a hit may be a count."""
    return one.kind in ("request", "decompress") or (one.kind == "fs" and operation(one.name) in (*READS, "write"))


def running() -> str:
    """Return the counts of this process so far; only a comment if it doesn't trace.

    For Prometheus to scrape: by a handler of the program's own web server, as `CONTENT_TYPE`, or by a file for
    the node exporter. Histograms are at most as old as the recorder's flushes, about a second; counters are of now.
    """
    tally = getattr(hooks.active, "tally", None)
    if tally is None:
        return "# fsabs: this process is not traced\n"
    counted = tally()
    return text((Tally(**one) for one in counted["histograms"]), counted["dropped"])


def text(tallies: Iterable[Tally], dropped: int = 0) -> str:
    """Return the counts of recorders, of one process or of several, as text."""
    return "".join(_families(_merged(tallies))) + _single("events_dropped", "counter", "Events that were lost", dropped)


def of(analysis: Analysis) -> str:
    """A whole trace as text: the same series, and its headline figures as gauges."""
    found = [_tally(row, analysis.latencies) for row in analysis.operations]
    gauges = (
        ("trace_seconds", "Seconds from the first event to the last", analysis.seconds),
        ("data_stall_ratio", "Part of the steps' time in which they waited for data",
         None if analysis.stall is None else analysis.stall.percentage / 100),
        ("read_amplification_ratio", "Bytes fetched for each byte asked for", analysis.amplification.ratio),
        ("cache_hit_ratio", "Hits of all questions to caches", analysis.cache.hit_rate),
    )  # fmt: skip
    parts = [_single(name, "gauge", description, value) for name, description, value in gauges if value is not None]
    dropped = _single("events_dropped", "counter", "Events that were lost", analysis.dropped)
    return "".join([*_families(_merged(found)), dropped, *parts])


def _tally(row: Row, latencies: Mapping[str, Histogram]) -> Tally:
    """Return the row of an operation as a recorder counts it."""
    name, nanoseconds = f"{row.layer}.{row.operation}", round(row.seconds * 1e9)
    latency = latencies.get(f"{row.kind} {name}", Histogram("ns", ())).counts
    return Tally(row.kind, name, row.calls, row.errors, row.bytes, nanoseconds, 0, 0, list(latency), [])


def _families(series: Sequence[Tally]) -> list[str]:
    timed = [one for one in series if one.kind not in INSTANTS]
    sized = [one for one in series if _in_bytes(one)]
    return [
        _counter("operations", "Calls, attempts and happenings", [(_labels(one), one.calls) for one in series]),
        _counter("operation_errors", "Those that ended by an exception", [(_labels(one), one.errors) for one in timed]),
        _counter("operation_bytes", "Bytes that they moved", [(_labels(one), one.bytes) for one in sized]),
        _histogram(
            "operation_duration_seconds", "How long they took",
            [(_labels(one), one.latency, one.nanoseconds / 1e9) for one in timed if one.latency], TIMES, 1e-9,
        ),
        _histogram(
            "operation_size_bytes", "Bytes of each",
            [(_labels(one), one.sizes, float(one.bytes)) for one in sized if one.sizes], SIZES, 1,
        ),
    ]  # fmt: skip


def _counter(name: str, description: str, values: Sequence[tuple[str, float]]) -> str:
    lines = "".join(f"fsabs_{name}_total{{{labels}}} {_number(value)}\n" for labels, value in values)
    return _head(f"{name}_total", "counter", description) + lines if lines else ""


def _histogram(
    name: str, description: str, values: Sequence[tuple[str, Sequence[int], float]], buckets: range, unit: float
) -> str:
    lines = []
    for labels, counts, total in values:
        for bits in buckets:
            below = sum(counts[: bits + 1])
            lines.append(f'fsabs_{name}_bucket{{{labels},le="{_number(((1 << bits) - 1) * unit)}"}} {below}\n')
        every = sum(counts)
        lines.append(f'fsabs_{name}_bucket{{{labels},le="+Inf"}} {every}\n')
        lines.append(f"fsabs_{name}_sum{{{labels}}} {_number(total)}\nfsabs_{name}_count{{{labels}}} {every}\n")
    return _head(name, "histogram", description) + "".join(lines) if lines else ""


def _single(name: str, kind: str, description: str, value: float) -> str:
    name += "_total" if kind == "counter" else ""
    return f"{_head(name, kind, description)}fsabs_{name} {_number(value)}\n"


def _head(name: str, kind: str, description: str) -> str:
    return f"# HELP fsabs_{name} {description}.\n# TYPE fsabs_{name} {kind}\n"


def _merged(tallies: Iterable[Tally]) -> list[Tally]:
    """One for each operation: a series may be there only once."""
    found: dict[tuple[str, str], Tally] = {}
    for one in tallies:
        key = one.kind, one.name
        found[key] = _sum(found[key], one) if key in found else one
    return list(found.values())


def _sum(one: Tally, other: Tally) -> Tally:
    return one._replace(
        calls=one.calls + other.calls,
        errors=one.errors + other.errors,
        bytes=one.bytes + other.bytes,
        nanoseconds=one.nanoseconds + other.nanoseconds,
        latency=_sums(one.latency, other.latency),
        sizes=_sums(one.sizes, other.sizes),
    )


def _sums(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [sum(counts) for counts in zip_longest(one, other, fillvalue=0)]


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
