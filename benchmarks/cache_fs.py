"""Caches of files: hits of `CachedFS` against fsspec's caches, and a DataLoader's second epoch against local files."""

from __future__ import annotations

import os
import random
from typing import Any

from .dataloader import make_images
from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

FILES = 500
SIZE = 100_000
IMAGES = 2000
BATCH = 32


def run(bench: Bench) -> None:
    """Page-cache warm, on the disk of the temporary folder."""
    hits(bench)
    epochs(bench)


def hits(bench: Bench) -> None:
    """Files of 100 KB, in a random order."""
    folder = bench.folder / "files"
    names = data.objects(folder, FILES, SIZE)
    for name in names:
        os.utime(folder / name, (1e9, 1e9))
    random.Random(4).shuffle(names)
    options: dict[str, Any] = {"path": str(folder), "names": names, "size": SIZE}
    few: dict[str, Any] = {**options, "names": names[:50]}
    with bench.race("hits of files of 100 KB", "file", rounds=21) as race:
        ours = race.ours("CachedFS: open, read", "cached.fsabs_open", FILES, **options)
        disk = race.ours("CachedFS without memory", "cached.fsabs_disk", FILES, **options)
        race.ours("CachedFS without memory, read_many", "cached.fsabs_many", FILES, **options)
        race.ours("no cache: local, open, read", "files.fsabs_open", FILES, **options)
        simple = race.peer("fsspec simplecache", "fsspec", "cached.fsspec", FILES, protocol="simplecache", **options)
        blocks = race.peer("fsspec blockcache", "fsspec", "cached.fsspec", 50, protocol="blockcache", **few)
        race.run("us/file")
        race.faster(ours, simple, at_least(2))
        race.faster(disk, simple, at_least(1.3))
        race.faster(ours, blocks, at_least(10))


def epochs(bench: Bench) -> None:
    """Images are read in shuffled batches, and decoded."""
    bucket = bench.folder / "bucket"
    bucket.mkdir(exist_ok=True)
    names = make_images(bucket / "images")[:IMAGES]
    data.write_listing(bucket)
    shared: dict[str, Any] = {"names": names, "batch": BATCH}
    with servers.store(bench.folder) as store, bench.race("a second epoch", "image", rounds=6) as race:
        local = race.ours("local files", "cached.epoch_local", IMAGES, path=str(bucket / "images"), **shared)
        cached = race.ours(
            "CachedFS over S3",
            "cached.epoch_cached",
            IMAGES,
            endpoint=store.endpoint,
            **{**shared, "names": [f"images/{name}" for name in names]},
        )
        race.run("us/image")
        race.cheaper(cached, local, at_most(1.25), "seconds", "time")
