"""S3 at a distance of 10 ms: 100 KB objects, one of 1 GiB by ranges, reset connections, random members of a zip."""

from __future__ import annotations

import os
import random
from typing import Any

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

DELAY = 10.0  # ms, there and back
OBJECTS = 2000
SIZE = 100_000  # bytes
MEMBERS = 2000
MEMBER = 20_000  # bytes
WANTED = 100
LARGE = 1 << 30  # bytes


def run(bench: Bench) -> None:
    """Objects, then members, behind one delay."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    names = [f"{number:05}.bin" for number in range(OBJECTS)]
    for name in names:
        (bucket / name).write_bytes(os.urandom(SIZE))
    with (bucket / "large.bin").open("wb") as file:
        file.truncate(LARGE)
    members = data.stored_zip(bucket / "train.zip", MEMBERS, MEMBER)
    wanted = random.Random(1).sample(members, WANTED)
    with servers.far_store(bench.folder, DELAY) as store:
        bench.note(f"The delay is {store.how}.")
        objects(bench, store.endpoint, names)
        ranges(bench, store.endpoint)
        resets(bench, store.endpoint, names[:64])
        zipped(bench, store.endpoint, wanted)


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
        race.run()
        race.table("seconds", "us/object", 1e6)
        race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
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
        race.run()
        race.table("seconds", "us/MiB", 1e6)
        race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
        race.faster(ours, obstore, at_least(1.0))


def resets(bench: Bench, endpoint: str, names: list[str]) -> None:
    """A read over a kept connection, and one that finds all 32 kept connections reset."""
    options: dict[str, Any] = {"endpoint": endpoint, "names": names, "size": SIZE}
    with bench.race("fs.read_bytes of 100 KB, 10 ms away", "object", rounds=8) as race:
        kept = race.ours("over a kept connection", "objects.fsabs_read_after_batch", 1, reset=False, **options)
        reset = race.ours("after 32 were reset", "objects.fsabs_read_after_batch", 1, reset=True, **options)
        race.run()
        race.table("seconds", "ms", 1e3)
        pairs = zip(race.values(reset, "seconds"), race.values(kept, "seconds"), strict=True)
        more = [(one - other) * 1000 / DELAY for one, other in pairs]
        what = f"{race.title}, after 32 connections were reset: more than over a kept one"
        bench.claim(what, more, "round trips", at_most(1.5, "round trips"))


def zipped(bench: Bench, endpoint: str, wanted: list[str]) -> None:
    """From the URL to the members' bytes, and with the archive open."""
    options: dict[str, Any] = {"endpoint": endpoint, "wanted": wanted, "size": MEMBER}
    with bench.race("100 random 20 KB members of a 40 MB zip, 10 ms away", "member", rounds=8) as race:
        kept = race.ours("fsabs, index mapped", "zips.fsabs_s3", WANTED, how="mapped", **options)
        first = race.ours("fsabs, first time", "zips.fsabs_s3", WANTED, how="first", **options)
        opened = race.ours("fsabs, archive open", "zips.fsabs_s3", WANTED, how="open", **options)
        few: dict[str, Any] = {**options, "wanted": wanted[:20]}
        race.ours("fsabs, archive open, read_bytes", "zips.fsabs_s3_one_by_one", 20, **few)
        race.peer("s3fs, zipfile", "s3fs", "zips.s3fs", 20, **few)
        race.peer("pfio", "pfio", "zips.pfio_s3", 20, **few)
        race.run()
        race.table("seconds", "ms/member", 1e3)
        for entrant, target in (
            (opened, at_most(10, "round trips")),
            (kept, at_most(10, "round trips")),
            (first, None),
        ):
            trips = [seconds * 1000 / DELAY for seconds in race.counts(entrant, "seconds")]
            bench.claim(f"{race.title}, {entrant.name}: wall time", trips, "round trips", target)
