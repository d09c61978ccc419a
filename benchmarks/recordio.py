"""Records of a RecordIO file, in order and in random batches, against array_record and webdataset."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

from .frame.measure import at_least
from .frame.race import Bench

COUNT = 65_536
WORDS = 200


def run(bench: Bench) -> None:
    """In order, then at random."""
    source = bench.folder / "records"
    size = make_records(source)
    in_order(bench, source, size)
    for batch in (128, 1024):
        at_random(bench, source, size, batch)
    bench.note(f"{COUNT:,} records of {WORDS} words, {size // COUNT:,} bytes each, on a local disk, in the page cache.")
    bench.note("Groups of 256 records in array_record's files, and chunks of as many in ours; both uncompressed.")


def make_records(path: Path) -> int:
    """Write lengths and records of random words; how many bytes the records are."""
    source = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(source.choices(letters, k=source.randint(4, 10))) for _ in range(20_000)]
    size = 0
    with path.open("wb") as file:
        for _ in range(COUNT):
            record = " ".join(source.choices(words, k=WORDS)).encode()
            file.write(struct.pack("<I", len(record)) + record)
            size += len(record)
    return size


def in_order(bench: Bench, source: Path, size: int) -> None:
    """All records, one after the other."""
    options: dict[str, Any] = {"source": str(source)}
    grouped = {**options, "chunk": 256 * size // COUNT}
    with bench.race("Records in order", "record", rounds=15) as race:
        mine = race.ours("fsabs", "records.fsabs_scan", COUNT, path=f"{source}.256", **grouped)
        path = f"{source}.array_record"
        single = race.peer(
            "array_record, read()", "array_record", "records.array_record_scan", COUNT, path=path, **options
        )
        ranges = race.peer(
            "array_record, read(a, b)", "array_record", "records.array_record_ranges", COUNT, path=path, **options
        )
        tar = race.peer(
            "webdataset", "webdataset", "records.webdataset", COUNT, of="training", path=f"{source}.tar", **options
        )
        race.run("us/record")
        race.rate(mine)
        race.against_best(mine, [single, ranges], at_least(1))
        race.faster(mine, tar, at_least(1.5))


def at_random(bench: Bench, source: Path, size: int, batch: int) -> None:
    """Batches of records that lie anywhere."""
    count = 16 * 1024
    options: dict[str, Any] = {"source": str(source), "batch": batch, "count": count}
    grouped = {**options, "path": f"{source}.256", "chunk": 256 * size // COUNT}
    with bench.race(f"Random records, {batch} at once", "record", rounds=7) as race:
        mine = race.ours("fsabs", "records.fsabs_batches", count, **grouped, cache=64 << 20)
        bare = race.ours("fsabs, nothing kept", "records.fsabs_batches", count, **grouped, cache=0)
        path = f"{source}.array_record"
        theirs = race.peer("array_record", "array_record", "records.array_record_batches", count, path=path, **options)
        race.run("us/record")
        race.faster(mine, theirs, at_least(1))
        race.faster(bare, theirs, at_least(1))
