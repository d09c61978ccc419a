"""The h5py objects that `h5py_file()` and `dataset()` give: they lead to no other file, either."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from fsabs import Memory
from fsabs.containers.hdf5 import Hdf5

from .hdf5files import built

pytestmark = pytest.mark.quick


@pytest.fixture
def hostile(tmp_path: Path) -> bytes:
    """A file that asks for data of others: of a raw file, by a virtual data set, and by links."""
    secret = tmp_path / "secret.h5"
    secret.write_bytes(built(lambda file: file.create_dataset("x", data=np.frombuffer(b"secret", "u1"))))
    (tmp_path / "secret.raw").write_bytes(b"secret")

    def build(file: h5py.File) -> None:
        file["x"] = np.arange(6, dtype="u1")
        file["kind"] = np.dtype("<i4")
        file["g/inner"] = h5py.SoftLink("/x")
        file["g/out"] = h5py.ExternalLink(str(secret), "/x")
        file["dir"] = h5py.ExternalLink(str(secret), "/")
        raw = file.create_dataset("g/raw", shape=(6,), dtype="u1", external=[(str(tmp_path / "secret.raw"), 0, 6)])
        file.attrs["reference"] = raw.ref
        layout = h5py.VirtualLayout(shape=(6,), dtype="u1")
        layout[:] = h5py.VirtualSource(str(secret), "x", shape=(6,))
        file.create_virtual_dataset("g/virtual", layout)

    return built(build)


WAYS: dict[str, Callable[[Hdf5, str], Any]] = {
    "read_bytes": lambda hdf5, path: hdf5.read_bytes(path),
    "dataset": lambda hdf5, path: hdf5.dataset(path),
    "file": lambda hdf5, path: hdf5.h5py_file()[path],
    "bytes": lambda hdf5, path: hdf5.h5py_file()[path.encode()],
    "get": lambda hdf5, path: hdf5.h5py_file().get(path),
    "group": lambda hdf5, path: hdf5.h5py_file()["g"][f"/{path}"],
    "values": lambda hdf5, path: list(hdf5.h5py_file()["g"].values()),
    "file of a dataset": lambda hdf5, path: hdf5.dataset("x").file[path],
    "parent of a dataset": lambda hdf5, path: hdf5.dataset("x").parent[path],
}


@pytest.mark.parametrize("path", ["g/raw", "g/virtual", "g/out", "dir/x"])
@pytest.mark.parametrize("way", WAYS)
def test_no_h5py_object_leads_to_another_file(way: str, path: str, hostile: bytes) -> None:
    with Memory() as fs:
        fs.write_bytes("a.h5", hostile)
        with Hdf5(fs, "a.h5") as hdf5, pytest.raises(PermissionError) as caught:
            WAYS[way](hdf5, path)
    assert caught.value.errno == errno.EACCES


def test_a_file_that_is_added_to_leads_to_no_other_either(hostile: bytes) -> None:
    with Memory() as fs:
        fs.write_bytes("a.h5", hostile)
        with contextlib.closing(Hdf5(fs, "a.h5", "a")) as hdf5:
            for path in ("g/raw", "g/virtual", "g/out", "dir/x"):
                for way in ("dataset", "file", "values"):
                    with pytest.raises(PermissionError):
                        WAYS[way](hdf5, path)


def test_references_are_checked_and_all_else_is_as_h5py_has_it(hostile: bytes) -> None:
    with Memory() as fs:
        fs.write_bytes("a.h5", hostile)
        with Hdf5(fs, "a.h5") as hdf5:
            file = hdf5.h5py_file()
            with pytest.raises(PermissionError):
                file[file.attrs["reference"]]
            assert file["x"][()].tolist() == hdf5.dataset("g/inner")[()].tolist() == [0, 1, 2, 3, 4, 5]
            assert file["g"]["inner"].file["x"] == file["x"]
            assert isinstance(file["kind"], h5py.Datatype)
            assert ("x" in file, "g/inner" in file, "nothing" in file, "x/below" in file) == (True, True, False, False)
            assert "g/out" in file["g"].file
            assert file.get("nothing", 5) == 5
            assert file.get("g/out", getlink=True).path == "/x"
            for path in ("nothing", "x/below"):
                with pytest.raises(KeyError):
                    file[path]
            with pytest.raises(OSError, match="write"):
                file["x"][0] = 1
