"""Files of HDFS that another process writes or appends to: read whole, or refused; never as empty or short."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from tests.backends.hdfs_paths import client_of, path_of
from tests.servers.hdfs import HdfsCluster

BLOCK = 1 << 20
READS: dict[str, Callable[[fsabs.FS], Any]] = {
    "read_bytes": lambda fs: fs.read_bytes("x"),
    "read_many": lambda fs: next(fs.read_many(["x"])),
    "open": lambda fs: fs.open("x", "rb").read(),
    "open_blob": lambda fs: fs.open_blob("x").read_all(),
    "copy": lambda fs: fs.copy("x", "x", fsabs.Memory("unfinished")),
}


@pytest.fixture
def fs(hdfs: HdfsCluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_PROXY_USER"):
        monkeypatch.delenv(name, raising=False)
    options: dict[str, Any] = {"block_size": BLOCK, "replication": 2}
    found = fsabs.from_url(f"{hdfs.url}/unfinished/{abs(hash(request.node.name))}", create=True, **options)
    assert isinstance(found, Hdfs)
    return found


@contextlib.contextmanager
def appending(fs: Hdfs, data: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has appended the bytes of an expression, and has not closed the file."""
    code = (
        f"import fsabs, sys\nfile = fsabs.from_url({fs.url('')!r}, block_size={BLOCK}, replication=2).open('x', 'ab',"
        f" buffering=0)\nfile.write({data})\nprint('written', flush=True)\nsys.stdin.read()\nfile.close()\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        yield process
        process.kill()


def refused(fs: Hdfs, read: Callable[[fsabs.FS], Any]) -> None:
    begun = time.monotonic()
    with pytest.raises(OSError, match="another process is writing the file.*recover_lease") as caught:
        read(fs)
    assert caught.value.errno == errno.EBUSY
    assert str(caught.value.filename).endswith("/x")
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    ("before", "appended"),
    [(300_000, "b'2'"), (300_000, "bytes(3 << 20)"), (2 * BLOCK, "b'2'"), (0, "bytes(100)")],
    ids=["in a block", "over blocks", "a new block", "the first block"],
)
def test_a_file_that_is_appended_to_is_refused(
    fs: Hdfs, read: Callable[[fsabs.FS], Any], before: int, appended: str
) -> None:
    fs.write_bytes("x", b"1" * before)
    with appending(fs, appended):
        refused(fs, read)


def test_a_file_is_read_again_once_the_lease_of_its_killed_writer_is_recovered(fs: Hdfs) -> None:
    fs.write_bytes("x", b"1" * 300_000)
    with fs.open("x", "rb", buffering=0) as opened, appending(fs, "b'2' * 100_000") as process:
        assert opened.read(10) == b"1" * 10
        process.kill()
        process.wait()
        for read in READS.values():
            refused(fs, read)
        assert opened.read() == b"1" * 299_990, "what was complete when it was opened is there"
        client, until = client_of(fs), time.monotonic() + 40
        while not client.recover_lease(path_of(fs, "x")):
            assert time.monotonic() < until
            time.sleep(0.5)
    data = fs.read_bytes("x")
    assert data.rstrip(b"2") == b"1" * 300_000
    assert fs.stat("x").size == len(data)


def test_a_file_is_read_whole_once_its_writer_has_closed_it(fs: Hdfs) -> None:
    fs.write_bytes("x", b"1" * BLOCK)
    with appending(fs, "b'2' * 100") as process:
        process.communicate("")
    assert fs.read_bytes("x") == b"1" * BLOCK + b"2" * 100


@pytest.mark.parametrize("size", [0, BLOCK, 2 * BLOCK, 3 * BLOCK])
@pytest.mark.parametrize("replication", [1, 2])
def test_whole_blocks_are_nothing_unfinished(fs: Hdfs, size: int, replication: int) -> None:
    fs.write_bytes("x", bytes(size))
    client_of(fs).set_replication(path_of(fs, "x"), replication)
    for read in (READS["read_bytes"], READS["read_many"], READS["open"], READS["open_blob"]):
        assert read(fs) == bytes(size)


def test_a_lease_that_is_held_names_what_takes_it_away(fs: Hdfs) -> None:
    fs.write_bytes("x", b"1")
    with appending(fs, "b'2'"), pytest.raises(OSError, match="recover_lease") as caught:
        fs.open("x", "ab")
    assert caught.value.errno == errno.EBUSY
    assert "\n" not in str(caught.value)
