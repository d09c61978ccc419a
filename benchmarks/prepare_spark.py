"""Data preparation on Spark with two cores: JPEGs to RecordIO, against a plain Python loop and two of them."""

from __future__ import annotations

from .frame.race import Bench
from .prepare import images, make_images

IMAGES = 8000


def run(bench: Bench) -> None:
    """One race."""
    raw = bench.folder / "images"
    make_images(raw, IMAGES)
    images(bench, "preparing.prepared", raw, IMAGES, "local[2]")
    bench.note(f"{IMAGES:,} JPEGs of about 20 KB on a local disk, in the page cache; decoded and scaled to 64 x 64.")
    bench.note("Spark's session is started before the round, the processes of two loops in it.")
