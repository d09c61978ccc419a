"""HDF5 files that are damaged where the library itself doesn't see it, and trees that are too deep for recursion."""

from __future__ import annotations

import inspect
import os
import struct
import sys

import h5py
import pytest

from fsabs import CorruptFileError, Memory
from fsabs.containers.hdf5 import Hdf5
from fsabs.containers.hdf5.library import BlobFile

from .forks import all_end_well, forked
from .hdf5files import built, opened

pytestmark = pytest.mark.quick

HEAP = b"GCOL\1\0\0\0"


def text(file: h5py.File) -> None:
    file["text"] = "hello"
    file.create_dataset("texts", data=["a", "longer than that"] * 500, dtype=h5py.string_dtype())


def test_a_group_that_is_damaged_hurts_the_listing_of_itself_alone() -> None:
    data = built(lambda file: file.require_group("a/inside") and file.create_group("b"), libver="earliest")
    at = data.rindex(b"TREE")  # of "b"
    hdf5 = opened(data[:at] + b"EERT" + data[at + 4 :])
    assert list(hdf5.list()) == ["a/", "b/"]
    with pytest.raises(CorruptFileError) as caught:
        list(hdf5.list(recursive=True))
    assert caught.value.filename == hdf5.url("b")
    assert [(p.path, p.kind) for p in hdf5.verify()] == [("", "damaged")]


@pytest.mark.parametrize("size", [0, 2**64 - 16], ids=["none", "round"])
def test_a_heap_without_an_end_is_refused(size: int) -> None:
    data = bytearray(built(text))
    index = 0 if size == 0 else 1
    struct.pack_into("<H6xQ", data, data.index(HEAP) + 16, index, size)

    def check() -> bool:
        hdf5 = opened(bytes(data))
        with pytest.raises(CorruptFileError, match="no size in the global heap") as caught:
            hdf5.read_bytes("text")
        return caught.value.filename is not None

    assert all_end_well(forked(check))  # HDF5 would go round in it, and no exception gets it out


def test_heaps_that_are_right_are_let_through() -> None:
    data = built(text)
    assert data.count(HEAP) > 1
    hdf5 = opened(data)
    assert hdf5.read_bytes("text") == b"hello"
    assert hdf5.dataset("texts")[-1] == b"longer than that"
    assert hdf5.verify() == []


def test_a_heap_beyond_what_was_read_of_it_is_looked_through() -> None:
    parent = Memory()
    objects = struct.pack("<H6xQ8x", 1, 8) * 6000 + struct.pack("<H6xQ", 0, 0)
    parent.write_bytes("heap", b"pad" + HEAP + struct.pack("<Q", 16 + len(objects) + 100) + objects + bytes(100))
    with parent.open("heap", "rb") as file:
        source = BlobFile(file.raw.blob)
        source.seek(3)
        with pytest.raises(CorruptFileError, match="at offset 3"):
            source.read(4096)


def test_deep_trees() -> None:
    deep, parent, usual = "/".join(["d"] * 150), Memory(), sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        with Hdf5(parent, "a.h5", "w") as hdf5:
            hdf5.write_bytes(deep + "/x", b"1")
        with Hdf5(parent, "a.h5") as hdf5:
            assert len(list(hdf5.list(recursive=True))) == 151
            assert hdf5.verify() == []
    finally:
        sys.setrecursionlimit(usual)


def test_a_closed_file_holds_no_temporary_file() -> None:
    before = os.listdir("/proc/self/fd")
    for abort in (False, True):
        hdf5 = Hdf5(Memory(), "a.h5", "w")
        hdf5.write_bytes("x", bytes(100_000))
        if abort:
            with pytest.raises(ZeroDivisionError), hdf5:
                raise ZeroDivisionError
        hdf5.close()
        assert os.listdir("/proc/self/fd") == before
