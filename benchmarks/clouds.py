"""Google Cloud Storage and Azure: objects of 100 KB read and written, listings near, and at 100 ms a page."""

from __future__ import annotations

import base64
from typing import Any

import google_crc32c

from .frame import data, servers, sink
from .frame.measure import at_least, at_most
from .frame.race import Bench, Race
from .s3_lists import listings
from .s3_objects import FEW, OBJECTS, SIZE, fastest
from .s3_writes import large, small

KEYS = 100_000
MANY = 200_000
DELAY = 0.1  # seconds
PAGES = 20
"""How many pages are taken one by one: each takes as long as the others."""
CLOUDS = {"gcs": "Google Cloud Storage", "azure": "Azure"}
PAGE = {"s3": 1000, "gcs": 1000, "azure": 5000}
"""Names on a page of a listing."""


def run(bench: Bench) -> None:
    """Reads, writes, listings."""
    bucket = bench.folder / "bucket"
    names = data.objects(bucket, OBJECTS, SIZE)
    checksums = {}
    for name in names:
        checksum = int(google_crc32c.value((bucket / name).read_bytes()))
        checksums[name] = base64.b64encode(checksum.to_bytes(4, "big")).decode()
    with servers.store(bench.folder, checksums=checksums) as store:
        for cloud, title in CLOUDS.items():
            with bench.race(f"{title}: 100 KB objects", "object", rounds=10) as race:
                reads(race, cloud, store.endpoint, names)
    for cloud, title in CLOUDS.items():
        with sink.start() as endpoint, bench.race(f"{title}: 100 KB objects written", "object", rounds=10) as race:
            single, many, obstore1, obstore8 = small(race, endpoint, "clouds", cloud)
            race.run("us/object", "seconds", "cpu")
            race.faster(single, obstore1, at_least(1.0))
            race.faster(many, obstore8)
            race.cheaper(many, obstore8, None)
        with sink.start() as endpoint, bench.race(f"{title}: 256 MiB written", "MiB", rounds=10) as race:
            ours, obstore = large(race, endpoint, "clouds", cloud)
            race.run("us/MiB", "seconds", "cpu")
            race.faster(ours, obstore)
        with (
            sink.start(keys=KEYS) as endpoint,
            bench.race(f"{title}: listing 100,000 names", "name", rounds=10) as race,
        ):
            ours, _, obstore = listings(race, endpoint, KEYS, "clouds", cloud)
            race.run("us/name", "seconds", "cpu")
            race.faster(ours, obstore, at_least(1.0))
    for cloud, title in {"s3": "S3", **CLOUDS}.items():
        far(bench, cloud, f"{title}: listing at 100 ms a page")
    bench.note(
        "ours compares the CRC32C that Google's store sends with each object, and sends one with what it writes, or a "
        "CRC64 to Azure; obstore does neither."
    )
    bench.note("multi-storage-client takes an endpoint for S3 alone: it reads the same files by S3's requests.")
    bench.note("adlfs asks for ranges by a header field of Azure's, which the server translates by a proxy of its own.")


def reads(race: Race, cloud: str, endpoint: str, names: list[str]) -> None:
    """Many at a time, and one by one."""
    many, single, obstore8, obstore1 = fastest(race, endpoint, names, "clouds", cloud)
    few: dict[str, Any] = {"endpoint": endpoint, "names": names[:FEW], "size": SIZE, "of": "clouds"}
    package = {"gcs": "gcsfs", "azure": "adlfs"}[cloud]
    fsspec = race.peer(f"{package}, cat of 64", package, f"objects.{package}", FEW, **few)
    against = []
    if cloud == "gcs":
        package, function = "multi-storage-client", "objects.multi_storage_client"
        for threads, mine in (("8 threads", many), ("1 thread", single)):
            title, number = f"{package}, rust_client, S3, {threads}", int(threads[0])
            against.append((mine, race.peer(title, package, function, FEW, threads=number, **few)))
    race.run("us/object", "seconds", "cpu")
    race.faster(many, obstore8, at_least(1.0))
    race.cheaper(many, obstore8, None)
    race.faster(single, obstore1, at_least(1.2))
    race.cheaper(single, obstore1, at_most(0.6))
    race.faster(many, fsspec, at_least(3))
    for mine, theirs in against:
        race.faster(mine, theirs, at_least(4))


def far(bench: Bench, cloud: str, title: str) -> None:
    """Side by side against one page after the other."""
    few = PAGES * PAGE[cloud]
    with (
        sink.start(keys=MANY, delay=DELAY) as whole,
        sink.start(keys=few, delay=DELAY) as short,
        bench.race(title, "name", rounds=3) as race,
    ):
        split = race.ours("fs.list", "uploading.fsabs_list", MANY, endpoint=whole, count=MANY, cloud=cloud)
        options: dict[str, Any] = {"endpoint": short, "count": few, "cloud": cloud}
        paged = race.peer("obstore, page by page", "obstore", "uploading.obstore_list", few, of="clouds", **options)
        race.run("us/name", warming=0)
        race.faster(split, paged, at_least(5))
