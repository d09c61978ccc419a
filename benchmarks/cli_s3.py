"""`fsabs cp -r` of 10,000 files of 20 KB, from S3 and to it, against s5cmd and `aws s3 cp`."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsabs
from tests.servers.ceph import CephGateway

from .frame.measure import at_least
from .frame.race import Bench

FILES = 10_000
FEW = 500
"""For `aws s3 cp`, which would take minutes for all."""
SIZE = 20_000  # bytes
ROUNDS = 3


def run(bench: Bench) -> None:
    """From the store, then to it."""
    many, few = bench.folder / "many", bench.folder / "few"
    for folder, count in ((many, FILES), (few, FEW)):
        _write(folder, count)
    with gateway() as (ceph, environment):
        ceph.create_bucket("bench")
        for folder in (many, few):
            _upload(ceph, folder)
        _from_store(bench, ceph, environment)
        _to_store(bench, ceph, environment)
    bench.note("The store is Ceph's gateway on the same CPUs. Each round is a process of its own, its start included.")


@contextlib.contextmanager
def gateway() -> Iterator[tuple[CephGateway, dict[str, str]]]:
    """Yield Ceph's gateway, and the variables by which commands reach it."""
    ceph = CephGateway()
    ceph.start()
    try:
        keys = {"AWS_ACCESS_KEY_ID": ceph.access_key, "AWS_SECRET_ACCESS_KEY": ceph.secret_key}
        yield ceph, {**keys, "S3_ENDPOINT": ceph.endpoint, "S3_ENDPOINT_URL": ceph.endpoint}
    finally:
        ceph.stop()


def _write(folder: Path, count: int) -> None:
    content = random.Random(1)
    for number in range(count):
        path = folder / f"{number // 100:03}" / f"{number:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.randbytes(SIZE))


def _upload(ceph: CephGateway, folder: Path) -> None:
    options: dict[str, Any] = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
    with fsabs.from_url(f"s3://bench/{folder.name}", endpoint=ceph.endpoint, **options) as target:
        fsabs.Local(folder).copy_tree("", "", target)


def _from_store(bench: Bench, ceph: CephGateway, environment: dict[str, str]) -> None:
    out = str(bench.folder / "out")
    with bench.race("cp -r from S3", "file", rounds=ROUNDS, environment=environment) as race:
        command = ["fsabs", "cp", "-r", "s3://bench/many/", out]
        ours = race.ours("fsabs", "commands.running", FILES, command=command, removed=[out])
        command = ["s5cmd", "cp", "s3://bench/many/*", f"{out}/"]
        s5cmd = race.peer("s5cmd", "s5cmd", "commands.running", FILES, of="shell", command=command, removed=[out])
        command = ["aws", "--endpoint-url", ceph.endpoint, "s3", "cp", "--quiet", "--recursive", "s3://bench/few", out]
        aws = race.peer("aws s3 cp", "awscli", "commands.running", FEW, of="shell", command=command, removed=[out])
        race.run(warming=0)
        race.table("seconds", "us/file", 1e6)
        race.table("cpu", "us/file", 1e6, f"{race.title}: CPU time of the client")
        race.faster(ours, s5cmd, at_least(1.0))
        race.faster(ours, aws, at_least(5))


def _to_store(bench: Bench, ceph: CephGateway, environment: dict[str, str]) -> None:
    many, few = str(bench.folder / "many"), str(bench.folder / "few")
    with bench.race("cp -r to S3", "file", rounds=ROUNDS, environment=environment) as race:
        command = ["fsabs", "cp", "-r", "-f", f"{many}/", "s3://bench/ours/"]
        ours = race.ours("fsabs", "commands.running", FILES, command=command)
        command = ["s5cmd", "cp", f"{many}/", "s3://bench/theirs/"]
        s5cmd = race.peer("s5cmd", "s5cmd", "commands.running", FILES, of="shell", command=command)
        command = ["aws", "--endpoint-url", ceph.endpoint, "s3", "cp", "--quiet", "--recursive", few, "s3://bench/aws"]
        aws = race.peer("aws s3 cp", "awscli", "commands.running", FEW, of="shell", command=command)
        race.run(warming=0)
        race.table("seconds", "us/file", 1e6)
        race.table("cpu", "us/file", 1e6, f"{race.title}: CPU time of the client")
        race.faster(ours, s5cmd, at_least(0.8))
        race.faster(ours, aws)
