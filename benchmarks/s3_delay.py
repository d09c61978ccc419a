"""S3 at a distance of 10 ms: 100 KB objects, and one of 1 GiB by ranges."""

from __future__ import annotations

from typing import Any

from .frame import data, servers
from .frame.measure import at_least
from .frame.race import Bench

DELAY = 10.0  # ms, there and back
OBJECTS = 2000
SIZE = 100_000  # bytes
LARGE = 1 << 30  # bytes


def run(bench: Bench) -> None:
    """Many objects, then one."""
    bucket = bench.folder / "bucket"
    names = data.objects(bucket, OBJECTS, SIZE)
    with (bucket / "large.bin").open("wb") as file:
        file.truncate(LARGE)
    with servers.far_store(bench.folder, DELAY) as store:
        bench.note(f"The delay is {store.how}.")
        objects(bench, store.endpoint, names)
        ranges(bench, store.endpoint)


def objects(bench: Bench, endpoint: str, names: list[str]) -> None:
    """64 in flight."""
    options: dict[str, Any] = {"endpoint": endpoint, "names": names, "size": SIZE}
    with bench.race("100 KB objects, 10 ms away, 64 in flight", "object", rounds=8) as race:
        many = race.ours("fs.read_many(concurrency=64)", "objects.fsabs_read_many", OBJECTS, concurrency=64, **options)
        obstore = race.peer("obstore, 64 threads", "obstore", "objects.obstore", OBJECTS, threads=64, **options)
        few: dict[str, Any] = {**options, "names": names[:400]}
        race.peer("boto3, 64 threads", "boto3", "objects.boto3", 400, threads=64, **few)
        limit = servers.wrk(bench.folder, endpoint, [f"/bucket/{name}" for name in names], 64)
        wrk = race.program("wrk -t1 -c64", limit, OBJECTS, f"wrk is not installed: {servers.INSTALL}")
        race.run("us/object", "seconds", "cpu")
        race.rate(many, at_least(5000, "objects/s"))
        race.rate(wrk)
        race.faster(many, wrk)
        race.faster(many, obstore)


def ranges(bench: Bench, endpoint: str) -> None:
    """One object, in parallel."""
    options: dict[str, Any] = {"endpoint": endpoint, "size": LARGE}
    with bench.race("an object of 1 GiB, 10 ms away", "MiB", rounds=5) as race:
        ours = race.ours("fs.read_bytes", "objects.fsabs_read_bytes", LARGE >> 20, names=["large.bin"], **options)
        parts: dict[str, Any] = {"threads": 8, "step": 16 << 20, **options}
        title, function = "obstore.get_ranges, 8 threads", "objects.obstore_ranges"
        obstore = race.peer(title, "obstore", function, LARGE >> 20, **parts)
        race.run("us/MiB", "seconds", "cpu")
        race.faster(ours, obstore, at_least(1.0))
