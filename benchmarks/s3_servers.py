"""Small objects from S3 by servers that send otherwise: nginx as Debian has it, nginx and Ceph without TCP_NODELAY."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .frame import servers
from .frame.measure import at_least
from .frame.race import Bench

OBJECTS = 1000
SIZE = 100_000  # bytes
FEW = 200
"""Objects of a store that is slow itself."""
CLIENTS = {"fs.read_many": "objects.fsabs_read_many", "fs.read_bytes": "objects.fsabs_read_bytes"}
CONFIGURATIONS = {
    "sendfile, tcp_nodelay": servers.SENDING,
    "sendfile, tcp_nopush (Debian's)": "sendfile on; tcp_nopush on;",
    "sendfile, tcp_nodelay off": "sendfile on; tcp_nodelay off;",
    "sendfile, tcp_nopush, tcp_nodelay off": "sendfile on; tcp_nopush on; tcp_nodelay off;",
}


def run(bench: Bench) -> None:
    """The same objects from servers side by side, many at a time and one by one, plain and over TLS."""
    bucket = bench.folder / "bucket"
    bucket.mkdir()
    names = [f"{number:05}.bin" for number in range(OBJECTS)]
    for name in names:
        (bucket / name).write_bytes(os.urandom(SIZE))
    certificate = servers.certificate(bench.folder)
    for secure in (None, certificate):
        protocol = "TLS" if secure else "HTTP"
        for client, contestant in CLIENTS.items():
            with contextlib.ExitStack() as stack:
                race = stack.enter_context(
                    bench.race(
                        f"{client}, 100 KB over {protocol}",
                        "object",
                        rounds=7,
                        environment=secure.environment() if secure else None,
                    )
                )
                entrants = []
                for title, sending in CONFIGURATIONS.items():
                    store = stack.enter_context(servers.store(bench.folder, certificate=secure, sending=sending))
                    options: dict[str, Any] = {"endpoint": store.endpoint, "names": names, "size": SIZE}
                    contestant = f"objects.{client.replace('fs.', 'fsabs_')}"
                    entrants.append(race.ours(title, contestant, OBJECTS, **options))
                race.run()
                race.table("seconds", "us/object", 1e6)
                for entrant in entrants[1:]:
                    race.faster(entrant, entrants[0], at_least(0.8))
    for client, contestant in CLIENTS.items():
        ceph(bench, client, contestant, names[:FEW])


def ceph(bench: Bench, client: str, contestant: str, names: list[str]) -> None:
    """Objects of two Ceph gateways: one sends small pieces at once, and the other, as is Ceph's default, does not."""
    from tests.servers.ceph import CephGateway

    with contextlib.ExitStack() as stack:
        keys = {"AWS_ACCESS_KEY_ID": CephGateway.access_key, "AWS_SECRET_ACCESS_KEY": CephGateway.secret_key}
        title = f"{client}, 100 KB from Ceph"
        race = stack.enter_context(bench.race(title, "object", rounds=7, environment=keys))
        entrants = []
        for tcp_nodelay in (True, False):
            store = stack.enter_context(CephGateway(1 << 30, tcp_nodelay))
            store.create_bucket("bucket")
            for name in names:
                store.request("PUT", f"/bucket/{name}", os.urandom(SIZE))
            options: dict[str, Any] = {"endpoint": store.endpoint, "names": names, "size": SIZE}
            entrants.append(race.ours(f"tcp_nodelay={tcp_nodelay:d}", contestant, len(names), **options))
        race.run()
        race.table("seconds", "us/object", 1e6)
        race.faster(entrants[1], entrants[0], at_least(0.8))
