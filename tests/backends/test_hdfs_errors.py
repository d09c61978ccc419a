"""Errors of HDFS: one line each, of the right kind; files without checksums, damaged ones, and encryption zones."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs.backends.hdfs import reading
from fsabs.backends.hdfs.library import one_line
from tests.backends.hdfs_paths import client_of, path_of
from tests.servers.hdfs import QUICK_START, HdfsCluster


@pytest.fixture
def fs(hdfs: HdfsCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> fsabs.FS:
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_PROXY_USER"):
        monkeypatch.delenv(name, raising=False)
    return fsabs.from_url(f"{hdfs.url}/errors/{abs(hash(request.node.name))}", create=True)


def test_errors_are_one_line(hdfs: HdfsCluster, fs: fsabs.FS, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.write_bytes("x", b"1")
    hdfs.chmod(path_of(fs, "x"), 0o600)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url(""))
    for attempt in (lambda: alice.read_bytes("x"), lambda: alice.write_bytes("y", b""), lambda: alice.mkdir("z" * 300)):
        with pytest.raises(OSError) as caught:
            attempt()
        text = str(caught.value)
        for bad in ("\\n", "\n", "\tat", '\\"'):
            assert bad not in text


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
            'RPCError("org.apache.hadoop.ipc.StandbyException", "Operation category READ is not supported")',
            "StandbyException: Operation category READ is not supported",
        ),
        (
            'DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { '
            'ip_addr: \\"10.0.0.1\\", '
            'host_name: \\"h\\", datanode_uuid: \\"u\\", xfer_port: 9866 } }]")',
            "no DataNode could serve the block (tried: 10.0.0.1:9866)",
        ),
        (
            'DataTransferError("All DataNodes failed: []")',
            "no DataNode could serve the block (tried: none, it has no location)",
        ),
    ],
)
def test_messages(raw: str, expected: str) -> None:
    assert one_line(raw) == expected


def test_a_name_that_reads_like_a_reason_is_a_name(fs: fsabs.FS) -> None:
    """The library's own errors may be a path alone."""
    for name in (
        "release",
        "deadline",
        "timed out, no lease",
        "StandbyException",
        "in safe mode",
        "retry/server too busy",
    ):
        assert not fs.exists(name)
        with pytest.raises(FileNotFoundError):
            fs.read_bytes(name)
        with pytest.raises(FileNotFoundError):
            fs.remove(name)
        fs.makedirs(os.path.dirname(name), exist_ok=True)
        fs.write_bytes(name, b"1")
        with pytest.raises(FileExistsError):
            fs.open(name, "xb")
        with pytest.raises(NotADirectoryError):
            fs.write_bytes(f"{name}/below", b"")
        with pytest.raises(NotADirectoryError):
            list(fs.list(name))
        assert fs.read_bytes(name) == b"1"


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


@pytest.mark.timeout(120)
def test_a_file_without_checksums_is_read_and_an_append_to_it_says_why_it_fails(
    unusual: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    unusual.put("/x", b"1" * 300_000)
    fs = fsabs.from_url(f"{unusual.url}/", timeout=30)
    assert fs.read_bytes("x") == b"1" * 300_000
    begun = time.monotonic()
    with (
        pytest.raises(OSError, match="without checksums.*can't be appended to") as caught,
        fs.open("x", "ab") as file,
    ):
        file.write(b"2" * 1000)
    assert time.monotonic() - begun < 10
    assert "DataTransferError" not in str(caught.value)
    client = client_of(fs)
    while not client.recover_lease("/x"):
        time.sleep(0.5)
    assert fs.read_bytes("x") == b"1" * 300_000


def blocks_of(cluster: HdfsCluster, size: int) -> list[Path]:
    """Return the files of the blocks of a size; those of other tests come and go."""
    found = []
    for folder, _, names in os.walk(cluster.folder):
        for path in (Path(folder, name) for name in names if name.startswith("blk_")):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size == size:
                    found.append(path)
    return found


@pytest.mark.timeout(120)
def test_bytes_that_do_not_match_their_checksums_are_called_that(
    hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr(reading, "MISSING_BLOCK_WAIT", 1.0)
    size = 300_123  # of no other block here
    hdfs.put("/damaged/x", b"1" * size)
    fs = fsabs.from_url(f"{hdfs.url}/damaged", timeout=30)
    blocks = blocks_of(hdfs, size)
    assert len(blocks) == 1
    for path in blocks:
        with path.open("r+b") as file:
            file.seek(100_000)
            file.write(b"damaged")
    reads: list[Callable[[], object]] = [
        lambda: fs.read_bytes("x"),
        lambda: list(fs.read_many(["x"])),
        lambda: fs.open_blob("x").read_all(),
    ]
    for read in reads:
        with pytest.raises(OSError, match="don't match their checksums"):
            read()
    hdfs.rm("/damaged")


@pytest.mark.timeout(180)
def test_an_encryption_zone_is_refused_by_name(unusual: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no key provider in the configuration: nothing is created, and nothing encrypted is read."""
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    unusual.mkdir("/zone")
    unusual.encrypt("/zone")
    with contextlib.suppress(OSError):  # Hadoop 2 can't free its buffers on a newer Java: the file is there
        unusual.put("/zone/a", b"secret" * 100)
    fs = fsabs.from_url(f"{unusual.url}/zone")
    assert list(fs.list()) == ["a"]
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
