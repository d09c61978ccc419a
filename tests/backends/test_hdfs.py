"""HDFS beyond what every FS must hold: forks, users, time limits, nodes that die, configuration."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs, writing
from fsabs.core.writing import PARTIAL_SUFFIX, partial_name
from tests.backends.hdfs_paths import path_of
from tests.servers.hdfs import HdfsCluster
from tests.servers.network import Blackhole, Refused

MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _own_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)


@pytest.fixture
def fs(hdfs: HdfsCluster, request: pytest.FixtureRequest) -> Hdfs:
    found = fsabs.from_url(f"{hdfs.url}/t/{abs(hash(request.node.name))}", create=True)
    assert isinstance(found, Hdfs)
    return found


def hidden(hdfs: HdfsCluster, fs: Hdfs) -> list[str]:
    return [path for path, _, _ in hdfs.ls(path_of(fs), recursive=True) if path.endswith(PARTIAL_SUFFIX)]


# ---- processes


def test_forked_children_read_what_they_ask_for_while_the_parent_reads(hdfs: HdfsCluster, fs: Hdfs) -> None:
    """hdfs-native keeps connections for a whole process: without a copy of it, parent and child swap bytes."""
    data = os.urandom(4 * MIB)
    hdfs.put(path_of(fs, "x"), data)
    stop = threading.Event()
    wrong: list[int] = []

    def read_on(number: int) -> None:
        with fs.open("x", "rb") as file:
            at = number
            while not stop.is_set():
                at = (at * 7919 + 13) % (len(data) - 5000)
                file.seek(at)
                if file.read(5000) != data[at : at + 5000]:
                    wrong.append(at)

    threads = [threading.Thread(target=read_on, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    with fs.open("x", "rb") as shared:
        for turn in range(3):
            shared.seek(turn)
            shared.read(10)
            pids = []
            for child in range(2):
                pid = os.fork()
                if pid == 0:
                    good = shared.read(20) == data[turn + 10 : turn + 30]
                    for at in range(child, len(data) - MIB, 300_001):
                        shared.seek(at)
                        good = good and shared.read(1000) == data[at : at + 1000]
                    good = good and fs.read_bytes("x") == data
                    os._exit(0 if good else 1)
                pids.append(pid)
            ends = [wait_for(pid, 20) for pid in pids]
            assert ends == [0, 0]
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def wait_for(pid: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1000


def test_a_child_that_only_exits_does_not_hang(hdfs: HdfsCluster, fs: Hdfs) -> None:
    code = (
        "import fsabs, os, sys\n"
        f"fs = fsabs.from_url({fs.url()!r}); fs.write_bytes('x', b'1' * 100000)\n"
        "file = fs.open('x', 'rb'); file.read(5); names = fs.list(); next(names)\n"
        "if os.fork() == 0:\n"
        "    sys.exit(0)\n"
        "_, status = os.wait()\n"
        "assert status == 0, status\n"
        "assert file.read(5) == b'11111'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


def test_an_exit_in_the_middle_of_reads_is_no_crash(hdfs: HdfsCluster, fs: Hdfs) -> None:
    """A thread that comes back from the library into an interpreter that ends would have the process aborted."""
    code = (
        "import fsabs, os, sys, threading, time\n"
        f"fs = fsabs.from_url({fs.url()!r}); fs.write_bytes('x', bytes(4 << 20))\n"
        "def read_on():\n"
        "    while True: fs.read_bytes('x')\n"
        "threading.Thread(target=read_on, daemon=True).start()\n"
        "contents = fs.read_many(['x'] * 200); next(contents)\n"
        "child = os.fork()\n"
        "next(contents)\n"
        "if child:\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("end", ["kill", "exit"])
def test_a_process_that_ends_leaves_no_file(hdfs: HdfsCluster, fs: Hdfs, end: str) -> None:
    fs.write_bytes("x", b"old")
    code = (
        "import fsabs, os, signal\n"
        f"fs = fsabs.from_url({fs.url()!r})\n"
        "file = fs.open('x', 'wb'); file.write(bytes(5 << 20)); file.flush()\n"
        f"{'os.kill(os.getpid(), signal.SIGKILL)' if end == 'kill' else ''}\n"
    )
    done = subprocess.run([sys.executable, "-c", code], timeout=50, stderr=subprocess.PIPE, text=True)
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr
    assert list(fs.list()) == ["x"]
    assert fs.read_bytes("x") == b"old"
    assert len(hidden(hdfs, fs)) == (1 if end == "kill" else 0)


# ---- what writers leave


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


# ---- users, limits and dying nodes


def test_permission_denied(hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs.put(path_of(fs, "x"), b"mine")
    hdfs.chmod(path_of(fs, "x"), 0o600)
    hdfs.chmod(path_of(fs), 0o755)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url())
    for ask in (lambda: alice.read_bytes("x"), lambda: alice.write_bytes("y", b"1"), lambda: alice.remove("x")):
        with pytest.raises(PermissionError) as caught:
            ask()
        assert str(caught.value.filename).startswith(fs.url())
    assert alice.exists("x")


def test_nobody_at_the_address() -> None:
    with Refused() as nobody:
        begun = time.monotonic()
        with pytest.raises(ConnectionError):
            fsabs.from_url(f"hdfs://127.0.0.1:{nobody.port}/x")
        assert time.monotonic() - begun < 15


@pytest.mark.parametrize("connects", [True, False])
def test_a_silent_namenode_times_out(connects: bool) -> None:
    with Blackhole(connects=connects) as hole:
        fs = Hdfs("/x", f"127.0.0.1:{hole.port}", timeout=0.5)
        with pytest.raises(TimeoutError) as caught:
            fs.exists("y")
        assert caught.value.filename == f"hdfs://127.0.0.1:{hole.port}/x/y"


# ---- configuration and places


def test_the_configured_default(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs.conf_dir))
    fs = fsabs.from_url("hdfs:///configured", create=True)
    fs.write_bytes("x", b"1")
    assert hdfs.get("/configured/x") == b"1"
    assert fs.url("x") == "hdfs:///configured/x"


def test_a_nameservice_with_two_namenodes(hdfs: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "dfs.nameservices": "cluster1",
        "dfs.ha.namenodes.cluster1": "dead,live",
        "dfs.namenode.rpc-address.cluster1.live": f"{hdfs.host}:{hdfs.port}",
    }
    with Refused() as nobody:
        settings["dfs.namenode.rpc-address.cluster1.dead"] = f"127.0.0.1:{nobody.port}"
        for name, content in (("core-site.xml", {"fs.defaultFS": "hdfs://cluster1"}), ("hdfs-site.xml", settings)):
            rows = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in content.items())
            (tmp_path / name).write_text(f"<configuration>{rows}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        for url in ("hdfs://cluster1/ha", "hdfs:///ha"):
            fs = fsabs.from_url(url, create=True)
            fs.write_bytes("x", url.encode())
            assert hdfs.get("/ha/x") == url.encode()


def test_relative_paths_start_at_the_users_directory(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "smith")
    hdfs.mkdir("/user/smith/data")
    hdfs.put("/user/smith/data/x", b"1")
    hdfs.put("/elsewhere/y", b"2")
    address = f"{hdfs.host}:{hdfs.port}"
    assert fsabs.from_url(f"hdfs://{address}").read_bytes("data/x") == b"1"
    assert fsabs.from_url(f"hdfs://{address}").read_bytes("/elsewhere/y") == b"2"
    assert Hdfs(None, address).cwd == "/user/smith"
    assert Hdfs("data", address).read_bytes("x") == b"1"
    with pytest.raises(PermissionError):
        Hdfs("data", address).read_bytes("/elsewhere/y")


def test_a_file_that_is_replaced_is_not_mixed(fs: Hdfs) -> None:
    fs.write_bytes("x", bytes(MIB))
    file = fs.open("x", "rb", buffering=0)
    assert file.read(10) == bytes(10)
    time.sleep(0.01)
    fs.write_bytes("x", b"\1" * MIB)
    try:
        assert file.read(10) == bytes(10)
    except fsabs.StaleFileError:
        pass
    pid = os.fork()
    if pid == 0:
        try:
            file.read(10)
        except fsabs.StaleFileError:
            os._exit(0)
        os._exit(1)
    assert wait_for(pid, 20) == 0


def test_x_and_replacing_are_decided_by_the_namenode(fs: Hdfs) -> None:
    first, second = fs.open("x", "xb"), fs.open("x", "xb")
    first.write(b"1")
    second.write(b"2")
    first.close()
    with pytest.raises(FileExistsError):
        second.close()
    assert fs.read_bytes("x") == b"1"
    with pytest.raises(FileExistsError):
        fs.open("x", "xb")


def test_a_directory_of_many_files_in_order(hdfs: HdfsCluster, fs: Hdfs) -> None:
    for name in ("foo", "foo-bar", "a b", "a"):
        fs.mkdir(name)
    for name in ("foo.txt", "foo0", "a-file", "é"):
        fs.write_bytes(name, b"")
    names = list(fs.list())
    assert names == sorted(names)
    assert len(names) == 8


def test_many_ranges_at_once_are_the_right_ones_over_blocks(hdfs: HdfsCluster, fs: Hdfs) -> None:
    data = os.urandom(5 * MIB)
    hdfs.put(path_of(fs, "blocks"), data, block_size=MIB)
    wanted = [(100_000, at * 700_001 % (4 * MIB)) for at in range(40)] + [(0, 5), (5 * MIB, 0), (3, MIB - 1)]
    with fs.open("blocks", "rb") as file:
        assert file.raw.blob.pread_many(wanted) == [data[offset : offset + size] for size, offset in wanted]


def test_long_names_of_long_characters(fs: Hdfs) -> None:
    fs.write_bytes("漢" * 80, b"1")
    assert list(fs.list()) == ["漢" * 80]


def test_a_whole_read_of_what_is_no_file_says_so(hdfs: HdfsCluster, fs: Hdfs) -> None:
    fs.mkdir("folder")
    fs.write_bytes("empty", b"")
    assert fs.read_bytes("empty") == b""
    with pytest.raises(IsADirectoryError):
        fs.read_bytes("folder")
    with pytest.raises(FileNotFoundError):
        fs.read_bytes("none")
    with pytest.raises(NotADirectoryError):
        fs.read_bytes("empty/below")


def test_a_snapshot_is_read_by_its_path(hdfs: HdfsCluster, fs: Hdfs) -> None:
    fs.write_bytes("x", b"old")
    hdfs.snapshot(path_of(fs), "monday")
    fs.write_bytes("x", b"new")
    assert list(fs.list(".snapshot")) == ["monday/"]
    assert fs.read_bytes(".snapshot/monday/x") == b"old"
