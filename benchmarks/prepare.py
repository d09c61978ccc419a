"""Data preparation: JPEGs to RecordIO by processes and on Spark, against a plain Python loop; listing and planning."""

from __future__ import annotations

import io
import random
from pathlib import Path

from .frame.measure import at_least, at_most
from .frame.race import Bench

IMAGES = 4000
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
    images(bench, raw)
    overhead(bench, raw)
    planning(bench)
    bench.note(f"{IMAGES:,} JPEGs of about 20 KB on a local disk, in the page cache; decoded and scaled to 64 x 64.")
    bench.note("Processes are started in the round, Spark's session (some seconds) before it.")


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


def images(bench: Bench, raw: Path) -> None:
    """The same function by four ways."""
    model = bench.folder / "model.py"
    model.write_text(MODEL)
    options = {"model": str(model), "raw": str(raw)}
    with bench.race("JPEGs to RecordIO, two cores", "file", rounds=3) as race:
        out = str(bench.folder / "out")
        spark = race.ours(
            "fsabs, Spark local[2]",
            "preparing.prepared",
            IMAGES,
            output=f"{out}.spark",
            workers=2,
            records=IMAGES,
            master="local[2]",
            **options,
        )
        local = race.ours(
            "fsabs, 2 processes",
            "preparing.prepared",
            IMAGES,
            output=f"{out}.local",
            workers=2,
            records=IMAGES,
            **options,
        )
        one = race.beside("a plain loop", "preparing.loop", IMAGES, output=f"{out}.loop", **options)
        two = race.beside("two plain loops", "preparing.loops", IMAGES, output=f"{out}.loops", processes=2, **options)
        race.run()
        race.table("seconds", "us/file", 1e6)
        for mine in (spark, local):
            race.rate(mine)
            race.faster(mine, one, at_least(1.6))
            race.faster(mine, two, at_least(0.85))


def overhead(bench: Bench, raw: Path) -> None:
    """A function that does nothing: what is left is what a record costs."""
    model = bench.folder / "trivial.py"
    model.write_text(TRIVIAL)
    options = {"model": str(model), "raw": str(raw), "output": str(bench.folder / "out.trivial")}
    with bench.race("A function that does nothing, one process", "file", rounds=5) as race:
        mine = race.ours("fsabs, 1 process", "preparing.prepared", IMAGES, workers=1, records=IMAGES, **options)
        loop = race.beside("a plain loop", "preparing.loop", IMAGES, **{**options, "output": f"{options['output']}.1"})
        race.run()
        race.table("seconds", "us/file", 1e6)
        costs = [
            (ours - plain) * 1e6
            for ours, plain in zip(race.values(mine, "seconds"), race.values(loop, "seconds"), strict=True)
        ]
        bench.claim(
            "what a record costs beside a plain loop, start of the process included", costs, "us", at_most(60, "us")
        )


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
