"""File objects, CPU: lines, small reads and writes, jumps and pickles of 60 MB against `open`; opening by URL."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

from .contestants import library
from .frame import servers
from .frame.measure import at_most
from .frame.race import Bench

SIZE = 60_000_000
ROUNDS = 7
TIMES = 2000
TARGETS = {
    "lines": 1.3,
    "text lines": 1.3,
    "readline": 1.5,
    "read(10)": 1.5,
    "seek, read(100)": 2.0,
    "pickle.load": 2.0,
    "torch.load": 1.2,
    "write(10)": 2.0,
    "print": 2.0,
    "csv.writer": 2.0,
}


def run(bench: Bench) -> None:
    """Local files, lines from elsewhere, and what opening costs."""
    local(bench)
    elsewhere(bench)
    opening(bench)


def local(bench: Bench) -> None:
    """One race for each work."""
    text = _text(bench.folder / "lines.csv")
    files = {"pickle.load": bench.folder / "pickles", "torch.load": bench.folder / "checkpoint.pt"}
    with files["pickle.load"].open("wb") as file:
        for number in range(20_000):
            pickle.dump({"number": number, "name": f"sample {number}"}, file)
    torch = library("torch")
    torch.save({str(number): torch.zeros(25_000_000) for number in range(4)}, files["torch.load"])
    for work, target in TARGETS.items():
        written = work in ("write(10)", "print", "csv.writer")
        path = bench.folder / "written" if written else files.get(work, text)
        with bench.race(f"{work}, a local file", "file", rounds=ROUNDS) as race:
            ours = race.ours("fs.open", "file_objects.fsabs", 1, path=str(path), work=work)
            theirs = race.beside("open", "file_objects.builtin", 1, path=str(path), work=work)
            race.run("ms", "cpu")
            race.cheaper(ours, theirs, at_most(target))


def elsewhere(bench: Bench) -> None:
    """Lines from S3 and from zips."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    text = _text(bucket / "lines.csv")
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(bench.folder / f"{name}.zip", "w", method) as archive:
            archive.write(text, text.name)
    with servers.store(bench.folder) as store:
        places: dict[str, tuple[str, dict[str, Any]]] = {
            "on S3": ("s3://bucket/", {"endpoint": store.endpoint, "region": "us-east-1"}),
            "in a stored zip": (str(bench.folder / "stored.zip"), {}),
            "in a deflated zip": (str(bench.folder / "deflated.zip"), {}),
        }
        for place, (url, options) in places.items():
            with bench.race(f"lines of a file {place}", "file", rounds=ROUNDS) as race:
                named: dict[str, Any] = {"url": url, "name": text.name, "options": options}
                ours = race.ours("fs.open", "file_objects.fsabs_lines", 1, **named)
                memory = race.ours("fs.read_bytes in a BytesIO", "file_objects.lines_in_memory", 1, **named)
                race.run("ms", "cpu")
                race.cheaper(ours, memory, at_most(1.3))


def opening(bench: Bench) -> None:
    """By URL, each time anew."""
    small = bench.folder / "small.bin"
    small.write_bytes(os.urandom(100))
    with bench.race("opening a local file by its URL", "file", rounds=15) as race:
        ours = race.ours("open_url", "file_objects.opened_by_url", TIMES, path=str(small), times=TIMES)
        theirs = race.beside("open", "file_objects.opened_by_builtin", TIMES, path=str(small), times=TIMES)
        race.run("us/file", "cpu")
        race.cheaper(ours, theirs, at_most(4))
    with bench.race("opening a local directory again", "FS", rounds=15) as race:
        ours = race.ours("from_url", "file_objects.fsabs_roots", TIMES, path=str(bench.folder), times=TIMES)
        theirs = race.beside(
            "fsspec.url_to_fs", "file_objects.fsspec_roots", TIMES, path=str(bench.folder), times=TIMES
        )
        race.run("us/FS", "cpu")
        race.cheaper(ours, theirs, at_most(1.5))


def _text(path: Path) -> Path:
    line = ",".join(str(number) for number in range(17)) + "\n"
    path.write_text(line * (SIZE // len(line)))
    return path
