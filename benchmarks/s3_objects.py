"""Small objects from S3, 100 KB each, plain and over TLS: many at a time and one by one, wall time and CPU time."""

from __future__ import annotations

from typing import Any

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench, Entrant, Race

OBJECTS = 2000
FEW = 200
"""For clients that would take too long for all."""
SIZE = 100_000  # bytes


def run(bench: Bench) -> None:
    """Plain, then TLS."""
    names = data.objects(bench.folder / "bucket", OBJECTS, SIZE)
    with servers.store(bench.folder) as store, bench.race("100 KB objects over HTTP", "object", rounds=10) as race:
        plain(bench, race, store.endpoint, names)
    certificate = servers.certificate(bench.folder)
    with (
        servers.store(bench.folder, certificate=certificate) as store,
        bench.race("100 KB objects over TLS", "object", rounds=10, environment=certificate.environment()) as race,
    ):
        secure(race, store.endpoint, names)
    bench.note(
        "Over TLS obstore is told not to check the certificate, which it can't be given; ours and boto3 check it."
    )


def fastest(
    race: Race, endpoint: str, names: list[str], of: str = "clients", cloud: str = "s3"
) -> tuple[Entrant, Entrant, Entrant, Entrant]:
    """Enter ours and obstore: `read_many` and 8 threads, `read_bytes` and one thread."""
    each, options = len(names), {"endpoint": endpoint, "names": names, "size": SIZE, "cloud": cloud}
    return (
        race.ours("fs.read_many", "objects.fsabs_read_many", each, **options),
        race.ours("fs.read_bytes", "objects.fsabs_read_bytes", each, **options),
        race.peer("obstore, 8 threads", "obstore", "objects.obstore", each, of=of, threads=8, **options),
        race.peer("obstore, 1 thread", "obstore", "objects.obstore", each, of=of, **options),
    )


def plain(bench: Bench, race: Race, endpoint: str, names: list[str]) -> None:
    """Against all clients, and the limit that wrk shows."""
    many, single, obstore8, obstore1 = fastest(race, endpoint, names)
    race.ours("fs.open, read", "objects.fsabs_open", OBJECTS, endpoint=endpoint, names=names, size=SIZE)
    few: dict[str, Any] = {"endpoint": endpoint, "names": names[:FEW], "size": SIZE}
    title, function = "s3torchconnector, 8 threads", "objects.s3torchconnector"
    race.peer(title, "s3torchconnector", function, FEW, of="training", threads=8, **few)
    race.peer("pyarrow, 8 threads", "pyarrow", "objects.pyarrow", FEW, threads=8, **few)
    race.peer("s3fs, cat of 64", "s3fs", "objects.s3fs", FEW, **few)
    boto3 = race.peer("boto3, 1 thread", "boto3", "objects.boto3", FEW, **few)
    pfio = race.peer("pfio, 1 thread", "pfio", "objects.pfio", FEW, **few)
    limit = servers.wrk(bench.folder, endpoint, [f"/bucket/{name}" for name in names], 16)
    wrk = race.program("wrk -t1 -c16", limit, OBJECTS, f"wrk is not installed: {servers.INSTALL}")
    race.run("us/object", "seconds", "cpu")
    race.faster(many, obstore8)
    race.faster(many, pfio, at_least(20))
    race.cheaper(many, obstore8, at_most(0.4))
    race.faster(many, wrk, at_least(0.95))
    race.faster(single, obstore1, at_least(1.5))
    race.faster(single, boto3)
    race.rate(many)


def secure(race: Race, endpoint: str, names: list[str]) -> None:
    """Against the fastest client, and boto3."""
    many, single, obstore8, obstore1 = fastest(race, endpoint, names[:1000])
    few: dict[str, Any] = {"endpoint": endpoint, "names": names[:FEW], "size": SIZE}
    race.peer("boto3, 1 thread", "boto3", "objects.boto3", FEW, **few)
    race.run("us/object", "seconds", "cpu")
    for ours, obstore in ((many, obstore8), (single, obstore1)):
        race.faster(ours, obstore, at_least(1.0))
        race.cheaper(ours, obstore, at_most(0.6))
