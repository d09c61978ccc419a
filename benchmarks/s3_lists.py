"""Listings of S3: 100,000 keys near, and a million at 100 ms a request against one request after the other."""

from __future__ import annotations

from typing import Any

from .frame import sink
from .frame.measure import at_least, at_most
from .frame.race import Bench

KEYS = 100_000
MANY = 1_000_000
DELAY = 0.1  # seconds
PAGES = 20
"""How many pages the one that takes them one by one is given: each takes as long as the others."""


def run(bench: Bench) -> None:
    """Near, then far."""
    with sink.start(keys=KEYS) as endpoint, bench.race("listing 100,000 keys", "key", rounds=10) as race:
        options: dict[str, Any] = {"endpoint": endpoint, "count": KEYS}
        names = race.ours("fs.list, recursive", "uploading.fsabs_list", KEYS, **options)
        stats = race.ours("fs.list, recursive, detail", "uploading.fsabs_list_detail", KEYS, **options)
        obstore = race.peer("obstore", "obstore", "uploading.obstore_list", KEYS, **options)
        race.peer("boto3", "boto3", "uploading.boto3_list", KEYS, **options)
        race.run()
        race.table("seconds", "us/key", 1e6)
        race.table("cpu", "us/key", 1e6, f"{race.title}: CPU time of the client")
        race.faster(names, obstore, at_least(1.0))
        race.faster(stats, obstore, at_least(1 / 1.5))
        race.cheaper(names, obstore, at_most(1.0))
    few = PAGES * 1000
    with (
        sink.start(keys=MANY, delay=DELAY) as far,
        sink.start(keys=few, delay=DELAY) as short,
        bench.race("listing at 100 ms a request", "key", rounds=1) as race,
    ):
        split = race.ours("fs.list of 1,000,000 keys", "uploading.fsabs_list", MANY, endpoint=far, count=MANY)
        paged = race.peer("boto3, page by page", "boto3", "uploading.boto3_list", few, endpoint=short, count=few)
        race.run(warming=0)
        race.table("seconds", "us/key", 1e6)
        race.faster(split, paged, at_least(8))
