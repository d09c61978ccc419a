"""A NameNode that does not answer: calls that are given up cost nothing more each, and it is used once it answers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from tests.backends.hdfs_paths import without_settings
from tests.servers import hdfs as hdfs_server
from tests.servers.fixtures import require
from tests.servers.hdfs import HdfsCluster
from tests.servers.network import HOST, Blackhole

CALLS: dict[str, Callable[[fsabs.FS], Any]] = {
    "exists": lambda fs: fs.exists("x"),
    "list": lambda fs: list(fs.list("")),
    "read_bytes": lambda fs: fs.read_bytes("x"),
    "read_many": lambda fs: list(fs.read_many(["x", "y", "z"])),
    "write_bytes": lambda fs: fs.write_bytes("x", b"content"),
    "remove": lambda fs: fs.remove("x"),
}


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)


def threads_and_descriptors() -> tuple[int, int]:
    """Return how many the process has, those of libraries among them."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def test_a_silent_namenode_costs_no_thread_and_no_descriptor_for_each_call() -> None:
    """Each call left three threads and four descriptors, until no file could be opened."""
    with Blackhole() as first, Blackhole() as second:
        ports = {"one": first.port, "two": second.port}
        settings = {"dfs.ha.namenodes.silent": ",".join(ports)}
        settings |= {f"dfs.namenode.rpc-address.silent.{name}": f"{HOST}:{port}" for name, port in ports.items()}

        def filesystem() -> Hdfs:
            return Hdfs("/", "silent", timeout=0.2, configuration=settings)

        fs = filesystem()
        for call in CALLS.values():
            with pytest.raises(OSError):
                call(fs)
        before = threads_and_descriptors()
        for each in [fs, *(filesystem() for _ in range(2))]:
            for call in CALLS.values():
                with pytest.raises(OSError):
                    call(each)
        after = threads_and_descriptors()
    assert after[0] - before[0] <= 2, "threads"
    assert after[1] - before[1] <= 4, "descriptors"


@pytest.fixture(scope="module")
def cluster() -> Iterator[HdfsCluster]:
    require(hdfs_server.missing)
    with HdfsCluster() as running:
        yield running


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.timeout(120)
def test_a_namenode_that_answers_again_is_used_again(cluster: HdfsCluster) -> None:
    fs = Hdfs("/", cluster.authority, timeout=1)
    fs.write_bytes("x", b"content")
    with frozen(cluster.pid("namenode")):
        for _ in range(3):
            with pytest.raises(TimeoutError, match=cluster.authority):
                fs.read_bytes("x")
    patient = Hdfs("/", cluster.authority, timeout=60)
    assert [fs.read_bytes("x") for fs in (patient, fs)] == [b"content"] * 2
    assert list(patient.read_many(["x", "x"])) == [b"content"] * 2


@pytest.mark.timeout(120)
def test_all_that_wait_for_a_namenode_are_served_when_it_answers(cluster: HdfsCluster) -> None:
    """Each waits for the same call, and each hears of its end."""
    Hdfs("/", cluster.authority, timeout=60).write_bytes("x", b"content")
    fs, found = Hdfs("/", cluster.authority, timeout=60), []
    with frozen(cluster.pid("namenode")):
        with pytest.raises(TimeoutError):
            Hdfs("/", cluster.authority, timeout=0.5).exists("x")
        waiting = [threading.Thread(target=lambda: found.append(fs.read_bytes("x")), daemon=True) for _ in range(6)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join(0.1)
    for thread in waiting:
        thread.join(15)  # of the 20 seconds after which each would give up, and ask anew
    assert found == [b"content"] * 6
