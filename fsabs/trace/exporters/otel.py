"""A trace for OpenTelemetry: its events as spans, what is counted as metrics. Needs the extra `otel`.

Spans are made afterwards, from the files of a trace: while a program runs, one of OpenTelemetry's spans costs more than
many of the reads that it would tell of. Where they go is what the providers say that are given here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...core import errors, hooks
from ..schema import INSTANTS, OVERLAPPING, Event, ProcessInfo, Tally, layer, operation

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import Span, Tracer, TracerProvider

SCOPE = "fsabs.trace"
"""The name of the instrumentation."""


def spans(events: Iterable[Event], processes: Sequence[ProcessInfo], provider: TracerProvider) -> int:
    """Make a span of each event, and one of each process, which is the root of its own; returns how many of events.

    A span's parent is the innermost call of its thread in which it happened. Memory is needed for the events of one
    process at a time. Spans of calls that failed have the status ERROR.

    Args:
        events: `fsabs.trace.events(folder)`: process by process.
        processes: `Analysis.processes`.
        provider: of the SDK, with an exporter; `shutdown` is left to the caller.
    """
    _api()
    tracer = provider.get_tracer(SCOPE)
    by_number = {one.number: one for one in processes}
    made = 0
    for number, mine in groupby(events, key=lambda event: event.process):
        made += _process(tracer, by_number.get(number), list(mine))
    return made


def metrics(provider: MeterProvider) -> None:
    """Let `provider` observe what this process records: calls, errors, bytes and seconds of each operation.

    They are asked for when a reader collects, and cost nothing in between. While the process doesn't trace, there are
    none. To be called once in a process for a provider.
    """
    _api()
    meter = provider.get_meter(SCOPE)
    for name, unit, description, value in _COUNTERS:
        meter.create_observable_counter(name, [_observer(value)], unit, description)


_COUNTERS: Sequence[tuple[str, str, str, Callable[[Tally], float]]] = (
    ("fsabs.operations", "{operation}", "calls, attempts and happenings", lambda one: one.calls),
    ("fsabs.errors", "{operation}", "those that ended by an exception", lambda one: one.errors),
    ("fsabs.size", "By", "bytes that they moved, or what the kind of operation counts", lambda one: one.bytes),
    ("fsabs.duration", "s", "the sum of their durations", lambda one: one.nanoseconds / 1e9),
)


def _observer(value: Callable[[Tally], float]) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        from opentelemetry.metrics import Observation

        tallies = getattr(hooks.active, "tallies", None)
        for counted in tallies() if tallies is not None else ():
            yield Observation(value(counted), _names(counted.kind, counted.name))

    return observe


def _process(tracer: Tracer, info: ProcessInfo | None, events: list[Event]) -> int:
    from opentelemetry import trace

    begin, end = min(one.begin for one in events), max(one.end for one in events)
    label = info.label if info is not None else f"process {events[0].process}"
    about: dict[str, Any] = {} if info is None else {"host.name": info.host, "process.pid": info.pid}
    if info is not None:
        begin, end = min(begin, info.begin), max(end, info.end)
        about |= {f"fsabs.{name}": value for name in ("rank", "worker") if (value := getattr(info, name)) is not None}
    root = tracer.start_span(label, trace.set_span_in_context(trace.INVALID_SPAN), start_time=begin, attributes=about)
    events.sort(key=lambda one: (one.thread, one.begin, -one.end))
    under: list[tuple[int, Span]] = []  # the calls that are under way, the innermost last, and when each ends
    thread = -1
    for event in events:
        if event.thread != thread:
            _end(under, None)
            thread = event.thread
        _end(under, event)
        span = _span(tracer, event, under[-1][1] if under else root)
        if event.kind in INSTANTS or event.kind in OVERLAPPING:
            span.end(event.end)
        else:
            under.append((event.end, span))
    _end(under, None)
    root.end(end)
    return len(events)


def _end(under: list[tuple[int, Span]], event: Event | None) -> None:
    """End what `event` isn't a part of: all, for None."""
    while under and (event is None or event.end > under[-1][0] or event.begin >= under[-1][0]):
        end, span = under.pop()
        span.end(end)


def _span(tracer: Tracer, event: Event, parent: Span) -> Span:
    from opentelemetry import trace

    attributes = _names(event.kind, event.name) | {"thread.id": event.thread, "fsabs.size": event.size}
    if event.offset >= 0:
        attributes["fsabs.offset"] = event.offset
    if event.where:
        attributes["url.full"] = event.where
    if event.error:
        attributes["error.type"] = event.error
    kind = trace.SpanKind.CLIENT if event.kind in ("request", "connect") else trace.SpanKind.INTERNAL
    context = trace.set_span_in_context(parent)
    span = tracer.start_span(event.name, context, kind, attributes, start_time=event.begin)
    if event.error:
        span.set_status(trace.Status(trace.StatusCode.ERROR, event.error))
    return span


def _names(kind: str, name: str) -> dict[str, Any]:
    return {"fsabs.kind": kind, "fsabs.layer": layer(name), "fsabs.operation": operation(name)}


def _api() -> None:
    errors.required("opentelemetry.trace", "opentelemetry-sdk", "otel", "exporting a trace to OpenTelemetry")
