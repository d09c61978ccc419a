"""Other libraries on this one: tables, arrays and checkpoints, against their usual stores; what a patch costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

ROWS, COLUMNS, GROUP = 100_000, 40, 20_000
SIDE, CHUNK = 4096, 256
"""Of the array, and of its chunks: 256 of 256 KiB."""
TENSORS, TENSOR_BYTES = 64, 16 << 20
CALLS = 20_000


def run(bench: Bench) -> None:
    """Reads from a bucket, then a checkpoint on the local disk, then calls that no patch concerns."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    with servers.store(bench.folder, logged=True) as store:
        tables(bench, bucket, store.endpoint)
        arrays(bench, bucket, store.endpoint)
        columns(bench, bucket, store)
    checkpoints(bench)
    untouched(bench)


def _table() -> Any:
    import pandas as pd

    random = np.random.default_rng(2)
    return pd.DataFrame({f"c{number}": random.random(ROWS) for number in range(COLUMNS - 1)} | {"n": range(ROWS)})


def tables(bench: Bench, bucket: Path, endpoint: str) -> None:
    """A whole table of Parquet."""
    _table().to_parquet(bucket / "table.parquet", row_group_size=GROUP)
    with bench.race("pd.read_parquet of 32 MB from S3", "table", rounds=5) as race:
        options: dict[str, Any] = {"endpoint": endpoint, "rows": ROWS}
        ours = race.ours("fsabs+s3://", "libraries.fsabs_table", 1, **options)
        s3fs = race.peer("s3fs", "s3fs", "libraries.s3fs_table", 1, of="adapters", **options)
        race.run("ms")
        race.faster(ours, s3fs, at_least(1.0))


def arrays(bench: Bench, bucket: Path, endpoint: str) -> None:
    """A whole array of Zarr 3, whose chunks are not compressed."""
    import zarr

    options: dict[str, Any] = {"shape": (SIDE, SIDE), "chunks": (CHUNK, CHUNK), "dtype": "f4", "compressors": None}
    array: Any = zarr.create_array(str(bucket / "a.zarr"), zarr_format=3, **options)
    array[:] = np.random.default_rng(3).random((SIDE, SIDE), dtype=np.float32)
    with bench.race("a Zarr array of 64 MiB in 256 chunks from S3", "array", rounds=5) as race:
        options = {"endpoint": endpoint, "side": SIDE}
        ours = race.ours("fsabs+s3://", "libraries.fsabs_array", 1, **options)
        s3fs = race.peer("s3fs", "s3fs", "libraries.s3fs_array", 1, of="adapters", **options)
        obstore = race.peer("obstore", "obstore", "libraries.obstore_array", 1, of="adapters", **options)
        race.run("ms")
        race.faster(ours, s3fs, at_least(1.0))
        race.faster(ours, obstore, at_least(0.8))


def columns(bench: Bench, bucket: Path, store: servers.Store) -> None:
    """Two columns and one group of rows, from a stored zip and from the bare file."""
    data.zip_of(bucket / "table.zip", bucket / "table.parquet")
    with bench.race("2 of 40 columns, 1 of 5 groups of rows, from S3", "table", rounds=3) as race:
        race.log = store.log
        options: dict[str, Any] = {"endpoint": store.endpoint, "least": ROWS - GROUP}
        ours = race.ours("fs.arrow(), inside a zip", "libraries.fsabs_columns", 1, **options)
        bare = race.peer("pyarrow, the bare file", "pyarrow", "libraries.pyarrow_columns", 1, of="adapters", **options)
        race.run()
        race.table("bytes", "KB", f"{race.title}: bytes fetched", whole_round=True)
        race.table("seconds", "ms")
        race.cheaper(ours, bare, at_most(1.1), "bytes", "bytes fetched")


def checkpoints(bench: Bench) -> None:
    """1 GiB of tensors on the local disk."""
    folder = bench.folder / "checkpoints"
    folder.mkdir()
    with bench.race("a checkpoint of 1 GiB on the local disk", "checkpoint", rounds=5) as race:
        options: dict[str, Any] = {"folder": str(folder), "tensors": TENSORS, "size": TENSOR_BYTES}
        ours = race.ours("DCP, DistributedWriter", "libraries.fsabs_checkpoint", 1, **options)
        saved = race.beside("torch.save", "libraries.torch_save", 1, **options)
        race.beside("DCP, its own FileSystemWriter", "libraries.torch_checkpoint", 1, **options)
        race.run("s")
        race.faster(ours, saved, at_least(0.8))


def untouched(bench: Bench) -> None:
    """Calls with a local path: what a patch adds to them."""
    with bench.race("os.path.exists of a local path", "call", rounds=7) as race:
        patched = race.ours("patched", "libraries.exists", CALLS, calls=CALLS, patched=True)
        plain = race.beside("as Python has it", "libraries.exists", CALLS, calls=CALLS, patched=False)
        race.run("us/call")
        pairs = zip(race.values(patched, "seconds"), race.values(plain, "seconds"), strict=True)
        bench.claim("a patch adds to a call", [(ours - theirs) * 1e6 for ours, theirs in pairs], "us", at_most(2, "us"))
