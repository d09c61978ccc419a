"""The stores that commands are tested on: local, Ceph's S3, Azurite, an emulator of Google Cloud Storage, HDFS, a zip
in a zip, a compressed tar.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import fsabs
from tests.cli.commands import FILES, make_tree
from tests.servers.azurite import AzuriteServer
from tests.servers.ceph import CephGateway
from tests.servers.gcs_emulator import GcsEmulator
from tests.servers.hdfs import HdfsCluster
from tests.servers.shared import unique


class Store(NamedTuple):
    """A place with the files of `FILES`."""

    kind: str
    url: str
    """Ends in `/`."""
    env: dict[str, str]

    @property
    def writable(self) -> bool:
        """Whether files can be written and removed one by one."""
        return self.kind in ("local", "hdfs") or self.is_cloud

    @property
    def is_cloud(self) -> bool:
        """Whether it is a store of objects."""
        return self.kind in CLOUDS


def s3_bucket(ceph: CephGateway, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str]]:
    """Return the URL of a directory of a new bucket, and the environment that it is reached in, which is set."""
    env = {
        "S3_ENDPOINT": ceph.endpoint,
        "AWS_ACCESS_KEY_ID": ceph.access_key,
        "AWS_SECRET_ACCESS_KEY": ceph.secret_key,
        "AWS_DEFAULT_REGION": ceph.region,
    }
    bucket = unique("cli")
    ceph.create_bucket(bucket)
    return f"s3://{bucket}/top/", _set(env, monkeypatch)


def azure_container(azurite: AzuriteServer, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str]]:
    """As `s3_bucket`, of Azure."""
    account = f"AccountName={azurite.account};AccountKey={azurite.key};BlobEndpoint={azurite.endpoint}"
    container = unique("cli")
    azurite.create_container(container)
    return f"az://{container}/top/", _set({"AZURE_STORAGE_CONNECTION_STRING": account}, monkeypatch)


def gcs_bucket(gcs: GcsEmulator, monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, str]]:
    """As `s3_bucket`, of Google Cloud Storage."""
    bucket = unique("cli")
    gcs.create_bucket(bucket)
    return f"gs://{bucket}/top/", _set({"STORAGE_EMULATOR_HOST": gcs.endpoint}, monkeypatch)


def _set(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env


CLOUDS: dict[str, tuple[str, Callable[[Any, pytest.MonkeyPatch], tuple[str, dict[str, str]]]]] = {
    "s3": ("ceph", s3_bucket),
    "azure": ("azurite", azure_container),
    "gcs": ("gcs", gcs_bucket),
}
"""The server of each, and what makes a directory of it."""


SHAPES = ("local", "s3", "zip in zip")
"""A directory tree, names below a prefix, and members that are only read."""
OTHERS = ("azure", "gcs", "hdfs", "tar.gz")


@pytest.fixture(params=[*SHAPES, *OTHERS])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Each store, with the files."""
    env: dict[str, str] = {}
    kind = request.param
    monkeypatch.setenv("TZ", "UTC")
    if kind in CLOUDS:
        server, make = CLOUDS[kind]
        url, env = make(request.getfixturevalue(server), monkeypatch)
    elif kind == "hdfs":
        cluster: HdfsCluster = request.getfixturevalue("hdfs")
        url = f"{cluster.url}/{unique('cli')}/top/"
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
