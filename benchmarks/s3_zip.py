"""Members of a zip on S3: how many requests and bytes the server is asked for, counted in its log; all of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from .frame import data, servers
from .frame.measure import at_most
from .frame.race import Bench

MEMBERS = 2000
SIZE = 20_000  # bytes
WANTED = 100
FILES = 3000
FILE = 4300  # bytes
DELAY = 10.0  # ms, there and back
EPOCH = "a shuffled epoch of 3,000 files in a zip of 13 MB"


def run(bench: Bench) -> None:
    """A few members of many, then all."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    few(bench, bucket)
    epoch(bench, bucket)


def epoch(bench: Bench, bucket: Path) -> None:
    """All members of a zip in a shuffled order, against its bytes in one request: nearby, and 10 ms away."""
    names = data.stored_zip(bucket / "train.zip", FILES, FILE)
    random.Random(2).shuffle(names)
    size = (bucket / "train.zip").stat().st_size
    for where, opened in (
        ("", servers.store(bench.folder, logged=True)),
        (f", {DELAY:g} ms away", servers.far_store(bench.folder, DELAY, logged=True)),
    ):
        with opened as store, bench.race(EPOCH + where, "file", rounds=9) as race:
            race.log = store.log
            ours, whole = "zips.fsabs_s3", "objects.fsabs_read_bytes"
            options: dict[str, Any] = {"endpoint": store.endpoint, "wanted": names, "size": FILE}
            first = race.ours("fs.read_many", ours, FILES, how="first", **options)
            race.ours("fs.read_many, archive open", ours, FILES, how="open", **options)
            once = race.ours("the zip's bytes", whole, FILES, endpoint=store.endpoint, names=["train.zip"], size=size)
            race.run("us/file")
            race.cheaper(first, once, at_most(1.5), "seconds", "time")
            race.claim(first, "", at_most(99, "requests"), f"{race.title}: requests", "requests")


def few(bench: Bench, bucket: Path) -> None:
    """Ours, first and with the index kept; the peers."""
    archive = bucket / "train.zip"
    wanted = random.Random(1).sample(data.stored_zip(archive, MEMBERS, SIZE), WANTED)
    index = data.index_size(archive)
    with (
        servers.store(bench.folder, logged=True) as store,
        bench.race("100 random 20 KB members of a 40 MB stored zip on S3", "member", rounds=5) as race,
    ):
        race.log = store.log
        options: dict[str, Any] = {"endpoint": store.endpoint, "wanted": wanted, "size": SIZE}
        kept = race.ours("fsabs, index mapped", "zips.fsabs_s3", WANTED, how="mapped", **options)
        first = race.ours("fsabs, first time", "zips.fsabs_s3", WANTED, how="first", **options)
        s3fs = race.peer("s3fs, zipfile", "s3fs", "zips.s3fs", WANTED, **options)
        race.peer("s3fs block cache, zipfile", "s3fs", "zips.s3fs", WANTED, block_cache=True, **options)
        pfio = race.peer("pfio", "pfio", "zips.pfio_s3", WANTED, **options)
        race.run()
        race.table("bytes", "MB", f"{race.title}: bytes fetched", whole_round=True)
        race.table("requests", "requests", f"{race.title}: requests", whole_round=True)
        race.table("seconds", "us/member", f"{race.title}: time")
        extra = [(size - index) / (SIZE * WANTED) for size in race.counts(first, "bytes")]
        bench.claim("first time: bytes fetched but for the index, to the members' own", extra, "x", at_most(1.05))
        race.claim(first, "", at_most(103, "requests"), "first time: requests", "requests")
        extra = [size / (SIZE * WANTED) for size in race.counts(kept, "bytes")]
        bench.claim("index mapped: bytes fetched, to the members' own", extra, "x", at_most(1.05))
        race.claim(kept, "", at_most(101, "requests"), "index mapped: requests", "requests")
        race.faster(kept, pfio)
        race.faster(kept, s3fs)
        bench.note(f"The archive's index is {index:,} bytes.")
