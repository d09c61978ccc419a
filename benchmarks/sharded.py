"""An epoch of a sharded data set in one process, in order and shuffled, against webdataset."""

from __future__ import annotations

from .frame.measure import at_least
from .frame.race import Bench
from .recordio import COUNT, WORDS, make_records

SHARDS = 16
BUFFER = 1000


def run(bench: Bench) -> None:
    """Two races."""
    source = bench.folder / "records"
    make_records(source)
    shards = {"source": str(source), "folder": str(bench.folder / "shards"), "shards": SHARDS}
    tars = {**shards, "folder": str(bench.folder / "tars")}
    with bench.race(f"{SHARDS} shards in order", "record", rounds=5) as race:
        ours = race.ours("ShardedDataset", "sharding.fsabs", COUNT, **shards)
        race.ours("Reader, shard by shard", "sharding.fsabs_bare", COUNT, **shards)
        theirs = race.peer("webdataset", "webdataset", "sharding.webdataset", COUNT, of="training", **tars)
        race.run("us/record")
        race.faster(ours, theirs, at_least(1))
    with bench.race(f"{SHARDS} shards, shuffled in a buffer of {BUFFER}", "record", rounds=5) as race:
        ours = race.ours("ShardedDataset", "sharding.fsabs", COUNT, **shards, seed=1, buffer_size=BUFFER)
        blocks = {**shards, "seed": 1, "buffer_size": BUFFER, "block_size": 256}
        race.ours("ShardedDataset, blocks of 256", "sharding.fsabs", COUNT, **blocks)
        theirs = race.peer(
            "webdataset", "webdataset", "sharding.webdataset", COUNT, of="training", **tars, buffer=BUFFER
        )
        race.run("us/record")
        race.faster(ours, theirs, at_least(1))
    bench.note(f"{COUNT:,} records of {WORDS} words, uncompressed, on a local disk, in the page cache; no DataLoader.")
