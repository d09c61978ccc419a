"""The cache on disk: hit rates of shuffled epochs against the best that there can be, and what a cold epoch costs."""

from __future__ import annotations

from typing import Any

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

SHARES = (0.25, 0.5, 0.9)


def run(bench: Bench) -> None:
    """On the disk of the temporary folder, page-cache warm."""
    rates(bench)
    for size, count, most in ((4096, 10_000, 1.9), (100_000, 2000, 1.4)):
        cold(bench, size, count, most)


def rates(bench: Bench) -> None:
    """20 shuffled epochs; of the most hits that there can be."""
    with bench.race("hit rates of 20 shuffled epochs", "round", rounds=1) as race:
        entrants = {
            (share, ordered): race.ours(
                f"cache of {share:.0%}, {'order known' if ordered else 'no order'}",
                "caching.hit_rates",
                1,
                files=300,
                share=share,
                ordered=ordered,
            )
            for ordered in (False, True)
            for share in SHARES
        }
        race.run(warming=0)
        for (_, ordered), one in entrants.items():
            best, target = ("Belady's", at_least(0.95)) if ordered else ("the cache's share", at_least(0.98))
            race.claim(one, "x", target, f"hits, {one.name}: of {best}", "of_best")


def cold(bench: Bench, size: int, count: int, most: float) -> None:
    """The first epoch over S3, read in one batch: what a cache takes on top of a checksum and a file each."""
    bucket = bench.folder / f"bucket{size}" / "bucket"
    names = data.objects(bucket, count, size)
    title = f"a cold epoch of {size // 1000} KB objects"
    with servers.store(bucket.parent) as store, bench.race(title, "object", rounds=7) as race:
        options: dict[str, Any] = {"endpoint": store.endpoint, "names": names, "size": size}
        plain = race.ours("no cache", "caching.cold_uncached", count, **options)
        written = race.ours("no cache, each checksummed and written", "caching.cold_written", count, **options)
        cached = race.ours("a new CachedFS", "caching.cold_cached", count, **options)
        race.run("us/object", "seconds", "cpu")
        taken = zip(*(race.values(one, "cpu") for one in (plain, written, cached)), strict=True)
        ratios = [(through - (noted - bare)) / bare for bare, noted, through in taken]
        bench.claim(f"{title}: CPU, checksum and writing apart, to no cache", ratios, "x", at_most(most))
