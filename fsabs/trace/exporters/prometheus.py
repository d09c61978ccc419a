"""Prometheus' text exposition (format 0.0.4) of what a running recorder counts, and of an analysis.

Format: https://prometheus.io/docs/instrumenting/exposition_formats/. Labels are kind, layer and operation, never a URL,
so that there are as many series as there are operations. The buckets are the same for all: powers of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...core import hooks
from ..results import Analysis
from ..schema import INSTANTS, READS, Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""What a server says that it is."""
TIMES = range(10, 38)
"""`n.bit_length()` of the buckets of durations: from 1 µs to 137 s."""
SIZES = range(8, 37, 2)
"""Of sizes: from 255 bytes to 64 GiB."""


class _Series(NamedTuple):
    """The series of one operation."""

    kind: str
    layer: str
    operation: str
    calls: int
    errors: int
    bytes: int
    seconds: float
    latency: Sequence[int]
    sizes: Sequence[int]

    @property
    def labels(self) -> str:
        pairs = (("kind", self.kind), ("layer", self.layer), ("operation", self.operation))
        return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)

    @property
    def in_bytes(self) -> bool:
        """True if its size is in bytes; that of a step is a number, and that of a hit may be a count."""
        return self.kind in ("request", "decompress") or (self.kind == "fs" and self.operation in (*READS, "write"))


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
    found = (
        _Series(
            one.kind, *_split(one.name), one.calls, one.errors, one.bytes, one.nanoseconds / 1e9, one.latency, one.sizes
        )
        for one in tallies
    )
    return "".join(_families(_merged(found))) + _single("events_dropped", "counter", "Events that were lost", dropped)


def of(analysis: Analysis) -> str:
    """A whole trace as text: the same series, and its headline figures as gauges."""
    found = [
        _Series(
            row.kind, row.layer, row.operation, row.calls, row.errors, row.bytes, row.seconds,
            _latency(analysis, row.kind, row.layer, row.operation), (),
        )
        for row in analysis.operations
    ]  # fmt: skip
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


def _families(series: Sequence[_Series]) -> list[str]:
    timed = [one for one in series if one.kind not in INSTANTS]
    sized = [one for one in series if one.in_bytes]
    return [
        _counter("operations", "Calls, attempts and happenings", [(one.labels, one.calls) for one in series]),
        _counter("operation_errors", "Those that ended by an exception", [(one.labels, one.errors) for one in timed]),
        _counter("operation_bytes", "Bytes that they moved", [(one.labels, one.bytes) for one in sized]),
        _histogram(
            "operation_duration_seconds", "How long they took",
            [(one.labels, one.latency, one.seconds) for one in timed if one.latency], TIMES, 1e-9,
        ),
        _histogram(
            "operation_size_bytes", "Bytes of each",
            [(one.labels, one.sizes, float(one.bytes)) for one in sized if one.sizes], SIZES, 1,
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


def _merged(series: Iterable[_Series]) -> list[_Series]:
    """One for each operation: a series may be there only once."""
    found: dict[tuple[str, str, str], _Series] = {}
    for one in series:
        key = one[:3]
        found[key] = one if key not in found else _sum(found[key], one)
    return list(found.values())


def _sum(one: _Series, other: _Series) -> _Series:
    return _Series(
        *one[:3], one.calls + other.calls, one.errors + other.errors, one.bytes + other.bytes,
        one.seconds + other.seconds, _sums(one.latency, other.latency), _sums(one.sizes, other.sizes),
    )  # fmt: skip


def _sums(one: Sequence[int], other: Sequence[int]) -> list[int]:
    most = max(len(one), len(other))
    return [sum(counts[at] for counts in (one, other) if at < len(counts)) for at in range(most)]


def _latency(analysis: Analysis, kind: str, layer: str, operation: str) -> Sequence[int]:
    found = analysis.latencies.get(f"{kind} {layer}.{operation}")
    return found.counts if found is not None else ()


def _split(name: str) -> tuple[str, str]:
    layer, _, operation = name.partition(".")
    return layer, operation or name


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
