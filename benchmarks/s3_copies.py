"""Copies and renames by an S3 store, the first read of a process, and `fsabs cat`, against obstore, boto3 and s5cmd."""

from __future__ import annotations

import os
from typing import Any

from tests.servers.ceph import CephGateway

from .cli_large import commands
from .cli_s3 import gateway
from .frame.measure import at_least, at_most
from .frame.race import Bench

OBJECTS = 100
SIZE = 100_000  # bytes
LARGE = 37 << 20  # bytes
FIRST_READ = {
    "fsabs": "import fsabs; fsabs.from_url('s3://bucket', endpoint={endpoint!r}).read_bytes('from/00000.bin')",
    "obstore": (
        "import obstore; store = obstore.store.S3Store('bucket', endpoint={endpoint!r}, region='us-east-1', "
        "client_options=dict(allow_http=True)); bytes(store.get('from/00000.bin').bytes())"
    ),
    "boto3": (
        "import boto3; client = boto3.client('s3', endpoint_url={endpoint!r}, region_name='us-east-1'); "
        "client.get_object(Bucket='bucket', Key='from/00000.bin')['Body'].read()"
    ),
}


def run(bench: Bench) -> None:
    """Of Ceph's gateway."""
    with gateway() as (ceph, environment):
        for number in range(OBJECTS):
            ceph.request("PUT", f"/bucket/from/{number:05}.bin", os.urandom(SIZE))
        ceph.request("PUT", "/bucket/large", os.urandom(LARGE))
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
        race.run("us/object", "seconds", "cpu")
        race.faster(ours, obstore, at_least(1.0))
    with bench.race("renames of 100 KB", "object", rounds=10, environment=environment) as race:
        ours = race.ours("fs.rename", "copying.fsabs_rename", OBJECTS, **options)
        obstore = race.peer("obstore.rename", "obstore", "copying.obstore_rename", OBJECTS, **options)
        race.run("us/object", "seconds", "cpu")
        race.faster(ours, obstore)


def _first_reads(bench: Bench, ceph: CephGateway, environment: dict[str, str]) -> None:
    with bench.race("the first read of a process", "process", rounds=10, environment=environment) as race:
        codes = {name: code.format(endpoint=ceph.endpoint) for name, code in FIRST_READ.items()}
        ours = race.ours("fsabs", "starts.running", 1, code=codes["fsabs"])
        race.peer("obstore", "obstore", "starts.running", 1, code=codes["obstore"])
        race.peer("boto3", "boto3", "starts.running", 1, code=codes["boto3"])
        race.run("ms", "cpu")
        race.claim(ours, "ms", at_most(150, "ms"), figure="cpu")


def _cat(bench: Bench, environment: dict[str, str]) -> None:
    with bench.race("cat of 37 MB", "process", rounds=10, environment=environment) as race:
        ours, s5cmd = commands(race, 1, ["cat", "s3://bucket/large"], ["cat", "s3://bucket/large"])
        race.run("ms", "seconds", "cpu")
        race.cheaper(ours, s5cmd, at_most(2.0))
