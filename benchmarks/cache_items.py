"""Item caches: hits against `os.pread` and PFIO's, puts of two processes, opening one of a million items."""

from __future__ import annotations

from typing import Any

from .frame.measure import at_least, at_most
from .frame.race import Bench

LENGTH = 1_000_000


def run(bench: Bench) -> None:
    """All of it on the disk of the temporary folder, page-cache warm."""
    hits(bench, 4096, 20_000, 2)
    hits(bench, 100_000, 20_000 if bench.full else 3000, 0.9)  # copying and checking the bytes is most of it
    puts(bench)
    opening(bench)


def hits(bench: Bench, size: int, count: int, least: float) -> None:
    """Hits in a random order, `least` times as fast as PFIO's."""
    options: dict[str, Any] = {"count": count, "size": size}
    with bench.race(f"hits of {size // 1000} KB", "item", rounds=21) as race:
        file = race.ours("FileCache", "items.fsabs_file", count, **options)
        views = race.ours("frozen, memoryview", "items.fsabs_views", count, **options)
        raw = race.ours("os.pread", "items.raw_pread", count, **options)
        pfio = race.peer("pfio FileCache", "pfio", "items.pfio_file", count, **options)
        mapped = race.peer("pfio ReadOnlyFileCache", "pfio", "items.pfio_read_only", count, **options)
        race.run()
        race.table("seconds", "us/item", 1e6)
        race.faster(file, raw)
        race.faster(file, pfio, at_least(least))
        race.faster(views, mapped, at_least(1.5))


def puts(bench: Bench) -> None:
    """Two processes at once."""
    with bench.race("puts of 4 KB by two processes", "item", rounds=5) as race:
        ours = race.ours("MultiprocessFileCache", "items.fsabs_puts", 20_000, count=20_000, size=4096)
        theirs = race.peer("pfio MultiprocessFileCache", "pfio", "items.pfio_puts", 2000, count=2000, size=4096)
        race.run()
        race.table("seconds", "us/item", 1e6)
        race.faster(ours, theirs, at_least(8))


def opening(bench: Bench) -> None:
    """A million items."""
    with bench.race("opening a cache of 1,000,000 items", "opening", rounds=21) as race:
        made = race.ours("FileCache, new", "items.fsabs_new", 1, length=LENGTH)
        kept = race.ours("ReadOnlyFileCache, preload", "items.fsabs_preload", 1, length=LENGTH)
        race.run()
        race.table("seconds", "ms", 1e3)
        for one in (made, kept):
            bench.claim(f"{one.name} of 1,000,000", [s * 1e3 for s in race.values(one, "seconds")], "ms", at_most(50))
