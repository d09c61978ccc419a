"""Epochs from a store 10 ms away with a step of 2 ms a batch, against the ideal pipeline."""

from __future__ import annotations

import os
from typing import Any

from .frame import data, servers
from .frame.measure import Target, at_most
from .frame.race import Bench

DELAY = 10.0  # ms, there and back
FILES, SIZE = 2000, 20_000
SHARDS, RECORDS, RECORD = 8, 20_000, 2_000
WORKERS = (0, 1, 2, 4)
LOADERS = {"plain": "DataLoader", "ours": "Loader"}


def run(bench: Bench) -> None:
    """Epochs of files."""
    data.objects(bench.folder / "bucket" / "files", FILES, SIZE)
    shape = {"folder": "files", "count": FILES, "size": SIZE, "batch": 16}
    epochs(bench, "FileDataset", "files", shape, LOADERS, at_most(1.25), None)


def records(bench: Bench) -> None:
    """Epochs of records, of two data sets."""
    import fsabs
    from fsabs.readers.recordio import RecordWriter

    fs = fsabs.from_url(str(bench.folder / "bucket" / "shards"), create=True)
    for shard in range(SHARDS):
        with RecordWriter(fs, f"{shard}.recordio", compressor="none", max_chunk_bytes=1 << 20) as writer:
            for _ in range(RECORDS // SHARDS):
                writer.write(os.urandom(RECORD))
    shape = {"folder": "shards", "count": RECORDS, "size": RECORD, "batch": 128}
    epochs(bench, "RecordIODataset", "records", shape, LOADERS, None, at_most(1.25))
    epochs(bench, "ShardedDataset", "sharded", shape, {"plain": "DataLoader"}, None, at_most(1.25))


def epochs(
    bench: Bench,
    name: str,
    kind: str,
    shape: dict[str, Any],
    loaders: dict[str, str],
    fetching: Target | None,
    moving: Target | None,
) -> None:
    """Every number of workers under each loader; the targets are against the ideal, and against torch alone."""
    data.write_listing(bench.folder / "bucket", f"{shape['folder']}/")
    each = shape["count"] // shape["batch"]
    title = f"{name}, 10 ms away, 2 ms a batch of {shape['batch']}"
    with servers.far_store(bench.folder, DELAY) as store, bench.race(title, "batch", rounds=5) as race:
        options = {"endpoint": store.endpoint, **shape}
        ideal = race.beside("ideal: the longer of fetching and computing", "pipelines.ideal", each, **options)
        pairs = []
        for workers in WORKERS:
            alone = f"torch alone, records in memory, {workers} workers"
            baseline = race.beside(alone, "pipelines.in_memory", each, kind=kind, workers=workers, **shape)
            for loader, title in loaders.items():
                own = {"kind": kind, "loader": loader, "workers": workers, **options}
                pairs.append((race.ours(f"{title}, {workers} workers", "pipelines.fsabs", each, **own), baseline))
        race.run("ms/batch")
        for entrant, baseline in pairs:
            race.cheaper(entrant, ideal, fetching, "seconds", "time from the second batch on")
            race.cheaper(entrant, baseline, moving, "seconds", "the same")
    bench.note(f"The delay is {store.how}.")
    bench.note("The DataLoader shuffles by EpochBatches: by itself it tells no data set its order.")
    bench.note("torch alone hands records in memory to the same step; with workers, by pipes between processes.")
    bench.note("Files are as good as ideal where fetching takes the time, small records where torch by itself does.")
