"""One object of 140 MiB from S3, whole, received into its final buffer: wall time and CPU time, plain and over TLS."""

from __future__ import annotations

from typing import Any

from .frame import data, servers
from .frame.measure import at_least, at_most
from .frame.race import Bench

SIZE = 140 << 20


def run(bench: Bench) -> None:
    """Plain, then TLS, against the clients that are made for large objects."""
    data.large(bench.folder / "bucket" / "large.bin", SIZE)
    certificate = servers.certificate(bench.folder)
    for protocol, secure in (("HTTP", None), ("TLS", certificate)):
        title, environment = f"140 MiB over {protocol}", secure.environment() if secure else {}
        with (
            servers.store(bench.folder, certificate=secure) as store,
            bench.race(title, "MiB", rounds=7, environment=environment) as race,
        ):
            options: dict[str, Any] = {"endpoint": store.endpoint, "names": ["large.bin"], "size": SIZE}
            each = SIZE >> 20
            ours = race.ours("fs.read_bytes", "objects.fsabs_read_bytes", each, **options)
            s3dlio = race.peer("s3dlio, get", "s3dlio", "objects.s3dlio", each, of="s3dlio", **options)
            package = "s3torchconnector"
            connector = race.peer(package, package, f"objects.{package}", each, of="training", **options)
            obstore = race.peer("obstore", "obstore", "objects.obstore", each, **options)
            race.run("us/MiB", "seconds", "cpu")
            race.cheaper(ours, s3dlio, at_most(0.5))
            race.cheaper(ours, connector, at_most(0.5))
            race.faster(ours, obstore, at_least(1.0))
            race.rate(ours)
    bench.note("MB/s a client core is the inverse of the CPU time: half the CPU time is twice the MB/s a core.")
