"""Listing and matching a local directory of many files, against `os.scandir` and Python's own `glob`."""

from __future__ import annotations

from .frame.measure import at_most
from .frame.race import Bench

COUNT = 200_000


def run(bench: Bench) -> None:
    """The files are empty, and the directory is warm. Every tenth name matches the pattern."""
    folder = bench.folder / "many"
    folder.mkdir()
    for number in range(COUNT):
        (folder / f"{number:07}.bin").touch()
    path = {"path": str(folder), "count": COUNT}
    with bench.race(f"listing a directory of {COUNT:,} files", "file", rounds=9) as race:
        ours = race.ours("fs.list", "listing.fsabs_list", COUNT, **path)
        stdlib = race.beside("os.scandir", "listing.scandir", COUNT, **path)
        race.run("us/file")
        race.cheaper(ours, stdlib, at_most(2), "seconds", "time")
        race.claim(ours, "ms", at_most(10), f"{race.title}: the first name", "first")
    with bench.race(f"matching *5.bin among {COUNT:,} files", "file", rounds=9) as race:
        ours = race.ours("fs.glob", "listing.fsabs_glob", COUNT, **path)
        stdlib = race.beside("glob.iglob", "listing.stdlib_glob", COUNT, **path)
        race.run("us/file")
        race.cheaper(ours, stdlib, at_most(2), "seconds", "time")
