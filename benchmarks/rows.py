"""Rows of Parquet files and windows of tokens, local and from S3, against pyarrow, NumPy, datasets and litData."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

FILES, ROWS, GROUP = 4, 10_000, 1000
"""Parquet files, rows of each, and rows of a row group: some 2 KB of text in a row."""
TOKENS = 32 << 20
LENGTH, BATCH = 1024, 8
"""Tokens of a window less one, and windows of a batch."""
DELAY = 10.0  # ms, there and back


def run(bench: Bench) -> None:
    """Rows, then tokens."""
    bucket = bench.folder / "bucket"
    names = _texts(bucket / "text")
    rng = np.random.default_rng(1)
    (bucket / "tokens").mkdir()
    rng.integers(0, 50_000, TOKENS, np.uint16).tofile(bucket / "tokens" / "train.bin")
    for folder in ("text/", "tokens/"):
        data.write_listing(bucket, folder)
    in_order(bench, bucket, names)
    with servers.store(bench.folder) as near:
        shuffled(bench, near.endpoint, names)
    local_tokens(bench, bucket)
    far_tokens(bench, bucket)


def _texts(folder: Path) -> list[str]:
    folder.mkdir(parents=True)
    rng, names = random.Random(1), []
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(5000)]
    for number in range(FILES):
        texts = [" ".join(rng.choices(words, k=rng.randint(50, 600))) for _ in range(ROWS)]
        ids = range(number * ROWS, (number + 1) * ROWS)
        names.append(f"{number:02}.parquet")
        pq.write_table(pa.table({"id": ids, "text": texts}), folder / names[-1], GROUP, compression="zstd")
    return names


def in_order(bench: Bench, bucket: Path, names: list[str]) -> None:
    """Record batches of local files, one after the other, on one core."""
    options: dict[str, Any] = {"folder": str(bucket / "text"), "rows": FILES * ROWS, "batch": 512}
    with bench.race("Parquet in order, record batches of 512 rows", "row", rounds=15) as race:
        ours = race.ours("ShardedDataset", "rows.fsabs_in_order", FILES * ROWS, **options)
        theirs = race.beside("pyarrow, iter_batches", "rows.pyarrow_in_order", FILES * ROWS, **options)
        race.peer("datasets", "datasets", "rows.datasets_local", FILES * ROWS, of="rows", **options)
        race.run("us/row", "seconds", "cpu")
        race.faster(ours, theirs, at_least(0.9), "cpu")


def shuffled(bench: Bench, endpoint: str, names: list[str]) -> None:
    """Rows as dicts, shuffled, from the same server."""
    options: dict[str, Any] = {"endpoint": endpoint, "names": names, "rows": FILES * ROWS, "buffer": 16 * GROUP}
    with bench.race("Parquet from S3, shuffled rows", "row", rounds=7) as race:
        ours = race.ours("ShardedDataset, window=16", "rows.fsabs_shuffled", FILES * ROWS, **options)
        theirs = race.peer(
            "datasets, streaming, shuffle(16,000)",
            "datasets",
            "rows.datasets_shuffled",
            FILES * ROWS,
            of="rows",
            **options,
        )
        race.run("us/row")
        race.faster(ours, theirs, at_least(3))


def local_tokens(bench: Bench, bucket: Path) -> None:
    """Batches of windows in random order, of a local file."""
    batches = 2000
    path = {"path": str(bucket / "tokens" / "train.bin"), "length": LENGTH, "batch": BATCH, "batches": batches}
    with bench.race(f"windows of {LENGTH} tokens at random, local", "batch", rounds=15) as race:
        ours = race.ours("TokenDataset", "rows.fsabs_tokens", batches, **path)
        theirs = race.beside("np.memmap", "rows.numpy_tokens", batches, **path)
        race.run("us/batch")
        race.faster(ours, theirs, at_least(0.8))


def far_tokens(bench: Bench, bucket: Path) -> None:
    """The same from S3, 10 ms away: with a computation beside it, and against litData."""
    windows = (TOKENS - 1) // LENGTH
    with servers.far_store(bench.folder, DELAY) as store:
        bench.note(f"The delay is {store.how}.")
        options: dict[str, Any] = {"endpoint": store.endpoint, "length": LENGTH, "batch": BATCH}
        with bench.race(f"windows of {LENGTH} tokens at random, S3 {DELAY:g} ms away", "batch", rounds=5) as race:
            single = race.ours(
                "TokenDataset, each window at random", "rows.fsabs_far_tokens", 1500, **options, batches=1500
            )
            race.run("us/batch")
            race.table("fetching", "us/batch", f"{race.title}: fetching alone")
            ratios = [
                both / max(fetching, computing)
                for both, fetching, computing in zip(
                    *(race.counts(single, figure) for figure in ("seconds", "fetching", "computing")), strict=True
                )
            ]
            what = f"{race.title}: fetching and computing against the longer of them"
            bench.claim(what, ratios, "x", at_most(1.25))
        folder = {"folder": str(bench.folder / "bucket" / "litdata"), "tokens": str(bucket / "tokens" / "train.bin")}
        with bench.race(f"an epoch of windows of {LENGTH} tokens, S3 {DELAY:g} ms away", "window", rounds=5) as race:
            blocks = {**options, "block": 64, "buffer": 4096}
            ours = race.ours("TokenDataset, blocks of 64, buffers of 4,096", "rows.fsabs_epoch", windows, **blocks)
            race.ours("TokenDataset, each window at random", "rows.fsabs_epoch", windows, **options)
            theirs = race.peer(
                "litData, shuffled", "litdata", "rows.litdata_epoch", windows, of="rows", **options, **folder
            )
            race.run("us/window")
            race.faster(ours, theirs, at_least(3))
