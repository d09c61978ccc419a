"""NameNodes and DataNodes that are off, silent, restarted or in safe mode: what is waited for, and for how long."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs, ViewFs
from tests.backends.hdfs_paths import own_directory, path_of, without_settings
from tests.servers.hdfs import HdfsCluster
from tests.servers.network import Blackhole, Refused


@pytest.fixture(autouse=True)
def _own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    without_settings(monkeypatch)


def pair(first: int, second: int) -> dict[str, str]:
    return {
        "dfs.nameservices": "two",
        "dfs.ha.namenodes.two": "a,b",
        "dfs.namenode.rpc-address.two.a": f"127.0.0.1:{first}",
        "dfs.namenode.rpc-address.two.b": f"127.0.0.1:{second}",
    }


def test_a_first_namenode_that_does_not_answer_is_asked_once(
    hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = path_of(own_directory(hdfs, monkeypatch))
    hdfs.put(f"{folder}/x", b"content")
    with socket.create_server(("127.0.0.1", 0)) as silent, contextlib.ExitStack() as connections:
        silent.setblocking(False)
        settings = pair(silent.getsockname()[1], hdfs.port)
        fs = Hdfs(folder, "two", timeout=20, configuration=settings)
        assert fs.read_bytes("x") == b"content"
        with contextlib.suppress(BlockingIOError):
            while True:
                connections.enter_context(silent.accept()[0])
        fs.write_bytes("y", b"written")
        assert list(fs.list()) == ["x", "y"]
        another = Hdfs(folder, "two", timeout=20, configuration=settings)
        assert list(another.read_many(["x", "y"])) == [b"content", b"written"]
        pid = os.fork()
        if pid == 0:
            good = False
            with contextlib.suppress(OSError):
                good = fs.read_bytes("y") == b"written"
            os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with pytest.raises(BlockingIOError):
            silent.accept()  # no other connection: children know the active one, too


@pytest.mark.parametrize("connects", [True, False], ids=["silent", "off"])
def test_a_deadline_holds(connects: bool) -> None:
    with Blackhole(connects=connects) as first, Blackhole(connects=not connects) as second:
        table = {"fs.viewfs.mounttable.t.linkFallback": f"hdfs://127.0.0.1:{first.port}/"}
        for of, settings, place in (
            (Hdfs, {}, f"127.0.0.1:{first.port}"),
            (Hdfs, pair(first.port, second.port), "two"),
            (ViewFs, table, "t"),
        ):
            fs = of("/x", place, timeout=2, configuration=settings)
            attempts: tuple[Callable[[Hdfs], Any], ...] = (
                lambda fs: fs.stat("y"),
                lambda fs: list(fs.list()),
                lambda fs: fs.read_bytes("y"),
                lambda fs: fs.write_bytes("y", b""),
                lambda fs: list(fs.read_many(["y", "z"])),
            )
            with ThreadPoolExecutor(len(attempts)) as pool:
                list(pool.map(functools.partial(_times_out, fs, f"{of.scheme}://{place}/x"), attempts))


def _times_out(fs: Hdfs, url: str, attempt: Callable[[Hdfs], Any]) -> None:
    begun = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        attempt(fs)
    assert time.monotonic() - begun < 15
    assert str(caught.value.filename).startswith(url)


def test_the_users_settings_of_retries_count() -> None:
    with Refused() as nobody:
        for retries, interval, least in ((0, "100000", 0.0), (2, "1000", 0.9)):
            settings = {"ipc.client.connect.max.retries": f"{retries}", "ipc.client.connect.retry.interval": interval}
            fs = Hdfs("/x", f"127.0.0.1:{nobody.port}", configuration=settings)
            begun = time.monotonic()
            with pytest.raises(ConnectionRefusedError):
                fs.exists("y")
            assert time.monotonic() - begun >= least


# ---- daemons that are killed


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[HdfsCluster]:
    """A cluster whose daemons a test kills, and starts again."""
    with HdfsCluster() as cluster:
        yield cluster


def test_a_job_outlives_a_restart_of_its_only_namenode_and_safe_mode(own_cluster: HdfsCluster) -> None:
    names = [str(number) for number in range(10)]
    for name in names:
        own_cluster.put(f"/d/{name}", name.encode() * 5000)
    fs = fsabs.from_url(f"{own_cluster.url}/d", timeout=60)
    file = fs.open("7", "rb", buffering=0)
    assert file.read(10) == b"7" * 10
    large = fs.open("large", "wb", buffering=0)
    large.write(b"1" * (1 << 20))
    contents = fs.read_many(names, concurrency=4)
    assert next(contents) == b"0" * 5000
    own_cluster.kill_namenode()
    restart = threading.Timer(1, own_cluster.start_namenode)
    restart.start()
    assert list(contents) == [name.encode() * 5000 for name in names[1:]]
    assert file.read(10) == b"7" * 10
    fs.write_bytes("after", b"2")
    large.write(b"3" * 10)
    large.close()
    restart.join()
    assert own_cluster.get("/d/large") == b"1" * (1 << 20) + b"3" * 10
    own_cluster.administer("safe")
    leave = threading.Timer(2, own_cluster.administer, ["unsafe"])
    leave.start()
    fs.write_bytes("after", b"3")
    assert not leave.is_alive() or leave.finished.is_set(), "it was waited for"
    leave.join()
    assert own_cluster.get("/d/after") == b"3"
    stored = sorted(path for path, _, _ in own_cluster.ls("/d"))
    assert stored == sorted(f"/d/{name}" for name in [*names, "after", "large"])


@pytest.mark.nightly
def test_a_file_is_copied_although_its_datanode_is_restarted(own_cluster: HdfsCluster) -> None:
    source = fsabs.Memory("restarted")
    data = os.urandom(64 << 20)
    source.write_bytes("x", data)
    fs = fsabs.from_url(f"{own_cluster.url}/long", create=True, timeout=60, block_size=8 << 20)
    restarted: list[int] = []

    def progress(files: int, size: int) -> None:
        if not restarted:
            restarted.append(size)
            own_cluster.kill_datanode()
            own_cluster.start_datanode()

    source.copy_tree("", "", fs, progress=progress)
    assert restarted
    assert own_cluster.get("/long/x") == data
    assert [path for path, _, _ in own_cluster.ls("/long")] == ["/long/x"]


@pytest.mark.nightly
def test_a_datanode_that_dies(own_cluster: HdfsCluster) -> None:
    fs = fsabs.from_url(f"{own_cluster.url}/dies", create=True, timeout=2)
    fs.write_bytes("x", bytes(1 << 20))
    reader = fs.open("x", "rb", buffering=0)
    assert reader.read(10) == bytes(10)
    writer = fs.open("y", "wb", buffering=2)
    writer.write(bytes(1 << 20))
    own_cluster.kill_datanode()
    with pytest.raises(OSError) as caught:
        reader.read(10)
    assert caught.value.filename == f"{own_cluster.url}/dies/x"
    with pytest.raises(OSError):
        for _ in range(200):
            writer.write(bytes(1 << 20))
    with pytest.raises(OSError):
        writer.close()
    assert list(fs.list()) == ["x"]
    patient = fsabs.from_url(f"{own_cluster.url}/dies").open("x", "rb", buffering=0)
    restart = threading.Timer(1, own_cluster.start_datanode)
    restart.start()
    assert patient.read() == bytes(1 << 20)
    restart.join()
    assert fs.read_bytes("x") == bytes(1 << 20)
