"""What is ours for every patched function, and what their neighbours do with it: nothing falls through in silence."""

from __future__ import annotations

import bz2
import glob
import gzip
import io
import os
import pathlib
import pickle
import shutil
import tarfile
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import indexed_gzip
import numpy
import pandas
import pyarrow.parquet
import pytest
import safetensors
import safetensors.numpy
import soundfile
import torch
from PIL import Image

import fsabs
from tests.adapters import stores

pytestmark = pytest.mark.quick
PYTHONS = ("builtins", "os", "shutil", "glob", "pathlib")
FILES = {"a.txt": b"text", "d/b.txt": b"x", "d/e%f.txt": b"yy"}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[str]:
    """A directory in memory."""
    with stores.opened("memory", None, tmp_path) as url:
        stores.fill(url, FILES)
        yield url


class Unwritable:
    """Fails after something was written, where it is asked for its content."""

    def __reduce__(self) -> Any:
        raise ZeroDivisionError

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError

    __str__ = __repr__ = __reduce__


def _fails_in_h5(path: Any) -> None:
    with h5py.File(path, "w") as file:
        file["x"] = 1
        raise ZeroDivisionError


def _fails_in_sound(path: Any) -> None:
    with soundfile.SoundFile(path, "w", 8000, 1, format="WAV") as file:
        file.write(numpy.zeros(9))
        raise ZeroDivisionError


def _fails_in_open(path: Any) -> None:
    with open(path, "wb") as file:
        file.write(b"half")
        raise ZeroDivisionError


def _fails_in_csv(path: Any) -> None:
    pandas.DataFrame({"a": [1, Unwritable()]}).to_csv(path)


def _fails_in_json(path: Any) -> None:
    pathlib.Path(path)
    with open(path, "w") as file:
        import json

        json.dump({"a": 1, "b": Unwritable()}, file)


def _fails(*_: object) -> None:
    raise ZeroDivisionError


WRITERS: dict[str, Callable[[Any], None]] = {
    "open": _fails_in_open,
    "json": _fails_in_json,
    "h5py": _fails_in_h5,
    "soundfile": _fails_in_sound,
    "to_csv": _fails_in_csv,
    "to_pickle": lambda path: pandas.DataFrame({"a": [1, Unwritable()]}).to_pickle(path),
    "torch": lambda path: torch.save({"x": torch.ones(9), "y": Unwritable()}, path),
    "savez": lambda path: numpy.savez(path, x=numpy.ones(9), y=Unwritable()),
    "savetxt": lambda path: numpy.savetxt(path, numpy.array([1, Unwritable()], object), fmt="%s"),
    "Image": lambda path: Image.fromarray(numpy.zeros((4, 4, 4), "u1")).save(path, "JPEG"),
    "to_json": lambda path: pandas.DataFrame({"a": [1, Unwritable()]}).to_json(path, default_handler=_fails),
    "to_parquet": lambda path: pandas.DataFrame({"a": [1, Unwritable()]}).to_parquet(path),
    "to_excel": lambda path: pandas.DataFrame({"a": [1]}).to_excel(path, engine="none"),
    "to_html": lambda path: pandas.DataFrame({"a": [1, Unwritable()]}).to_html(path),
    "to_feather": lambda path: pandas.DataFrame({"a": [1, Unwritable()]}).to_feather(path),
    "savez_compressed": lambda path: numpy.savez_compressed(path, x=numpy.ones(9), y=Unwritable()),
    "save": lambda path: numpy.save(path, numpy.array([1, Unwritable()], object)),
    "jit": lambda path: torch.jit.save(Unwritable(), path),
    "copy": lambda path: shutil.copyfile("memory://nosuch/x", path) and None,
    "safetensors": lambda path: safetensors.numpy.save_file({"x": Unwritable()}, path),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_failing_writer_leaves_the_old_file_of_a_path(writer: str, tmp_path: Path) -> None:
    (tmp_path / "old.npz").write_bytes(b"old")
    path = fsabs.Path(tmp_path) / "old.npz"
    with fsabs.patch(*PYTHONS, "h5py", "numpy", "pandas", "torch", "PIL", "safetensors", "soundfile"):
        with pytest.raises(Exception):  # noqa: B017 - the library's own
            WRITERS[writer](path)
        assert (tmp_path / "old.npz").read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["old.npz"]


def test_the_operating_system_gets_the_url_of_a_path_while_it_is_patched(tree: str, tmp_path: Path) -> None:
    path = fsabs.Path(tree)
    local = fsabs.Path(tmp_path) / "x"
    with fsabs.from_url(tmp_path / "a.zip", mode="w") as archive:
        archive.write_bytes("d/x y", b"in")
    with fsabs.Memory("fspaths") as fs:
        with fsabs.patch("numpy"), fsabs.patch("os", "glob", "builtins"):
            assert os.path.join(path, "a.txt") == f"{tree}/a.txt"
            assert os.path.splitext(path / "a.txt") == (f"{tree}/a", ".txt")
            assert os.path.basename(path / "d/e%f.txt") == "e%25f.txt"
            assert glob.glob(glob.escape(path) + "/*.txt") == [f"{tree}/a.txt"]  # type: ignore[type-var, operator]
            assert os.fspath(local) == str(tmp_path / "x")
            assert os.fspath(fsabs.Path(tmp_path, "a.zip/d/x y")) == f"file://{tmp_path}/a.zip/d/x%20y"
            names = [
                os.path.join(top, name) for top, _, names in os.walk(fsabs.Path(tmp_path, "a.zip/d")) for name in names
            ]
            assert [open(name).read() for name in names] == ["in"]  # noqa: SIM115
            with pytest.raises(TypeError, match="as_local"):
                os.fspath(fsabs.Path("x", fs=fs))  # by its URL it would lose its options
            with pytest.raises(OSError, match="local disk"):
                path.chmod(0o600)
        with fsabs.patch("numpy"):
            assert os.fspath(path) == tree
        with pytest.raises(TypeError, match="as_local"):
            os.fspath(path)


def test_entries_are_ours(tree: str) -> None:
    with fsabs.patch(*PYTHONS), os.scandir(f"{tree}/d") as entries:
        first, last = sorted(entries, key=lambda entry: entry.name)
        assert (first.name, os.path.isfile(first), os.stat(last).st_size) == ("b.txt", True, 2)
        with open(last, "rb") as file:
            assert file.read() == b"yy"
        assert os.path.basename(last) == "e%25f.txt"
        os.remove(first)
        assert os.listdir(f"{tree}/d") == ["e%25f.txt"]


def test_other_names_of_open_are_patched(tree: str) -> None:
    with fsabs.patch("builtins", "os"):
        with bz2.open(f"{tree}/x.bz2", "wb") as packed, gzip.open(f"{tree}/x.gz", "wb") as zipped:
            packed.write(b"text")
            zipped.write(b"text")
        with bz2.open(f"{tree}/x.bz2") as packed, gzip.open(f"{tree}/x.gz") as zipped:
            assert (packed.read(), zipped.read()) == (b"text", b"text")
        with tarfile.open(f"{tree}/x.tar", "w") as archive:
            archive.addfile(tarfile.TarInfo("member"))
        with tarfile.open(f"{tree}/x.tar") as archive:
            assert archive.getnames() == ["member"]
        with tokenize.open(f"{tree}/a.txt") as file, io.open_code(f"{tree}/a.txt") as code:
            assert (file.read(), code.read()) == ("text", b"text")
    with pytest.raises(FileNotFoundError):
        bz2.open(f"{tree}/x.bz2")  # noqa: SIM115


def test_questions_have_the_answers_of_a_local_disk(tree: str) -> None:
    path = f"{tree}/a.txt"
    with fsabs.patch("os"):
        assert [os.access(path, mode) for mode in (os.F_OK, os.R_OK, os.W_OK, os.X_OK)] == [True, True, True, False]
        assert (os.access(tree, os.X_OK), os.access(f"{tree}/none", os.F_OK)) == (True, False)
        assert os.lstat(path).st_size == os.path.getsize(path) == 4
        for function in (os.path.abspath, os.path.realpath, os.path.normpath):
            assert function(f"{tree}/./d//../a.txt") == path
            assert function(fsabs.Path(path)) == path
            assert function("https://host/a/../b?x=//y") == "https://host/a/../b?x=//y"
        assert os.path.normpath("/pfs/dc/a/../b") == "/pfs/dc/b"
        assert os.path.relpath(f"{tree}/d/e%25f.txt", tree) == "d/e%25f.txt"
        with pytest.raises(ValueError, match="different stores"):
            os.path.relpath(path, ".")
        assert (os.path.isabs(path), os.path.islink(path), os.path.ismount(tree)) == (True, False, False)
        assert os.path.samefile(path, path)
        assert not os.path.samefile(path, f"{tree}/d/b.txt")
        os.rename(dst=f"{tree}/c.txt", src=path)
        assert os.path.exists(f"{tree}/c.txt")


NOT_SERVED: dict[str, Callable[[str], Any]] = {
    "os.open": lambda url: os.open(url, os.O_RDONLY),
    "os.chdir": lambda url: os.chdir(url),
    "os.chmod": lambda url: os.chmod(url, 0o600),
    "os.utime": lambda url: os.utime(url),
    "os.truncate": lambda url: os.truncate(url, 0),
    "os.symlink": lambda url: os.symlink(url, "link"),
    "os.statvfs": lambda url: os.statvfs(url),
    "shutil.disk_usage": lambda url: shutil.disk_usage(url),
    "shutil.copymode": lambda url: shutil.copymode(url, "a"),
    "tarfile": lambda url: tarfile.open(url, "r|"),  # noqa: SIM115
    "numpy.memmap": numpy.memmap,
    "numpy.load": lambda url: numpy.load(url, mmap_mode="r"),
}


@pytest.mark.parametrize("function", NOT_SERVED)
def test_what_is_not_served_says_what_to_write(
    function: str, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with fsabs.patch(*PYTHONS, "numpy"):
        for path in (f"{tree}/a.txt", fsabs.Path(tree, "a.txt")):
            with pytest.raises(OSError, match=r"with fsabs\.Path\(url\)\.as_local\(\) as path.*memory://.*a\.txt"):
                NOT_SERVED[function](path)  # type: ignore[arg-type]
        (tmp_path / "a").write_bytes(b"text")
        os.chmod(fsabs.Path(tmp_path, "a"), 0o600)  # a local file is the system's
        assert numpy.memmap(fsabs.Path(tmp_path, "a")).tolist() == list(b"text")
    assert os.listdir(tmp_path) == ["a"]


def test_a_mapping_of_an_open_url_says_what_to_write(tree: str) -> None:
    import mmap

    with (
        fsabs.patch("builtins"),
        open(f"{tree}/a.txt", "rb") as file,
        pytest.raises(OSError, match="as_local"),
    ):
        mmap.mmap(file.fileno(), 0)


def test_a_url_that_lost_a_slash_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with fsabs.patch("builtins", "numpy"):
        for function in (open, numpy.load):
            for path in (str(pathlib.PurePath("s3://bucket/x")), os.path.abspath("s3://bucket/x")):
                with pytest.raises(FileNotFoundError, match="begins with s3://"):
                    function(path)
        with pytest.raises(FileNotFoundError) as caught:
            open("nosuch/x:/y")  # noqa: SIM115
        assert caught.value.strerror == os.strerror(2)


def test_libraries_that_open_files_themselves(tree: str, tmp_path: Path) -> None:
    safetensors.numpy.save_file({"x": numpy.arange(3)}, tmp_path / "x.st")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1, 2]}), tmp_path / "x.parquet")
    stores.fill(
        tree,
        {
            "x.st": (tmp_path / "x.st").read_bytes(),
            "x.parquet": (tmp_path / "x.parquet").read_bytes(),
            "x.gz": gzip.compress(bytes(range(256)) * 1000),
        },
    )
    with fsabs.patch("safetensors", "pyarrow", "indexed_gzip"):
        with safetensors.safe_open(f"{tree}/x.st", framework="np") as file:
            assert file.get_tensor("x").tolist() == [0, 1, 2]
        assert pyarrow.parquet.read_table(f"{tree}/x.parquet").to_pydict() == {"a": [1, 2]}
        assert pyarrow.parquet.read_schema(fsabs.Path(tree, "x.parquet")).names == ["a"]
        with indexed_gzip.IndexedGzipFile(f"{tree}/x.gz", drop_handles=True) as file:
            file.seek(256 * 999 + 7)
            assert file.read(1) == b"\7"
        with pytest.raises(FileNotFoundError):
            indexed_gzip.IndexedGzipFile(filename=f"{tree}/none.gz")


def test_files_and_trees_are_moved(tree: str, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    with fsabs.patch("shutil"):
        shutil.move(tmp_path / "new", f"{tree}/d")
        assert shutil.move(f"{tree}/d", tmp_path / "there") == str(tmp_path / "there")
        assert sorted(os.listdir(tmp_path / "there")) == ["b.txt", "e%f.txt", "new"]


def test_patched_paths_are_pickled(tree: str) -> None:
    with fsabs.patch("pathlib"):
        path = pathlib.Path(tree) / "a.txt"
        assert pickle.loads(pickle.dumps(path)).read_bytes() == b"text"
        assert type(pathlib.Path(fsabs.Path("/tmp"))) is pathlib.PosixPath
