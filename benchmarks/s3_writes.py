"""Objects written to S3, 100 KB each, plain and over TLS: one by one and many at a time; one of 256 MiB; a zip."""

from __future__ import annotations

from typing import Any

from .frame import data, servers, sink
from .frame.measure import at_least, at_most
from .frame.race import Bench, Entrant, Race

OBJECTS = 1000
FEW = 200
"""For clients that would take too long for all."""
SIZE = 100_000  # bytes
LARGE = 256 << 20  # bytes


def run(bench: Bench) -> None:
    """Plain and TLS, then the large object, then a zip."""
    certificate = servers.certificate(bench.folder)
    for protocol, secure in (("HTTP", None), ("TLS", certificate)):
        title, environment = f"100 KB objects written over {protocol}", secure.environment() if secure else {}
        with (
            sink.start(certificate=secure) as endpoint,
            bench.race(title, "object", rounds=10, environment=environment) as race,
        ):
            single, many, obstore1, obstore8 = small(race, endpoint)
            race.peer("boto3, 1 thread", "boto3", "uploading.boto3_put", FEW, endpoint=endpoint, count=FEW, size=SIZE)
            race.run("us/object", "seconds", "cpu")
            race.faster(single, obstore1, at_least(1.0))
            race.cheaper(single, obstore1, at_most(0.75))
            race.faster(many, obstore8, at_least(1.2))
            race.cheaper(many, obstore8, at_most(0.6))
    with sink.start() as endpoint, bench.race("256 MiB written over HTTP", "MiB", rounds=10) as race:
        whole, obstore = large(race, endpoint)
        each = LARGE >> 20
        options: dict[str, Any] = {"endpoint": endpoint, "size": LARGE}
        stream = race.ours("fs.open, write by 1 MiB", "uploading.fsabs_upload_file", each, step=1 << 20, **options)
        race.peer("boto3, upload_fileobj", "boto3", "uploading.boto3_upload", each, **options)
        race.run("us/MiB", "seconds", "cpu")
        race.faster(whole, obstore)
        race.faster(stream, obstore, at_least(1.0))
        race.cheaper(stream, obstore, at_most(1.0))
    packed(bench)
    bench.note("The server takes what comes and keeps nothing.")
    bench.note("Over plain HTTP both sign the SHA-256 of each body, which is most of what an object costs.")
    bench.note("fsabs sends a CRC32C, too, which the store keeps, and by which the object is checked when it is read.")


def small(
    race: Race, endpoint: str, of: str = "clients", cloud: str = "s3"
) -> tuple[Entrant, Entrant, Entrant, Entrant]:
    """Enter ours and obstore, one by one, then many at a time."""
    options: dict[str, Any] = {"endpoint": endpoint, "count": OBJECTS, "size": SIZE, "cloud": cloud}
    single = race.ours("fs.write_bytes", "uploading.fsabs_write_bytes", OBJECTS, **options)
    many = race.ours("fs.write_many", "uploading.fsabs_write_many", OBJECTS, **options)
    options["of"] = of
    obstore1 = race.peer("obstore, 1 thread", "obstore", "uploading.obstore_put", OBJECTS, **options)
    obstore8 = race.peer("obstore, 8 threads", "obstore", "uploading.obstore_put", OBJECTS, threads=8, **options)
    return single, many, obstore1, obstore8


def large(race: Race, endpoint: str, of: str = "clients", cloud: str = "s3") -> tuple[Entrant, Entrant]:
    """Enter ours and obstore, from memory."""
    each, options = LARGE >> 20, {"endpoint": endpoint, "size": LARGE, "cloud": cloud}
    ours = race.ours("fs.write_bytes", "uploading.fsabs_upload", each, **options)
    return ours, race.peer("obstore", "obstore", "uploading.obstore_upload", each, of=of, **options)


def packed(bench: Bench) -> None:
    """All objects of one store into a zip on another: reading alone, writing as many bytes alone, and both at once."""
    bucket = bench.folder / "bucket"
    names = data.objects(bucket, OBJECTS, SIZE)
    data.write_listing(bucket)
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
        race.run("us/object", "seconds", "cpu")
        race.faster(both, alone, at_least(0.85))
