"""Directories on HDFS: one for each test, and where the files of an FS lie for the side channel and hdfs-native."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import hdfs_native
import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from fsabs.core.writing import PARTIAL_SUFFIX
from tests.servers.hdfs import HdfsCluster, SideChannel
from tests.servers.shared import unique


def without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no setting of Hadoop in the environment."""
    for name in ("HADOOP_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "HADOOP_PROXY_USER"):
        monkeypatch.delenv(name, raising=False)


def own_directory(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Hdfs:
    """Return the FS of a new directory."""
    without_settings(monkeypatch)
    found = fsabs.from_url(f"{hdfs.url}/{unique('test')}", create=True, **options)
    assert isinstance(found, Hdfs)
    return found


def path_of(fs: fsabs.FS, name: str = "") -> str:
    """Return the absolute path of a file on HDFS."""
    return unquote(urlsplit(fs.url(name)).path)


def client_of(fs: fsabs.FS) -> hdfs_native.Client:
    """Return a client that does what an FS does not: owners, replication, leases."""
    return hdfs_native.Client(f"hdfs://{urlsplit(fs.url()).netloc}")


def status_of(fs: fsabs.FS, name: str) -> hdfs_native.FileStatus:
    """Return what the NameNode knows of a file."""
    return client_of(fs).get_file_info(path_of(fs, name))


def hidden(server: SideChannel, fs: fsabs.FS) -> list[str]:
    """Return the paths of the half-written files in an FS's directory."""
    return [path for path, _, _ in server.ls(path_of(fs)) if path.endswith(PARTIAL_SUFFIX)]
