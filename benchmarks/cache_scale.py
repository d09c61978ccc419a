"""The cache on disk as it grows and fills: hits, puts, evictions, opening, writers, hit rates, and a cold epoch."""

from __future__ import annotations

import os
from typing import Any

from .frame import servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

FEW = 1000
SHARES = (0.25, 0.5, 0.9)


def run(bench: Bench) -> None:
    """On the disk of the temporary folder, page-cache warm."""
    many = 1_000_000 if bench.full else 50_000
    with bench.race("hits of 4 KB by the number of entries", "hit", rounds=9) as race:
        few = race.ours(f"{FEW:,} entries", "caching.hits", FEW, count=FEW, size=4096, lookups=FEW)
        more = race.ours(f"{many:,} entries", "caching.hits", FEW, count=many, size=4096, lookups=FEW)
        race.run()
        race.table("seconds", "us/hit", 1e6)
        race.cheaper(more, few, at_most(1.2), "seconds", "time")
    with bench.race("opening a cache of files", "opening", rounds=9) as race:
        opened = race.ours(f"{many:,} entries", "caching.opening", 1, count=many)
        race.run()
        race.table("seconds", "ms", 1e3)
        bench.claim(f"opening {many:,} entries", [s * 1e3 for s in race.values(opened, "seconds")], "ms", at_most(20))
    with bench.race("puts of 4 KB", "put", rounds=9) as race:
        free = race.ours("with room", "caching.puts", 500, count=500, size=4096, full=False)
        full = race.ours("each evicts another", "caching.puts", 500, count=500, size=4096, full=True)
        race.ours("refused: the cache is full", "caching.refused", 500, count=500, size=4096)
        race.run()
        race.table("seconds", "us/put", 1e6)
        race.cheaper(full, free, at_most(2), "seconds", "time")
    with bench.race("8 processes that write", "round", rounds=3) as race:
        eight = race.ours("8 writers", "caching.writers", 1, count=200, size=4096, processes=8)
        race.run()
        bench.claim("8 writers keep of what they fetch", race.values(eight, "kept"), "x", at_least(0.95))
    rates(bench)
    cold(bench)


def rates(bench: Bench) -> None:
    """20 shuffled epochs; of the most hits that there can be."""
    for real in (False, True):
        where = "on disk" if real else "simulated"
        with bench.race(f"hit rates of 20 shuffled epochs, {where}", "round", rounds=1) as race:
            for ordered in (False, True):
                for share in SHARES:
                    how: dict[str, Any] = {"files": 300 if real else 2000, "ordered": ordered, "real": real}
                    name = f"cache of {share:.0%}, {'order known' if ordered else 'no order'}"
                    one = race.ours(name, "caching.hit_rates", 1, share=share, **how)
                    race.run(warming=0)
                    best, target = ("Belady's", at_least(0.95)) if ordered else ("the cache's share", at_least(0.98))
                    bench.claim(f"hits, {where}, {name}: of {best}", race.values(one, "of_best"), "x", target)


def cold(bench: Bench) -> None:
    """The first epoch over S3, read in one batch: what a cache takes on top of a checksum and a file each."""
    for size, count, most in ((4096, 10_000, 1.9), (100_000, 2000, 1.4)):
        bucket = bench.folder / f"bucket{size}" / "bucket"
        bucket.mkdir(parents=True)
        names = [f"{number:05}" for number in range(count)]
        for name in names:
            (bucket / name).write_bytes(os.urandom(size))
        title = f"a cold epoch of {size // 1000} KB objects"
        with servers.store(bucket.parent) as store, bench.race(title, "object", rounds=7) as race:
            options: dict[str, Any] = {"endpoint": store.endpoint, "names": names, "size": size}
            plain = race.ours("no cache", "caching.cold_uncached", count, **options)
            written = race.ours("no cache, each checksummed and written", "caching.cold_written", count, **options)
            cached = race.ours("a new CachedFS", "caching.cold_cached", count, **options)
            race.run()
            race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
            race.table("seconds", "us/object", 1e6)
            taken = zip(*(race.values(one, "cpu") for one in (plain, written, cached)), strict=True)
            ratios = [(through - (noted - bare)) / bare for bare, noted, through in taken]
            bench.claim(f"{title}: CPU, checksum and writing apart, to no cache", ratios, "x", at_most(most))
