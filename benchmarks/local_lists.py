"""Listing and matching a local directory of many files, against `os.scandir` and Python's own `glob`."""

from __future__ import annotations

from .frame.measure import at_most
from .frame.race import Bench

MANY, FEW = 1_000_000, 200_000


def run(bench: Bench) -> None:
    """The files are empty, and the directory is warm. Every tenth name matches the pattern."""
    count = MANY if bench.full else FEW
    folder = bench.folder / "many"
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:07}.bin").touch()
    path = {"path": str(folder), "count": count}
    with bench.race(f"listing a directory of {count:,} files", "file", rounds=9) as race:
        ours = race.ours("fs.list", "listing.fsabs_list", count, **path)
        stdlib = race.beside("os.scandir", "listing.scandir", count, **path)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(ours, stdlib, at_most(2), "seconds", "time")
        first = [1e3 * count * seconds for seconds in race.values(ours, "first")]
        bench.claim(f"{race.title}: the first name", first, "ms", at_most(10))
    with bench.race(f"matching *5.bin among {count:,} files", "file", rounds=9) as race:
        ours = race.ours("fs.glob", "listing.fsabs_glob", count, **path)
        stdlib = race.beside("glob.iglob", "listing.stdlib_glob", count, **path)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(ours, stdlib, at_most(2), "seconds", "time")
