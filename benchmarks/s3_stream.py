"""A large object from S3, read in order by 1 MiB: 256 MiB, or 1 GiB with `--full`."""

from __future__ import annotations

import os
from typing import Any

from .frame import servers
from .frame.measure import at_least
from .frame.race import Bench

STEP = 1 << 20


def run(bench: Bench) -> None:
    """Ours against the readers of the other clients."""
    size = (1 << 30) if bench.full else (256 << 20)
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    with (bucket / "large.bin").open("wb") as file:
        for _ in range(size >> 24):
            file.write(os.urandom(1 << 24))
    with (
        servers.store(bench.folder) as store,
        bench.race(f"{size >> 20} MiB, read(1 MiB)", "MiB", rounds=10) as race,
    ):
        options: dict[str, Any] = {"endpoint": store.endpoint, "name": "large.bin", "size": size, "step": STEP}
        each = size >> 20
        ours = race.ours("fs.open, read", "objects.fsabs_stream", each, **options)
        peers = [
            race.peer("obstore, stream", "obstore", "objects.obstore_stream", each, **options),
            race.peer("pyarrow, open_input_stream", "pyarrow", "objects.pyarrow_stream", each, **options),
            race.peer("boto3", "boto3", "objects.boto3_stream", each, **options),
            race.peer(
                "s3torchconnector",
                "s3torchconnector",
                "objects.s3torchconnector_stream",
                each,
                of="training",
                **options,
            ),
        ]
        race.peer("obstore, open_reader", "obstore", "objects.obstore_reader", each, **options)
        race.run()
        race.table("seconds", "us/MiB", 1e6)
        race.table("cpu", "us/MiB", 1e6, f"{race.title}: CPU time of the client")
        race.against_best(ours, peers, at_least(0.95))
        race.rate(ours)
