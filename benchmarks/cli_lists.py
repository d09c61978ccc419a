"""`fsabs ls -R` of 1,000,000 keys of S3 against s5cmd, and how much memory it takes."""

from __future__ import annotations

from .frame import sink
from .frame.measure import at_least, at_most
from .frame.race import Bench

KEYS = 1_000_000
MB = 1e6
ROUNDS = 3


def run(bench: Bench) -> None:
    """Ours shows the directory, too; s5cmd sizes and times."""
    with sink.start(keys=KEYS) as endpoint:
        environment = {"S3_ENDPOINT": endpoint, "S3_ENDPOINT_URL": endpoint}
        with bench.race("ls -R of 1,000,000 keys", "key", rounds=ROUNDS, environment=environment) as race:
            command = ["fsabs", "ls", "-R", "s3://bucket/"]
            ours = race.ours("fsabs", "commands.running", KEYS, command=command, lines=KEYS + 1)
            command = ["s5cmd", "ls", "s3://bucket/*"]
            s5cmd = race.peer("s5cmd", "s5cmd", "commands.running", KEYS, of="shell", command=command, lines=KEYS)
            race.run(warming=0)
            race.table("seconds", "us/key", 1e6)
            race.table("cpu", "us/key", 1e6, f"{race.title}: CPU time of the client")
            race.table("memory", "MB", 1 / MB, f"{race.title}: memory", whole_round=True)
            race.faster(ours, s5cmd, at_least(0.7))
            memory = [value / MB for value in race.counts(ours, "memory")]
            bench.claim(f"{race.title}: memory of fsabs", memory, "MB", at_most(100, "MB"))
