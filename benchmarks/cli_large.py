"""`fsabs cp` of one object of 2 GiB, from S3 and to it, against s5cmd."""

from __future__ import annotations

import random
from pathlib import Path

from .frame import servers, sink
from .frame.measure import at_least
from .frame.race import Bench

MIB = 2048
ROUNDS = 5


def run(bench: Bench) -> None:
    """From nginx, then to a store that keeps nothing."""
    files = bench.folder / "files"
    (files / "bucket").mkdir(parents=True)
    source, out = files / "bucket" / "large", str(bench.folder / "out" / "large")
    _write(source)
    (bench.folder / "out").mkdir()
    with servers.store(files) as store:
        environment = {"S3_ENDPOINT": store.endpoint, "S3_ENDPOINT_URL": store.endpoint}
        with bench.race("cp of 2 GiB from S3", "MiB", rounds=ROUNDS, environment=environment) as race:
            command = ["fsabs", "cp", "s3://bucket/large", out]
            ours = race.ours("fsabs", "commands.running", MIB, command=command, removed=[out])
            command = ["s5cmd", "cp", "s3://bucket/large", out]
            s5cmd = race.peer("s5cmd", "s5cmd", "commands.running", MIB, of="shell", command=command, removed=[out])
            race.run()
            race.table("seconds", "us/MiB", 1e6)
            race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
            race.faster(ours, s5cmd, at_least(0.9))
    with sink.start() as endpoint:
        environment = {"S3_ENDPOINT": endpoint, "S3_ENDPOINT_URL": endpoint}
        with bench.race("cp of 2 GiB to S3", "MiB", rounds=ROUNDS, environment=environment) as race:
            command = ["fsabs", "cp", "-f", str(source), "s3://bucket/ours"]
            ours = race.ours("fsabs", "commands.running", MIB, command=command)
            command = ["s5cmd", "cp", str(source), "s3://bucket/theirs"]
            s5cmd = race.peer("s5cmd", "s5cmd", "commands.running", MIB, of="shell", command=command)
            race.run()
            race.table("seconds", "us/MiB", 1e6)
            race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
            race.faster(ours, s5cmd, at_least(0.9))
    bench.note("The server that is written to keeps nothing; nginx reads from the page cache.")
    bench.note("fsabs compares checksums of each part with the store's; s5cmd has a Content-MD5 or none.")


def _write(path: Path) -> None:
    piece = random.Random(1).randbytes(8 << 20)
    with path.open("wb") as file:
        for _ in range(MIB // 8):
            file.write(piece)
