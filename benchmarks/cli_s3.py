"""`fsabs cp -r` of 10,000 files of 20 KB, from S3 and to it, against s5cmd and `aws s3 cp`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import fsabs
from tests.servers.ceph import CephGateway

from .cli_large import commands
from .cli_large import environment as of_store
from .frame import data
from .frame.measure import at_least
from .frame.race import Bench

FILES = 10_000
FEW = 500
"""For `aws s3 cp`, which would take minutes for all."""
SIZE = 20_000  # bytes


@contextlib.contextmanager
def gateway() -> Iterator[tuple[CephGateway, dict[str, str]]]:
    """Yield Ceph's gateway with the bucket `bucket`, and the variables by which commands reach it."""
    ceph = CephGateway()
    ceph.start()
    try:
        ceph.create_bucket("bucket")
        keys = {"AWS_ACCESS_KEY_ID": ceph.access_key, "AWS_SECRET_ACCESS_KEY": ceph.secret_key}
        yield ceph, {**keys, **of_store(ceph.endpoint)}
    finally:
        ceph.stop()


def run(bench: Bench) -> None:
    """From the store, then to it."""
    out, many, few = (str(bench.folder / name) for name in ("out", "many", "few"))
    with gateway() as (ceph, environment):
        options: dict[str, Any] = {"aws_access_key_id": ceph.access_key, "aws_secret_access_key": ceph.secret_key}
        for name, count in (("many", FILES), ("few", FEW)):
            for number in range(count // 100):
                data.objects(bench.folder / name / f"{number:03}", 100, SIZE)
            with fsabs.from_url(f"s3://bucket/{name}", endpoint=ceph.endpoint, **options) as target:
                fsabs.Local(bench.folder / name).copy_tree("", "", target)
        for title, ours, theirs, awss, removed, targets in (
            (
                "cp -r from S3",
                ["s3://bucket/many/", out],
                ["s3://bucket/many/*", f"{out}/"],
                ["s3://bucket/few", out],
                out,
                (at_least(1.0), at_least(5)),
            ),
            (
                "cp -r to S3",
                ["-f", f"{many}/", "s3://bucket/ours/"],
                [f"{many}/", "s3://bucket/theirs/"],
                [few, "s3://bucket/aws"],
                "",
                (at_least(0.8), None),
            ),
        ):
            with bench.race(title, "file", rounds=3, environment=environment) as race:
                entrant, s5cmd = commands(race, FILES, ["cp", "-r", *ours], ["cp", *theirs], removed)
                command = ["aws", "--endpoint-url", ceph.endpoint, "s3", "cp", "--quiet", "--recursive", *awss]
                run_by: dict[str, Any] = {"of": "shell", "command": command, "removed": removed}
                aws = race.peer("aws s3 cp", "awscli", "commands.running", FEW, **run_by)
                race.run("us/file", "seconds", "cpu", warming=0)
                for peer, target in zip((s5cmd, aws), targets, strict=True):
                    race.faster(entrant, peer, target)
    bench.note("The store is Ceph's gateway on the same CPUs. Each round is a process of its own, its start included.")
