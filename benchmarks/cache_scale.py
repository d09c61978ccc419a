"""The cache on disk: hit rates against the best that there can be, and what a cold epoch costs, and one too small."""

from __future__ import annotations

from typing import Any

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

SHARES = (0.25, 0.5, 0.9)
SMALL = (0.1, 0.4, 0.9)
MEMBERS, MEMBER = 5000, 20_000


def run(bench: Bench) -> None:
    """On the disk of the temporary folder, page-cache warm."""
    rates(bench)
    for size, count, most in ((4096, 10_000, 1.9), (100_000, 2000, 1.4)):
        cold(bench, size, count, most)
    small(bench)


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
            best, target = ("Belady's", at_least(0.95)) if ordered else ("the cache's share", at_least(0.95))
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


def small(bench: Bench) -> None:
    """Shuffled epochs that do not fit, after the first one: members of a zip on S3, two workers of a DataLoader."""
    bucket = bench.folder / "small" / "bucket"
    bucket.mkdir(parents=True)
    data.stored_zip(bucket / "train.zip", MEMBERS, MEMBER)
    title = "an epoch of members of 20 KB, 2 workers"
    with servers.store(bucket.parent) as store, bench.race(title, "member", rounds=7) as race:
        options: dict[str, Any] = {"endpoint": store.endpoint, "count": MEMBERS, "size": MEMBER}
        epoch = "caching.shuffled_epoch"
        plain = race.ours("no cache", epoch, MEMBERS, **options, share=0.0)
        cached = [race.ours(f"a cache of {share:.0%}", epoch, MEMBERS, **options, share=share) for share in SMALL]
        race.run("us/member", "seconds", "cpu")
        for one in cached:
            race.cheaper(one, plain, at_most(1.15), "cpu", "CPU")
