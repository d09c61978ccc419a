"""What other tools get of a trace: as many events as there were, each figure where it belongs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import fsabs
from fsabs import trace
from fsabs.trace.exporters import otel
from fsabs.trace.schema import Event, ProcessInfo
from tests.trace.synthetic import BEGIN


def _work(folder: Path) -> None:
    """Twenty reads of 4096 bytes, and one that fails."""
    fs = fsabs.from_url(str(folder), create=True)
    fs.write_bytes("a.bin", bytes(4096))
    for _ in range(20):
        fs.read_bytes("a.bin")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("none")


def _event(begin: int, end: int, kind: str, name: str, process: int = 0, thread: int = 1, error: str = "") -> Event:
    where = "s3://bucket/a" if kind == "request" else ""
    return Event(BEGIN + begin, end - begin, kind, name, 10, -1, where, error, process, thread)


def _exported(events: Sequence[Event], processes: Sequence[ProcessInfo] = ()) -> tuple[int, list[ReadableSpan]]:
    memory, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    made = otel.spans(events, processes, provider)
    provider.shutdown()
    return made, list(memory.get_finished_spans())


@pytest.mark.quick
def test_events_become_spans_under_the_call_in_which_they_happened() -> None:
    events = [
        _event(20, 40, "request", "s3.get", error="TimeoutError"), _event(30, 60, "request", "s3.get"),
        _event(60, 60, "retry", "s3.get"), _event(10, 80, "fs", "zip.read"), _event(85, 90, "fs", "zip.stat"),
        _event(20, 70, "fs", "zip.list", thread=2), _event(0, 100, "span", "user.decode"),
        _event(0, 5, "fs", "zip.open", process=1),
    ]  # fmt: skip
    about = ProcessInfo(0, "node-1", 4000, 3, None, "train.py", BEGIN - 5, BEGIN + 200, 7, 0, True)
    made, spans = _exported(events, [about])
    assert made == len(events)
    assert len(spans) == len(events) + 2
    names = {one.context.span_id: one.name for one in spans if one.context is not None}
    parents = sorted((one.name, names[one.parent.span_id] if one.parent else "") for one in spans)
    assert parents == sorted(
        [
            ("s3.get", "zip.read"), ("s3.get", "zip.read"), ("s3.get", "zip.read"), ("zip.read", "user.decode"),
            ("zip.stat", "user.decode"), ("zip.list", about.label), ("user.decode", about.label), (about.label, ""),
            ("zip.open", "process 1"), ("process 1", ""),
        ]
    )  # fmt: skip
    root = next(one for one in spans if one.name == about.label)
    assert (root.start_time, root.end_time) == (about.begin, about.end)
    assert root.attributes == {"host.name": "node-1", "process.pid": 4000, "fsabs.rank": 3}
    failed = [one for one in spans if not one.status.is_unset]
    assert [(one.start_time, one.end_time, one.status.description) for one in failed] == [
        (BEGIN + 20, BEGIN + 40, "TimeoutError")
    ]
    assert (failed[0].attributes or {})["url.full"] == "s3://bucket/a"
    assert (failed[0].attributes or {})["error.type"] == "TimeoutError"


@pytest.mark.quick
def test_metrics_are_those_of_the_recorder(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    otel.metrics(provider)
    with trace.record(tmp_path / "trace"):
        _work(tmp_path / "data")
        data = reader.get_metrics_data()
    found = {
        metric.name: point.value
        for resource in (data.resource_metrics if data is not None else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint) and (point.attributes or {})["fsabs.operation"] == "read_bytes"
    }
    assert found.pop("fsabs.duration") > 0
    assert found == {"fsabs.operations": 21, "fsabs.errors": 1, "fsabs.size": 20 * 4096}
    provider.shutdown()


@pytest.mark.quick
def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.trace", None)
    with pytest.raises(fsabs.MissingDependencyError, match="pip install"):
        otel.spans([], [], TracerProvider())
