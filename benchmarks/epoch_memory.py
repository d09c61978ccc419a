"""An epoch of shuffled shards from a store, with 0, 2 and 4 workers: memory of all processes, requests and bytes."""

from __future__ import annotations

import gzip
import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from fsabs import from_url
from fsabs.readers import RecordWriter

from .frame import data, servers
from .frame.race import Bench

SHARDS, SAMPLES = 4, 16_384
"""Shards of each format, and samples of each, of 4 KB: a shard has 64 MB."""


def run(bench: Bench) -> None:
    """A race for each format and number of workers."""
    bucket = bench.folder / "bucket"
    for folder, write in FORMATS.items():
        (bucket / folder).mkdir(parents=True)
        write(bucket / folder)
        data.write_listing(bucket, f"{folder}/")
    with servers.store(bench.folder, logged=True) as store:
        for folder in FORMATS:
            with bench.race(f"{folder} from S3, shuffled", "sample", rounds=1) as race:
                race.log = store.log
                for workers in (0, 2, 4):
                    options = {"endpoint": store.endpoint, "folder": folder, "workers": workers}
                    race.ours(
                        f"{workers} workers",
                        "epochs.fsabs_epoch",
                        SHARDS * SAMPLES,
                        samples=SHARDS * SAMPLES,
                        **options,
                    )
                race.run(warming=0)
                race.table("peak", "MB", f"{race.title}: memory of all processes, at most (PSS)", whole_round=True)
                race.table("bytes", "MB", f"{race.title}: bytes fetched", whole_round=True)
                race.table("requests", "", f"{race.title}: requests", whole_round=True)


def _texts(shard: int) -> Iterator[str]:
    rng = random.Random(shard)
    return (rng.randbytes(2048).hex() for _ in range(SAMPLES))


def _parquet(folder: Path) -> None:
    for shard in range(SHARDS):
        table = pa.table({"text": list(_texts(shard))})
        pq.write_table(table, folder / f"{shard}.parquet", SAMPLES, compression="zstd", use_dictionary=False)


def _recordio(folder: Path) -> None:
    for shard in range(SHARDS):
        with RecordWriter(from_url(str(folder)), f"{shard}.recordio", compressor="snappy") as file:
            for text in _texts(shard):
                file.write(text.encode())


def _json_lines(folder: Path) -> None:
    for shard in range(SHARDS):
        with gzip.open(folder / f"{shard}.jsonl.gz", "wt", 1) as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in _texts(shard))


def _mds(folder: Path) -> None:
    shards = []
    for shard in range(SHARDS):
        samples = [struct.pack("<I", len(text)) + text.encode() for text in _texts(shard)]
        start, offsets = 4 * (SAMPLES + 2) + 2, io.BytesIO()
        offsets.write(struct.pack("<I", SAMPLES))
        for sample in [b"", *samples]:
            start += len(sample)
            offsets.write(struct.pack("<I", start))
        content = offsets.getvalue() + b"{}" + b"".join(samples)
        name = f"shard.{shard:05}.mds"
        (folder / name).write_bytes(content)
        columns = {"column_names": ["text"], "column_encodings": ["str"], "column_sizes": [None]}
        raw = {"basename": name, "bytes": len(content), "hashes": {}}
        one = {"format": "mds", "version": 2, "raw_data": raw, "zip_data": None, "compression": None}
        shards.append({**one, **columns, "samples": SAMPLES})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))


def _zip(folder: Path) -> None:
    for shard in range(SHARDS):
        with zipfile.ZipFile(folder / f"{shard}.zip", "w") as archive:
            for number, text in enumerate(_texts(shard)):
                archive.writestr(f"{number:06}.txt", text)


FORMATS: dict[str, Callable[[Path], None]] = {
    "parquet": _parquet,
    "recordio": _recordio,
    "jsonl.gz": _json_lines,
    "mds": _mds,
    "zip": _zip,
}
