"""`fsabs ls -R` of 1,000,000 keys of S3 against s5cmd, and how much memory it takes."""

from __future__ import annotations

from .cli_large import commands, environment
from .frame import sink
from .frame.measure import at_least, at_most
from .frame.race import Bench

KEYS = 1_000_000


def run(bench: Bench) -> None:
    """Ours shows the directory, too; s5cmd sizes and times."""
    with (
        sink.start(keys=KEYS) as endpoint,
        bench.race("ls -R of 1,000,000 keys", "key", rounds=3, environment=environment(endpoint)) as race,
    ):
        ours, s5cmd = commands(race, KEYS, ["ls", "-R", "s3://bucket/"], ["ls", "s3://bucket/*"], extra=1)
        race.run("us/key", "seconds", "cpu", warming=0)
        race.table("memory", "MB", f"{race.title}: memory", whole_round=True)
        race.faster(ours, s5cmd, at_least(0.7))
        race.claim(ours, "MB", at_most(100, "MB"), f"{race.title}: memory of fsabs", "memory")
