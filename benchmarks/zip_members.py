"""Members of local zips that are open: small stored ones, deflated ones, and those of a zip in a zip."""

from __future__ import annotations

import random
from typing import Any

from .frame import data
from .frame.measure import at_least, at_most
from .frame.race import Bench


def run(bench: Bench) -> None:
    """Three races."""
    stored(bench)
    deflated(bench)
    nested(bench)


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
        race.run()
        race.table("seconds", "us/member", 1e6)
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
        race.run()
        race.table("seconds", "us/member", 1e6)
        race.faster(single, theirs, at_least(1.5))
        race.faster(many, theirs, at_least(1.5))
        bench.note(f"For deflated members: {data.inflater()}.")


def nested(bench: Bench) -> None:
    """The same members, directly and one zip deeper."""
    size, count = 20_000, 1000
    flat, outer = bench.folder / "flat.zip", bench.folder / "outer.zip"
    names = random.Random(2).sample(data.stored_zip(flat, 2000, size), count)
    data.zip_of(outer, flat)
    with bench.race("20 KB members of a zip in a zip, both stored", "member", rounds=20) as race:
        once = race.ours("fsabs, zip", "zips.fsabs_local", count, path=str(flat), names=names, size=size)
        inner = f"{outer}/{flat.name}"
        twice = race.ours("fsabs, zip in a zip", "zips.fsabs_local", count, path=inner, names=names, size=size)
        race.run()
        race.table("seconds", "us/member", 1e6)
        race.cheaper(twice, once, at_most(1.2), "seconds", "time")
