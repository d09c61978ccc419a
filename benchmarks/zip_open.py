"""Opening a local zip of 1,000,000 entries, each time in a new process: its time and its memory."""

from __future__ import annotations

from .frame import data
from .frame.measure import at_least, at_most
from .frame.race import Bench

ENTRIES = 1_000_000


def run(bench: Bench) -> None:
    """The first time, with the index kept, and by zipfile."""
    archive = bench.folder / "many.zip"
    name = data.zip_of_many(archive, ENTRIES)
    options = {"path": str(archive), "name": name}
    with bench.race("opening a zip of 1,000,000 entries, and finding one", "opening", rounds=6) as race:
        mapped = race.ours("fsabs.from_url, index mapped", "opening.fsabs_mapped", 1, **options)
        first = race.ours("fsabs.from_url, first time", "opening.fsabs_first", 1, **options)
        theirs = race.beside("zipfile.ZipFile", "opening.zipfile", 1, **options)
        race.run("ms")
        race.table("peak", "MB", "the same: growth of the resident memory's peak", whole_round=True)
        race.table("private", "MB", "the same: private memory of the whole process", whole_round=True)
        race.faster(first, theirs, at_least(12))
        race.cheaper(first, theirs, at_most(0.2), "peak", "memory")
        race.claim(mapped, "ms", at_most(15, "ms"), "index mapped: opening")
        race.claim(mapped, "MB", at_most(5, "MB"), "index mapped: private memory by opening", "grown")
        bench.note("What is imported is loaded before: each process has opened a small zip already.")
