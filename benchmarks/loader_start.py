"""The first batch of a DataLoader over a zip of 1,000,000 members, under fork, spawn and forkserver; pickled sizes."""

from __future__ import annotations

from .contestants.loader_starts import BATCH, WORKERS
from .frame import data
from .frame.measure import at_most
from .frame.race import Bench, Entrant, Race

MEMBERS = 1_000_000
CONTEXTS = ("fork", "spawn", "forkserver")


def run(bench: Bench) -> None:
    """A race for each start method."""
    archive = bench.folder / "many.zip"
    data.zip_of_many(archive, MEMBERS)
    for context in CONTEXTS:
        with bench.race(f"first batch of {WORKERS} workers, {context}", "batch", rounds=3) as race:
            plain, ours = entrants(bench, race, context)
            race.run()
            race.table("seconds", "ms", 1e3)
            for one in ours:
                race.cheaper(one, plain, at_most(1.3), "seconds", "time")
            if context == CONTEXTS[0]:
                race.table("pickled", "MB", 1e-6, "pickled size of the data set", whole_round=True)
                for one in ours:
                    race.cheaper(one, plain, at_most(1.3), "pickled", "pickled size")
    bench.note(
        f"{MEMBERS:,} stored members of 8 bytes, shuffled, in batches of {BATCH}; the index of the zip is cached."
    )
    bench.note("The plain data set has as many paths, of 1,000 files, and opens each file when it is wanted.")


def entrants(bench: Bench, race: Race, context: str) -> tuple[Entrant, list[Entrant]]:
    """Return the plain data set, and ours."""
    archive = str(bench.folder / "many.zip")
    ours = [
        race.ours("FileDataset", "loader_starts.files", 1, path=archive, context=context),
        race.ours("ImageFolder", "loader_starts.images", 1, path=archive, context=context),
    ]
    options = {"folder": str(bench.folder / "plain"), "count": MEMBERS, "context": context}
    return race.beside("local paths, one by one", "loader_starts.plain", 1, **options), ours
