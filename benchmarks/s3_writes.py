"""Objects written to S3, 100 KB each, plain and over TLS: one by one and many at a time; one of 256 MiB; a zip."""

from __future__ import annotations

import os
from typing import Any

from .frame import data, servers, sink
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
    packed(bench)
    bench.note("The server takes what comes and keeps nothing.")
    bench.note("Over plain HTTP both sign the SHA-256 of each body, which is most of what an object costs.")
    bench.note("fsabs sends a CRC32C, too, which the store keeps, and by which the object is checked when it is read.")


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
    race.cheaper(single, obstore1, at_most(0.75))
    race.faster(many, obstore8, at_least(1.2))
    race.cheaper(many, obstore8, at_most(0.6))


def large(race: Race, endpoint: str) -> None:
    """From memory, and as a file that is written by 1 MiB."""
    options: dict[str, Any] = {"endpoint": endpoint, "size": LARGE}
    each = LARGE >> 20
    whole = race.ours("fs.write_bytes", "uploading.fsabs_upload", each, **options)
    stream = race.ours("fs.open, write by 1 MiB", "uploading.fsabs_upload_file", each, step=1 << 20, **options)
    obstore = race.peer("obstore", "obstore", "uploading.obstore_upload", each, **options)
    race.peer("boto3, upload_fileobj", "boto3", "uploading.boto3_upload", each, **options)
    race.run()
    race.table("seconds", "us/MiB", 1e6)
    race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
    race.faster(whole, obstore)
    race.faster(stream, obstore, at_least(1.0))
    race.cheaper(stream, obstore, at_most(1.0))


def packed(bench: Bench) -> None:
    """All objects of one store into a zip on another: reading alone, writing as many bytes alone, and both at once."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    names = [f"{number:05}.bin" for number in range(OBJECTS)]
    for name in names:
        (bucket / name).write_bytes(os.urandom(SIZE))
    bucket.with_suffix(servers.LISTING).write_text(data.listing_of(OBJECTS, SIZE))
    with (
        servers.store(bench.folder) as store,
        sink.start() as endpoint,
        bench.race("100 KB objects from S3 into a zip on S3 over HTTP", "object", rounds=10) as race,
    ):
        options: dict[str, Any] = {"source": store.endpoint, "endpoint": endpoint, "count": OBJECTS}
        both = race.ours("pack to zip", "uploading.fsabs_pack", OBJECTS, name="a.zip", **options)
        reading: dict[str, Any] = {"endpoint": store.endpoint, "names": names, "size": SIZE}
        race.ours("fs.read_many alone", "objects.fsabs_read_many", OBJECTS, **reading)
        writing: dict[str, Any] = {"endpoint": endpoint, "size": OBJECTS * SIZE, "step": 1 << 20}
        alone = race.ours("fs.open, write alone", "uploading.fsabs_upload_file", OBJECTS, **writing)
        race.run()
        race.table("seconds", "us/object", 1e6)
        race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
        race.faster(both, alone, at_least(0.85))
