"""What killed writers leave: the next writer in the folder removes it, and it keeps no directory from its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import fsabs
from fsabs import partials
from fsabs.files import PARTIAL_SUFFIX

pytestmark = pytest.mark.quick

STOPPED = """
import os, sys, time
import fsabs
def stop(*args, **kwargs):
    print("stopped", flush=True)
    time.sleep(60)
os.rename = stop
fsabs.Local(sys.argv[1]).write_bytes("x", b"new")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    partials._swept.clear()  # what this process looked at before
    return tmp_path


def writing(folder: Path) -> subprocess.Popen[str]:
    """A process that is about to give its hidden file in `folder` the name `x`."""
    child = subprocess.Popen([sys.executable, "-c", STOPPED, str(folder)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "stopped\n"
    return child


def killed(folder: Path) -> str:
    """Leave a hidden file of a killed writer in `folder`; returns its name."""
    with writing(folder) as child:
        os.kill(child.pid, signal.SIGKILL)
    (left,) = [name for name in os.listdir(folder) if name.endswith(PARTIAL_SUFFIX)]
    return left


def test_the_next_writer_removes_what_a_killed_one_has_left(folder: Path) -> None:
    left = killed(folder)
    fs = fsabs.Local(folder)
    assert list(fs.list()) == []
    fs.write_bytes("y", b"1")
    assert os.listdir(folder) == ["y"]
    for mode in ("wb", "xb"):
        (folder / left).touch()
        partials._swept.clear()
        with fs.open("z" + mode, mode):
            pass
        assert left not in os.listdir(folder)


def test_the_file_of_a_live_writer_stays(folder: Path) -> None:
    child = writing(folder)
    try:
        fs = fsabs.Local(folder)
        fs.write_bytes("y", b"1")
        assert len(os.listdir(folder)) == 2
        fs.remove("y")
        with pytest.raises(OSError, match="not empty"):
            fsabs.Local(folder.parent).rmdir(folder.name)
    finally:
        child.kill()
        child.communicate()
    fsabs.Local(folder.parent).rmdir(folder.name)
    assert not folder.exists()


def test_hidden_files_of_other_machines_stay_for_a_week(folder: Path) -> None:
    names = [f".a.0123456789ab-1-0123abcd{PARTIAL_SUFFIX}", f".a.0123456789ab{PARTIAL_SUFFIX}"]
    for name in names:
        (folder / name).touch()
    fs = fsabs.Local(folder)
    fs.write_bytes("y", b"1")
    assert sorted(os.listdir(folder)) == [*names, "y"]
    for name in names:
        os.utime(folder / name, (time.time() - 8 * 24 * 3600,) * 2)
    fs.write_bytes("y", b"1")
    assert len(os.listdir(folder)) == 3  # looked at already
    partials._swept.clear()
    fs.write_bytes("y", b"1")
    assert os.listdir(folder) == ["y"]


def test_a_directory_that_lists_as_empty_is_replaced_and_removed(folder: Path) -> None:
    for name in ("empty", "gone"):
        (folder / name).mkdir()
        killed(folder / name)
    (folder / "full").mkdir()
    (folder / "full" / "a").write_bytes(b"1")
    fs = fsabs.Local(folder)
    fs.rename("full", "empty")
    assert fs.read_bytes("empty/a") == b"1"
    fs.rmdir("gone")
    assert list(fs.list()) == ["empty/"]
    fs.mkdir("other")
    with pytest.raises(OSError, match="not empty"):
        fs.rename("other", "empty")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("empty")


def test_names_fit_into_255_bytes(folder: Path) -> None:
    fs = fsabs.Local(folder)
    for name in ("n" * 255, "\u65e5" * 85, "\udcff" * 255):
        fs.write_bytes(name, b"1")
        with fs.open(name, "wb") as file:
            file.write(b"22")
        assert fs.read_bytes(name) == b"22"
    with pytest.raises(OSError, match="too long"):
        fs.write_bytes("n" * 256, b"1")
    assert len(os.listdir(folder)) == 3


def test_a_failed_write_leaves_the_old_content(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsabs.Local(folder)
    fs.write_bytes("x", b"old")
    os.chmod(folder / "x", 0o640)

    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    for name in ("write", "rename"):
        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left") as caught:
            patch.setattr(os, name, fail)
            fs.write_bytes("x", b"new")
        assert caught.value.filename == fs.url("x")
        assert getattr(caught.value, "operation", "") == "write_bytes"
        assert (os.listdir(folder), fs.read_bytes("x")) == (["x"], b"old")
    fs.write_bytes("x", bytearray(b"new"))
    assert (folder / "x").stat().st_mode & 0o777 == 0o640
    with pytest.raises(TypeError, match="bytes-like"):
        fs.write_bytes("x", "text")  # type: ignore[arg-type]
    assert fs.read_bytes("x") == b"new"
