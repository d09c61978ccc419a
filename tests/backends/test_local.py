"""Local files beyond what every FS must hold: links, devices, permissions, descriptors."""

from __future__ import annotations

import io
import os
import stat
import threading
from pathlib import Path

import pytest

import fsabs

pytestmark = pytest.mark.quick


def test_a_device_is_written_to_and_not_replaced() -> None:
    fs = fsabs.from_url("/dev")
    fs.write_bytes("null", b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(io.UnsupportedOperation, match="regular"):
        fs.open("null")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    received: list[bytes] = []
    thread = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    thread.start()
    fsabs.from_url(tmp_path).write_bytes("pipe", b"through")
    thread.join()
    assert received == [b"through"]


def test_what_a_link_points_to_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    fsabs.from_url(tmp_path).write_bytes("link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_the_permissions_of_what_is_replaced_stay(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    (tmp_path / "x").chmod(0o640)
    fs = fsabs.from_url(tmp_path)
    fs.write_bytes("x", b"new")
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o640
    old = os.umask(0o027)
    try:
        fs.write_bytes("y", b"new")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "y").stat().st_mode) == 0o640


def test_a_link_to_a_directory_above_ends_a_walk(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "up").symlink_to("..")
    (tmp_path / "d" / "dangling").symlink_to("nowhere")
    fs = fsabs.from_url(tmp_path)
    assert list(fs.list(recursive=True)) == ["d/", "d/dangling", "d/up/"]
    fs.remove("d", recursive=True)
    assert tmp_path.is_dir()


def test_removing_a_linked_directory_removes_the_link(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").write_bytes(b"1")
    (tmp_path / "link").symlink_to("kept")
    fsabs.from_url(tmp_path).remove("link", recursive=True)
    assert (tmp_path / "kept" / "x").exists()
    assert not (tmp_path / "link").is_symlink()


def test_files_that_say_they_are_empty_and_are_not() -> None:
    assert b"MemTotal" in fsabs.from_url("/proc").read_bytes("meminfo")


def test_a_descriptor_of_its_own_in_each_process(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    with fsabs.from_url(tmp_path).open("x", "rb") as file:
        file.read(10)
        assert os.read(file.fileno(), 5) == bytes(range(5))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if os.read(file.fileno(), 5) == bytes(range(5)) else 1)
        assert os.waitpid(pid, 0)[1] == 0
        assert os.read(file.fileno(), 5) == bytes(range(5, 10))
        assert file.read(2) == bytes((10, 11))


def test_a_file_of_another_writer_survives_fsync_and_all(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path, fsync=True)
    fs.write_bytes("x", b"1")
    with fs.open("y", "xb") as file:
        file.write(b"2")
    assert sorted(os.listdir(tmp_path)) == ["x", "y"]


def test_append_and_update_in_place(tmp_path: Path) -> None:
    fs = fsabs.from_url(tmp_path)
    for text in ("one\n", "two\n"):
        with fs.open("log", "a") as file:
            file.write(text)
    with fs.open("log", "r+") as file:
        assert file.readline() == "one\n"
        file.seek(0)
        file.write("ONE")
    assert (tmp_path / "log").read_text() == "ONE\ntwo\n"
