"""Objects written to S3, 100 KB each, plain and over TLS: one by one and many at a time; and one of 256 MiB."""

from __future__ import annotations

from typing import Any

from .frame import servers, sink
from .frame.measure import at_least, at_most
from .frame.race import Bench, Race

OBJECTS = 1000
FEW = 200
"""For clients that would take too long for all."""
SIZE = 100_000  # bytes
LARGE = 256 << 20  # bytes


def run(bench: Bench) -> None:
    """Plain, then TLS, then the large object."""
    with sink.start() as endpoint, bench.race("100 KB objects written over HTTP", "object", rounds=10) as race:
        small(race, endpoint)
    certificate = servers.certificate(bench.folder)
    title, environment = "100 KB objects written over TLS", certificate.environment()
    with (
        sink.start(certificate=certificate) as endpoint,
        bench.race(title, "object", rounds=10, environment=environment) as race,
    ):
        small(race, endpoint)
    with sink.start() as endpoint, bench.race("256 MiB written over HTTP", "MiB", rounds=10) as race:
        large(race, endpoint)
    bench.note("The server takes what comes and keeps nothing.")
    bench.note("Over plain HTTP both sign the SHA-256 of each body, which is most of what an object costs.")


def small(race: Race, endpoint: str) -> None:
    """One by one, and many at a time."""
    options: dict[str, Any] = {"endpoint": endpoint, "count": OBJECTS, "size": SIZE}
    single = race.ours("fs.write_bytes", "uploading.fsabs_write_bytes", OBJECTS, **options)
    many = race.ours("fs.write_many", "uploading.fsabs_write_many", OBJECTS, **options)
    obstore1 = race.peer("obstore, 1 thread", "obstore", "uploading.obstore_put", OBJECTS, **options)
    obstore8 = race.peer("obstore, 8 threads", "obstore", "uploading.obstore_put", OBJECTS, threads=8, **options)
    few = {**options, "count": FEW}
    race.peer("boto3, 1 thread", "boto3", "uploading.boto3_put", FEW, **few)
    race.run()
    race.table("seconds", "us/object", 1e6)
    race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
    race.faster(single, obstore1, at_least(1.0))
    race.cheaper(single, obstore1, at_most(0.6))
    race.faster(many, obstore8, at_least(1.2))
    race.cheaper(many, obstore8, at_most(0.5))


def large(race: Race, endpoint: str) -> None:
    """From memory, and as a file that is written by 1 MiB."""
    options: dict[str, Any] = {"endpoint": endpoint, "size": LARGE}
    each = LARGE >> 20
    whole = race.ours("fs.write_bytes", "uploading.fsabs_upload", each, **options)
    race.ours("fs.open, write by 1 MiB", "uploading.fsabs_upload_file", each, step=1 << 20, **options)
    obstore = race.peer("obstore", "obstore", "uploading.obstore_upload", each, **options)
    race.peer("boto3, upload_fileobj", "boto3", "uploading.boto3_upload", each, **options)
    race.run()
    race.table("seconds", "us/MiB", 1e6)
    race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
    race.faster(whole, obstore, at_least(1.0))
