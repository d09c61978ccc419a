"""The first batch of a DataLoader over a zip of 1,000,000 members, under fork, spawn and forkserver; pickled sizes."""

from __future__ import annotations

from .contestants.loader_starts import BATCH, CONTEXTS, WORKERS
from .frame import data
from .frame.measure import at_most
from .frame.race import Bench

MEMBERS = 1_000_000


def run(bench: Bench) -> None:
    """One race, in which each round starts workers by each method; spawn pickles all paths, and takes seconds."""
    archive = bench.folder / "many.zip"
    data.zip_of_many(archive, MEMBERS)
    with bench.race(f"first batch of {WORKERS} workers", "batch", rounds=2) as race:
        ours = [
            race.ours("FileDataset", "loader_starts.files", 1, path=str(archive)),
            race.ours("ImageFolder", "loader_starts.images", 1, path=str(archive)),
        ]
        folder = str(bench.folder / "plain")
        plain = race.beside("local paths, one by one", "loader_starts.plain", 1, folder=folder, count=MEMBERS)
        race.run(warming=0)
        for context in CONTEXTS:
            race.table(context, "ms", 1e3, f"first batch of {WORKERS} workers, {context}")
            for one in ours:
                race.cheaper(one, plain, at_most(1.3), context, f"{context}, time")
        race.table("pickled", "MB", 1e-6, "pickled size of the data set", whole_round=True)
        for one in ours:
            race.cheaper(one, plain, at_most(1.3), "pickled", "pickled size")
    bench.note(f"{MEMBERS:,} stored members of 8 bytes, shuffled, batches of {BATCH}; the zip's index is cached.")
    bench.note("The plain data set has as many paths, of 1,000 files, and opens each file when it is wanted.")
