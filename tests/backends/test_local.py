"""Local files beyond what every FS must hold: links, devices, permissions, descriptors."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

import fsabs
from fsabs.backends import local
from fsabs.testing.children import Child

pytestmark = pytest.mark.quick


def test_a_device_is_written_to_and_not_replaced() -> None:
    fs = fsabs.from_url("/dev")
    fs.write_bytes("null", b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert fs.read_bytes("null") == b""
    with fs.open("null") as file:
        assert file.read() == ""


def test_what_has_no_positions_is_read_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    thread = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b"one\ntwo\n"))
    thread.start()
    with fsabs.open_url(str(tmp_path / "pipe")) as file:
        assert list(file) == ["one\n", "two\n"]
    thread.join()
    script = "import fsabs, sys; f = fsabs.open_url('/dev/stdin', 'rb'); sys.stdout.buffer.write(f.__enter__().read())"
    done = subprocess.run([sys.executable, "-c", script], input=b"through", capture_output=True, timeout=60)
    assert done.stdout == b"through", done.stderr
    monkeypatch.setattr(local, "MOST_STREAMED", 1 << 20)
    with pytest.raises(OSError, match="without positions") as caught:
        fsabs.from_url("/dev").read_bytes("zero")
    assert caught.value.errno == errno.EFBIG


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
    assert sorted(fs.list(recursive=True)) == ["d/", "d/dangling", "d/up/"]
    (tmp_path / "d" / "once more").symlink_to("../d")
    assert [path for path, _, _ in fs.walk()] == ["", "d"]
    assert sorted(fs.glob("**")) == ["d", "d/dangling", "d/once more", "d/up"]
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


def test_a_link_to_nothing_is_listed_and_can_be_removed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "loop").symlink_to("loop")
    fs = fsabs.from_url(tmp_path)
    for name in ("link", "loop"):
        assert (fs.exists(name), fs.isfile(name), fs.isdir(name)) == (False, False, False)
        with pytest.raises(OSError) as caught:
            fs.stat(name)
        assert caught.value.errno == (errno.ENOENT if name == "link" else errno.ELOOP)
        with pytest.raises(FileExistsError):
            fs.open(name, "x")
    with pytest.raises(FileNotFoundError):
        fs.open("link")
    fs.write_bytes("link", b"through")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"through"
    fs.remove("target")
    fs.remove("link")
    fs.remove("loop")
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_not_to_be_written_is_not_replaced() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is for its user alone
        os.chmod(folder, 0o777)
        path = Path(folder, "x")
        path.write_bytes(b"kept")
        path.chmod(0o444)
        fs = fsabs.from_url(folder)
        fs.write_bytes("y", b"")  # what this imports, another user may not be able to read

        def refused() -> bool:
            if os.geteuid() == 0:
                os.setuid(65534)
            try:
                fs.write_bytes("x", b"new")
            except PermissionError as exc:
                return bool(exc.filename == fs.url("x"))
            return False

        assert Child("another user", refused, 20).result()
        assert path.read_bytes() == b"kept"


@pytest.mark.parametrize("unnamed", [True, False])
def test_names_of_the_full_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed: bool) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    fs = fsabs.from_url(tmp_path)
    for name in ("x" * 255, "\u6f22" * 85, os.fsdecode(b"\xff" * 255)):
        fs.write_bytes(name, b"1")
        assert fs.read_bytes(name) == b"1"
    assert len(os.listdir(tmp_path)) == 3


def test_what_a_network_filesystem_tells_at_close_comes_before_the_file_is_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = fsabs.from_url(tmp_path)
    fs.write_bytes("x", b"old")
    close = os.close

    def full(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for mode in ("wb", "xb"):
        file = fs.open("x" if mode == "wb" else "y", mode)
        file.write(b"new")
        with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
            patch.setattr(os, "close", full)
            file.close()
        assert (caught.value.errno, caught.value.operation) == (errno.ENOSPC, "close")  # type: ignore[attr-defined]
    assert os.listdir(tmp_path) == ["x"]
    assert fs.read_bytes("x") == b"old"


def test_files_that_say_they_fill_a_page_and_do_not() -> None:
    assert fsabs.from_url("/sys/kernel").read_bytes("mm/transparent_hugepage/enabled").endswith(b"\n")
