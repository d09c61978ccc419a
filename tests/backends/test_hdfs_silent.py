"""Nodes of HDFS that stop without a word: whole contents are written, silence is remembered, a listing is not lost.

No time is measured: if each operation waited for a silent node, a test would take longer than it may.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from fsabs.core.writing import PARTIAL_SUFFIX
from tests.backends.hdfs_paths import without_settings
from tests.servers import hdfs as hdfs_server
from tests.servers.fixtures import require
from tests.servers.hdfs_pair import HOST, HdfsPair

MIB = 1 << 20


@pytest.fixture(scope="module")
def running() -> Iterator[HdfsPair]:
    require(hdfs_server.missing)
    with HdfsPair() as pair:
        yield pair


@pytest.fixture
def pair(running: HdfsPair, monkeypatch: pytest.MonkeyPatch) -> HdfsPair:
    without_settings(monkeypatch)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(running.conf_dir))
    return running


class FrozenNode:
    """A node that is stopped for the length of a block; a NameNode is replaced by the other one, and fenced."""

    def __init__(self, pair: HdfsPair, name: str) -> None:
        self._pair, self._name = pair, name

    def __enter__(self) -> None:
        if self._name.startswith("dn"):
            self._pair.await_replicas("/")
        self._pair.freeze(self._name)
        if self._name.startswith("nn"):
            self._pair.activate(1 - self._pair.active)

    def __exit__(self, *exc: object) -> None:
        if self._name.startswith("dn"):
            self._pair.thaw(self._name)
            self._pair.wait_until_writable()
        else:
            self._pair.kill(self._name)
            self._pair.start_namenode(int(self._name[2:]))


def stored(pair: HdfsPair, folder: str) -> dict[str, int]:
    return {path.rpartition("/")[2]: size for path, _, size in pair.ls(folder)}


# ---- reading


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_a_frozen_datanode_is_waited_for_once_and_not_for_each_file(pair: HdfsPair) -> None:
    names = [f"{number}" for number in range(60)]
    contents = [name.encode() * 10_000 for name in names]
    for name, data in zip(names, contents, strict=True):
        pair.put(f"/frozen-reads/{name}", data)
    fs = fsabs.from_url("hdfs://pair/frozen-reads", timeout=60)
    with FrozenNode(pair, "dn0"):
        assert [fs.read_bytes(name) for name in names] == contents
        assert list(fs.read_many(names)) == contents
    pair.rm("/frozen-reads")


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_an_open_file_goes_on_with_the_other_replica(pair: HdfsPair) -> None:
    """The library asks the DataNodes in the order in which the NameNode named them when the file was opened."""
    data = os.urandom(20 * MIB)
    pair.put("/frozen-open/x", data, block_size=MIB)
    file = fsabs.from_url("hdfs://pair/frozen-open", timeout=60).open("x", "rb", buffering=0)
    assert file.read(10) == data[:10]
    for name in ("dn0", "dn1"):
        with FrozenNode(pair, name):
            for start in range(0, len(data) - 10, MIB // 2):
                file.seek(start)
                assert file.read(10) == data[start : start + 10]
    pair.rm("/frozen-open")


# ---- writing


@pytest.mark.timeout(180)
def test_a_stream_whose_namenode_falls_silent_raises_and_leaves_the_old_file(pair: HdfsPair) -> None:
    fs = fsabs.from_url("hdfs://pair/silent-stream", create=True, timeout=40, block_size=4 * MIB)
    fs.write_bytes("x", b"old")
    file, small = fs.open("x", "wb", buffering=0), fs.open("small", "wb")
    file.write(bytes(6 * MIB))
    small.write(b"content")
    with FrozenNode(pair, f"nn{pair.active}"):
        with pytest.raises(OSError) as caught:
            for _ in range(10):
                file.write(bytes(MIB))
        assert caught.value.filename == "hdfs://pair/silent-stream/x"
        for each in (file, small):
            with pytest.raises(OSError):
                each.close()
        assert fs.read_bytes("x") == b"old"
        fs.write_bytes("small", b"content")
    assert stored(pair, "/silent-stream") == {"x": 3, "small": 7}


@pytest.mark.timeout(180)
def test_a_file_is_copied_although_its_namenode_falls_silent(pair: HdfsPair) -> None:
    """What was copied is copied again, to the other NameNode, and its bytes are counted once."""
    source = fsabs.Memory("silent-copy")
    data = os.urandom(64 * MIB)
    source.write_bytes("x", data)
    fs = fsabs.from_url("hdfs://pair/silent-copy", create=True, timeout=40, block_size=4 * MIB)
    counted: list[int] = []
    with contextlib.ExitStack() as frozen:

        def progress(files: int, size: int) -> None:
            if not counted:
                frozen.enter_context(FrozenNode(pair, f"nn{pair.active}"))
            counted.append(size)

        source.copy_tree("", "", fs, progress=progress)
        assert fs.read_bytes("x") == data
    assert counted == sorted(counted)
    assert counted[-1] == len(data)
    assert stored(pair, "/silent-copy") == {"x": len(data)}


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_file_is_written_although_a_datanode_is_frozen(pair: HdfsPair) -> None:
    """Both DataNodes are needed until the NameNode knows that one is dead, which takes it 14 seconds here."""
    fs = fsabs.from_url("hdfs://pair/frozen-pipeline", create=True, timeout=60)
    data = os.urandom(3 * MIB)
    with FrozenNode(pair, "dn1"):
        fs.write_bytes("x", data)
        assert fs.read_bytes("x") == data
    assert [name for name in stored(pair, "/frozen-pipeline") if not name.endswith(PARTIAL_SUFFIX)] == ["x"]


# ---- listing


class MutedNameNode:
    """A proxy of a NameNode that passes on its first `size` bytes of responses, and then calls `silent`."""

    def __init__(self, port: int, size: int, silent: Callable[[], Any]) -> None:
        self._port, self._left, self._silent = port, size, silent
        self._listener = socket.create_server((HOST, 0))
        self._sockets = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection((HOST, self._port))
            self._sockets += [client, server]
            threading.Thread(target=self._pass_on, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, True), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                before = self._left
                self._left -= len(data) if counted else 0
                if before > 0 >= self._left:
                    self._silent()
                if self._left > 0 or not counted:
                    target.sendall(data)

    def close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@pytest.mark.timeout(180)
def test_a_listing_that_loses_its_namenode_goes_on_with_the_other(pair: HdfsPair) -> None:
    names = [f"{number:05}" for number in range(2500)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: pair.mkdir(f"/silent-list/{name}"), names))
    muted = MutedNameNode(pair.ports[pair.active], 100_000, pair.fail_over)
    ports = list(pair.ports)
    ports[pair.active] = muted.port
    fs = Hdfs("/silent-list", "pair", timeout=60, configuration=pair.client_settings(ports))
    assert list(fs.list()) == [name + "/" for name in names]
    muted.close()
    pair.rm("/silent-list")
