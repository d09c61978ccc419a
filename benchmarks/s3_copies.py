"""Copies and renames by an S3 store, the first read of a process, and `fsabs cat`, against obstore, boto3 and s5cmd."""

from __future__ import annotations

import os
from typing import Any

from tests.servers.ceph import CephGateway

from .cli_s3 import gateway
from .frame.measure import at_least, at_most
from .frame.race import Bench

OBJECTS = 100
SIZE = 100_000  # bytes
LARGE = 37 << 20  # bytes
FIRST_READ = {
    "fsabs": "import fsabs; fsabs.from_url('s3://bench', endpoint={endpoint!r}).read_bytes('from/00000.bin')",
    "obstore": (
        "import obstore; store = obstore.store.S3Store('bench', endpoint={endpoint!r}, region='us-east-1', "
        "client_options=dict(allow_http=True)); bytes(store.get('from/00000.bin').bytes())"
    ),
    "boto3": (
        "import boto3; client = boto3.client('s3', endpoint_url={endpoint!r}, region_name='us-east-1'); "
        "client.get_object(Bucket='bench', Key='from/00000.bin')['Body'].read()"
    ),
}


def run(bench: Bench) -> None:
    """Of Ceph's gateway."""
    with gateway() as (ceph, environment):
        ceph.create_bucket("bench")
        for number in range(OBJECTS):
            ceph.request("PUT", f"/bench/from/{number:05}.bin", os.urandom(SIZE))
        ceph.request("PUT", "/bench/large", os.urandom(LARGE))
        _copies(bench, ceph, environment)
        _first_reads(bench, ceph, environment)
        _cat(bench, environment)
    bench.note("The store is Ceph's gateway on the same CPUs.")


def _copies(bench: Bench, ceph: CephGateway, environment: dict[str, str]) -> None:
    options: dict[str, Any] = {"endpoint": ceph.endpoint, "count": OBJECTS}
    with bench.race("copies of 100 KB", "object", rounds=10, environment=environment) as race:
        ours = race.ours("fs.copy", "copying.fsabs_copy", OBJECTS, **options)
        obstore = race.peer("obstore.copy", "obstore", "copying.obstore_copy", OBJECTS, **options)
        race.peer("boto3, copy_object", "boto3", "copying.boto3_copy", OBJECTS, **options)
        race.run()
        race.table("seconds", "us/object", 1e6)
        race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
        race.faster(ours, obstore, at_least(1.0))
    with bench.race("renames of 100 KB", "object", rounds=10, environment=environment) as race:
        ours = race.ours("fs.rename", "copying.fsabs_rename", OBJECTS, **options)
        obstore = race.peer("obstore.rename", "obstore", "copying.obstore_rename", OBJECTS, **options)
        race.run()
        race.table("seconds", "us/object", 1e6)
        race.table("cpu", "us/object", 1e6, f"{race.title}: CPU time of the client")
        race.faster(ours, obstore)


def _first_reads(bench: Bench, ceph: CephGateway, environment: dict[str, str]) -> None:
    with bench.race("the first read of a process", "process", rounds=10, environment=environment) as race:
        codes = {name: code.format(endpoint=ceph.endpoint) for name, code in FIRST_READ.items()}
        ours = race.ours("fsabs", "starts.running", 1, code=codes["fsabs"])
        race.peer("obstore", "obstore", "starts.running", 1, code=codes["obstore"])
        race.peer("boto3", "boto3", "starts.running", 1, code=codes["boto3"])
        race.run()
        race.table("cpu", "ms", 1e3)
        bench.claim(ours.name, [seconds * 1e3 for seconds in race.values(ours, "cpu")], "ms", at_most(150, "ms"))


def _cat(bench: Bench, environment: dict[str, str]) -> None:
    with bench.race("cat of 37 MB", "process", rounds=10, environment=environment) as race:
        ours = race.ours("fsabs", "commands.running", 1, command=["fsabs", "cat", "s3://bench/large"])
        command = ["s5cmd", "cat", "s3://bench/large"]
        s5cmd = race.peer("s5cmd", "s5cmd", "commands.running", 1, of="shell", command=command)
        race.run(warming=1)
        race.table("seconds", "ms", 1e3)
        race.table("cpu", "ms", 1e3, f"{race.title}: CPU time of the command")
        race.cheaper(ours, s5cmd, at_most(2.0))
