"""Hdf5, written: h5py reads it; whole or not at all, the same bytes for the same members."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import h5py
import pytest

from fsabs import FS, CorruptFileError, Local, Memory
from fsabs.containers.hdf5 import Hdf5
from fsabs.core.writing import partial_name
from tests import namespaces
from tests.servers.fixtures import require

from .forks import all_end_well, forked
from .hdf5files import BLOB, as_h5py, built, tree
from .tarballs import contents

pytestmark = pytest.mark.quick


ROOT = Path(__file__).parents[2]
TREE = {"a": b"alpha", "d/e/f": BLOB, "d/empty": b"", "ü ñ": b"x"}


def _write(fs: FS, name: str, tree: dict[str, bytes], mode: str = "w", **options: Any) -> bytes:
    with fs.open_container(name, mode, **options) as hdf5:
        for path, data in tree.items():
            hdf5.write_bytes(path, data)
    return fs.read_bytes(name)


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_h5py_reads_it_and_so_do_we(compression: str | None, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    assert as_h5py(_write(fs, "a.hdf5", TREE, compression=compression)) == TREE
    hdf5 = fs.open_container("a.hdf5")
    assert isinstance(hdf5, Hdf5)
    assert contents(hdf5) == TREE
    assert hdf5.verify() == []
    assert hdf5.dataset("d/e/f").compression == compression


def test_the_same_members_are_the_same_bytes(tmp_path: Path) -> None:
    def write(fs: FS) -> bytes:
        with fs.open_container("a.h5", "w") as hdf5:
            hdf5.makedirs("empty/dir")
            for i in range(50):
                hdf5.write_bytes(f"many/{i}", bytes([i]) * i)
        return fs.read_bytes("a.h5")

    first = write(Memory())
    time.sleep(1.1)  # HDF5's times are whole seconds
    assert write(Local(tmp_path)) == first


def test_adding() -> None:
    fs = Memory()
    fs.write_bytes("a.h5", built(tree, libver="latest"))
    with fs.open_container("a.h5", "a") as hdf5:
        hdf5.write_bytes("raw", b"replaced")
        hdf5.write_bytes("g/new", b"new")
    hdf5 = fs.open_container("a.h5")
    assert contents(hdf5) == {
        "g/packed": BLOB,
        "g/sub/empty": b"",
        "g/text": "héllo".encode(),
        "g/new": b"new",
        "raw": b"replaced",
    }
    assert _write(fs, "new.h5", {"x": b"1"}, "a") == _write(fs, "other.h5", {"x": b"1"})
    fs.write_bytes("bad.h5", b"no HDF5")
    with pytest.raises(CorruptFileError) as caught:
        fs.open_container("bad.h5", "a")
    assert caught.value.filename == "memory:///bad.h5"
    assert fs.read_bytes("bad.h5") == b"no HDF5"


def test_adding_follows_no_link_out_of_the_file(tmp_path: Path) -> None:
    other = tmp_path / "other.h5"
    other.write_bytes(before := built(lambda file: file.create_group("g")))
    fs = Memory()
    fs.write_bytes("a.h5", built(lambda file: file.update(out=h5py.ExternalLink(str(other), "/g"))))
    with fs.open_container("a.h5", "a") as hdf5:
        for path in ("out/x", "out"):
            with pytest.raises(PermissionError):
                hdf5.write_bytes(path, b"1")
    assert other.read_bytes() == before


def test_h5py_objects_while_writing() -> None:
    fs = Memory()
    with fs.open_container("a.h5", "w") as hdf5:
        assert isinstance(hdf5, Hdf5)
        hdf5.write_bytes("x", b"1")
        hdf5.h5py_file()["x"].attrs["label"] = 5
        hdf5.dataset("x").attrs["more"] = 6
        for attempt in (hdf5.verify, lambda: hdf5.read_bytes("x")):
            with pytest.raises(io.UnsupportedOperation):
                attempt()
    read = fs.open_container("a.h5")
    assert isinstance(read, Hdf5)
    assert dict(read.dataset("x").attrs) == {"label": 5, "more": 6}


FULL = """
import errno, gc, os, sys
from fsabs import Memory
from tests.containers.tarballs import contents
size = int(sys.argv[1])
for compression in None, "gzip", "lzf":
    fs = Memory()
    hdf5 = fs.open_container("a.h5", "w", compression=compression)
    hdf5.write_bytes("first", b"1")
    before = len(os.listdir("/proc/self/fd"))
    failed = []
    for number in range(200):
        try:
            hdf5.write_bytes(f"d{number % 7}/{number}", os.urandom(size))
        except OSError as exc:
            failed.append((exc.errno, exc.filename))
            if len(failed) == 20:
                break
    try:
        hdf5.close()
    except OSError as exc:
        failed.append((exc.errno, exc.filename))
    assert {code for code, _ in failed} == {errno.ENOSPC}, failed
    assert failed[-1][1] == "memory:///a.h5", failed
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before
    assert list(fs.list()) == []
    with fs.open_container("b.h5", "w") as hdf5:
        hdf5.write_bytes("x", b"1")
    assert contents(fs.open_container("b.h5")) == {"x": b"1"}
print("well")
"""
ON_A_SMALL_DISK = 'mount -t tmpfs -o size="$1" tmpfs "$2" && export TMPDIR="$2" && shift 2 && exec "$@"'


@pytest.mark.parametrize(
    ("disk", "size"),
    [
        (20_480, 0),
        (3 << 20, 1 << 20),
        *(pytest.param(*one, marks=pytest.mark.nightly) for one in ((4096, 100), (65_536, 1000), (1 << 20, 9000))),
    ],
)
def test_a_full_disk_is_an_error_and_no_more(disk: int, size: int, tmp_path: Path) -> None:
    """Whatever the compression; the disk is empty again for the next one."""
    require(namespaces.missing)
    small = [*namespaces.IN_ONE, "sh", "-c", ON_A_SMALL_DISK, "sh", str(disk), str(tmp_path)]
    command = [*small, sys.executable, "-c", FULL, str(size)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, cwd=ROOT)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "well\n", "")


@pytest.mark.parametrize("missing", ["O_TMPFILE", "memfd_create"])
def test_a_system_that_lacks_unnamed_files(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, missing, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fs = Memory()
    _write(fs, "a.h5", TREE)
    _write(fs, "a.h5", {"more": BLOB}, "a")
    assert contents(fs.open_container("a.h5")) == {**TREE, "more": BLOB}
    fs.write_bytes("damaged.h5", fs.read_bytes("a.h5")[:-10])
    with pytest.raises(CorruptFileError):
        fs.open_container("damaged.h5", "a")
    hdf5 = fs.open_container("b.h5", "w")
    hdf5.write_bytes("x", BLOB)

    def close() -> bool:
        hdf5.close()
        return True

    with pytest.raises(ZeroDivisionError), hdf5:
        assert all_end_well(forked(close))
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_the_name_that_a_killed_writer_had_for_a_moment_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / partial_name("hdf5")
    left.touch()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 25 * 3600)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _write(Memory(), "a.h5", TREE)
    assert os.listdir(tmp_path) == []


def test_a_group_that_was_removed_is_not_written_to() -> None:
    fs = Memory()
    with fs.open_container("a.h5", "a") as hdf5:
        hdf5.makedirs("d/e")
        hdf5.remove("d/e", recursive=True)
        with pytest.raises(FileNotFoundError):
            hdf5.remove("d/e", recursive=True)
        hdf5.write_bytes("d/e/x", b"1")
        hdf5.remove("d/e/x")
        hdf5.remove("d/e", recursive=True)
        hdf5.write_bytes("d/e", b"2")
    assert contents(fs.open_container("a.h5")) == {"d/e": b"2"}


def test_options_are_checked() -> None:
    fs = Memory()
    with pytest.raises(ValueError, match="unknown compression 'zip'"):
        fs.open_container("a.h5", "w", compression="zip")
    fs.write_bytes("a.h5", built(tree))
    with pytest.raises(ValueError, match="for a file that is written"):
        fs.open_container("a.h5", compression="gzip")
    assert list(fs.list()) == ["a.h5"]
