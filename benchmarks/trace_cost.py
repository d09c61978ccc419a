"""What tracing costs an operation, off and on: against viztracer and OpenTelemetry."""

from __future__ import annotations

from .frame.measure import at_least, at_most
from .frame.race import Bench

COUNT = 20_000


def run(bench: Bench) -> None:
    """Each figure is what is added to an operation."""
    folder = bench.folder / "files"
    folder.mkdir()
    with bench.race("tracing", "operation", rounds=15) as race:
        events = race.ours("events", "tracing.on", COUNT, detail="events", count=COUNT)
        histograms = race.ours("histograms", "tracing.on", COUNT, detail="histograms", count=COUNT)
        check = race.ours("off: the check", "tracing.check", COUNT, count=COUNT)
        off = race.ours("off: a 4 KB local read", "tracing.off", COUNT, path=str(folder), count=COUNT)
        viztracer = race.peer("viztracer", "viztracer", "tracing.viztracer", COUNT, count=COUNT)
        spans = race.peer("OpenTelemetry", "opentelemetry-sdk", "tracing.opentelemetry", COUNT, count=COUNT)
        race.run()
        race.table("seconds", "ns/operation", 1e9)
        for entrant, most in ((check, 20), (histograms, 400), (events, 800)):
            nanoseconds = [1e9 * seconds for seconds in race.values(entrant, "seconds")]
            bench.claim(f"tracing, {entrant.name}", nanoseconds, "ns", at_most(most, "ns"))
        shares = [
            100 * added / base
            for added, base in zip(race.values(off, "seconds"), race.values(off, "base"), strict=True)
        ]
        bench.claim(f"tracing, {off.name}", shares, "%", at_most(1, "%"))
        race.faster(events, viztracer, at_least(5.0))
        race.faster(events, spans, at_least(10.0))
    bench.note("Each figure is what is added to an operation; the thread that writes events runs meanwhile.")
