"""Rows of Parquet files and windows of tokens, local and from S3, against pyarrow, NumPy, datasets and litData."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .frame import servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

FILES, ROWS, GROUP = 4, 10_000, 1000
"""Parquet files, rows of each, and rows of a row group: some 2 KB of text in a row."""
COLUMNS, WIDE_ROWS = 40, 20_000
TOKENS = 32 << 20
LENGTH, BATCH = 1024, 8
"""Tokens of a window less one, and windows of a batch."""
DELAY = 10.0  # ms, there and back
SOURCES = 16


def run(bench: Bench) -> None:
    """Rows, then tokens, then the state of a mixture."""
    bucket = bench.folder / "bucket"
    names = _texts(bucket / "text")
    _wide(bucket / "wide.parquet")
    rng = np.random.default_rng(1)
    (bucket / "tokens").mkdir()
    rng.integers(0, 50_000, TOKENS, np.uint16).tofile(bucket / "tokens" / "train.bin")
    in_order(bench, bucket, names)
    with servers.store(bench.folder, logged=True) as near:
        shuffled(bench, near.endpoint, names)
        columns(bench, near, bucket)
    local_tokens(bench, bucket)
    far_tokens(bench, bucket)
    state(bench, bucket)


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


def _wide(path: Path) -> None:
    rng = np.random.default_rng(2)
    table = pa.table({f"c{number:02}": rng.random(WIDE_ROWS) for number in range(COLUMNS)})
    pq.write_table(table, path, 2000, use_dictionary=False)


def in_order(bench: Bench, bucket: Path, names: list[str]) -> None:
    """Record batches of local files, one after the other, on one core."""
    options: dict[str, Any] = {"folder": str(bucket / "text"), "rows": FILES * ROWS, "batch": 512}
    with bench.race("Parquet in order, record batches of 512 rows", "row", rounds=15) as race:
        ours = race.ours("ShardedDataset", "rows.fsabs_in_order", FILES * ROWS, **options)
        theirs = race.beside("pyarrow, iter_batches", "rows.pyarrow_in_order", FILES * ROWS, **options)
        race.peer("datasets", "datasets", "rows.datasets_local", FILES * ROWS, of="rows", **options)
        race.run()
        race.table("seconds", "us/row", 1e6)
        race.table("cpu", "us/row", 1e6, f"{race.title}: CPU time")
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
        race.run()
        race.table("seconds", "us/row", 1e6)
        race.faster(ours, theirs, at_least(3))


def columns(bench: Bench, near: servers.Store, bucket: Path) -> None:
    """Two of forty columns, and the bytes that the server sent for them."""
    parsed = pq.read_metadata(bucket / "wide.parquet")
    groups = range(parsed.num_row_groups)
    wanted = sum(parsed.row_group(group).column(at).total_compressed_size for group in groups for at in (3, 17))
    with bench.race(f"2 of {COLUMNS} columns", "row", rounds=5) as race:
        race.log = near.log
        ours = race.ours("ShardedDataset", "rows.fsabs_columns", WIDE_ROWS, endpoint=near.endpoint, rows=WIDE_ROWS)
        race.run()
        race.table("seconds", "us/row", 1e6)
        sent = [size / wanted for size in race.counts(ours, "bytes")]
        bench.claim(f"2 of {COLUMNS} columns: bytes against theirs", sent, "x", at_most(1.1))


def local_tokens(bench: Bench, bucket: Path) -> None:
    """Batches of windows in random order, of a local file."""
    batches = 2000
    path = {"path": str(bucket / "tokens" / "train.bin"), "length": LENGTH, "batch": BATCH, "batches": batches}
    with bench.race(f"windows of {LENGTH} tokens at random, local", "batch", rounds=15) as race:
        ours = race.ours("TokenDataset", "rows.fsabs_tokens", batches, **path)
        theirs = race.beside("np.memmap", "rows.numpy_tokens", batches, **path)
        race.run()
        race.table("seconds", "us/batch", 1e6)
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
            race.run()
            race.table("seconds", "us/batch", 1e6)
            race.table("fetching", "us/batch", 1e6, f"{race.title}: fetching alone")
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
            race.run()
            race.table("seconds", "us/window", 1e6)
            race.faster(ours, theirs, at_least(3))


def state(bench: Bench, bucket: Path) -> None:
    """The state of a mixture of 16 sources with 8 workers."""
    options = {"path": str(bucket / "tokens" / "train.bin"), "workers": 8}
    with bench.race("state_dict() of a mixture, 8 workers", "state", rounds=5) as race:
        few = race.ours(f"{SOURCES} sources", "rows.mixture_state", 1000, **options, sources=SOURCES)
        more = race.ours(f"{2 * SOURCES} sources", "rows.mixture_state", 1000, **options, sources=2 * SOURCES)
        race.run()
        race.table("seconds", "us/state", 1e6)
        milliseconds = [seconds * 1e3 for seconds in race.values(few, "seconds")]
        bench.claim("the state of 16 sources and 8 workers", milliseconds, "ms", at_most(1))
        bench.claim("the state of 16 sources and 8 workers: size", race.counts(few, "size"), "B", at_most(1024))
        sizes = zip(race.counts(few, "size"), race.counts(more, "size"), strict=True)
        each = [(larger - smaller) / SOURCES for smaller, larger in sizes]
        bench.claim("the state of a mixture: each source more", each, "B", at_most(16))
