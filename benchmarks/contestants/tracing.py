"""What an event costs, ours and theirs: each round returns as `seconds` what tracing adds to some thousand operations.

Plain and traced operations take turns in pieces of `PIECE` within a round, so that what disturbs one disturbs both.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns, perf_counter

from . import Run, library

PIECE = 200


def _difference(
    plain: Callable[[], object], traced: Callable[[], object], count: int, piece: int = PIECE
) -> dict[str, float]:
    """What `count` of `traced` take more than as many of `plain`, which take `base`: the medians of the pieces."""
    plains, traces = [], []
    for _ in range(count // piece):
        begin = perf_counter()
        for _ in range(piece):
            plain()
        middle = perf_counter()
        for _ in range(piece):
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


def member(count: int) -> Run:
    """On: `read_bytes` of a stored member of a zip, against the same without the trace."""
    import fsabs
    from fsabs import trace
    from fsabs.core import hooks

    folder = tempfile.TemporaryDirectory()
    fs = fsabs.from_url(folder.name)
    with fs.open_zip("a.zip", "w") as archive:
        archive.write_bytes("member", bytes(4096))
    opened = fs.open_zip("a.zip")
    trace.start(Path(folder.name) / "trace", max_bytes=8 * 1024 * 1024)
    recorder = hooks.active

    def plain() -> None:
        hooks.active = None
        opened.read_bytes("member")

    def traced() -> None:
        hooks.active = recorder
        opened.read_bytes("member")

    return lambda: _difference(plain, traced, count)


def start_and_stop(workers: int, count: int) -> Run:
    """On: what a trace adds to forking processes, each of which records one span, and waiting for their end.

    torch is loaded, as it is where a DataLoader forks: what a child touches of its parent's memory is copied.
    """
    from fsabs import trace
    from fsabs.core import hooks

    library("torch.utils.data")
    folder = tempfile.TemporaryDirectory()
    context = multiprocessing.get_context("fork")

    def work() -> None:
        if hooks.active is not None:
            hooks.active.record_span("span", "benchmark.work", monotonic_ns())

    def plain() -> None:
        processes = [context.Process(target=work) for _ in range(workers)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()

    def traced() -> None:
        with trace.record(Path(folder.name) / "trace"):
            plain()

    return lambda: _difference(plain, traced, count, piece=1)


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
