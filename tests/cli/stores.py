"""The stores that commands are tested on: local, Ceph's S3, HDFS, a zip in a zip, a compressed tar."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import NamedTuple

import pytest

import fsabs
from tests.cli.commands import FILES, make_tree
from tests.servers.ceph import CephGateway
from tests.servers.hdfs import HdfsCluster

_number = itertools.count(1)


class Store(NamedTuple):
    """A place with the files of `FILES`."""

    kind: str
    url: str
    """Ends in `/`."""
    env: dict[str, str]

    @property
    def writable(self) -> bool:
        """Whether files can be written and removed one by one."""
        return self.kind in ("local", "s3", "hdfs")


def s3_bucket(ceph: CephGateway, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str]]:
    """Return the URL of a directory of a new bucket, and the environment that it is reached in, which is set."""
    env = {
        "S3_ENDPOINT": ceph.endpoint,
        "AWS_ACCESS_KEY_ID": ceph.access_key,
        "AWS_SECRET_ACCESS_KEY": ceph.secret_key,
        "AWS_DEFAULT_REGION": ceph.region,
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    bucket = f"cli{next(_number)}"
    ceph.create_bucket(bucket)
    return f"s3://{bucket}/top/", env


@pytest.fixture(params=["local", "s3", "hdfs", "zip in zip", "tar.gz"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each store, with the files."""
    env: dict[str, str] = {}
    kind = request.param
    monkeypatch.setenv("TZ", "UTC")
    if kind == "s3":
        url, env = s3_bucket(request.getfixturevalue("ceph"), monkeypatch)
    elif kind == "hdfs":
        cluster: HdfsCluster = request.getfixturevalue("hdfs")
        url = f"{cluster.url}/cli{next(_number)}/top/"
    elif kind == "local":
        url = f"{tmp_path}/store/"
    else:
        url = f"{tmp_path}/out.zip/deep/in.zip/" if kind == "zip in zip" else f"{tmp_path}/out.tar.gz/"
    if kind == "local":
        make_tree(Path(url))
    else:
        with fsabs.from_url(url, create=True) as fs:
            for name, data in FILES.items():
                if kind == "hdfs":
                    fs.makedirs(os.path.dirname(name), exist_ok=True)
                fs.write_bytes(name, data)
    return Store(kind, url, env)
