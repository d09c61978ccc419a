"""What tracing costs an operation, off and on, against viztracer and OpenTelemetry; and an epoch of a DataLoader."""

from __future__ import annotations

from typing import Any

from . import dataloader
from .frame.measure import at_least, at_most
from .frame.race import Bench

COUNT = 20_000
PIXELS = (96, 224)
COPIES = 5
"""How often the zip has each image: an epoch takes as long as starting and stopping a trace is seen as what it is."""


def run(bench: Bench) -> None:
    """Each figure is what is added to an operation."""
    with bench.race("tracing", "operation", rounds=15) as race:
        events = race.ours("events", "tracing.on", COUNT, count=COUNT)
        check = race.ours("off: the check", "tracing.check", COUNT, count=COUNT)
        viztracer = race.peer("viztracer", "viztracer", "tracing.viztracer", COUNT, count=COUNT)
        spans = race.peer("OpenTelemetry", "opentelemetry-sdk", "tracing.opentelemetry", COUNT, count=COUNT)
        race.run("ns/operation")
        for entrant, most in ((check, 20), (events, 1500)):
            nanoseconds = [1e9 * seconds for seconds in race.values(entrant, "seconds")]
            bench.claim(f"tracing, {entrant.name}", nanoseconds, "ns", at_most(most, "ns"))
        shares = zip(race.values(check, "seconds"), race.values(events, "base"), strict=True)
        bench.claim(
            "tracing, off: the check, of a read of 4 KB from memory", [a / b for a, b in shares], "x", at_most(0.01)
        )
        race.faster(events, viztracer)
        race.faster(events, spans, at_least(10.0))
    for pixels in PIXELS:
        epoch(bench, pixels)
    bench.note("Each figure is what is added to an operation; the thread that writes events runs meanwhile.")


def epoch(bench: Bench, pixels: int) -> None:
    """An epoch with the trace on, against one without, in turns; starting and stopping is part of it."""
    source, archive = bench.folder / f"source-{pixels}", bench.folder / f"{pixels}"
    archive.mkdir()
    names = dataloader.make_images(source, pixels)
    dataloader.make_archives(source, names, archive, copies=COPIES)
    count = COPIES * len(names)
    options: dict[str, Any] = {
        "path": str(archive / "train.zip"),
        "names": names,
        "folders": [f"{copy}/" for copy in range(COPIES)],
        "batch": dataloader.BATCH,
    }
    title = f"an epoch of {count:,} images of {pixels} x {pixels} pixels in a local zip, 2 workers"
    with bench.race(title, "image", rounds=10) as race:
        plain = race.ours("not traced", "loaders.fsabs_local", count, **options)
        traced = race.ours("traced", "loaders.fsabs_traced", count, **options)
        race.run("us/image", "seconds", "cpu")
        race.cheaper(traced, plain, at_most(1.10), "seconds", "time")
        race.cheaper(traced, plain, at_most(1.10))
