"""Epochs from a store 10 ms away with a step of 2 ms a batch, against the ideal pipeline; a cache of half the data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from .frame import servers
from .frame.measure import at_most
from .frame.race import Bench

DELAY = 10.0  # ms, there and back
FILES = 2000
SIZE = 20_000  # bytes
SHARDS = 8
RECORDS = 20_000
RECORD = 2_000  # bytes
WORKERS = (0, 1, 2, 4)
CACHED = 600
"""Files of the data set that is cached."""


def run(bench: Bench) -> None:
    """Epochs of files from the store, and of files through a cache."""
    with far(bench) as at:
        epochs(bench, "pipelines.fsabs", "files", "FileDataset", ("plain", "ours"), at)
    fetches(bench)


@contextlib.contextmanager
def far(bench: Bench) -> Iterator[dict[str, Any]]:
    """A store with files and shards, 10 ms away: what a contestant needs to reach it."""
    write(bench.folder / "bucket")
    with servers.far_store(bench.folder, DELAY) as store:
        bench.note(f"The delay is {store.how}.")
        yield {"endpoint": store.endpoint, "region": "us-east-1"}


def write(bucket: Any) -> None:
    """Files, and RecordIO shards."""
    import fsabs
    from fsabs.readers.recordio import RecordWriter

    (bucket / "files").mkdir(parents=True)
    (bucket / "shards").mkdir()
    for number in range(FILES):
        (bucket / "files" / f"{number:05}").write_bytes(os.urandom(SIZE))
    fs = fsabs.from_url(str(bucket / "shards"))
    for shard in range(SHARDS):
        with RecordWriter(fs, f"{shard}.recordio", compressor="none", max_chunk_bytes=1 << 20) as writer:
            for _ in range(RECORDS // SHARDS):
                writer.write(os.urandom(RECORD))


def epochs(bench: Bench, contestant: str, kind: str, name: str, loaders: tuple[str, ...], at: dict[str, Any]) -> None:
    """Every number of workers under each loader."""
    folder, count, batch = ("files", FILES, 16) if kind == "files" else ("shards", RECORDS, 128)
    files = sorted((bench.folder / "bucket" / folder).iterdir())
    sizes = {f"{folder}/{path.name}": path.stat().st_size for path in files}
    options: dict[str, Any] = {"url": "s3://bucket", "sizes": sizes, "count": count, "batch": batch, **at}
    with bench.race(f"{name}, 10 ms away, 2 ms a batch of {batch}", "batch", rounds=5) as race:
        ideal = race.beside("ideal: the longer of fetching and computing", "pipelines.ideal", count // batch, **options)
        size = RECORD if batch == 128 else SIZE
        memory = {"kind": kind, "count": count, "size": size, "batch": batch}
        alone = {
            workers: race.beside(
                f"torch alone, records in memory, {workers} workers",
                "pipelines.in_memory",
                count // batch,
                workers=workers,
                **memory,
            )
            for workers in WORKERS
        }
        entrants = [
            race.ours(
                f"{'DataLoader' if loader == 'plain' else 'Loader'}, {workers} workers",
                contestant,
                count // batch,
                kind=kind,
                loader=loader,
                workers=workers,
                **options,
            )
            for loader in loaders
            for workers in WORKERS
        ]
        race.run()
        race.table("seconds", "ms/batch", 1e3)
        for number, entrant in enumerate(entrants):
            fetching, moving = (at_most(1.25), None) if kind == "files" else (None, at_most(1.25))
            race.cheaper(entrant, ideal, fetching, "seconds", "time from the second batch on")
            race.cheaper(entrant, alone[WORKERS[number % len(WORKERS)]], moving, "seconds", "the same")
    bench.note(
        "The DataLoader shuffles by PlannedBatches(RandomSampler(...)): by itself it tells no data set its order."
    )
    bench.note("torch alone hands records in memory to the same step; with workers, by pipes between processes.")
    bench.note("Files are as good as ideal where fetching takes the time, small records where torch by itself does.")


def fetches(bench: Bench) -> None:
    """Files that are fetched after the first epoch, with a cache of half of them, against the fewest possible."""
    title = "Fetches after the first epoch, with a cache of half of the files"
    with bench.race(title, "epoch", rounds=1) as race:
        options = {"files": CACHED, "epochs": 4, "batch": 16}
        entrants = [
            race.ours(f"{name}, {workers} workers", "fetches.cached", 1, loader=loader, workers=workers, **options)
            for loader, name in (("plain", "DataLoader"), ("ours", "Loader"))
            for workers in WORKERS
        ]
        race.run(warming=0)
        race.table("fetches", "files", 1, whole_round=True)
        for entrant in entrants:
            least = race.counts(entrant, "least")
            found = [a / b for a, b in zip(race.counts(entrant, "fetches"), least, strict=True)]
            bench.claim(f"{title}, {entrant.name}: against Belady's", found, "x", at_most(1.05))
