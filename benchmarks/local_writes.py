"""Writing locally: small files, and trees that are packed, against Python's own and GNU tar."""

from __future__ import annotations

import os
import tempfile

from .frame.measure import at_least, at_most
from .frame.race import Bench

FILES = 1000
TMPFS = "writing files of 20 KB on tmpfs"


def run(bench: Bench) -> None:
    """Small files, then containers of them."""
    with bench.race("writing local files of 4 KB", "file", rounds=20) as race:
        folder = str(bench.folder / "written")
        ours = race.ours("fs.write_bytes", "writing.fsabs_write_bytes", FILES, path=folder, count=FILES, size=4096)
        theirs = race.beside(
            "a temporary file, os.replace", "writing.temporary_file", FILES, path=folder, count=FILES, size=4096
        )
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(ours, theirs, at_most(1.15), "seconds", "time")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder, bench.race(TMPFS, "file", rounds=20) as race:
        ours = race.ours("fs.write_bytes", "writing.fsabs_write_bytes", FILES, path=folder, count=FILES, size=20_000)
        theirs = race.beside("open, write", "writing.builtin_open", FILES, path=folder, count=FILES, size=20_000)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(ours, theirs, at_most(1.6), "seconds", "time")
    source = bench.folder / "source"
    source.mkdir()
    for number in range(FILES):
        half = os.urandom(10_000)
        (source / f"{number:04}.bin").write_bytes(half + bytes(10_000))
    tree = {"source": str(source), "target": str(bench.folder)}
    with bench.race("packing local files of 20 KB", "file", rounds=20) as race:
        zipped = race.ours("pack to zip", "writing.fsabs_pack", FILES, name="ours.zip", options={}, **tree)
        tarred = race.ours("pack to tar", "writing.fsabs_pack", FILES, name="ours.tar", options={}, **tree)
        by_zipfile = race.beside("zipfile", "writing.by_zipfile", FILES, deflated=False, **tree)
        by_tar = race.beside("GNU tar", "writing.by_gnu_tar", FILES, **tree)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.table("cpu", "us/file", 1e6, "packing local files of 20 KB, CPU time")
        race.cheaper(zipped, by_zipfile, at_most(0.7), "seconds", "time")
        race.cheaper(tarred, by_tar, at_most(1.5), "seconds", "time")
    with bench.race("packing local files of 20 KB into HDF5", "file", rounds=8) as race:
        packed = race.ours("pack to HDF5", "writing.fsabs_pack", FILES, name="ours.h5", options={}, **tree)
        by_h5py = race.beside("h5py", "writing.by_h5py", FILES, **tree)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.cheaper(packed, by_h5py, None, "seconds", "time")
    with bench.race("packing local files of 20 KB, deflated", "file", rounds=8) as race:
        options = {"compression": "deflated"}
        zipped = race.ours("pack to zip", "writing.fsabs_pack", FILES, name="ours.zip", options=options, **tree)
        by_zipfile = race.beside("zipfile", "writing.by_zipfile", FILES, deflated=True, **tree)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.faster(zipped, by_zipfile, at_least(3.0))
