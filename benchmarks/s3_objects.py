"""Small objects from S3, 100 KB each, plain and over TLS: many at a time and one by one, wall time and CPU time."""

from __future__ import annotations

import os
from typing import Any

from .frame import servers
from .frame.measure import at_least, at_most
from .frame.race import Bench, Race

OBJECTS = 2000
FEW = 200
"""For clients that would take too long for all."""
SIZE = 100_000  # bytes


def run(bench: Bench) -> None:
    """Plain, then TLS."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    names = [f"{number:05}.bin" for number in range(OBJECTS)]
    for name in names:
        (bucket / name).write_bytes(os.urandom(SIZE))
    with servers.store(bench.folder) as store, bench.race("100 KB objects over HTTP", "object", rounds=10) as race:
        plain(bench, race, store.endpoint, names)
    certificate = servers.certificate(bench.folder)
    with servers.store(bench.folder, certificate=certificate) as store:
        environment = certificate.environment()
        with bench.race("100 KB objects over TLS", "object", rounds=10, environment=environment) as race:
            secure(bench, race, store.endpoint, names)


def plain(bench: Bench, race: Race, endpoint: str, names: list[str]) -> None:
    """Against all clients, and the limit that wrk shows."""
    all_of_them: dict[str, Any] = {"endpoint": endpoint, "names": names, "size": SIZE}
    few: dict[str, Any] = {**all_of_them, "names": names[:FEW]}
    many = race.ours("fs.read_many", "objects.fsabs_read_many", OBJECTS, **all_of_them)
    single = race.ours("fs.read_bytes", "objects.fsabs_read_bytes", OBJECTS, **all_of_them)
    race.ours("fs.open, read", "objects.fsabs_open", OBJECTS, **all_of_them)
    obstore8 = race.peer("obstore, 8 threads", "obstore", "objects.obstore", OBJECTS, threads=8, **all_of_them)
    obstore1 = race.peer("obstore, 1 thread", "obstore", "objects.obstore", OBJECTS, **all_of_them)
    race.peer(
        "s3torchconnector, 8 threads",
        "s3torchconnector",
        "objects.s3torchconnector",
        FEW,
        of="training",
        threads=8,
        **few,
    )
    race.peer("pyarrow, 8 threads", "pyarrow", "objects.pyarrow", FEW, threads=8, **few)
    race.peer("s3fs, cat of 64", "s3fs", "objects.s3fs", FEW, **few)
    boto3 = race.peer("boto3, 1 thread", "boto3", "objects.boto3", FEW, **few)
    pfio = race.peer("pfio, 1 thread", "pfio", "objects.pfio", FEW, **few)
    limit = servers.wrk(bench.folder, endpoint, [f"/bucket/{name}" for name in names], 16)
    wrk = race.program("wrk -t1 -c16", limit, OBJECTS, f"wrk is not installed: {servers.INSTALL}")
    race.run()
    race.table("seconds", "us/object", 1e6)
    race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
    race.faster(many, obstore8)
    race.faster(many, pfio, at_least(20))
    race.cheaper(many, obstore8, at_most(0.4))
    race.faster(many, wrk, at_least(0.95))
    race.faster(single, obstore1, at_least(1.5))
    race.faster(single, boto3)
    race.rate(many)


def secure(bench: Bench, race: Race, endpoint: str, names: list[str]) -> None:
    """Against the fastest client, and boto3."""
    options: dict[str, Any] = {"endpoint": endpoint, "names": names[:1000], "size": SIZE}
    many = race.ours("fs.read_many", "objects.fsabs_read_many", 1000, **options)
    single = race.ours("fs.read_bytes", "objects.fsabs_read_bytes", 1000, **options)
    obstore8 = race.peer("obstore, 8 threads", "obstore", "objects.obstore", 1000, threads=8, **options)
    obstore1 = race.peer("obstore, 1 thread", "obstore", "objects.obstore", 1000, **options)
    race.peer("boto3, 1 thread", "boto3", "objects.boto3", FEW, **{**options, "names": names[:FEW]})
    race.run()
    race.table("seconds", "us/object", 1e6)
    race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
    race.faster(many, obstore8, at_least(1.0))
    race.cheaper(many, obstore8, at_most(0.6))
    race.faster(single, obstore1, at_least(1.0))
    race.cheaper(single, obstore1, at_most(0.6))
    bench.note(
        "Over TLS obstore is told not to check the certificate, which it can't be given; ours and boto3 check it."
    )
