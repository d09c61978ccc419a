"""Listings of S3: 100,000 keys near, and a million at 100 ms a request against one request after the other."""

from __future__ import annotations

import contextlib
from typing import Any

from .frame import sink
from .frame.measure import at_least, at_most
from .frame.race import Bench

KEYS = 100_000
MANY = 1_000_000
DELAY = 0.1  # seconds
PAGES = 20
"""How many pages boto3 is given, which takes them one by one: each takes as long as the others."""


def run(bench: Bench) -> None:
    """Near, then far."""
    with contextlib.ExitStack() as stack:
        endpoint = stack.enter_context(sink.start(keys=KEYS))
        race = stack.enter_context(bench.race("listing 100,000 keys", "key", rounds=10))
        options: dict[str, Any] = {"endpoint": endpoint, "count": KEYS}
        names = race.ours("fs.list, recursive", "uploading.fsabs_list", KEYS, **options)
        stats = race.ours("fs.list, recursive, detail", "uploading.fsabs_list_detail", KEYS, **options)
        obstore = race.peer("obstore", "obstore", "uploading.obstore_list", KEYS, **options)
        few = stack.enter_context(sink.start(keys=PAGES * 1000))
        race.peer("boto3", "boto3", "uploading.boto3_list", PAGES * 1000, endpoint=few, count=PAGES * 1000)
        race.run()
        race.table("seconds", "us/key", 1e6)
        race.table("cpu", "us/key", 1e6, f"{race.title}: CPU time of the client")
        race.faster(names, obstore, at_least(1.2))
        race.faster(stats, obstore, at_least(1.0))
        race.cheaper(names, obstore, at_most(1.0))
    with (
        sink.start(keys=MANY, delay=DELAY) as far,
        sink.start(keys=PAGES * 1000, delay=DELAY) as short,
        bench.race("listing at 100 ms a request", "key", rounds=1) as race,
    ):
        split = race.ours("fs.list of 1,000,000 keys", "uploading.fsabs_list", MANY, endpoint=far, count=MANY)
        paged = race.peer(
            "boto3, page by page", "boto3", "uploading.boto3_list", PAGES * 1000, endpoint=short, count=PAGES * 1000
        )
        race.run(warming=0)
        race.table("seconds", "us/key", 1e6)
        race.faster(split, paged, at_least(8))
