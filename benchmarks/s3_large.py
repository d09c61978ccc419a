"""One object of 140 MiB from S3, whole, received into its final buffer: wall time and CPU time, plain and over TLS."""

from __future__ import annotations

import os
from typing import Any

from .frame import servers
from .frame.measure import at_least, at_most
from .frame.race import Bench, Race

SIZE = 140 << 20


def run(bench: Bench) -> None:
    """Plain, then TLS."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    with (bucket / "large.bin").open("wb") as file:
        for _ in range(SIZE >> 20):
            file.write(os.urandom(1 << 20))
    with servers.store(bench.folder) as store, bench.race("140 MiB over HTTP", "MiB", rounds=7) as race:
        contest(race, store.endpoint)
    certificate = servers.certificate(bench.folder)
    with servers.store(bench.folder, certificate=certificate) as store:
        environment = certificate.environment()
        with bench.race("140 MiB over TLS", "MiB", rounds=5, environment=environment) as race:
            contest(race, store.endpoint)
    bench.note("MB/s a client core is the inverse of the CPU time: half the CPU time is twice the MB/s a core.")


def contest(race: Race, endpoint: str) -> None:
    """Ours against the clients that are made for large objects."""
    options: dict[str, Any] = {"endpoint": endpoint, "names": ["large.bin"], "size": SIZE}
    each = SIZE >> 20
    ours = race.ours("fs.read_bytes", "objects.fsabs_read_bytes", each, **options)
    peers = [
        race.peer("s3dlio, get", "s3dlio", "objects.s3dlio", each, of="s3dlio", **options),
        race.peer("s3torchconnector", "s3torchconnector", "objects.s3torchconnector", each, of="training", **options),
    ]
    obstore = race.peer("obstore", "obstore", "objects.obstore", each, **options)
    race.run()
    race.table("seconds", "us/MiB", 1e6)
    race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
    for peer in peers:
        race.cheaper(ours, peer, at_most(0.5))
    race.faster(ours, obstore, at_least(1.0))
    race.rate(ours)
