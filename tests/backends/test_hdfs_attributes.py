"""The permissions, owners and times of files that are written to HDFS, new ones and ones that are replaced."""

from __future__ import annotations

import os

import hdfs_native
import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from fsabs.core.stats import FileStat
from fsabs.core.writing import PARTIAL_SUFFIX, committing
from tests.backends.hdfs_paths import client_of, path_of, status_of
from tests.servers.hdfs import HdfsCluster


@pytest.fixture
def fs(hdfs: HdfsCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_PROXY_USER"):
        monkeypatch.delenv(name, raising=False)
    found = fsabs.from_url(f"{hdfs.url}/attributes/{abs(hash(request.node.name))}", create=True)
    assert isinstance(found, Hdfs)
    return found


def written(fs: Hdfs, way: str, data: bytes) -> None:
    if way == "write_bytes":
        fs.write_bytes("x", data)
    else:
        with fs.open("x", "wb") as file:
            file.write(data)


@pytest.mark.parametrize("way", ["write_bytes", "open"])
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o400])
def test_a_file_that_is_replaced_keeps_its_permissions(hdfs: HdfsCluster, fs: Hdfs, way: str, mode: int) -> None:
    fs.write_bytes("x", b"old")
    hdfs.chmod(path_of(fs, "x"), mode)
    written(fs, way, b"new")
    assert fs.read_bytes("x") == b"new"
    assert fs.stat("x").mode & 0o777 == mode


def test_what_is_not_published_yet_is_private(hdfs: HdfsCluster, fs: Hdfs) -> None:
    before = os.umask(0o022)
    try:
        file = fs.open("x", "wb", buffering=0)
        file.write(b"1")
        hidden = [path for path, _, _ in hdfs.ls(path_of(fs)) if path.endswith(PARTIAL_SUFFIX)]
        assert [fs.stat(path).mode & 0o777 for path in hidden] == [0o600]
        file.close()
        assert fs.stat("x").mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_owner_and_group_stay_where_the_writer_may_give_them(
    hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the group of the new file may read no more than all others, since it is not the one that was allowed to."""
    hdfs.chmod(path_of(fs), 0o777)
    for name in ("x", "y", "z"):
        fs.write_bytes(name, b"old")
        client_of(fs).set_owner(path_of(fs, name), "bob", "research")
    hdfs.chmod(path_of(fs, "x"), 0o640)
    hdfs.chmod(path_of(fs, "y"), 0o664)
    written(fs, "open", b"new")
    found = status_of(fs, "x")
    assert (found.owner, found.group, found.permission) == ("bob", "research", 0o640)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url(""))
    alice.write_bytes("x", b"hers")
    alice.write_bytes("y", b"hers")
    statuses = [status_of(fs, name) for name in "xy"]
    assert [(status.owner, status.permission) for status in statuses] == [("alice", 0o600), ("alice", 0o644)]


def test_the_mask_of_an_access_control_list_is_not_taken_for_the_permissions_of_the_group(
    fs: Hdfs, hdfs: HdfsCluster
) -> None:
    fs.write_bytes("x", b"old")
    hdfs.chmod(path_of(fs, "x"), 0o600)
    client_of(fs).modify_acl_entries(path_of(fs, "x"), [hdfs_native.AclEntry("user", "access", "rw-", "carol")])
    assert fs.stat("x").mode == 0o100660
    fs.write_bytes("x", b"new")
    assert fs.stat("x").mode == 0o100600


def test_a_copy_is_given_the_time_and_if_it_is_new_the_permissions_of_its_source(fs: Hdfs) -> None:
    source = FileStat("source", 3, False, 1_000_000_000.5, 0o100664)
    x, y = fs._key("x", "write"), fs._key("y", "write")
    fs._write_like(x, b"one", source)
    with committing(fs._create(y, False)) as writer:
        writer.keep(source._replace(mode=0o104750))
        writer.write(b"two")
    assert [(fs.stat(name).mode, fs.stat(name).last_modified) for name in "xy"] == [
        (0o100664, 1_000_000_000.5),
        (0o100750, 1_000_000_000.5),
    ]
    fs._write_like(x, b"newer", source._replace(mode=0o100600, last_modified=2e9))
    assert fs.read_bytes("x") == b"newer"
    assert (fs.stat("x").mode, fs.stat("x").last_modified) == (0o100664, 2e9)
    assert fs.capabilities.modes


def test_a_copy_may_be_read_only(hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NameNode lets its owner set no time of a file that he may not write."""
    hdfs.chmod(path_of(fs), 0o777)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url(""))
    source = FileStat("source", 3, False, 1e9, 0o100400)
    for content in (b"new", b"replaced"):
        alice._write_like(fs._key("x", "write"), content, source)
        assert alice.read_bytes("x") == content
        assert (status_of(fs, "x").owner, fs.stat("x").mode, fs.stat("x").last_modified) == ("alice", 0o100400, 1e9)
