"""Members of local zips that are open: small stored ones, and deflated ones."""

from __future__ import annotations

import random
from typing import Any

from .frame import data
from .frame.measure import at_least
from .frame.race import Bench


def run(bench: Bench) -> None:
    """Two races."""
    stored(bench)
    deflated(bench)


def stored(bench: Bench) -> None:
    """2 KB."""
    size, count = 2000, 2000
    archive = bench.folder / "stored.zip"
    names = random.Random(2).sample(data.stored_zip(archive, 20_000, size), count)
    options: dict[str, Any] = {"path": str(archive), "names": names, "size": size}
    with bench.race("2 KB stored members of a local zip", "member", rounds=20) as race:
        single = race.ours("fs.read_bytes", "zips.fsabs_local", count, **options)
        first = race.ours("fs.read_bytes, for the first time", "zips.fsabs_local_first", count, **options)
        many = race.ours("fs.read_many", "zips.fsabs_local_many", count, **options)
        race.ours("fs.open, read", "zips.fsabs_local_open", count, **options)
        theirs = race.beside("zipfile.ZipFile.read", "zips.zipfile_local", count, **options)
        race.peer("pfio", "pfio", "zips.pfio_local", count, **options)
        race.run("us/member")
        race.faster(single, theirs, at_least(3))
        race.faster(first, theirs)
        race.faster(many, theirs, at_least(3))


def deflated(bench: Bench) -> None:
    """20 KB of words, which deflate to about a third."""
    size, count = 20_000, 500
    archive = bench.folder / "deflated.zip"
    names = random.Random(2).sample(data.deflated_zip(archive, 1000, size), count)
    options: dict[str, Any] = {"path": str(archive), "names": names, "size": size}
    with bench.race("20 KB deflated members of a local zip", "member", rounds=20) as race:
        single = race.ours("fs.read_bytes", "zips.fsabs_local", count, **options)
        many = race.ours("fs.read_many", "zips.fsabs_local_many", count, **options)
        theirs = race.beside("zipfile.ZipFile.read", "zips.zipfile_local", count, **options)
        race.run("us/member")
        race.faster(single, theirs, at_least(1.5))
        race.faster(many, theirs, at_least(1.5))
