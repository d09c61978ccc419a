"""Hdf5: what h5py writes is read, what is written h5py reads; damage, links, forks, threads, pickles, nesting."""

from __future__ import annotations

import errno
import io
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs import FS, CorruptFileError, Local, Memory
from fsabs.blobs import BlobSlice
from fsabs.containers.hdf5 import Hdf5

from .forks import all_end_well, forked
from .tarballs import contents

pytestmark = pytest.mark.quick

BLOB = random.Random(3).randbytes(300_000)


def built(build: Callable[[h5py.File], object], **options: Any) -> bytes:
    """The bytes of an HDF5 file, made by h5py."""
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        build(file)
    return out.getvalue()


def opened(data: bytes | Callable[[h5py.File], object], name: str = "a.h5") -> Hdf5:
    """An Hdf5 over these bytes, in memory."""
    parent = Memory()
    parent.write_bytes(name, data if isinstance(data, bytes) else built(data))
    return Hdf5(parent, name)


def _tree(file: h5py.File) -> None:
    file["raw"] = np.frombuffer(BLOB, "u1")
    file.create_dataset(
        "g/packed", data=np.frombuffer(BLOB, "u1"), chunks=(10_000,), compression="gzip", fletcher32=True
    )
    file["g/sub/empty"] = np.zeros(0, "u1")
    file["g/text"] = "héllo"
    file.create_group("void")


def _as_h5py(data: bytes) -> dict[str, bytes]:
    found: dict[str, bytes] = {}

    def visit(name: str, node: Any) -> None:
        if isinstance(node, h5py.Dataset):
            assert (node.dtype, node.ndim) == ("uint8", 1)
            found[name] = node[:].tobytes()

    with h5py.File(io.BytesIO(data), "r") as file:
        file.visititems(visit)
    return found


# ---- reading


@pytest.mark.parametrize("version", ["earliest", "v110", "latest"])
def test_groups_are_directories_and_bytes_are_files(version: str) -> None:
    hdf5 = opened(built(_tree, libver=version))
    assert list(hdf5.list(recursive=True)) == ["g/", "g/packed", "g/sub/", "g/sub/empty", "g/text", "raw", "void/"]
    assert list(hdf5.list("g")) == ["packed", "sub/", "text"]
    assert contents(hdf5) == {"g/packed": BLOB, "g/sub/empty": b"", "g/text": "héllo".encode(), "raw": BLOB}
    assert [hdf5.stat(n).size for n in ("raw", "g/packed", "g/text")] == [len(BLOB), len(BLOB), 6]
    assert hdf5.stat("raw").version == hdf5._parent.stat("a.h5").version
    assert (hdf5.isdir("void"), hdf5.isfile("raw"), hdf5.exists("nothing")) == (True, True, False)
    assert list(hdf5.list("void")) == []
    assert hdf5.verify() == []
    assert list(hdf5.read_many(["raw", "g/text"])) == [BLOB, "héllo".encode()]


def test_bytes_that_lie_in_one_piece_are_a_slice_of_the_file() -> None:
    for options in ({}, {"userblock_size": 1024}):
        hdf5 = opened(built(_tree, **options))
        blob = hdf5._open_blob("raw")
        assert isinstance(blob, BlobSlice)
        assert blob.read_all() == BLOB
        assert not isinstance(hdf5._open_blob("g/packed"), BlobSlice)


def test_parts_of_a_packed_dataset_are_read_in_parts() -> None:
    hdf5 = opened(_tree)
    order = random.Random(5)
    with hdf5._open_blob("g/packed") as blob:
        for _ in range(100):
            size, offset = order.randrange(30_000), order.randrange(310_000)
            assert blob.pread(size, offset) == BLOB[offset : offset + size]


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


def test_a_run_of_bytes_of_any_length_reads_as_them() -> None:
    def build(file: h5py.File) -> None:
        file.create_dataset("x", shape=(), dtype=h5py.vlen_dtype(np.uint8))[()] = np.arange(9, dtype="u1")

    assert opened(build).read_bytes("x") == bytes(range(9))


ARRAYS: dict[str, Any] = {
    "scalar": np.float32(1.5),
    "floats": np.arange(24, dtype="f8").reshape(2, 3, 4),
    "big endian": np.arange(7, dtype=">i4"),
    "signed bytes": np.arange(5, dtype="i1"),
    "images": np.arange(2 * 5 * 6, dtype="u1").reshape(2, 5, 6),
    "bools": np.array([True, False, True]),
    "complex": np.array([1 + 2j, 3 - 4j]),
    "records": np.array([(1, 2.5, b"x"), (2, 3.5, b"yy")], [("a", "i4"), ("b", "f8"), ("c", "S3")]),
    "padded records": np.zeros(3, np.dtype({"names": ["a"], "formats": ["i2"], "offsets": [4], "itemsize": 8})),
    "empty": np.zeros((0, 3), "f4"),
    "empty rows": np.zeros((3, 0), "f4"),
    "half": np.arange(5, dtype="f2"),
    "fixed strings": np.array([b"a", b"bcd"], "S4"),
}


@pytest.mark.parametrize("how", [{}, {"chunks": True, "compression": "lzf"}])
@pytest.mark.parametrize("name", ARRAYS)
def test_other_arrays_read_as_npy(name: str, how: dict[str, Any]) -> None:
    array = np.asarray(ARRAYS[name])
    options = how if array.size and array.ndim else {}
    hdf5 = opened(lambda file: file.create_dataset("x", data=array, **options))
    data = hdf5.read_bytes("x")
    found = np.load(io.BytesIO(data))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    assert hdf5.stat("x").size == len(data)
    out = io.BytesIO()
    np.save(out, array)
    if array.dtype.names is None:
        assert data == out.getvalue()
    with hdf5._open_blob("x") as blob:
        for offset in range(0, len(data), 11):
            assert blob.pread(37, offset) == data[offset : offset + 37]
    assert hdf5.verify() == []


def test_arrays_of_text_are_npy_of_the_longest() -> None:
    text = ["a", "ü" * 5, ""]
    hdf5 = opened(lambda file: file.create_dataset("x", data=text))
    np.testing.assert_array_equal(np.load(hdf5.open("x", "rb")), np.array(text))
    assert hdf5.stat("x").size == len(hdf5.read_bytes("x"))


def test_arrays_in_an_array_and_names_beyond_ascii() -> None:
    kind = np.dtype([("größe", "i4"), ("日本", "f4", (2,))])
    array = np.zeros(3, kind)
    hdf5 = opened(lambda file: file.create_dataset("x", data=array))
    np.testing.assert_array_equal(np.load(hdf5.open("x", "rb")), array)

    def build(file: h5py.File) -> None:
        file.create_dataset("x", shape=(2,), dtype=np.dtype(("i4", (3,))))[...] = np.arange(6).reshape(2, 3)

    np.testing.assert_array_equal(np.load(opened(build).open("x", "rb")), np.arange(6).reshape(2, 3))


def test_what_has_never_been_written_reads_as_its_fill_value() -> None:
    hdf5 = opened(lambda file: file.create_dataset("x", shape=(5,), dtype="u1", fillvalue=7))
    assert hdf5.read_bytes("x") == b"\7" * 5


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


def test_errors_of_paths() -> None:
    hdf5 = opened(_tree)
    for path, kind in {
        "nothing": FileNotFoundError,
        "g/nothing/x": FileNotFoundError,
        "raw/x": NotADirectoryError,
        "g": IsADirectoryError,
        "": IsADirectoryError,
        "../x": PermissionError,
    }.items():
        with pytest.raises(kind) as caught:
            hdf5.open(path, "rb")
        assert caught.value.filename.startswith("memory:///a.h5")
    with pytest.raises(NotADirectoryError):
        hdf5.list("raw")
    for operation in (lambda: hdf5.open("new", "w"), lambda: hdf5.mkdir("new"), lambda: hdf5.remove("raw")):
        with pytest.raises(io.UnsupportedOperation):
            operation()


def test_h5py_objects() -> None:
    hdf5 = opened(_tree)
    assert isinstance(hdf5.h5py_file(), h5py.File)
    assert hdf5.dataset("g/packed").compression == "gzip"
    assert hdf5.subfs("g").dataset("packed").shape == (len(BLOB),)
    with pytest.raises(IsADirectoryError):
        hdf5.dataset("g")
    with pytest.raises(FileNotFoundError) as caught:
        hdf5.dataset("nothing")
    assert caught.value.filename == "memory:///a.h5/nothing"


def test_after_close() -> None:
    hdf5 = opened(_tree)
    files = [hdf5.open(name, "rb") for name in ("raw", "g/packed")]
    hdf5.close()
    hdf5.close()
    for file in files:
        with pytest.raises(ValueError, match="closed"):
            file.read(10)
    for operation in (lambda: hdf5.stat("raw"), hdf5.h5py_file, hdf5.verify):
        with pytest.raises(ValueError, match="closed"):
            operation()


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
    data = built(_tree, libver="v110")
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


def test_errors_of_the_store_pass_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5 = opened(_tree)

    def fail(size: int, offset: int) -> bytes:
        raise TimeoutError("gone")

    monkeypatch.setattr(type(hdf5._reader()), "_pread", lambda self, size, offset: fail(size, offset))
    with pytest.raises(TimeoutError) as caught:
        hdf5.read_bytes("g/packed")
    assert caught.value.filename == "memory:///a.h5"
    assert caught.value.errno == errno.ETIMEDOUT


# ---- processes and threads


@pytest.fixture(params=["raw", "g/packed"])
def half_read(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    (tmp_path / "a.h5").write_bytes(built(_tree))
    hdf5 = Hdf5(Local(tmp_path), "a.h5")
    file = hdf5.open(request.param, "rb")
    assert file.read(100_000) == BLOB[:100_000]
    return HalfRead(hdf5, file)


class HalfRead(NamedTuple):
    """A file of which 100,000 bytes have been read."""

    hdf5: Hdf5
    file: Any


def test_half_read_files_go_on_in_parent_and_children_at_once(half_read: HalfRead) -> None:
    inherited = half_read.hdf5.dataset("g/packed")

    def goes_on() -> bool:
        right = half_read.file.read() == BLOB[100_000:]
        right = right and half_read.hdf5.read_bytes("g/text") == "héllo".encode()
        return right and inherited[:100].tobytes() == BLOB[:100]

    children = [forked(goes_on) for _ in range(2)]
    assert goes_on()
    assert all_end_well(*children)


def test_pickles(half_read: HalfRead) -> None:
    with pickle.loads(pickle.dumps(half_read.file)) as twin:
        assert twin.read() == BLOB[100_000:]
    assert half_read.file.read() == BLOB[100_000:]
    assert contents(pickle.loads(pickle.dumps(half_read.hdf5.subfs("g")))) == {
        "packed": BLOB,
        "sub/empty": b"",
        "text": "héllo".encode(),
    }


def test_a_fork_while_threads_read() -> None:
    hdf5 = opened(_tree)
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            hdf5.read_bytes("g/packed")

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(15):
            assert all_end_well(forked(lambda: hdf5.read_bytes("g/packed") == hdf5.read_bytes("raw") == BLOB))
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_threads_read() -> None:
    hdf5 = opened(_tree)
    wrong: list[int] = []

    def read(seed: int) -> None:
        order = random.Random(seed)
        for _ in range(30):
            with hdf5.open(order.choice(["raw", "g/packed"]), "rb") as file:
                file.seek(offset := order.randrange(300_000))
                if file.read(5000) != BLOB[offset : offset + 5000]:
                    wrong.append(seed)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


END = """
import os, sys
from fsabs import Local
fs = Local(sys.argv[1])
read = fs.open_container("a.h5")
data = read.dataset("raw")[:3]
written = fs.open_container("b.h5", "w")
written.write_bytes("x", b"1")
if sys.argv[2] == "fork":
    pid = os.fork()
    if pid == 0:
        read.read_bytes("g/packed")
        sys.exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    written.write_bytes("y", b"2")
if sys.argv[2] != "leave":
    written.close()
del fs
sys.exit(5)
"""


@pytest.mark.parametrize("how", ["leave", "close", "fork"])
def test_the_interpreter_ends_well_with_files_open(how: str, tmp_path: Path) -> None:
    (tmp_path / "a.h5").write_bytes(built(_tree))
    ended = subprocess.run([sys.executable, "-c", END, tmp_path, how], capture_output=True, text=True, timeout=50)
    assert (ended.returncode, ended.stderr) == (5, "")
    written = {"leave": None, "close": {"x": b"1"}, "fork": {"x": b"1", "y": b"2"}}[how]
    if written is None:
        assert os.listdir(tmp_path) == ["a.h5"]
    else:
        assert contents(Local(tmp_path).open_container("b.h5")) == written


def test_an_h5py_object_outlives_the_fs() -> None:
    dataset = opened(_tree).dataset("raw")
    assert dataset[:5].tobytes() == BLOB[:5]


# ---- writing

TREE = {"a": b"alpha", "d/e/f": BLOB, "d/empty": b"", "ü ñ": b"x"}


def _write(fs: FS, name: str, tree: dict[str, bytes], mode: str = "w", **options: Any) -> bytes:
    with fs.open_container(name, mode, **options) as hdf5:
        for path, data in tree.items():
            hdf5.write_bytes(path, data)
    return fs.read_bytes(name)


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_h5py_reads_it_and_so_do_we(compression: str | None, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    data = _write(fs, "a.hdf5", TREE, compression=compression)
    assert _as_h5py(data) == TREE
    hdf5 = fs.open_container("a.hdf5")
    assert isinstance(hdf5, Hdf5)
    assert contents(hdf5) == TREE
    assert hdf5.verify() == []
    assert hdf5.dataset("d/e/f").compression == compression
    assert isinstance(hdf5._open_blob("d/e/f"), BlobSlice) == (compression is None)


def test_the_same_members_are_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(fs: FS) -> bytes:
        with fs.open_container("a.h5", "w") as hdf5:
            hdf5.makedirs("empty/dir")
            for i in range(50):
                hdf5.write_bytes(f"many/{i}", bytes([i]) * i)
        return fs.read_bytes("a.h5")

    first = write(Memory())
    import time

    time.sleep(1.1)  # HDF5's times are whole seconds
    assert write(Local(tmp_path)) == first


def test_a_file_written_again_is_replaced() -> None:
    fs = Memory()
    with fs.open_container("a.h5", "w") as hdf5:
        hdf5.write_bytes("x", b"first")
        hdf5.write_bytes("x", b"second")
        hdf5.write_bytes("d/y", b"1")
        with pytest.raises(FileExistsError):
            hdf5.open("x", "xb")
        for path in ("d", ""):
            with pytest.raises(IsADirectoryError):
                hdf5.open(path, "wb")
        with pytest.raises(NotADirectoryError):
            hdf5.write_bytes("x/deeper", b"")
        for path, kind in {"d": FileExistsError, "x": FileExistsError, "x/y": NotADirectoryError}.items():
            with pytest.raises(kind):
                hdf5.mkdir(path)
        with pytest.raises(io.UnsupportedOperation):
            hdf5.open("x", "rb")
        assert list(hdf5.list(recursive=True)) == ["d/", "d/y", "x"]
        hdf5.mkdir("needs/no/parent")
        assert hdf5.stat("x").size == 6
    assert contents(fs.open_container("a.h5")) == {"x": b"second", "d/y": b"1"}


def test_exceptions_leave_no_member_and_no_file() -> None:
    fs = Memory()
    with fs.open_container("a.h5", "w") as hdf5:
        hdf5.write_bytes("x", b"old")
        for name in ("x", "y"):
            with pytest.raises(RuntimeError), hdf5.open(name, "wb") as file:
                file.write(b"lost" * 5_000_000)
                raise RuntimeError
    before = fs.read_bytes("a.h5")
    assert contents(fs.open_container("a.h5")) == {"x": b"old"}
    for mode in "wa":
        with pytest.raises(RuntimeError), fs.open_container("a.h5", mode) as hdf5:
            hdf5.write_bytes("z", b"1")
            raise RuntimeError
        assert fs.read_bytes("a.h5") == before
    with pytest.raises(FileExistsError):
        fs.open_container("a.h5", "x").close()
    assert list(fs.list()) == ["a.h5"]


def test_adding() -> None:
    fs = Memory()
    fs.write_bytes("a.h5", built(_tree, libver="latest"))
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
    read = fs.open_container("a.h5")
    assert isinstance(read, Hdf5)
    assert dict(read.dataset("x").attrs) == {"label": 5, "more": 6}


def test_a_file_is_not_closed_over_an_open_member() -> None:
    fs = Memory()
    hdf5 = fs.open_container("a.h5", "w")
    late = hdf5.open("late", "wb")
    with pytest.raises(OSError, match="still open for writing: late"):
        hdf5.close()
    with pytest.raises(ValueError, match="closed"):
        late.close()
    with pytest.raises(ValueError, match="closed"):
        hdf5.write_bytes("x", b"")
    assert not fs.exists("a.h5")


def test_a_forked_child_adds_nothing(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    with fs.open_container("a.h5", "w") as hdf5:
        hdf5.write_bytes("before", BLOB)

        def child() -> bool:
            with pytest.raises(io.UnsupportedOperation):
                hdf5.write_bytes("child", BLOB)
            hdf5.close()
            return True

        assert all_end_well(forked(child))
        hdf5.write_bytes("after", BLOB)
    assert contents(fs.open_container("a.h5")) == {"before": BLOB, "after": BLOB}


def test_options_are_checked() -> None:
    fs = Memory()
    with pytest.raises(ValueError, match="unknown compression 'zip'"):
        fs.open_container("a.h5", "w", compression="zip")
    fs.write_bytes("a.h5", built(_tree))
    with pytest.raises(ValueError, match="for a file that is written"):
        fs.open_container("a.h5", compression="gzip")
    assert list(fs.list()) == ["a.h5"]


def test_nesting() -> None:
    fs = Memory()
    with fs.open_container("o.tar", "w") as outer, outer.open_container("d/i.h5", "w") as hdf5:
        with hdf5.open_container("x.tar", "w") as innermost:
            innermost.write_bytes("y", b"deep")
        hdf5.write_bytes("z", BLOB)
    with fs.open_container("o.tar") as outer, outer.open_container("d/i.h5") as hdf5:
        assert hdf5.read_bytes("z") == BLOB
        assert hdf5.open_container("x.tar").read_bytes("y") == b"deep"
        assert hdf5.url("z") == "memory:///o.tar/d/i.h5/z"


def test_a_file_in_a_dataset_of_another_in_threads_of_a_new_process() -> None:
    inner = built(_tree)

    def build(file: h5py.File) -> None:
        file.create_dataset("x", data=np.frombuffer(BLOB, "u1"), chunks=(5000,), compression="gzip")
        file.create_dataset("i.h5", data=np.frombuffer(inner, "u1"), chunks=(5000,), compression="gzip")

    outer = opened(build)
    nested = Hdf5(outer, "i.h5")

    def read_together() -> bool:
        reads = [(outer, "x"), (nested, "g/packed"), (outer, "x"), (nested, "raw")]
        right: list[bool] = []
        together = threading.Barrier(len(reads))

        def read(fs: Hdf5, name: str) -> None:
            together.wait()
            right.append(fs.read_bytes(name) == BLOB)

        threads = [threading.Thread(target=read, args=one) for one in reads]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return right == [True] * len(reads)

    for _ in range(10):
        assert all_end_well(forked(read_together))


_segment = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
_path = st.lists(_segment.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3).map("/".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(_path, st.binary(max_size=3000)), max_size=10), st.sampled_from([None, "gzip", "lzf"]))
def test_round_trips(members: list[tuple[str, bytes]], compression: str | None) -> None:
    fs = Memory()
    written: dict[str, bytes] = {}
    with fs.open_container("a.h5", "w", compression=compression) as hdf5:
        for path, data in members:
            try:
                hdf5.write_bytes(path, data)
            except (IsADirectoryError, NotADirectoryError):
                continue
            written[path] = data
    assert contents(fs.open_container("a.h5")) == written
    assert _as_h5py(fs.read_bytes("a.h5")) == written
