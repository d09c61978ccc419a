"""Google Cloud Storage and Azure: objects of 100 KB read and written, listings near, and at 100 ms a page."""

from __future__ import annotations

import base64
import os
from typing import Any

import google_crc32c

from .frame import servers, sink
from .frame.measure import at_least, at_most
from .frame.race import Bench, Race

OBJECTS = 2000
WRITTEN = 1000
FEW = 200
"""For clients that would take too long for all."""
SIZE = 100_000  # bytes
LARGE = 256 << 20  # bytes
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
    bucket.mkdir()
    names = [f"{number:05}.bin" for number in range(OBJECTS)]
    checksums = {}
    for name in names:
        data = os.urandom(SIZE)
        (bucket / name).write_bytes(data)
        checksums[name] = base64.b64encode(int(google_crc32c.value(data)).to_bytes(4, "big")).decode()
    with servers.store(bench.folder, checksums=checksums) as store:
        for cloud, title in CLOUDS.items():
            with bench.race(f"{title}: 100 KB objects", "object", rounds=10) as race:
                reads(race, cloud, store.endpoint, names)
    for cloud, title in CLOUDS.items():
        with sink.start() as endpoint, bench.race(f"{title}: 100 KB objects written", "object", rounds=10) as race:
            writes(race, cloud, endpoint)
        with sink.start() as endpoint, bench.race(f"{title}: 256 MiB written", "MiB", rounds=10) as race:
            large(race, cloud, endpoint)
        with (
            sink.start(keys=KEYS) as endpoint,
            bench.race(f"{title}: listing 100,000 names", "name", rounds=10) as race,
        ):
            lists(race, cloud, endpoint)
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
    options: dict[str, Any] = {"endpoint": endpoint, "names": names, "size": SIZE}
    many = race.ours("fs.read_many", "objects.fsabs_read_many", OBJECTS, cloud=cloud, **options)
    single = race.ours("fs.read_bytes", "objects.fsabs_read_bytes", OBJECTS, cloud=cloud, **options)
    of = {"of": "clouds", "cloud": cloud}
    obstore8 = race.peer("obstore, 8 threads", "obstore", "objects.obstore", OBJECTS, threads=8, **of, **options)
    obstore1 = race.peer("obstore, 1 thread", "obstore", "objects.obstore", OBJECTS, **of, **options)
    few: dict[str, Any] = {**options, "names": names[:FEW]}
    package = {"gcs": "gcsfs", "azure": "adlfs"}[cloud]
    fsspec = race.peer(f"{package}, cat of 64", package, f"objects.{package}", FEW, of="clouds", **few)
    against = []
    if cloud == "gcs":
        msc: dict[str, Any] = {"of": "clouds", **few}
        function = "objects.multi_storage_client"
        for threads, mine in ((8, many), (1, single)):
            title = f"multi-storage-client, rust_client, S3, {threads} thread{'s' * (threads > 1)}"
            against.append((mine, race.peer(title, "multi-storage-client", function, FEW, threads=threads, **msc)))
    race.run()
    race.table("seconds", "us/object", 1e6)
    race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
    race.faster(many, obstore8, at_least(1.0))
    race.cheaper(many, obstore8, None)
    race.faster(single, obstore1, at_least(1.2))
    race.cheaper(single, obstore1, at_most(0.6))
    race.faster(many, fsspec, at_least(3))
    for mine, theirs in against:
        race.faster(mine, theirs, at_least(4))


def writes(race: Race, cloud: str, endpoint: str) -> None:
    """One by one, and many at a time."""
    options: dict[str, Any] = {"endpoint": endpoint, "count": WRITTEN, "size": SIZE, "cloud": cloud}
    single = race.ours("fs.write_bytes", "uploading.fsabs_write_bytes", WRITTEN, **options)
    many = race.ours("fs.write_many", "uploading.fsabs_write_many", WRITTEN, **options)
    of = {"of": "clouds", **options}
    obstore1 = race.peer("obstore, 1 thread", "obstore", "uploading.obstore_put", WRITTEN, **of)
    obstore8 = race.peer("obstore, 8 threads", "obstore", "uploading.obstore_put", WRITTEN, threads=8, **of)
    race.run()
    race.table("seconds", "us/object", 1e6)
    race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
    race.faster(single, obstore1, at_least(1.0))
    race.faster(many, obstore8)
    race.cheaper(many, obstore8, None)


def large(race: Race, cloud: str, endpoint: str) -> None:
    """From memory."""
    options: dict[str, Any] = {"endpoint": endpoint, "size": LARGE, "cloud": cloud}
    ours = race.ours("fs.write_bytes", "uploading.fsabs_upload", LARGE >> 20, **options)
    obstore = race.peer("obstore", "obstore", "uploading.obstore_upload", LARGE >> 20, of="clouds", **options)
    race.run()
    race.table("seconds", "us/MiB", 1e6)
    race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
    race.faster(ours, obstore)


def lists(race: Race, cloud: str, endpoint: str) -> None:
    """Names, and stats."""
    options: dict[str, Any] = {"endpoint": endpoint, "count": KEYS, "cloud": cloud}
    names = race.ours("fs.list, recursive", "uploading.fsabs_list", KEYS, **options)
    race.ours("fs.list, recursive, detail", "uploading.fsabs_list_detail", KEYS, **options)
    obstore = race.peer("obstore", "obstore", "uploading.obstore_list", KEYS, of="clouds", **options)
    race.run()
    race.table("seconds", "us/name", 1e6)
    race.table("cpu", "us/name", 1e6, f"{race.title}: CPU time of the client")
    race.faster(names, obstore, at_least(1.0))


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
        race.run(warming=0)
        race.table("seconds", "us/name", 1e6)
        race.faster(split, paged, at_least(5))
