"""Errors of HDFS in one line; damaged files, files without checksums, and encryption zones."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs.backends.hdfs.library import one_line
from tests.backends.hdfs_paths import client_of, own_directory, path_of, without_settings
from tests.servers.hdfs import QUICK_START, HdfsCluster
from tests.servers.process import wait_until


@pytest.mark.quick
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (
            'RPCError("org.apache.hadoop.security.AccessControlException", '
            '"Permission denied: user=a\\n\\tat o.a.h.F(F.java:1)\\n")',
            "AccessControlException: Permission denied: user=a",
        ),
        (
            'DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { '
            'ip_addr: \\"10.0.0.1\\", host_name: \\"h\\", datanode_uuid: \\"u\\", xfer_port: 9866 } }]")',
            "no DataNode could serve the block (tried: 10.0.0.1:9866)",
        ),
        (
            'DataTransferError("All DataNodes failed: []")',
            "no DataNode could serve the block (tried: none, it has no location)",
        ),
    ],
)
def test_messages_of_the_library(raw: str, expected: str) -> None:
    assert one_line(raw) == expected


def blocks_of(cluster: HdfsCluster, size: int) -> list[Path]:
    """Return the files of the blocks of a size; those of other tests come and go."""
    found = []
    for folder, _, names in os.walk(cluster.folder):
        for path in (Path(folder, name) for name in names if name.startswith("blk_")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size == size:
                    found.append(path)
    return found


def test_bytes_that_do_not_match_their_checksums_are_called_that(
    hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = own_directory(hdfs, monkeypatch, timeout=3)
    size = 300_123  # of no other block here
    hdfs.put(path_of(fs, "x"), b"1" * size)
    [block] = blocks_of(hdfs, size)
    with block.open("r+b") as file:
        file.seek(100_000)
        file.write(b"damaged")
    ways: list[Callable[[], bytes]] = [lambda: fs.read_bytes("x"), lambda: fs.open_blob("x").read_all()]
    for read in ways:
        with pytest.raises(OSError, match="don't match their checksums"):
            read()
    fs.remove("x")


# ---- a cluster without checksums, with encryption


@pytest.fixture(scope="module")
def unusual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """A cluster that writes no checksums, and has keys of encryption zones."""
    settings = {
        "dfs.checksum.type": "NULL",
        "dfs.encryption.key.provider.uri": f"jceks://file{tmp_path_factory.mktemp('keys')}/keys.jceks",
    }
    # The least that is possible: a key is derived for each file.
    with HdfsCluster((*QUICK_START, "-Djdk.jceks.iterationCount=10000"), settings) as cluster:
        yield cluster


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_file_without_checksums_is_read_and_an_append_to_it_says_why_it_fails(
    unusual: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_settings(monkeypatch)
    unusual.put("/x", b"1" * 300_000)
    fs = fsabs.from_url(f"{unusual.url}/", timeout=30)
    assert fs.read_bytes("x") == b"1" * 300_000
    with (
        pytest.raises(OSError, match="without checksums.*can't be appended to") as caught,
        fs.open("x", "ab") as file,
    ):
        file.write(b"2" * 1000)
    assert "DataTransferError" not in str(caught.value)
    wait_until(lambda: client_of(fs).recover_lease("/x"), 40, "the lease to be recovered")
    assert fs.read_bytes("x") == b"1" * 300_000


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_an_encryption_zone_is_refused_by_name(unusual: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no key provider in the configuration: nothing is created, and nothing encrypted is read."""
    without_settings(monkeypatch)
    unusual.mkdir("/zone")
    unusual.encrypt("/zone")
    with contextlib.suppress(OSError):  # Hadoop 2 can't free its buffers on a newer Java: the file is there
        unusual.put("/zone/a", b"secret" * 100)
    fs = fsabs.from_url(f"{unusual.url}/zone")
    calls: list[Callable[[], object]] = [
        lambda: fs.read_bytes("a"),
        lambda: list(fs.read_many(["a"])),
        lambda: fs.open("a", "rb"),
        lambda: fs.write_bytes("b", b"x"),
        lambda: fs.open("b", "wb"),
        lambda: fs.open("a", "ab"),
    ]
    for call in calls:
        with pytest.raises(OSError, match="^[^\n]*encryption zone[^\n]*hadoop.security.key.provider.path") as caught:
            call()
        assert caught.value.errno == errno.EOPNOTSUPP
        assert "OperationFailed" not in str(caught.value)
    assert list(fs.list()) == ["a"]
    fs.remove("a")
