"""Writing locally: small files, and trees that are packed, against Python's own and GNU tar."""

from __future__ import annotations

import os
import tempfile
from typing import Any

from .frame.measure import at_least, at_most
from .frame.race import Bench

FILES = 1000


def run(bench: Bench) -> None:
    """Small files, then containers of them."""
    folder = str(bench.folder / "written")
    small(bench, "writing local files of 4 KB", folder, 4096, "a temporary file, os.replace", "temporary_file", 1.15)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        small(bench, "writing files of 20 KB on tmpfs", memory, 20_000, "open, write", "builtin_open", 1.6)
    source = bench.folder / "source"
    source.mkdir()
    for number in range(FILES):
        (source / f"{number:04}.bin").write_bytes(os.urandom(10_000) + bytes(10_000))
    tree: dict[str, Any] = {"source": str(source), "target": str(bench.folder)}
    with bench.race("packing local files of 20 KB", "file", rounds=20) as race:
        zipped = race.ours("pack to zip", "writing.fsabs_pack", FILES, name="ours.zip", **tree)
        tarred = race.ours("pack to tar", "writing.fsabs_pack", FILES, name="ours.tar", **tree)
        by_zipfile = race.beside("zipfile", "writing.by_zipfile", FILES, **tree)
        by_tar = race.beside("GNU tar", "writing.by_gnu_tar", FILES, **tree)
        race.run("us/file", "seconds", "cpu")
        race.cheaper(zipped, by_zipfile, at_most(0.7), "seconds", "time")
        race.cheaper(tarred, by_tar, at_most(1.5), "seconds", "time")
    with bench.race("packing local files of 20 KB into HDF5", "file", rounds=8) as race:
        packed = race.ours("pack to HDF5", "writing.fsabs_pack", FILES, name="ours.h5", **tree)
        by_h5py = race.beside("h5py", "writing.by_h5py", FILES, **tree)
        race.run("us/file")
        race.cheaper(packed, by_h5py, None, "seconds", "time")
    with bench.race("packing local files of 20 KB, deflated", "file", rounds=8) as race:
        zipped = race.ours("pack to zip", "writing.fsabs_pack", FILES, name="ours.zip", deflated=True, **tree)
        by_zipfile = race.beside("zipfile", "writing.by_zipfile", FILES, deflated=True, **tree)
        race.run("us/file")
        race.faster(zipped, by_zipfile, at_least(3.0))


def small(bench: Bench, title: str, folder: str, size: int, name: str, function: str, most: float) -> None:
    """Files that are written one by one."""
    options = {"path": folder, "count": FILES, "size": size}
    with bench.race(title, "file", rounds=20) as race:
        ours = race.ours("fs.write_bytes", "writing.fsabs_write_bytes", FILES, **options)
        theirs = race.beside(name, f"writing.{function}", FILES, **options)
        race.run("us/file")
        race.cheaper(ours, theirs, at_most(most), "seconds", "time")
