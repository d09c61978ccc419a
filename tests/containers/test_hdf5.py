"""Hdf5, read: what h5py writes, its links and its damage."""

from __future__ import annotations

import errno
import io
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import fsabs
from fsabs import CorruptFileError, Hdf5, Memory

from .hdf5files import BLOB, built, opened, tree
from .stores import counting
from .tarballs import contents

pytestmark = pytest.mark.quick


# ---- reading


def test_groups_are_directories_and_bytes_are_files() -> None:
    hdf5 = opened(tree)
    assert list(hdf5.list(recursive=True)) == ["g/", "g/packed", "g/sub/", "g/sub/empty", "g/text", "raw", "void/"]
    assert list(hdf5.list("g")) == ["packed", "sub/", "text"]
    assert contents(hdf5) == {"g/packed": BLOB, "g/sub/empty": b"", "g/text": "héllo".encode(), "raw": BLOB}
    assert [hdf5.stat(n).size for n in ("raw", "g/packed", "g/text")] == [len(BLOB), len(BLOB), 6]
    assert hdf5.stat("raw").version == hdf5.parent.stat("a.h5").version
    assert (hdf5.isdir("void"), hdf5.isfile("raw"), hdf5.exists("nothing")) == (True, True, False)
    assert list(hdf5.list("void")) == []
    assert hdf5.verify() == []
    assert list(hdf5.read_many(["raw", "g/text"])) == [BLOB, "héllo".encode()]


@pytest.mark.parametrize("name", ["raw", "g/packed"])
def test_parts_are_read_in_parts(name: str) -> None:
    store = counting(built(tree), "a.h5")
    order = random.Random(5)
    with Hdf5(store, "a.h5").open_blob(name) as blob:
        for _ in range(50):
            size, offset = order.randrange(30_000), order.randrange(310_000)
            store.taken()
            assert blob.pread(size, offset) == BLOB[offset : offset + size]
            assert name == "g/packed" or store.fetched == max(0, min(size, len(BLOB) - offset))  # where they lie


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text ü", "text ü".encode()),
        (b"bytes", b"bytes"),
        (np.bytes_(b"fixed"), b"fixed"),
        (np.array(b"ab", "S5"), b"ab"),
        (np.void(b"\0\1\2\0"), b"\0\1\2\0"),
        (np.array([b"\1\2", b"\3\4"], "V2"), b"\1\2\3\4"),
        (h5py.Empty("f4"), b""),
        ("", b""),
    ],
)
def test_what_reads_as_its_own_bytes(value: Any, expected: bytes) -> None:
    hdf5 = opened(lambda file: file.create_dataset("x", data=value))
    assert hdf5.read_bytes("x") == expected
    assert hdf5.stat("x").size == len(expected)


def test_unwritten_bytes_and_runs_of_any_length_read_as_them() -> None:
    def build(file: h5py.File) -> None:
        file.create_dataset("runs", shape=(), dtype=h5py.vlen_dtype(np.uint8))[()] = np.arange(9, dtype="u1")
        file.create_dataset("unwritten", shape=(5,), dtype="u1", fillvalue=7)

    hdf5 = opened(build)
    assert hdf5.read_bytes("runs") == bytes(range(9))
    assert hdf5.read_bytes("unwritten") == b"\7" * 5


ARRAYS: dict[str, Any] = {
    "scalar": np.float32(1.5),
    "floats": np.arange(24, dtype="f8").reshape(2, 3, 4),
    "big endian": np.arange(7, dtype=">i4"),
    "images": np.arange(2 * 5 * 6, dtype="u1").reshape(2, 5, 6),
    "bools": np.array([True, False, True]),
    "complex": np.array([1 + 2j, 3 - 4j]),
    "records": np.array([(1, 2.5, b"x"), (2, 3.5, b"yy")], [("a", "i4"), ("b", "f8"), ("c", "S3")]),
    "padded records": np.zeros(3, np.dtype({"names": ["a"], "formats": ["i2"], "offsets": [4], "itemsize": 8})),
    "empty": np.zeros((0, 3), "f4"),
    "empty rows": np.zeros((3, 0), "f4"),
    "fixed strings": np.array([b"a", b"bcd"], "S4"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_other_arrays_read_as_npy(name: str) -> None:
    array = np.asarray(ARRAYS[name])
    for options in ({}, {"chunks": True, "compression": "lzf"} if array.size and array.ndim else {}):
        hdf5 = opened(lambda file, options=options: file.create_dataset("x", data=array, **options))  # type: ignore[misc]
        data = hdf5.read_bytes("x")
        found = np.load(io.BytesIO(data))
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
        assert hdf5.stat("x").size == len(data)
        out = io.BytesIO()
        np.save(out, array)
        if array.dtype.names is None:
            assert data == out.getvalue()
        with hdf5.open_blob("x") as blob:
            for offset in range(0, len(data), 11):
                assert blob.pread(37, offset) == data[offset : offset + 37]
        assert hdf5.verify() == []


def test_arrays_of_text_are_npy_of_the_longest() -> None:
    text = ["a", "ü" * 5, ""]
    hdf5 = opened(lambda file: file.create_dataset("x", data=text))
    np.testing.assert_array_equal(np.load(hdf5.open("x", "rb")), np.array(text))
    assert hdf5.stat("x").size == 0  # it is known once the strings are read
    hdf5 = opened(lambda file: file.create_dataset("x", shape=(3, 0), dtype=h5py.string_dtype()))
    assert np.load(hdf5.open("x", "rb")).shape == (3, 0)


@pytest.mark.parametrize(
    ("shape", "chunks"), [((1, 3_000_000), (1, 100_000)), ((40, 75_000), (20, 1000)), ((6, 500_000), None)]
)
def test_large_rows_are_decoded_once(
    shape: tuple[int, ...], chunks: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.frombuffer(random.Random(1).randbytes(3_000_000), "u1").reshape(shape).astype("?")
    hdf5 = opened(lambda file: file.create_dataset("x", data=values, chunks=chunks))
    decoded, read = 0, h5py.Dataset.__getitem__

    def counted(self: h5py.Dataset, *wanted: Any) -> Any:
        nonlocal decoded
        found = read(self, *wanted)
        decoded += found.nbytes
        return found

    monkeypatch.setattr(h5py.Dataset, "__getitem__", counted)
    with hdf5.open("x", "rb") as file:
        np.testing.assert_array_equal(np.load(file), values)
    assert decoded == values.nbytes


def test_rows_that_share_chunks_are_decoded_together_within_a_limit() -> None:
    values = np.zeros((40, 1 << 20), "u1")  # 40 MiB, of which 16 are decoded together
    values[:, 5] = range(40)
    hdf5 = opened(lambda file: file.create_dataset("x", data=values, chunks=(40, 1 << 16), compression="lzf"))
    expected, header = values.tobytes(), 128
    with hdf5.open_blob("x") as blob:
        tracemalloc.start()
        for offset in (39 << 20, 0, 15 << 20, 16 << 20, (31 << 20) - 7):
            assert blob.pread(2000, header + offset) == expected[offset : offset + 2000]
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
        tracemalloc.stop()


def test_a_large_array_is_read_from_a_store_as_a_large_file_is() -> None:
    values = np.arange(2_000_000, dtype="f8")
    store = counting(built(lambda file: file.create_dataset("x", data=values)), "a.h5", streams=True)
    hdf5 = Hdf5(store, "a.h5")
    expected = hdf5.read_bytes("x")
    wanted = [(9, 1), (0, 5), (200, 100), (50, 1_000_000), (7, 127), (7, 128)]
    with hdf5.open_blob("x") as blob:
        store.taken()
        assert blob.pread_many(wanted) == [expected[offset : offset + size] for size, offset in wanted]
        assert len(store.taken()) == 1
        for size, offset in wanted:
            buffer = bytearray(size)
            assert blob.pread_into(memoryview(buffer), offset) == size
            assert buffer == expected[offset : offset + size]
    for start in (0, 1, 127, 128, 129, 1_000_000):
        with hdf5.open("x", "rb") as file:
            file.seek(start)
            store.taken()
            assert b"".join(iter(lambda file=file: file.read(1 << 20), b"")) == expected[start:]  # type: ignore[misc]
            assert len(store.taken()) < 12
    copied = Memory()
    hdf5.copy("x", "x", copied)  # streamed from its start
    assert copied.read_bytes("x") == expected
    assert store.streams
    assert store.under_way == 0


def test_arrays_in_an_array_and_names_beyond_ascii() -> None:
    kind = np.dtype([("größe", "i4"), ("日本", "f4", (2,))])
    array = np.zeros(3, kind)
    hdf5 = opened(lambda file: file.create_dataset("x", data=array))
    np.testing.assert_array_equal(np.load(hdf5.open("x", "rb")), array)

    def build(file: h5py.File) -> None:
        file.create_dataset("x", shape=(2,), dtype=np.dtype(("i4", (3,))))[...] = np.arange(6).reshape(2, 3)

    np.testing.assert_array_equal(np.load(opened(build).open("x", "rb")), np.arange(6).reshape(2, 3))


def test_what_is_no_bytes_is_listed_and_not_opened() -> None:
    def build(file: h5py.File) -> None:
        file.create_dataset("refs", shape=(2,), dtype=h5py.ref_dtype)
        file.create_dataset("runs", shape=(2,), dtype=h5py.vlen_dtype(np.int32))
        file["type"] = np.dtype("f8")

    hdf5 = opened(build)
    assert list(hdf5.list()) == ["refs", "runs"]
    for name in ("refs", "runs"):
        assert hdf5.stat(name).size == 0
        with pytest.raises(io.UnsupportedOperation, match=r"dataset\(\) gives it") as caught:
            hdf5.open(name, "rb")
        assert caught.value.filename == f"memory:///a.h5/{name}"
    assert [(p.path, p.kind) for p in hdf5.verify()] == [("refs", "unreadable"), ("runs", "unreadable")]
    with pytest.raises(FileNotFoundError, match="named datatype"):
        hdf5.open("type")


def test_a_filter_that_is_not_installed_is_told() -> None:
    def build(file: h5py.File) -> None:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4,))
        plist.set_filter(32123, h5py.h5z.FLAG_OPTIONAL, ())
        space, kind = h5py.h5s.create_simple((8,)), h5py.h5t.NATIVE_UINT8
        h5py.h5d.create(file.id, b"x", kind, space, plist)

    with pytest.raises(io.UnsupportedOperation, match="filter 32123"):
        opened(build).open("x")


def test_h5py_objects() -> None:
    hdf5 = opened(tree)
    assert isinstance(hdf5.h5py_file(), h5py.File)
    assert hdf5.dataset("g/packed").compression == "gzip"
    assert hdf5.subfs("g").dataset("packed").shape == (len(BLOB),)
    with pytest.raises(IsADirectoryError):
        hdf5.dataset("g")
    with pytest.raises(FileNotFoundError) as caught:
        hdf5.dataset("nothing")
    assert caught.value.filename == "memory:///a.h5/nothing"


# ---- names and links


def test_odd_names() -> None:
    def build(file: h5py.File) -> None:
        file["a b%c ü"] = np.zeros(1, "u1")
        file[b"n\xff"] = np.ones(2, "u1")
        file[".."] = np.ones(2, "u1")

    hdf5 = opened(build)
    assert list(hdf5.list()) == ["a b%c ü", "n\udcff"]
    assert hdf5.read_bytes("n\udcff") == b"\1\1"
    assert hdf5.url("n\udcff").endswith("/n%FF")
    assert [(p.path, p.kind) for p in hdf5.verify()] == [("..", "unsafe name")]


def _links(file: h5py.File) -> None:
    file["d/real"] = np.frombuffer(b"data", "u1")
    file["soft"] = h5py.SoftLink("/d/real")
    file["d/near"] = h5py.SoftLink("real")
    file["d/self"] = h5py.SoftLink("./near")
    file["dir"] = h5py.SoftLink("d")
    file["hard"] = file["d/real"]
    file["d/up"] = file["/"]
    file["lost"] = h5py.SoftLink("/nothing")
    file["circle"] = h5py.SoftLink("circle")


def test_links_inside_the_file() -> None:
    hdf5 = opened(_links)
    for name in ("soft", "d/near", "d/self", "dir/real", "dir/near", "hard", "d/up/d/up/hard"):
        assert hdf5.read_bytes(name) == b"data"
    assert list(hdf5.list()) == ["circle", "d/", "dir/", "hard", "lost", "soft"]
    walked = list(hdf5.list(recursive=True))
    assert walked == [
        *("circle", "d/", "d/near", "d/real", "d/self", "d/up/"),
        *("dir/", "dir/near", "dir/real", "dir/self", "dir/up/", "hard", "lost", "soft"),
    ]
    assert not hdf5.exists("lost")
    with pytest.raises(FileNotFoundError):
        hdf5.open("lost")
    with pytest.raises(OSError) as caught:
        hdf5.open("circle")
    assert caught.value.errno == errno.ELOOP
    assert [(p.path, p.kind) for p in hdf5.verify()] == [("circle", "damaged"), ("lost", "lost link")]


def test_nothing_leads_to_another_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret.h5"
    secret.write_bytes(built(lambda file: file.create_dataset("x", data=np.frombuffer(b"secret", "u1"))))
    (tmp_path / "secret.raw").write_bytes(b"secret")

    def build(file: h5py.File) -> None:
        file["out"] = h5py.ExternalLink(str(secret), "/x")
        file["dir"] = h5py.ExternalLink(str(secret), "/")
        file["soft"] = h5py.SoftLink("/dir/x")
        file.create_dataset("raw", shape=(6,), dtype="u1", external=[(str(tmp_path / "secret.raw"), 0, 6)])
        layout = h5py.VirtualLayout(shape=(6,), dtype="u1")
        layout[:] = h5py.VirtualSource(str(secret), "x", shape=(6,))
        file.create_virtual_dataset("virtual", layout)

    hdf5 = opened(build)
    assert list(hdf5.list()) == ["dir", "out", "raw", "soft", "virtual"]
    for name in ("out", "dir/x", "soft", "raw", "virtual"):
        with pytest.raises(PermissionError) as caught:
            hdf5.open(name, "rb")
        assert caught.value.filename == f"memory:///a.h5/{name}"
        assert caught.value.errno == errno.EACCES
    assert {p.kind for p in hdf5.verify()} == {"external link"}


# ---- damage


def test_what_is_no_hdf5_and_what_is_cut() -> None:
    data = built(tree, libver="v110")
    small = built(lambda file: file.create_dataset("x", data=np.frombuffer(b"12345", "u1")), libver="v110")
    for bad in (b"", b"x", b"\x89HDF\r\n\x1a\n", bytes(5000), *(data[:n] for n in range(0, len(data), 4999))):
        with pytest.raises(CorruptFileError) as caught:
            opened(bad)
        assert (caught.value.errno, caught.value.filename) == (errno.EBADMSG, "memory:///a.h5")
    for size in range(len(small)):
        with pytest.raises(CorruptFileError):
            opened(small[:size])


def test_flipped_bytes_are_found_where_hdf5_has_checksums() -> None:
    def build(file: h5py.File) -> None:
        file.create_dataset("d/x", data=np.arange(50, dtype="u1"), chunks=(10,), fletcher32=True)

    data = built(build, libver="v110")
    whole = contents(opened(data))
    found = []
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 0x10
        try:
            assert contents(opened(bytes(bad))) == whole
        except CorruptFileError as exc:
            found.append(exc.filename)
    assert len(found) > len(data) // 4
    assert {name.removesuffix("/d/x").removesuffix("/d") for name in found} == {"memory:///a.h5"}


def test_a_bad_checksum_is_told_by_verify() -> None:
    data = built(
        lambda file: file.create_dataset("x", data=np.full(50, 77, "u1"), chunks=(50,), fletcher32=True),
    )
    hdf5 = opened(data.replace(b"M" * 50, b"M" * 49 + b"N"))
    with pytest.raises(CorruptFileError) as caught:
        hdf5.read_bytes("x")
    assert caught.value.filename == "memory:///a.h5/x"
    assert [(p.path, p.kind) for p in hdf5.verify()] == [("x", "damaged")]


def test_errors_of_the_store_pass_as_they_are() -> None:
    store = counting(built(tree), "a.h5")
    hdf5 = Hdf5(store, "a.h5")
    store.failure = TimeoutError("gone")
    with pytest.raises(TimeoutError) as caught:
        hdf5.read_bytes("g/packed")
    assert (caught.value.filename, caught.value.errno) == ("memory:///a.h5", errno.ETIMEDOUT)


# ---- user blocks, files that were not closed, and what is listed


def everything(file: h5py.File) -> None:
    """Datasets of each layout, written and unwritten."""
    file["bytes"] = np.frombuffer(BLOB, "u1")
    file["numbers"] = np.arange(100, dtype="<i4").reshape(10, 10)
    file.create_dataset("chunked", data=np.frombuffer(BLOB, "u1"), chunks=(1000,))
    file.create_dataset("packed", data=np.arange(5000), chunks=(100,), compression="gzip")
    compact = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    compact.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple((20,))
    h5py.Dataset(h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_UINT8, space, compact))[:] = np.arange(20)
    file.create_dataset("unwritten", (1000,), "u1")
    file.create_dataset("unwritten numbers", (10, 10), "<f4", fillvalue=3.5)
    file.create_dataset("unwritten chunks", (1000,), "u1", chunks=(100,))
    h5py.Dataset(h5py.h5d.create(file.id, b"unwritten compact", h5py.h5t.NATIVE_UINT8, space, compact))
    file["opaque"] = np.void(b"\1\2\3")
    file["text"] = "text"


@pytest.mark.parametrize(
    ("userblock", "version"), [(0, "earliest"), (0, "latest"), (512, "v110"), (1 << 17, "earliest"), (4096, "latest")]
)
def test_with_a_user_block_all_is_as_h5py_reads_it(userblock: int, version: str) -> None:
    data = bytearray(built(everything, libver=version, **({"userblock_size": userblock} if userblock else {})))
    data[:userblock] = b"MATLAB 7.3 MAT-file ".ljust(userblock, b".")[:userblock]
    hdf5 = opened(bytes(data))
    with h5py.File(io.BytesIO(data), "r") as file:
        assert set(hdf5.list()) == set(file)
        for name, dataset in file.items():
            value, found = dataset[()], hdf5.read_bytes(name)
            if found.startswith(b"\x93NUMPY"):
                np.testing.assert_array_equal(np.load(io.BytesIO(found)), value)
            else:
                assert found == (value if isinstance(value, bytes) else value.tobytes()), name
            assert hdf5.stat(name).size == len(found)
    assert hdf5.verify() == []


def test_one_dataset_of_a_type_that_no_file_has_hurts_no_other() -> None:
    overlapping = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
    overlapping.insert(b"whole", 0, h5py.h5t.STD_I64LE)
    unordered = h5py.h5t.create(h5py.h5t.COMPOUND, 8)
    unordered.insert(b"second", 4, h5py.h5t.STD_I32LE)
    unordered.insert(b"first", 0, h5py.h5t.STD_I32LE)
    precise = h5py.h5t.IEEE_F64LE.copy()
    precise.set_size(32)
    precise.set_precision(256)
    precise.set_fields(255, 220, 30, 0, 220)

    def build(file: h5py.File) -> None:
        file["good"] = np.arange(3, dtype="u1")
        for name, kind in (("unordered", unordered), ("precise", precise), ("one", overlapping)):
            h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple((3,)))

    hdf5 = opened(build)
    assert list(hdf5.list()) == ["good", "one", "precise", "unordered"]
    assert [stat.size for stat in hdf5.list(detail=True)][2:] == [0, 0]
    assert hdf5.read_bytes("good") == b"\0\1\2"
    assert len(hdf5.read_bytes("one")) == hdf5.stat("one").size
    for name in ("precise", "unordered"):
        with pytest.raises(io.UnsupportedOperation, match="dataset\\(\\) gives it"):
            hdf5.read_bytes(name)
    assert [(one.path, one.kind) for one in hdf5.verify()] == [("precise", "unreadable"), ("unordered", "unreadable")]


def test_listing_reads_no_strings() -> None:
    text = [f"string {number}" for number in range(30_000)]
    store = counting(built(lambda file: file.create_dataset("d/text", data=text)), "a.h5")
    assert store.stat("a.h5").size > 1_000_000
    hdf5 = Hdf5(store, "a.h5")
    store.taken()
    assert list(hdf5.list("d", detail=True)) == [hdf5.stat("d/text")]
    assert hdf5.exists("d/text")
    assert list(hdf5.glob("**/text")) == ["d/text"]
    assert store.fetched < 300_000
    assert np.load(io.BytesIO(hdf5.read_bytes("d/text"))).tolist() == text


SWMR = """
import os, sys
import h5py
file = h5py.File(sys.argv[1], "w", libver="latest", userblock_size=int(sys.argv[2]))
file.create_dataset("rows", data=range(100), maxshape=(None,), chunks=(100,))
file.swmr_mode = True
file.flush()
print("written", flush=True)
sys.stdin.readline()
os._exit(0)
"""


@pytest.mark.parametrize(("alive", "userblock"), [(True, 0), (False, 1024)])
def test_a_file_that_its_writer_has_not_closed_is_refused(alive: bool, userblock: int, tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    command = [sys.executable, "-c", SWMR, str(path), str(userblock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        if not alive:
            writer.communicate("\n")
        before = path.read_bytes()
        for mode in ("r", "a"):
            with pytest.raises(BlockingIOError, match="SWMR.*h5clear") as caught:
                fsabs.from_url(path, mode=mode)
            assert caught.value.filename == f"file://{path}"
        assert path.read_bytes() == before
        writer.kill()
