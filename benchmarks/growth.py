"""How cost grows: opening, listing and finding in archives and buckets of 1,000 to 1,000,000 entries."""

from __future__ import annotations

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .frame import data, sink
from .frame.measure import at_most
from .frame.race import Bench, Entrant, Race

COUNTS = (1_000, 10_000, 100_000, 1_000_000)
LOOKUPS = 2000
WORK = 100_000
"""Entries that a round goes through at least, by going through few ones often."""
SLACK = 1.5
"""What an entry may cost at the largest count, to its cost at 10,000: memory and caches have steps of their own."""


def run(bench: Bench) -> None:
    """Zips, tars, and buckets that nobody stores."""
    bench.note("The entries of archives are in directories of a hundred; a bucket's keys are in one.")
    zips = {}
    for count in COUNTS:
        path = bench.folder / f"{count}.zip"
        data.zip_of_many(path, count)
        zips[count] = str(path)
    archives(bench, "zip", zips)
    for stored in zips.values():
        Path(stored).unlink()
    tars = {}
    for count in COUNTS:
        tar = bench.folder / f"{count}.tar"
        data.tar_of_many(tar, count)
        tars[count] = str(tar)
    archives(bench, "tar", tars)
    with buckets(COUNTS) as endpoints, bench.race("listing a bucket", "object", rounds=1) as race:
        listed = {}
        for count, endpoint in endpoints.items():
            options: dict[str, Any] = {"endpoint": endpoint, "count": count, "times": max(1, WORK // count)}
            name = f"{count:,} objects"
            listed[count] = race.ours(name, "growing.list_bucket", count * options["times"], **options)
        race.run(warming=0)  # each has had its first page, and a million take most of a minute
        race.table("seconds", "us/object", 1e6)
        linear(race, listed)


def archives(bench: Bench, form: str, paths: dict[int, str]) -> None:
    """Opening (with nothing kept, and again), listing and finding, each a race of the counts."""
    for what, contestant, unit, rounds in (
        (f"opening a {form}, nothing kept", "growing.open_first", "entry", 1),
        (f"opening a {form} again", "growing.open_again", "opening", 5),
        (f"listing a {form}", "growing.list_all", "entry", 1),
        (f"finding in a {form}", "growing.find", "lookup", 7),
    ):
        with bench.race(what, unit, rounds=rounds) as race:
            entrants = {}
            for count, path in paths.items():
                times = max(1, WORK // count) if unit == "entry" else 1
                each = {"entry": count * times, "opening": 1, "lookup": LOOKUPS}[unit]
                names = data.names(count)[:: max(1, count // LOOKUPS)]
                options: dict[str, Any] = {"path": path, "names": names, "count": count, "times": times}
                entrants[count] = race.ours(f"{count:,} entries", contestant, each, **options)
            race.run()
            race.table("seconds", f"us/{unit}", 1e6)
            if unit != "opening":
                linear(race, entrants)


def linear(race: Race, entrants: dict[int, Entrant]) -> None:
    """An entry must not cost more among many: in CPU time, since a long round meets more of what else goes on."""
    most = max(entrants)
    race.cheaper(entrants[most], entrants[10_000], at_most(SLACK), "cpu", f"CPU time per {race.thing}")


@contextlib.contextmanager
def buckets(counts: tuple[int, ...]) -> Iterator[dict[int, str]]:
    """Stores of keys that are not there, whose pages have been asked for once: the endpoint of each count of keys."""
    with contextlib.ExitStack() as stack:
        endpoints = {}
        for count in counts:
            endpoints[count] = stack.enter_context(sink.start(keys=count))
            for first in range(0, count, 1000):
                with urllib.request.urlopen(f"{endpoints[count]}/?list-type=2&continuation-token={first}") as page:
                    page.read()
        yield endpoints
