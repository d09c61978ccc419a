"""Adding to a container whose file changes meanwhile: nothing of the others is lost, and the one who adds is told."""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, FileStat, Local, Memory, StaleFileError
from fsabs.core.layers import LayerFS
from fsabs.spi import Blob
from tests.adapters import stores

NAMES = ("a.zip", "a.tar", "a.h5")


class WithoutVersions(LayerFS):
    """An FS whose files have sizes and times, and no versions."""

    def _stat(self, key: str, *how: Any) -> FileStat:
        return self.inner._stat(key, *how)._replace(version=None)

    def _open_blob(self, key: str, *how: Any) -> Blob:
        blob = self.inner._open_blob(key, *how)
        blob.version = None
        return blob


HERE = [("local", "a.zip"), ("memory", "a.tar"), ("without versions", "a.h5"), ("without versions", "a.zip")]
ON_SERVERS = [("s3", "a.zip"), ("ceph", "a.tar"), ("hdfs", "a.h5")]
PLACES = [*(pytest.param(*place, marks=pytest.mark.quick) for place in HERE), *ON_SERVERS]
"""Kinds of stores, and the name of an archive there."""


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FS]:
    if kind == "without versions":
        yield WithoutVersions(Local(tmp_path))
        return
    with stores.opened(kind, request, tmp_path) as url, fsabs.from_url(url, create=True) as fs:
        yield fs


def made(fs: FS, name: str) -> None:
    """Write a container; where there are no versions, its time counts, which is of an hour ago."""
    with fs.open_container(name, "w") as container:
        container.write_bytes("old", b"0")
    if fs.url(name).startswith("file:"):
        path = fs.url(name).removeprefix("file://")
        os.utime(path, (os.stat(path).st_mtime - 3600,) * 2)


def members(fs: FS, name: str) -> dict[str, bytes]:
    with fs.open_container(name) as container:
        return {path: container.read_bytes(path) for path in container.list(recursive=True)}


@pytest.mark.parametrize(("kind", "name"), PLACES)
def test_of_two_that_add_the_first_to_close_wins(store: FS, kind: str, name: str) -> None:
    made(store, name)
    first, second = store.open_container(name, "a"), store.open_container(name, "a")
    first.write_bytes("first", b"1")
    second.write_bytes("second", b"2")
    first.close()
    with pytest.raises(StaleFileError, match="changed while it was added to") as caught:
        second.close()
    assert caught.value.filename == store.url(name)
    assert caught.value.operation == "close"  # type: ignore[attr-defined]
    assert members(store, name) == {"old": b"0", "first": b"1"}
    second.close()  # once more is no error
    with store.open_container(name, "a") as third:
        third.write_bytes("second", b"2")
    assert members(store, name) == {"old": b"0", "first": b"1", "second": b"2"}


@pytest.mark.parametrize(("kind", "name"), PLACES)
def test_what_was_made_replaced_or_removed_meanwhile_is_left_so(store: FS, kind: str, name: str) -> None:
    first, second = store.open_container(name, "a"), store.open_container(name, "a")
    first.write_bytes("first", b"1")
    second.write_bytes("second", b"2")
    first.close()
    with pytest.raises(FileExistsError) as caught:
        second.close()
    assert caught.value.filename == store.url(name)
    assert members(store, name) == {"first": b"1"}
    made(store, name)
    with pytest.raises(StaleFileError), store.open_container(name, "a") as adding:
        adding.write_bytes("more", b"1")
        with store.open_container(name, "w") as container:
            container.write_bytes("other", b"2")
    assert members(store, name) == {"other": b"2"}
    with pytest.raises(StaleFileError), store.open_container(name, "a") as container:
        container.write_bytes("more", b"1")
        store.remove(name)
    assert not store.exists(name)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_a_file_in_place_is_written_to_by_others(name: str, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    made(fs, name)
    with pytest.raises(StaleFileError), fs.open_container(name, "a") as container:
        container.write_bytes("more", b"1")
        with open(tmp_path / name, "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(b"x")
    assert (tmp_path / name).read_bytes().endswith(b"x")


@pytest.mark.quick
def test_two_that_add_to_an_archive_in_one_that_is_added_to() -> None:
    fs = Memory()
    with fs.open_zip("o.zip", "w") as outer, outer.open_container("i.tar", "w") as inner:
        inner.write_bytes("old", b"0")
    with fs.open_zip("o.zip", "a") as outer:
        first, second = outer.open_container("i.tar", "a"), outer.open_container("i.tar", "a")
        first.write_bytes("first", b"1")
        second.write_bytes("second", b"2")
        first.close()
        with pytest.raises(StaleFileError):
            second.close()
    with fs.open_zip("o.zip") as outer:
        assert members(outer, "i.tar") == {"old": b"0", "first": b"1"}


class Replacing(LayerFS):
    """An FS whose file is replaced between its stat and its opening."""

    def _open_blob(self, key: str, *how: Any) -> Blob:
        self.inner._write_bytes(key, EMPTY)
        return self.inner._open_blob(key, *how)


with io.BytesIO() as _buffer:
    with zipfile.ZipFile(_buffer, "w"):
        pass
    EMPTY = _buffer.getvalue()


@pytest.mark.quick
def test_a_file_that_changes_while_it_is_opened(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    fs.write_bytes("a.zip", EMPTY)
    with pytest.raises(StaleFileError, match="while it was opened"):
        Replacing(fs).open_zip("a.zip", "a")
    assert os.listdir(tmp_path) == ["a.zip"]


ADDING = """
import sys, fsabs
fs, name, mine = fsabs.Local(sys.argv[1]), sys.argv[2], sys.argv[3]
for number in range(10):
    while True:
        try:
            with fs.open_container(name, "a") as container:
                container.write_bytes(f"{mine}{number}", b"%d" % number)
            break
        except OSError as exc:
            if not isinstance(exc, (fsabs.StaleFileError, BlockingIOError)):
                raise
"""


@pytest.mark.parametrize("name", ["a.zip", "a.h5"])
def test_processes_that_add_at_once_lose_nothing(name: str, tmp_path: Path) -> None:
    made(Local(tmp_path), name)
    code = [sys.executable, "-c", ADDING, str(tmp_path), name]
    children = [subprocess.Popen([*code, mine]) for mine in "xyz"]
    assert [child.wait(120) for child in children] == [0, 0, 0]
    expected = {f"{mine}{number}": b"%d" % number for mine in "xyz" for number in range(10)}
    assert members(Local(tmp_path), name) == {"old": b"0", **expected}


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Any]:
    """A program that does as it is told by lines of Python, and answers with a line."""
    code = "import sys\nfor line in sys.stdin:\n    exec(line)\n    print('done', flush=True)\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def tell(line: str) -> None:
            child.stdin.write(line + "\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            assert child.stdout.readline() == "done\n"  # type: ignore[union-attr]

        yield tell
        child.stdin.close()


def test_a_file_that_h5py_writes_to_is_not_added_to(holder: Any, tmp_path: Path) -> None:
    fs, path = Local(tmp_path), tmp_path / "a.h5"
    made(fs, "a.h5")
    holder(f"import h5py; f = h5py.File({str(path)!r}, 'r+')")
    with pytest.raises(BlockingIOError, match="open for writing") as caught:
        fs.open_container("a.h5", "a")
    assert caught.value.filename == fs.url("a.h5")
    with fs.open_container("a.h5") as container:  # reading is as it was
        assert container.read_bytes("old") == b"0"
    holder("f['theirs'] = 1; f.close()")
    with fs.open_container("a.h5", "a") as container:
        container.write_bytes("ours", b"2")
    assert set(members(fs, "a.h5")) == {"old", "theirs", "ours"}
    adding = fs.open_container("a.h5", "a")  # and what h5py opens later is noticed at the end
    adding.write_bytes("late", b"3")
    holder(f"f = h5py.File({str(path)!r}, 'r+')")
    with pytest.raises(OSError, match="open for writing|changed"):
        adding.close()
    holder("f['more'] = 1; f.close()")
    assert set(members(fs, "a.h5")) == {"old", "theirs", "ours", "more"}


@pytest.mark.quick
def test_a_file_that_h5py_reads_is_added_to(holder: Any, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    made(fs, "a.h5")
    holder(f"import h5py; f = h5py.File({str(tmp_path / 'a.h5')!r}, 'r')")
    with fs.open_container("a.h5", "a") as container:
        container.write_bytes("new", b"1")
    holder("assert list(f) == ['old']; f.close()")
    assert set(members(fs, "a.h5")) == {"old", "new"}


@pytest.mark.quick
def test_without_locks_versions_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(fd: int, how: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", none)
    test_of_two_that_add_the_first_to_close_wins(Local(tmp_path), "local", "a.zip")
