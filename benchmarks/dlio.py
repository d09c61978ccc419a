"""DLIO (MLPerf Storage): utilisation and MB/s a core of our readers, its own, and those over s3torchconnector."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np

from .frame import data, servers
from .frame.measure import at_least, ratios
from .frame.race import Bench, Entrant, Race

EPOCHS = 2
ALONE = "the loop without reading"
ENVIRONMENT = "dlio", "dlio-benchmark"
SAMPLES, SAMPLE, SPREAD = 24, 36_650_157, 17_085_452
"""unet3d's, a quarter as large as MLPerf's of 147 MB; the times of its steps are as much shorter."""
FILES, RECORDS, RECORD = 4, 500, 114_660
"""resnet50's records of 115 KB, 500 to a file in place of 1,251."""
UNET3D: dict[str, Any] = {
    "dataset.num_files_train": SAMPLES,
    "dataset.record_length": SAMPLE,
    "dataset.record_length_resize": 2_097_152 // 4,
    "reader.batch_size": 4,
    "train.computation_time": 0.636 * 4 * SAMPLE / (7 * 146_600_628),
}
RESNET50: dict[str, Any] = {
    "dataset.num_files_train": FILES,
    "dataset.num_samples_per_file": RECORDS,
    "dataset.record_length": RECORD,
    "dataset.record_length_resize": 150_528,
    "dataset.num_subfolders_train": 0,
    "dataset.num_subfolders_eval": 0,
    "dataset.num_files_eval": 0,
    "workflow.evaluation": False,
    "reader.batch_size": 100,
    "reader.sample_shuffle": "seed",
    "train.computation_time": 0.435 * 100 / 400,
}
BOTH = {"train.epochs": EPOCHS, "reader.read_threads": 2, "reader.multiprocessing_context": "fork"}


def run(bench: Bench) -> None:
    """Each workload on local disk, in the page cache, and from S3."""
    bucket = bench.folder / "bucket"
    contest(bench, bucket, "unet3d", "unet3d's samples of 37 MB", UNET3D, make_samples(bucket / "unet3d"))
    contest(bench, bucket, "records", "resnet50's records of 115 KB", RESNET50, make_records(bucket / "records"))
    bench.note(
        "DLIO's loop with PyTorch's DataLoader and two workers, two epochs. A step takes as long as MLPerf's on an "
        "A100, scaled with the samples. The utilisation is DLIO's own figure. CPU time is that of the loop and of the "
        "workers, after all imports. DLIO 2.0.0 reads S3, and resnet50's TFRecords, by TensorFlow alone: its own "
        "readers here are those of local files, and the records are in its indexed binary files. Its line of a log "
        "that formats the map of all samples for each sample, though it is off, is left out for all readers."
    )
    bench.note(
        "What DLIO does for a record of 115 KB (its map of samples, the batch, the copy between processes) costs more "
        "than reading it, so that the whole loop differs less than the readers do."
    )


def contest(bench: Bench, bucket: Path, kind: str, title: str, settings: dict[str, Any], size: int) -> None:
    """A workload of `size` bytes an epoch."""
    each = EPOCHS * size // 1_000_000
    options = {"kind": kind, "settings": {**BOTH, **settings, "dataset.data_folder": kind}}
    at = {"root": str(bucket), **options}
    with bench.race(f"{title}, local files", "MB", rounds=3) as race:
        ours = race.ours("fsabs", "dlio.fsabs", each, ENVIRONMENT, root=f"file://{bucket}", **options)
        own = race.peer("DLIO's own", ENVIRONMENT[1], "dlio.own", each, of="dlio", **at)
        alone = race.peer(ALONE, ENVIRONMENT[1], "dlio.nothing", each, of="dlio", **at)
        race.run(warming=0)
        tables(bench, race, ours, own, alone)
        mine, theirs = race.counts(ours, "utilisation"), race.counts(own, "utilisation")
        what = f"{race.title}, {ours.name}: utilisation against {own.name}"
        bench.claim(what, ratios(mine, theirs) if theirs else [], "x", at_least(1.0))
        race.faster(ours, own, None, "cpu", "MB/s a core")
    with servers.store(bench.folder) as store:
        environment = {"S3_ENDPOINT": store.endpoint}
        with bench.race(f"{title}, from S3", "MB", rounds=3, environment=environment) as race:
            options["root"] = "s3://bucket"
            ours = race.ours("fsabs", "dlio.fsabs", each, ENVIRONMENT, **options)
            peer = race.peer(
                "s3torchconnector", "s3torchconnector", "dlio.s3torchconnector", each, of="dlio", **options
            )
            alone = race.peer(ALONE, ENVIRONMENT[1], "dlio.nothing", each, of="dlio", **at)
            race.run(warming=0)
            tables(bench, race, ours, peer, alone)
            race.faster(ours, peer, at_least(2.0), "cpu", "MB/s a core")
            loops, mine, theirs = (race.values(one, "cpu") for one in (alone, ours, peer))
            if loops and theirs:
                costs = [[cpu - loop for cpu, loop in zip(one, loops, strict=True)] for one in (theirs, mine)]
                what = f"{race.title}, {ours.name}: MB/s a core of the reading, against {peer.name}"
                bench.claim(f"{what} (CPU time beyond that of {ALONE})", ratios(*costs), "x")


def tables(bench: Bench, race: Race, *entrants: Entrant) -> None:
    """The figures of a race."""
    race.table("utilisation", "%", f"{race.title}: utilisation of the accelerator", whole_round=True)
    race.table("cpu", "us/MB", f"{race.title}: CPU time")
    for entrant in entrants[:2]:
        bench.claim(f"{race.title}, {entrant.name}", [1 / cpu for cpu in race.values(entrant, "cpu")], "MB/s a core")


def make_samples(folder: Path) -> int:
    """Write the .npz files as DLIO does; return their size."""
    generator = np.random.default_rng(1)
    for number in range(SAMPLES):
        side = int(max(generator.normal(SAMPLE, SPREAD), SAMPLE / 4) ** 0.5)
        sample = generator.integers(0, 255, (side, side, 1), np.uint8)
        np.savez(_made(folder) / f"img_{number:02}_of_{SAMPLES}.npz", x=sample, y=[0])
    return _list(folder)


def make_records(folder: Path) -> int:
    """Write files of records and their indexes as DLIO does; return the size of the records."""
    generator = np.random.default_rng(2)
    for number in range(FILES):
        path = _made(folder) / f"img_{number}_of_{FILES}.indexed_binary"
        path.write_bytes(generator.bytes(RECORD * RECORDS))
        path.with_name(f"{path.name}.off.idx").write_bytes(array("q", range(0, RECORD * RECORDS, RECORD)).tobytes())
        path.with_name(f"{path.name}.sz.idx").write_bytes(array("q", [RECORD] * RECORDS).tobytes())
    return _list(folder)


def _made(folder: Path) -> Path:
    for name in ("train", "valid"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "valid" / "empty").touch()  # nginx has no listing of an empty directory
    return folder / "train"


def _list(folder: Path) -> int:
    """Write the store's listings; return the size of the data."""
    for part in ("train", "valid"):
        data.write_listing(folder.parent, f"{folder.name}/{part}/")
    return sum(path.stat().st_size for path in (folder / "train").iterdir() if path.suffix != ".idx")
