"""Files of a local directory: against Python's own `open`."""

from __future__ import annotations

import random
from typing import Any

from .frame import data
from .frame.measure import at_most
from .frame.race import Bench

FILES = 1000


def run(bench: Bench) -> None:
    """Small files, and larger ones."""
    for size in (4_000, 20_000, 100_000):
        folder = bench.folder / str(size)
        names = [f"{part}/{name}" for part in range(10) for name in data.objects(folder / str(part), FILES // 10, size)]
        random.Random(3).shuffle(names)
        options: dict[str, Any] = {"path": str(folder), "names": names, "size": size}
        with bench.race(f"local files of {size // 1000} KB", "file", rounds=25) as race:
            whole = race.ours("fs.read_bytes", "files.fsabs_read_bytes", FILES, **options)
            opened = race.ours("fs.open, read", "files.fsabs_open", FILES, **options)
            race.ours("fs.read_many", "files.fsabs_read_many", FILES, **options)
            theirs = race.beside("open, read", "files.builtin_open", FILES, **options)
            race.peer("pfio", "pfio", "files.pfio", FILES, **options)
            race.peer("fsspec", "fsspec", "files.fsspec", FILES, **options)
            race.run("us/file")
            race.cheaper(whole, theirs, at_most(1.5), "seconds", "time")
            race.cheaper(opened, theirs, at_most(1.4 if size == 20_000 else 2.5), "seconds", "time")
