"""What HDFS can do beyond every FS, on a real NameNode: trash, owners, summaries, leases, snapshots; its errors."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs, reading, writing
from fsabs.backends.hdfs.library import one_line
from fsabs.core.writing import partial_name
from tests.backends.hdfs_paths import path_of
from tests.servers.hdfs import QUICK_START, HdfsCluster


@pytest.fixture
def fs(hdfs: HdfsCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_PROXY_USER"):
        monkeypatch.delenv(name, raising=False)
    found = fsabs.from_url(f"{hdfs.url}/admin/{abs(hash(request.node.name))}", create=True)
    assert isinstance(found, Hdfs)
    return found


def test_trash(hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    hdfs.mkdir("/user/alice")
    hdfs.chown("/user/alice", "alice")
    alice = Hdfs("/", hdfs.authority)
    alice.write_bytes("user/alice/x", b"1")
    alice.makedirs("user/alice/d/e")
    alice.remove("user/alice/x", trash=True)
    with pytest.raises(IsADirectoryError) as caught:
        alice.remove("user/alice/d", trash=True)
    assert caught.value.filename == f"{hdfs.url}/user/alice/d"
    alice.remove("user/alice/d", recursive=True, trash=True)
    assert list(alice.list("user/alice")) == [".Trash/"]
    current = "user/alice/.Trash/Current/user/alice"
    assert alice.read_bytes(f"{current}/x") == b"1"
    alice.remove(f"{current}/x", trash=True)
    assert list(alice.list(current)) == ["d/"]
    with pytest.raises(FileNotFoundError):
        alice.remove("user/alice/x", trash=True)
    home = alice.subfs("user/alice")
    home.write_bytes("y", b"1")
    with pytest.raises(FileNotFoundError):
        home.remove("", recursive=True, trash=True)  # a variable that was never set
    assert home.read_bytes("y") == b"1"


def test_owner_permissions_and_replication(fs: Hdfs) -> None:
    fs.write_bytes("x", b"12345")
    fs.chmod("x", 0o640)
    fs.chown("x", "alice", "research")
    fs.chown("x", group="vision")
    fs.set_replication("x", 3)
    found = fs.status("x")
    assert (found.owner, found.group, found.mode, found.replication) == ("alice", "vision", 0o640, 3)
    assert found.block_size == 128 << 20
    assert fs.stat("x").mode & 0o777 == 0o640
    for attempt in (lambda: fs.chmod("no", 0o600), lambda: fs.chown("no", "a"), lambda: fs.status("no")):
        with pytest.raises(FileNotFoundError) as caught:
            attempt()
        assert str(caught.value.filename).endswith("/no")


def test_content_summary_counts_in_one_request(fs: Hdfs) -> None:
    fs.makedirs("a/b")
    for name in ("a/x", "a/b/y"):
        fs.write_bytes(name, b"1" * 1000)
    found = fs.content_summary("a")
    assert (found.size, found.files, found.directories) == (2000, 2, 2)
    assert (found.quota, found.space_quota) == (None, None)


def test_snapshots(hdfs: HdfsCluster, fs: Hdfs) -> None:
    fs.write_bytes("x", b"old")
    with pytest.raises(OSError):
        fs.snapshots("x")
    hdfs.snapshot(path_of(fs), "monday")
    fs.write_bytes("x", b"new")
    assert fs.snapshots() == ["monday"]
    assert fs.read_bytes(".snapshot/monday/x") == b"old"


def test_a_file_of_a_killed_writer_can_be_taken_over(fs: Hdfs) -> None:
    code = (
        "import fsabs, os, signal\n"
        f"file = fsabs.from_url({fs.url('')!r}).open('log', 'ab', buffering=0)\n"
        "file.write(b'1' * 100000); file.flush()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, stderr=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    until = time.monotonic() + 40
    while not fs.recover_lease("log"):
        assert time.monotonic() < until
        time.sleep(0.5)
    before = fs.stat("log").size
    with fs.open("log", "ab") as file:
        file.write(b"2")
    assert fs.stat("log").size == before + 1


def test_files_of_dead_writers_are_swept_by_the_next_writer_and_those_of_live_ones_are_not(
    hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, recent = partial_name("dead"), partial_name("recent")
    hdfs.put(path_of(fs, dead), b"1")
    live = fs.open("live", "wb", buffering=0)
    live.write(b"1")
    monkeypatch.setattr(writing, "STALE_PARTIAL_AGE", 2.0)
    time.sleep(2.1)
    hdfs.put(path_of(fs, recent), b"1")
    another = fsabs.from_url(fs.url())
    another.write_bytes("x", b"2")
    left = {os.path.basename(path) for path, _, _ in hdfs.ls(path_of(fs))}
    assert dead not in left
    assert recent in left
    live.close()
    assert fs.read_bytes("live") == b"1"


def test_a_directory_in_which_a_file_is_being_written_is_not_empty(
    hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs.mkdir("run")
    hdfs.put(path_of(fs, f"run/{partial_name('dead')}"), b"1")
    with fs.open("run/checkpoint", "wb", buffering=0) as file:
        file.write(b"1")
        monkeypatch.setattr(writing, "STALE_PARTIAL_AGE", 0.0)
        another = fsabs.from_url(fs.url())
        assert list(another.list("run")) == []
        with pytest.raises(OSError, match="run") as caught:
            another.rmdir("run")
        assert caught.value.errno == errno.ENOTEMPTY
    assert fs.read_bytes("run/checkpoint") == b"1"
    fs.remove("run/checkpoint")
    hdfs.put(path_of(fs, f"run/{partial_name('dead')}"), b"1")
    fs.rmdir("run")  # with what a dead writer has left
    assert not fs.exists("run")


def test_errors_are_one_line(fs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    fs.write_bytes("x", b"1")
    fs.chmod("x", 0o600)
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


def test_a_name_that_reads_like_a_reason_is_a_name(fs: Hdfs) -> None:
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
        with pytest.raises(FileNotFoundError):
            fs.chmod(name, 0o600)
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
    assert isinstance(fs, Hdfs)
    assert fs.read_bytes("x") == b"1" * 300_000
    begun = time.monotonic()
    with (
        pytest.raises(OSError, match="without checksums.*can't be appended to") as caught,
        fs.open("x", "ab") as file,
    ):
        file.write(b"2" * 1000)
    assert time.monotonic() - begun < 10
    assert "DataTransferError" not in str(caught.value)
    while not fs.recover_lease("x"):
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
