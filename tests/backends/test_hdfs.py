"""HDFS beyond what every FS must hold: what dead writers leave, users, places, blocks, snapshots, attributes."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import hdfs_native
import pytest

import fsabs
from fsabs.backends.hdfs import Hdfs
from fsabs.core.writing import partial_name
from tests.backends.hdfs_paths import client_of, hidden, own_directory, path_of, status_of
from tests.servers.hdfs import HdfsCluster

MIB = 1024 * 1024


@pytest.fixture
def fs(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> Hdfs:
    return own_directory(hdfs, monkeypatch)


# ---- what writers leave


def test_files_of_dead_writers_are_swept_by_the_next_writer_and_those_of_live_ones_are_not(
    hdfs: HdfsCluster, fs: Hdfs
) -> None:
    dead, recent = path_of(fs, partial_name("dead")), path_of(fs, partial_name("recent"))
    live = fs.open("live", "wb", buffering=0)
    live.write(b"1")
    [written] = hidden(hdfs, fs)
    hdfs.put(dead, b"1")
    for path in (dead, written):
        client_of(fs).set_times(path, 1000, 1000)
    hdfs.put(recent, b"1")
    fsabs.from_url(fs.url()).write_bytes("x", b"2")
    assert set(hidden(hdfs, fs)) == {recent, written}
    live.close()
    assert fs.read_bytes("live") == b"1"


def test_a_directory_in_which_a_file_is_being_written_is_not_empty(hdfs: HdfsCluster, fs: Hdfs) -> None:
    fs.mkdir("run")
    run, another = fs.subfs("run"), fsabs.from_url(fs.url())

    def leave_a_dead_file() -> None:
        dead = path_of(run, partial_name("dead"))
        hdfs.put(dead, b"1")
        client_of(fs).set_times(dead, 1000, 1000)

    leave_a_dead_file()
    with run.open("checkpoint", "wb", buffering=0) as file:
        file.write(b"1")
        for path in hidden(hdfs, run):
            client_of(fs).set_times(path, 1000, 1000)
        assert list(another.list("run")) == []
        with pytest.raises(OSError, match="run") as caught:
            another.rmdir("run")
        assert caught.value.errno == errno.ENOTEMPTY
    assert run.read_bytes("checkpoint") == b"1"
    run.remove("checkpoint")
    leave_a_dead_file()
    fs.rmdir("run")
    assert not fs.exists("run")


# ---- users and places


def test_permission_denied(hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    hdfs.put(path_of(fs, "x"), b"mine")
    hdfs.chmod(path_of(fs, "x"), 0o600)
    hdfs.chmod(path_of(fs), 0o755)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url())
    for ask in (
        lambda: alice.read_bytes("x"),
        lambda: alice.write_bytes("y", b"1"),
        lambda: alice.remove("x"),
        lambda: alice.mkdir("z"),
    ):
        with pytest.raises(PermissionError) as caught:
            ask()
        assert str(caught.value.filename).startswith(fs.url())
        assert not any(text in str(caught.value) for text in ("\\n", "\n", "\tat", '\\"')), "it is one line"
    assert alice.exists("x")


def test_relative_paths_start_at_the_users_directory(hdfs: HdfsCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "smith")
    hdfs.put("/user/smith/data/x", b"1")
    hdfs.put("/elsewhere/y", b"2")
    hdfs.chown("/user/smith", "smith")
    home = fsabs.from_url(hdfs.url)
    assert home.read_bytes("data/x") == b"1"
    assert home.read_bytes("/elsewhere/y") == b"2"
    home.write_bytes("z", b"3")
    assert status_of(home, "z").owner == "smith"
    assert Hdfs(None, hdfs.authority).cwd == "/user/smith"
    assert Hdfs("data", hdfs.authority).read_bytes("x") == b"1"
    with pytest.raises(PermissionError):
        Hdfs("data", hdfs.authority).read_bytes("/elsewhere/y")


def test_a_snapshot_is_read_by_its_path(hdfs: HdfsCluster, fs: Hdfs) -> None:
    fs.write_bytes("x", b"old")
    hdfs.snapshot(path_of(fs), "monday")
    fs.write_bytes("x", b"new")
    assert list(fs.list(".snapshot")) == ["monday/"]
    assert fs.read_bytes(".snapshot/monday/x") == b"old"


# ---- reading


def test_many_ranges_at_once_are_the_right_ones_over_blocks(hdfs: HdfsCluster, fs: Hdfs) -> None:
    data = os.urandom(5 * MIB)
    hdfs.put(path_of(fs, "blocks"), data, block_size=MIB)
    wanted = [(100_000, at * 700_001 % (4 * MIB)) for at in range(40)] + [(0, 5), (5 * MIB, 0), (3, MIB - 1)]
    with fs.open_blob("blocks") as blob:
        assert blob.pread_many(wanted) == [data[offset : offset + size] for size, offset in wanted]


def test_a_file_that_is_replaced_is_not_mixed(fs: Hdfs) -> None:
    fs.write_bytes("x", bytes(MIB))
    file = fs.open("x", "rb", buffering=0)
    assert file.read(10) == bytes(10)
    time.sleep(0.01)  # HDFS has milliseconds
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
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_name_that_reads_like_a_reason_is_a_name(fs: Hdfs) -> None:
    """The library's own errors may be a path alone."""
    for name in ("deadline", "timed out, no lease", "StandbyException", "in safe mode", "retry/server too busy"):
        assert not fs.exists(name)
        with pytest.raises(FileNotFoundError):
            fs.remove(name)
        fs.makedirs(os.path.dirname(name), exist_ok=True)
        fs.write_bytes(name, b"1")
        with pytest.raises(FileExistsError):
            fs.open(name, "xb")
        with pytest.raises(NotADirectoryError):
            fs.write_bytes(f"{name}/below", b"")


# ---- attributes


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o666])
def test_a_file_that_is_replaced_keeps_its_permissions(hdfs: HdfsCluster, fs: Hdfs, mode: int) -> None:
    fs.write_bytes("x", b"old")
    hdfs.chmod(path_of(fs, "x"), mode)
    fs.write_bytes("x", b"new")
    assert fs.read_bytes("x") == b"new"
    assert fs.stat("x").mode & 0o777 == mode


def test_what_is_not_published_yet_is_private(hdfs: HdfsCluster, fs: Hdfs) -> None:
    before = os.umask(0o022)
    try:
        file = fs.open("x", "wb", buffering=0)
        file.write(b"1")
        assert [fs.stat(path).mode & 0o777 for path in hidden(hdfs, fs)] == [0o600]
        file.close()
        assert fs.stat("x").mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_owner_and_group_stay_where_the_writer_may_give_them(
    hdfs: HdfsCluster, fs: Hdfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the group of the new file may read no more than all others, since it is not the one that was allowed to."""
    hdfs.chmod(path_of(fs), 0o777)
    for name, mode in (("x", 0o640), ("y", 0o664)):
        fs.write_bytes(name, b"old")
        client_of(fs).set_owner(path_of(fs, name), "bob", "research")
        hdfs.chmod(path_of(fs, name), mode)
    fs.write_bytes("x", b"new")
    found = status_of(fs, "x")
    assert (found.owner, found.group, found.permission) == ("bob", "research", 0o640)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url())
    for name, mode in (("x", 0o600), ("y", 0o644)):
        alice.write_bytes(name, b"hers")
        assert (status_of(fs, name).owner, status_of(fs, name).permission) == ("alice", mode)


def test_the_mask_of_an_access_control_list_is_not_taken_for_the_permissions_of_the_group(
    fs: Hdfs, hdfs: HdfsCluster
) -> None:
    fs.write_bytes("x", b"old")
    hdfs.chmod(path_of(fs, "x"), 0o600)
    client_of(fs).modify_acl_entries(path_of(fs, "x"), [hdfs_native.AclEntry("user", "access", "rw-", "carol")])
    assert fs.stat("x").mode == 0o100660
    fs.write_bytes("x", b"new")
    assert fs.stat("x").mode == 0o100600


def test_a_copy_is_given_the_time_and_if_it_is_new_the_permissions_of_its_source(fs: Hdfs, tmp_path: Path) -> None:
    source = fsabs.Local(tmp_path)

    def copied(mode: int, modified: float) -> tuple[int, float | None]:
        (tmp_path / "x").write_bytes(b"%d" % mode)
        (tmp_path / "x").chmod(mode)
        os.utime(tmp_path / "x", (modified, modified))
        source.copy_tree("", "", fs)
        assert fs.read_bytes("x") == b"%d" % mode
        return fs.stat("x").mode, fs.stat("x").last_modified

    assert copied(0o664, 1_000_000_000.5) == (0o100664, 1_000_000_000.5)
    assert copied(0o600, 2e9) == (0o100664, 2e9)


def test_a_copy_may_be_read_only(hdfs: HdfsCluster, fs: Hdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The NameNode lets its owner set no time of a file that he may not write."""
    hdfs.chmod(path_of(fs), 0o777)
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    alice = fsabs.from_url(fs.url())
    for content in (b"new", b"replaced"):
        (tmp_path / "x").unlink(missing_ok=True)
        (tmp_path / "x").write_bytes(content)
        (tmp_path / "x").chmod(0o400)
        os.utime(tmp_path / "x", (1e9, 1e9))
        fsabs.Local(tmp_path).copy_tree("", "", alice)
        assert alice.read_bytes("x") == content
        assert (status_of(fs, "x").owner, fs.stat("x").mode, fs.stat("x").last_modified) == ("alice", 0o100400, 1e9)
