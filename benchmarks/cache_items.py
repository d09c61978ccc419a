"""Item caches: hits, and puts of two processes, against PFIO's."""

from __future__ import annotations

from typing import Any

from .frame.measure import at_least
from .frame.race import Bench


def run(bench: Bench) -> None:
    """All of it on the disk of the temporary folder, page-cache warm."""
    hits(bench, 4096, 20_000, 2)
    hits(bench, 100_000, 3000, 0.9)  # copying and checking the bytes is most of it
    puts(bench)


def hits(bench: Bench, size: int, count: int, least: float) -> None:
    """Hits in a random order, `least` times as fast as PFIO's."""
    options: dict[str, Any] = {"count": count, "size": size}
    with bench.race(f"hits of {size // 1000} KB", "item", rounds=21) as race:
        file = race.ours("FileCache", "items.fsabs_file", count, **options)
        views = race.ours("frozen, memoryview", "items.fsabs_views", count, **options)
        pfio = race.peer("pfio FileCache", "pfio", "items.pfio_file", count, **options)
        mapped = race.peer("pfio ReadOnlyFileCache", "pfio", "items.pfio_read_only", count, **options)
        race.run("us/item")
        race.faster(file, pfio, at_least(least))
        race.faster(views, mapped, at_least(1.5))


def puts(bench: Bench) -> None:
    """Two processes at once."""
    with bench.race("puts of 4 KB by two processes", "item", rounds=5) as race:
        ours = race.ours("MultiprocessFileCache", "items.fsabs_puts", 20_000, count=20_000, size=4096)
        theirs = race.peer("pfio MultiprocessFileCache", "pfio", "items.pfio_puts", 2000, count=2000, size=4096)
        race.run("us/item")
        race.faster(ours, theirs, at_least(8))
