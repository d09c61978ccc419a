"""Small objects from S3: 100 KB each, plain HTTP, nginx as the store, against boto3 and pyarrow in one run.

The second table is the CPU time of this process, which is what a training job has less of.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pyarrow.fs
from measure import compare, reading, save, show
from nginx import serving

import fsabs

OBJECTS = 300
SIZE = 100_000  # bytes
ROUNDS = 15
ACCESS: dict[str, Any] = {"aws_access_key_id": "benchmark", "aws_secret_access_key": "benchmark"}


def cpu(run: Callable[[], None]) -> Callable[[], float]:
    """The contestant, its time that of the CPU."""

    def timed() -> float:
        start = time.process_time()
        run()
        return time.process_time() - start

    return timed


def contestants(endpoint: str, names: list[str]) -> dict[str, Callable[[], None]]:
    """What reads the objects; the base first."""
    fs = fsabs.from_url("s3://bucket", endpoint=endpoint, region="us-east-1", **ACCESS)
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **ACCESS)
    arrow = pyarrow.fs.S3FileSystem(
        access_key="benchmark",
        secret_key="benchmark",
        endpoint_override=endpoint.removeprefix("http://"),
        scheme="http",
    )

    def by_arrow(name: str) -> bytes:
        with arrow.open_input_file(f"bucket/{name}") as file:
            data: bytes = file.read()
            return data

    def by_open(name: str) -> bytes:
        with fs.open(name, "rb") as file:
            data: bytes = file.read()
            return data

    def by_read_many() -> None:
        contents = fs.read_many(names)
        reading(lambda _: next(contents), names, SIZE)()

    return {
        "fs.read_many": by_read_many,
        "fs.read_bytes": reading(fs.read_bytes, names, SIZE),
        "fs.open, read": reading(by_open, names, SIZE),
        "pyarrow, one by one": reading(by_arrow, names, SIZE),
        "boto3, one by one": reading(
            lambda name: client.get_object(Bucket="bucket", Key=name)["Body"].read(), names, SIZE
        ),
    }


def main() -> None:
    """Run, print, and save."""
    with tempfile.TemporaryDirectory() as folder:
        bucket = Path(folder) / "bucket"
        bucket.mkdir()
        os.chmod(folder, 0o755)
        names = [f"{number:05}.bin" for number in range(OBJECTS)]
        for name in names:
            (bucket / name).write_bytes(os.urandom(SIZE))
        with serving(Path(folder)) as endpoint:
            runs = contestants(endpoint, names)
            wall = compare(runs, ROUNDS)
            processor = compare({name: cpu(run) for name, run in runs.items()}, ROUNDS)
    show(f"{OBJECTS} objects of {SIZE} bytes over HTTP: wall time", wall, OBJECTS, "us/object")
    show("the same: CPU time of the client", processor, OBJECTS, "us/object")
    save("s3_objects", {"wall": wall, "cpu": processor})


if __name__ == "__main__":
    main()
