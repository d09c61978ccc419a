"""An epoch of a DataLoader, fork, two workers: images in a zip on S3, and the peers' data sets from the same server."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from .frame import servers
from .frame.measure import at_least
from .frame.race import Bench

IMAGES = 2000
FEW = 400
"""For PFIO, which would take too long for all."""
COPIES = 10
"""How often the zip has them: more than a client's buffer holds, as a real one is."""
BATCH = 32


def run(bench: Bench) -> None:
    """Each image is decoded; the caches of those that have one are empty before each epoch."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    source = bench.folder / "source"
    names = make_images(source)
    make_archives(source, names, bucket)
    wanted = random.Random(1).sample([f"{copy}/{name}" for copy in range(COPIES) for name in names], IMAGES)
    shared: dict[str, Any] = {"names": wanted, "batch": BATCH}
    with (
        servers.store(bench.folder) as store,
        bench.race("an epoch of 2,000 images of 96 x 96 pixels, 2 workers", "image", rounds=6) as race,
    ):
        at: dict[str, Any] = {"endpoint": store.endpoint}
        ours = race.ours("fsabs, zip on S3", "loaders.fsabs", IMAGES, **at, **shared)
        race.ours("fsabs, zip on local disk", "loaders.fsabs_local", IMAGES, path=str(bucket / "train.zip"), **shared)
        race.beside("decoding alone, in one process", "loaders.decode_only", IMAGES, folder=str(source), names=names)
        few: dict[str, Any] = {"names": wanted[:FEW], "batch": BATCH}
        pfio = race.peer("pfio, zip on S3", "pfio", "loaders.pfio", FEW, of="training", **at, **few)
        in_order: dict[str, Any] = {"of": "training", "count": IMAGES, "batch": BATCH, **at}
        webdataset = race.peer("webdataset, tars over HTTP", "webdataset", "loaders.webdataset", IMAGES, **in_order)
        streaming, litdata = (
            race.peer(
                name,
                package,
                f"loaders.{form}",
                IMAGES,
                source=str(source),
                target=str(bucket / form),
                local=str(bench.folder / f"{form}-cache"),
                **in_order,
            )
            for name, package, form in (
                ("MosaicML streaming", "mosaicml-streaming", "mds"),
                ("litdata", "litdata", "lit"),
            )
        )
        race.run("us/image", "seconds", "cpu")
        race.faster(ours, pfio, at_least(5))
        for one, least in ((webdataset, 1.15), (streaming, 1.6), (litdata, 2.0)):
            race.faster(ours, one, at_least(least))
        race.rate(ours)
        bench.note(
            f"The zip has {IMAGES * COPIES:,} images, of which an epoch reads {IMAGES:,} at random (from a zip that "
            "fits in its buffer, PFIO reads from memory); the others read exactly these many, in order."
        )


def make_images(folder: Path, pixels: int = 96) -> list[str]:
    """JPEGs of noise, about 6 KB each with 96 x 96 pixels; their names."""
    from PIL import Image

    noise = random.Random(0)
    names = [f"{number // 100:02}/{number:05}.jpg" for number in range(IMAGES)]
    for name in names:
        file = io.BytesIO()
        Image.frombytes("RGB", (pixels, pixels), noise.randbytes(3 * pixels * pixels)).save(file, "JPEG", quality=75)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(file.getvalue())
    return names


def make_archives(source: Path, names: list[str], bucket: Path, copies: int = COPIES) -> None:
    """A zip, and four tars."""
    with zipfile.ZipFile(bucket / "train.zip", "w", zipfile.ZIP_STORED) as archive:
        for copy in range(copies):
            for name in names:
                archive.write(source / name, f"{copy}/{name}")
    for shard in range(4):
        with tarfile.open(bucket / f"{shard}.tar", "w") as tar:
            for name in names[shard::4]:
                tar.add(source / name, name)
