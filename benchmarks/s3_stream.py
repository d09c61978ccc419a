"""A large object from S3, 256 MiB, read in order by 1 MiB."""

from __future__ import annotations

from typing import Any

from .frame import data, servers
from .frame.measure import at_least
from .frame.race import Bench

STEP = 1 << 20
SIZE = 256 << 20


def run(bench: Bench) -> None:
    """Ours against the readers of the other clients."""
    data.large(bench.folder / "bucket" / "large.bin", SIZE)
    with servers.store(bench.folder) as store, bench.race("256 MiB, read(1 MiB)", "MiB", rounds=10) as race:
        options: dict[str, Any] = {"endpoint": store.endpoint, "name": "large.bin", "size": SIZE, "step": STEP}
        each = SIZE >> 20
        ours = race.ours("fs.open, read", "objects.fsabs_stream", each, **options)
        peers = [
            race.peer(name, package, f"objects.{package}_stream", each, of=of, **options)
            for name, package, of in (
                ("obstore, stream", "obstore", "clients"),
                ("pyarrow, open_input_stream", "pyarrow", "clients"),
                ("boto3", "boto3", "clients"),
                ("s3torchconnector", "s3torchconnector", "training"),
            )
        ]
        race.peer("obstore, open_reader", "obstore", "objects.obstore_reader", each, **options)
        race.run("us/MiB", "seconds", "cpu")
        race.against_best(ours, peers, at_least(0.95))
        race.rate(ours)
