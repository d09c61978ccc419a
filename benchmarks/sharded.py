"""An epoch of a sharded data set in one process, in order and shuffled, against webdataset; and what a state costs."""

from __future__ import annotations

from .frame.measure import at_least, at_most
from .frame.race import Bench
from .recordio import COUNT, WORDS, make_records

SHARDS = 16
BUFFER = 1000
STATES = 1000
"""`state_dict()` calls of one round."""


def run(bench: Bench) -> None:
    """Two races and the cost of a state."""
    source = bench.folder / "records"
    make_records(source)
    shards = {"source": str(source), "folder": str(bench.folder / "shards"), "shards": SHARDS}
    tars = {**shards, "folder": str(bench.folder / "tars")}
    with bench.race(f"{SHARDS} shards in order", "record", rounds=5) as race:
        ours = race.ours("ShardedDataset", "sharding.fsabs", COUNT, **shards)
        race.ours("Reader, shard by shard", "sharding.fsabs_bare", COUNT, **shards)
        theirs = race.peer("webdataset", "webdataset", "sharding.webdataset", COUNT, of="training", **tars)
        race.run()
        race.table("seconds", "us/record", 1e6)
        race.faster(ours, theirs, at_least(1))
    with bench.race(f"{SHARDS} shards, shuffled in a buffer of {BUFFER}", "record", rounds=5) as race:
        ours = race.ours("ShardedDataset", "sharding.fsabs", COUNT, **shards, seed=1, buffer_size=BUFFER)
        blocks = {**shards, "seed": 1, "buffer_size": BUFFER, "block_size": 256}
        race.ours("ShardedDataset, blocks of 256", "sharding.fsabs", COUNT, **blocks)
        theirs = race.peer(
            "webdataset", "webdataset", "sharding.webdataset", COUNT, of="training", **tars, buffer=BUFFER
        )
        race.run()
        race.table("seconds", "us/record", 1e6)
        race.faster(ours, theirs, at_least(1))
    states(bench, shards)
    bench.note(f"{COUNT:,} records of {WORDS} words, uncompressed, on a local disk, in the page cache; no DataLoader.")


def states(bench: Bench, shards: dict[str, object]) -> None:
    """`state_dict()` in the middle of an epoch, after none and after many restarts."""
    with bench.race("state_dict()", "state", rounds=5) as race:
        fresh = race.ours("first run", "sharding.state", STATES, **shards, restarts=0)
        often = race.ours("after 50 restarts", "sharding.state", STATES, **shards, restarts=50)
        race.run()
        race.table("seconds", "us/state", 1e6)
        for one in (fresh, often):
            milliseconds = [seconds * 1e3 for seconds in race.values(one, "seconds")]
            bench.claim(f"state_dict(), {one.name}", milliseconds, "ms", at_most(1))
