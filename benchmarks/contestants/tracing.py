"""What an event costs, ours and theirs: each round returns as `seconds` what tracing adds to some thousand operations.

Plain and traced operations take turns in pieces of `PIECE` within a round, so that what disturbs one disturbs both.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from . import Run, library

PIECE = 200


def _difference(plain: Callable[[], object], traced: Callable[[], object], count: int) -> dict[str, float]:
    """What `count` of `traced` take more than as many of `plain`, which take `base`: the medians of the pieces."""
    plains, traces = [], []
    for _ in range(count // PIECE):
        begin = perf_counter()
        for _ in range(PIECE):
            plain()
        middle = perf_counter()
        for _ in range(PIECE):
            traced()
        plains.append(middle - begin)
        traces.append(perf_counter() - middle)
    base = sorted(plains)[len(plains) // 2] * len(plains)
    return {"seconds": sorted(traces)[len(traces) // 2] * len(traces) - base, "base": base}


def check(count: int) -> Run:
    """Off: the check that stands where a layer has something to tell."""
    from fsabs.core import hooks

    def plain() -> None:
        pass

    def checked() -> None:
        if hooks.active is not None:
            hooks.active.record_event("hit", "benchmark.check")

    return lambda: _difference(plain, checked, count)


def on(count: int) -> Run:
    """On: a positioned read of a file in memory, against the same without the trace."""
    import fsabs
    from fsabs import trace

    folder = tempfile.TemporaryDirectory()
    trace.start(Path(folder.name) / "trace", max_bytes=8 * 1024 * 1024)
    fs = fsabs.Memory("benchmark")
    fs.write_bytes("file", bytes(4096))
    plain, traced = fs._open_blob("file"), fs.open_blob("file")  # what is not the user's own is not recorded

    def run() -> dict[str, float]:
        assert folder  # it lives as long as this
        return _difference(lambda: plain.pread(4096, 0), lambda: traced.pread(4096, 0), count)

    return run


def viztracer(count: int) -> Run:
    """viztracer's event of one's own: a context manager."""
    tracer = library("viztracer").VizTracer(log_sparse=True, verbose=0, tracer_entries=100_000)
    tracer.start()

    def plain() -> None:
        pass

    def traced() -> None:
        with tracer.log_event("fs.read"):
            pass

    def run() -> dict[str, float]:
        tracer.clear()
        return _difference(plain, traced, count)

    return run


def opentelemetry(count: int) -> Run:
    """A span of OpenTelemetry's SDK with the same three attributes, which nobody exports."""
    provider = library("opentelemetry.sdk.trace").TracerProvider()
    tracer = provider.get_tracer("benchmark")
    attributes = {"size": 4096, "offset": 0, "url": "memory://benchmark/file"}

    def plain() -> None:
        pass

    def traced() -> None:
        with tracer.start_as_current_span("fs.read", attributes=attributes):
            pass

    return lambda: _difference(plain, traced, count)
