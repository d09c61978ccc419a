"""Data preparation: JPEGs to RecordIO by processes, against a plain Python loop and two of them."""

from __future__ import annotations

import io
import random
from pathlib import Path

from .frame.measure import at_least
from .frame.race import Bench

IMAGES = 4000
MODEL = """\
import numpy as np
from PIL import Image

feature_columns = {"image": ("uint8", (64, 64, 3)), "label": "int64"}


def prepare_data_for_a_single_file(file, filename):
    image = Image.open(file).convert("RGB").resize((64, 64))
    return np.asarray(image), np.int64(filename.split("/")[-2])
"""


def run(bench: Bench) -> None:
    """The same function by us and by plain loops."""
    raw, model, out = bench.folder / "images", bench.folder / "model.py", str(bench.folder / "out")
    make_images(raw)
    model.write_text(MODEL)
    options = {"model": str(model), "raw": str(raw)}
    with bench.race("JPEGs to RecordIO, two cores", "file", rounds=3) as race:
        mine = race.ours("fsabs, 2 processes", "preparing.prepared", IMAGES, output=out, workers=2, **options)
        one = race.beside("a plain loop", "preparing.loop", IMAGES, output=f"{out}.loop", **options)
        two = race.beside("two plain loops", "preparing.loops", IMAGES, output=f"{out}.loops", processes=2, **options)
        race.run("us/file")
        race.rate(mine)
        race.faster(mine, one, at_least(1.6))
        race.faster(mine, two, at_least(0.85))
    bench.note(f"{IMAGES:,} JPEGs of about 20 KB on a local disk, in the page cache; decoded and scaled to 64 x 64.")
    bench.note("Processes are started in the round.")


def make_images(folder: Path) -> None:
    """Write JPEGs of about 20 KB in ten directories."""
    from PIL import Image

    source = random.Random(0)
    contents = []
    for _ in range(20):
        noise = Image.frombytes("RGB", (40, 30), source.randbytes(3600)).resize((320, 240))
        buffer = io.BytesIO()
        noise.save(buffer, "JPEG", quality=95)
        contents.append(buffer.getvalue())
    for number in range(IMAGES):
        path = folder / str(number % 10) / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[number % 20])
