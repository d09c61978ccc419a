"""A damaged object of an HDF5 file hurts no other: it is listed, raises when it is read, and is reported."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

import fsabs
from fsabs import CorruptFileError, Memory
from fsabs.containers.hdf5 import Hdf5

from .hdf5files import built
from .stores import CountingFS

pytestmark = pytest.mark.quick


def damaged(version: str) -> bytes:
    """A file in which HDF5 can't open `g/bad`."""

    def build(file: h5py.File) -> None:
        for name in ("bad", "good"):
            file[f"g/{name}"] = np.full(10, ord(name[0]), "u1")
        file["text"] = "hello"

    data = bytearray(built(build, libver=version))
    with Memory() as fs:
        fs.write_bytes("a.h5", bytes(data))
        with Hdf5(fs, "a.h5") as hdf5:
            header = h5py.h5o.get_info(hdf5.dataset("g/bad").id).addr
    data[header] ^= 0x10  # its version, or signature
    return bytes(data)


@pytest.mark.parametrize("version", ["earliest", "v110"])
def test_one_damaged_object_is_listed_and_hurts_no_other(version: str) -> None:
    with Memory() as fs:
        fs.write_bytes("a.h5", damaged(version))
        with Hdf5(fs, "a.h5") as hdf5:
            assert list(hdf5.list("g")) == ["bad", "good"]
            assert list(hdf5.list(recursive=True)) == ["g/", "g/bad", "g/good", "text"]
            assert list(hdf5.glob("**/*o*")) == ["g/good"]
            assert [names for _, _, names in hdf5.walk("")] == [["text"], ["bad", "good"]]
            assert hdf5.read_bytes("g/good") == b"g" * 10
            with pytest.raises(CorruptFileError) as caught:
                hdf5.read_bytes("g/bad")
            assert caught.value.filename == "memory:///a.h5/g/bad"
            for found in (hdf5.left_out(), hdf5.verify()):
                assert [(problem.path, problem.kind) for problem in found] == [("g/bad", "damaged")]
            done = fsabs.unpack(hdf5, fs, "out")
            assert (done.files, fs.read_bytes("out/g/good"), fs.exists("out/g/bad")) == (2, b"g" * 10, False)


def test_links_to_nothing_are_left_out_and_empty_files_are_not() -> None:
    def build(file: h5py.File) -> None:
        file["x"] = np.zeros(0, "u1")
        file["lost"] = h5py.SoftLink("/nothing")
        file["out"] = h5py.ExternalLink("other.h5", "/x")

    with Memory() as fs:
        fs.write_bytes("a.h5", built(build))
        with Hdf5(fs, "a.h5") as hdf5:
            assert list(hdf5.list()) == ["lost", "out", "x"]
            assert [(p.path, p.kind) for p in hdf5.left_out()] == [("lost", "lost link"), ("out", "external link")]
            assert fsabs.unpack(hdf5, fs, "out").files == 1


def test_a_store_that_fails_is_no_damage() -> None:
    with Memory() as fs:
        fs.write_bytes("a.h5", built(lambda file: file.update(x=np.zeros(1_000_000, "u1"))))
        store = CountingFS(fs)
        with Hdf5(store, "a.h5") as hdf5:
            list(hdf5.list())
            store.failure = TimeoutError("gone")
            with pytest.raises(TimeoutError):
                hdf5.verify()
