"""Listings of S3: 100,000 keys near, and a million at 100 ms a request against one request after the other."""

from __future__ import annotations

from .frame import sink
from .frame.measure import at_least, at_most
from .frame.race import Bench, Entrant, Race

KEYS = 100_000
MANY = 1_000_000
DELAY = 0.1  # seconds
FEW = 20_000
"""For boto3, which takes pages one by one: each takes as long as the others."""


def run(bench: Bench) -> None:
    """Near, then far."""
    with (
        sink.start(keys=KEYS) as endpoint,
        sink.start(keys=FEW) as short,
        bench.race("listing 100,000 keys", "key", rounds=10) as race,
    ):
        names, stats, obstore = listings(race, endpoint, KEYS)
        race.peer("boto3", "boto3", "uploading.boto3_list", FEW, endpoint=short, count=FEW)
        race.run("us/key", "seconds", "cpu")
        race.faster(names, obstore, at_least(1.2))
        race.faster(stats, obstore, at_least(1.0))
        race.cheaper(names, obstore, at_most(1.0))
    with (
        sink.start(keys=MANY, delay=DELAY) as far,
        sink.start(keys=FEW, delay=DELAY) as short,
        bench.race("listing at 100 ms a request", "key", rounds=1) as race,
    ):
        split = race.ours("fs.list of 1,000,000 keys", "uploading.fsabs_list", MANY, endpoint=far, count=MANY)
        paged = race.peer("boto3, page by page", "boto3", "uploading.boto3_list", FEW, endpoint=short, count=FEW)
        race.run("us/key", warming=0)
        race.faster(split, paged, at_least(8))


def listings(
    race: Race, endpoint: str, count: int, of: str = "clients", cloud: str = "s3"
) -> tuple[Entrant, Entrant, Entrant]:
    """Enter the names and the stats of ours, and obstore."""
    options = {"endpoint": endpoint, "count": count, "cloud": cloud}
    return (
        race.ours("fs.list, recursive", "uploading.fsabs_list", count, **options),
        race.ours("fs.list, recursive, detail", "uploading.fsabs_list_detail", count, **options),
        race.peer("obstore", "obstore", "uploading.obstore_list", count, of=of, **options),
    )
