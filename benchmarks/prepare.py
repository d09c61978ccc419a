"""Data preparation: JPEGs to RecordIO by processes, against a plain Python loop; listing and planning."""

from __future__ import annotations

import io
import os
import random
from pathlib import Path

from .frame.measure import at_least, at_most
from .frame.race import Bench

IMAGES = 4000
MANY = 20_000
"""Files of which a function that does nothing makes records."""
SMALL_FILES = 100_000
MODEL = """\
import numpy as np
from PIL import Image

feature_columns = {"image": ("uint8", (64, 64, 3)), "label": "int64"}


def prepare_data_for_a_single_file(file, filename):
    image = Image.open(file).convert("RGB").resize((64, 64))
    return np.asarray(image), np.int64(filename.split("/")[-2])
"""
TRIVIAL = """\
def prepare_data_for_a_single_file(file, filename):
    return file.read(), filename
"""


def run(bench: Bench) -> None:
    """Two races and the planning of many files."""
    raw = bench.folder / "images"
    make_images(raw, IMAGES)
    images(bench, "preparing.prepared", raw, IMAGES)
    overhead(bench, raw)
    planning(bench)
    bench.note(f"{IMAGES:,} JPEGs of about 20 KB on a local disk, in the page cache; decoded and scaled to 64 x 64.")
    bench.note("Processes are started in the round.")


def make_images(folder: Path, count: int) -> None:
    """Write JPEGs of about 20 KB in ten directories."""
    from PIL import Image

    source = random.Random(0)
    contents = []
    for _ in range(20):
        noise = Image.frombytes("RGB", (40, 30), source.randbytes(3600)).resize((320, 240))
        buffer = io.BytesIO()
        noise.save(buffer, "JPEG", quality=95)
        contents.append(buffer.getvalue())
    for number in range(count):
        path = folder / str(number % 10) / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[number % 20])


def images(bench: Bench, contestant: str, raw: Path, count: int, master: str | None = None) -> None:
    """The same function by us and by plain loops."""
    model = bench.folder / "model.py"
    model.write_text(MODEL)
    options = {"model": str(model), "raw": str(raw)}
    out = str(bench.folder / "out")
    with bench.race("JPEGs to RecordIO, two cores", "file", rounds=3) as race:
        name = "2 processes" if master is None else f"Spark {master}"
        here = {**options, "output": out, "workers": 2, "records": count, "master": master}
        mine = race.ours(f"fsabs, {name}", contestant, count, **here)
        one = race.beside("a plain loop", "preparing.loop", count, output=f"{out}.loop", **options)
        two = race.beside("two plain loops", "preparing.loops", count, output=f"{out}.loops", processes=2, **options)
        race.run()
        race.table("seconds", "us/file", 1e6)
        race.rate(mine)
        race.faster(mine, one, at_least(1.6))
        race.faster(mine, two, at_least(0.85))


def overhead(bench: Bench, raw: Path) -> None:
    """A function that does nothing, over two numbers of files: the cost of a job, and that of each record."""
    many = bench.folder / "many"
    make_links(raw, many, MANY)
    model = bench.folder / "trivial.py"
    model.write_text(TRIVIAL)
    out = str(bench.folder / "out.trivial")
    with bench.race("A function that does nothing, one process", "job", rounds=5) as race:
        ours, plain = {}, {}
        for count, folder in ((IMAGES, raw), (MANY, many)):
            options = {"model": str(model), "raw": str(folder)}
            here = {**options, "output": f"{out}.{count}", "workers": 1, "records": count}
            ours[count] = race.ours(f"fsabs, 1 process, {count:,} files", "preparing.prepared", 1, **here)
            there = {**options, "output": f"{out}.{count}.loop"}
            plain[count] = race.beside(f"a plain loop, {count:,} files", "preparing.loop", 1, **there)
        race.run()
        race.table("seconds", "s", 1)
        costs = {
            count: [
                a - b
                for a, b in zip(race.values(ours[count], "seconds"), race.values(plain[count], "seconds"), strict=True)
            ]
            for count in ours
        }
    each = [(b - a) / (MANY - IMAGES) for a, b in zip(costs[IMAGES], costs[MANY], strict=True)]
    bench.claim("what a record costs beside a plain loop", [one * 1e6 for one in each], "us", at_most(60, "us"))
    start = [few - IMAGES * one for few, one in zip(costs[IMAGES], each, strict=True)]
    bench.claim("what a job costs beside a plain loop: its process and its commit", start, "s")


def make_links(source: Path, folder: Path, count: int) -> None:
    """Make a tree of hard links to the files of another."""
    files = sorted(path for path in source.rglob("*") if path.is_file())
    for number in range(count):
        path = folder / str(number % 10) / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(files[number % len(files)], path)


def planning(bench: Bench) -> None:
    """Many small files."""
    folder = bench.folder / "small"
    for number in range(SMALL_FILES):
        path = folder / f"{number // 1000:03}" / f"{number:06}"
        if not number % 1000:
            path.parent.mkdir(parents=True)
        path.touch()
    with bench.race(f"{SMALL_FILES:,} small files listed and planned", "file", rounds=3) as race:
        mine = race.ours("fsabs", "preparing.planned", SMALL_FILES, raw=str(folder), count=SMALL_FILES)
        race.run()
        race.table("seconds", "s", 1, whole_round=True)
        bench.claim("listing and planning", race.counts(mine, "seconds"), "s", at_most(10, "s"))
