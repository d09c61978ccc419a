"""Files of HDFS that another process writes or appends to: read whole, or refused; never as empty or short."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from tests.backends.hdfs_paths import client_of, own_directory, path_of
from tests.servers.hdfs import HdfsCluster
from tests.servers.process import wait_until

BLOCK = 1 << 20
READS: list[Callable[[fsabs.FS], Any]] = [
    lambda fs: fs.read_bytes("x"),
    lambda fs: next(fs.read_many(["x"])),
    lambda fs: fs.open("x", "rb").read(),
    lambda fs: fs.open_blob("x").read_all(),
]

USES: list[Callable[[Hdfs], object]] = [
    *READS,
    lambda fs: fs.copy("x", "x", fsabs.Memory("unfinished")),
    lambda fs: fs.open("x", "ab"),
]


@pytest.fixture
def fs(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    return own_directory(hdfs, monkeypatch, block_size=BLOCK, replication=2)


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


def assert_refused(fs: Hdfs) -> None:
    for use in USES:
        with pytest.raises(OSError, match="recover_lease") as caught:
            use(fs)
        assert caught.value.errno == errno.EBUSY
        assert str(caught.value.filename).endswith("/x")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "appended"),
    [(300_000, "b'2'"), (300_000, "bytes(3 << 20)"), (2 * BLOCK, "b'2'"), (0, "bytes(100)")],
    ids=["in a block", "over blocks", "a new block", "the first block"],
)
def test_a_file_that_is_appended_to_is_refused(fs: Hdfs, before: int, appended: str) -> None:
    fs.write_bytes("x", b"1" * before)
    with appending(fs, appended):
        assert_refused(fs)


def test_a_file_is_read_again_once_the_lease_of_its_killed_writer_is_recovered(fs: Hdfs) -> None:
    fs.write_bytes("x", b"1" * 300_000)
    with fs.open("x", "rb", buffering=0) as opened, appending(fs, "b'2' * 100_000") as process:
        assert opened.read(10) == b"1" * 10
        process.kill()
        process.wait()
        assert_refused(fs)
        assert opened.read() == b"1" * 299_990, "what was complete when it was opened is there"
        wait_until(lambda: client_of(fs).recover_lease(path_of(fs, "x")), 40, "the lease to be recovered")
    data = fs.read_bytes("x")
    assert data.rstrip(b"2") == b"1" * 300_000
    assert fs.stat("x").size == len(data)


def test_a_file_is_read_whole_once_its_writer_has_closed_it(fs: Hdfs) -> None:
    fs.write_bytes("x", b"1" * BLOCK)
    with appending(fs, "b'2' * 100") as process:
        process.communicate("")
    assert fs.read_bytes("x") == b"1" * BLOCK + b"2" * 100


@pytest.mark.parametrize("replication", [1, 2])
def test_whole_blocks_are_nothing_unfinished(fs: Hdfs, replication: int) -> None:
    for blocks in range(4):
        fs.write_bytes("x", bytes(blocks * BLOCK))
        client_of(fs).set_replication(path_of(fs, "x"), replication)
        for read in READS:
            assert read(fs) == bytes(blocks * BLOCK)
