"""Hostile inputs: what costs more than its size explains is refused, fast, with an error that names the limit."""

from __future__ import annotations

import errno
import functools
import gzip
import io
import lzma
import math
import os
import pickle
import subprocess
import sys
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import Limits
from fsabs.core.limits import parse_json

pytestmark = pytest.mark.quick
BLOCK = 512


@contextmanager
def cheap(seconds: float = 20) -> Iterator[None]:
    """A block that may take so long at most: without limits it takes minutes, or more memory than there is."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


@contextmanager
def refused(option: str, code: str = "EFBIG") -> Iterator[None]:
    with cheap(), pytest.raises(OSError, match=rf"over the limit {option}=.*limits=fsabs.Limits\({option}=") as caught:
        yield
    assert caught.value.errno == getattr(errno, code)
    assert not isinstance(caught.value, fsabs.CorruptFileError)
    assert caught.value.filename
    assert getattr(caught.value, "operation", None)


def stored(name: str, content: bytes) -> fsabs.Memory:
    fs = fsabs.Memory(f"limits-{os.urandom(4).hex()}")
    fs.write_bytes(name, content)
    return fs


def header(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, link
    return info.tobuf(tarfile.USTAR_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % BLOCK)


def pax(records: bytes, kind: bytes = tarfile.XHDTYPE) -> bytes:
    return header("pax", len(records), kind) + padded(records)


def record(keyword: str, value: str) -> bytes:
    size = len(keyword) + len(value) + 3
    while len(text := f"{size + len(str(size))} {keyword}={value}\n".encode()) != size + len(str(size)):
        size += 1
    return text


def container(fs: fsabs.FS, name: str, **options: Any) -> Any:
    """A container with what its format has beyond an FS's methods."""
    return fs.open_container(name, **options)


END = bytes(2 * BLOCK)


# ---- tar


def test_a_sparse_member_of_a_tebibyte() -> None:
    records = record("GNU.sparse.major", "0") + record("GNU.sparse.minor", "1")
    records += record("GNU.sparse.size", str(1 << 40)) + record("GNU.sparse.map", "0,1")
    fs = stored("a.tar", pax(records) + header("big", 1) + padded(b"x") + END)
    with fs.open_container("a.tar") as tar:
        assert tar.stat("big").size == 1 << 40
        for read in (tar.read_bytes, lambda path: tar.open(path).readline(), lambda path: list(tar.read_many([path]))):
            with refused("max_ratio"):
                read("big")
    with fs.open_container("a.tar", limits=Limits(max_ratio=None)) as tar, tar.open("big", "rb") as file:
        file.seek((1 << 40) - 5)
        assert file.read() == bytes(5)


def test_a_compressed_tar_that_is_a_bomb() -> None:
    compressed = functools.partial(lzma.compress, preset=0)
    zeros = bytes(10 * 2**20)  # more than is read whatever its ratio
    bomb = compressed(header("zeros", len(zeros)) + zeros + END)
    assert len(bomb) * 1100 < len(zeros)
    fs = stored("a.tar.xz", bomb)
    with refused("max_ratio"):
        fs.open_container("a.tar.xz", limits=Limits(max_ratio=9))
    with fs.open_container("a.tar.xz") as tar:  # as its header says
        assert tar.read_bytes("zeros") == zeros
    fs = stored("b.tar.xz", compressed(header("x") + END + zeros))  # behind the end
    with refused("max_ratio"):
        fs.open_container("b.tar.xz")
    with fs.open_container("b.tar.xz", limits=Limits(max_ratio=10_000)) as tar:
        assert tar.read_bytes("x") == b""
    behind_one_block = header("x") + bytes(BLOCK) + b"x" * len(zeros)
    with refused("max_ratio"):
        stored("b.tar.xz", compressed(behind_one_block)).open_container("b.tar.xz")
    fs = stored("c.tar.xz", compressed(header("x") * 20_000 + END))  # headers, which nothing announces
    with refused("max_ratio"):
        fs.open_container("c.tar.xz")
    fs = stored("d.tar.xz", compressed(header("zeros", 8**11 - 1)))
    with refused("max_ratio"):
        fs.open_container("d.tar.xz")


ZEROS = 10 * 2**20
"""More than is read whatever its ratio, and than is decoded at once."""


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("a.zip", {"compression": "deflated"}, marks=NIGHTLY),
        ("a.zip", {"compression": "bzip2"}),
        pytest.param("a.zip", {"compression": "lzma"}, marks=NIGHTLY),
        pytest.param("a.tar.gz", {}, marks=NIGHTLY),
        pytest.param("a.tar.bz2", {}, marks=NIGHTLY),
        pytest.param("a.tar.xz", {}, marks=NIGHTLY),
        ("a.tar.zst", {}),
        ("a.h5", {"compression": "gzip"}),
    ],
)
def test_zeros_that_are_written_are_read(name: str, options: dict[str, Any]) -> None:
    fs = fsabs.Memory(f"limits-{os.urandom(4).hex()}")
    with fs.open_container(name, "w", **options) as written:
        written.write_bytes("zeros", bytes(ZEROS))
    with container(fs, name) as found:
        assert found.read_bytes("zeros") == bytes(ZEROS)
        assert [len(content) for content in found.read_many(["zeros"])] == [ZEROS]
        with found.open("zeros", "rb") as file:
            file.seek(ZEROS - 3)
            assert file.read() == bytes(3)
        assert found.verify() == []


def test_a_sparse_file_of_gnu_tar(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.seek(ZEROS)
        file.write(b"end")
    for kind in ("gnu", "posix"):
        tar = ["tar", "-S", f"--format={kind}", "-cf", "a.tar", "holes"]
        subprocess.run(tar, cwd=tmp_path, check=True)
        assert (tmp_path / "a.tar").stat().st_size < 100_000
        with fsabs.from_url(tmp_path / "a.tar") as found:
            assert found.read_bytes("holes") == bytes(ZEROS) + b"end"


def test_extended_headers_without_a_member() -> None:
    one = pax(record("comment", "x" * 400))
    few = Limits(max_header_bytes=100_000)
    fs = stored("a.tar.gz", gzip.compress(one * 500, 1))
    with refused("max_header_bytes"):
        fs.open_container("a.tar.gz", limits=few)
    with_globals = (one + pax(record("comment", "x"), tarfile.XGLTYPE)) * 500
    with refused("max_header_bytes"):
        stored("a.tar", with_globals).open_container("a.tar", limits=few)
    claimed = stored("a.tar", header("pax", 1 << 32, tarfile.XHDTYPE))
    with refused("max_header_bytes"):
        claimed.open_container("a.tar")


def test_extended_headers_take_time_in_proportion() -> None:
    # Each member had all records of a global header merged into its own: 25 s.
    many = pax(b"".join(record(f"vendor.{number}", "x") for number in range(20_000)), tarfile.XGLTYPE)
    member = pax(record("comment", "y")) + header("a/file")
    with cheap(10), stored("a.tar", many + member * 2_000 + END).open_container("a.tar") as tar:
        assert list(tar.list("a")) == ["file"]


def test_many_headers() -> None:
    member = b"".join(header(f"m{number}") for number in range(100))
    compressed = stored("a.tar.gz", gzip.compress(member * 50 + END))
    with refused("max_index_bytes"):
        compressed.open_container("a.tar.gz", limits=Limits(max_index_bytes=1_000_000))
    with stored("a.tar", member * 50 + END).open_container("a.tar", limits=Limits(max_index_bytes=1_000_000)) as tar:
        assert tar.info()["entries"] == 100  # as many headers as the file itself has
    long = pax(record("path", "n" * 100_000), tarfile.XGLTYPE)  # a name that each member has anew
    fs = stored("b.tar", long + (pax(record("comment", "x")) + header("x")) * 1_000 + END)
    with refused("max_index_bytes"):
        fs.open_container("b.tar", limits=Limits(max_index_bytes=10_000_000))


@pytest.mark.nightly
def test_hard_links_before_their_targets_take_time_in_proportion() -> None:
    links = b"".join(header(f"l{number}", 0, tarfile.LNKTYPE, "target") for number in range(30_000))
    with cheap(20), stored("a.tar", links + header("target", 1) + padded(b"x") + END).open_container("a.tar") as tar:
        assert tar.read_bytes("l29999") == b"x"


def doubling(levels: int) -> bytes:
    """A tree of `levels` directories, each with two links to the next one: 2 ** levels paths lead to the last."""
    return b"".join(
        header(f"d{level}/", kind=tarfile.DIRTYPE)
        + header(f"d{level}/a", kind=tarfile.SYMTYPE, link=f"../d{level + 1}")
        + header(f"d{level}/b", kind=tarfile.SYMTYPE, link=f"../d{level + 1}")
        for level in range(levels)
    ) + header(f"d{levels}/", kind=tarfile.DIRTYPE)


def test_links_of_a_tar_that_double() -> None:
    few = Limits(max_linked_entries=300)
    with stored("a.tar", doubling(22) + END).open_container("a.tar", limits=few) as tar:
        with refused("max_linked_entries", "ELOOP"):
            list(tar.list(recursive=True))
        with refused("max_linked_entries", "ELOOP"):
            list(tar.glob("**/x"))
        for pattern in ("*/" * 22, "d0/" + "?/" * 22, "*/" * 22 + "none", "d0/a/*/" + "*/" * 22 + "x"):
            with refused("max_linked_entries", "ELOOP"):
                list(tar.glob(pattern))
    with stored("a.tar", doubling(5) + END).open_container("a.tar") as tar:
        assert len(list(tar.list(recursive=True))) == 6 + sum(2 ** (6 - level) - 2 for level in range(6))
        assert len(list(tar.glob("d0/*/*/*/*/*"))) == 32
    with stored("a.tar", doubling(45) + END).open_container("a.tar") as tar, refused("max_links", "ELOOP"):
        tar.stat("d0" + "/a" * 45)


def test_links_along_long_ways() -> None:
    away = "x/../" * 900
    chain = b"".join(
        pax(record("linkpath", f"{away}l{number + 1}")) + header(f"l{number}", kind=tarfile.SYMTYPE)
        for number in range(20)
    )
    with stored("a.tar", chain + header("l20") + END).open_container("a.tar") as tar:
        assert tar.read_bytes("l19") == b""
        with refused("max_depth", "ELOOP"):
            tar.stat("l0")


def test_deep_names() -> None:
    deep = "d/" * 3000 + "f"
    with refused("max_depth"):
        stored("a.tar", pax(record("path", deep)) + header("x") + END).open_container("a.tar")
    with refused("max_depth"):
        stored("a.tar", pax(record("linkpath", deep)) + header("x", kind=tarfile.SYMTYPE) + END).open_container("a.tar")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(deep, b"")
    with refused("max_depth"):
        list(stored("a.zip", buffer.getvalue()).open_container("a.zip").list())
    with stored("a.zip", buffer.getvalue()).open_container("a.zip", limits=Limits(max_depth=3000)) as archive:
        assert archive.exists(deep)


@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_deep_trees_are_walked_without_recursion(name: str) -> None:
    buffer = io.BytesIO()
    deep = "d/" * 2000
    if name == "a.tar":
        link = header("link", kind=tarfile.SYMTYPE, link="d")
        buffer.write(link + pax(record("path", deep + "f")) + header("x") + END)
    else:
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr(deep + "f", b"")
    with cheap(30), stored(name, buffer.getvalue()).open_container(name) as container:
        assert sum(1 for found in container.list(recursive=True) if found.endswith("/f")) >= 1
        assert sum(1 for _ in container.glob("**/f")) >= 1


# ---- zip


def test_a_zip_whose_members_are_too_many_bytes_as_a_whole() -> None:
    import bz2

    content = bytes(8 * 2**20)  # each by itself is no more than may be read of anything
    assert len(bz2.compress(content)) < 100
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as archive:
        for number in range(8):
            archive.writestr(str(number), content)
    fs = stored("a.zip", buffer.getvalue())
    with container(fs, "a.zip") as archive:
        assert len(archive.read_bytes("3")) == len(content)
        assert archive.verify() == []
    with container(fs, "a.zip", limits=Limits(max_ratio=50)) as archive:
        assert len(archive.read_bytes("3")) == len(content)
        problems = archive.verify()
    assert [problem.kind for problem in problems] == ["limit"]
    assert "max_ratio" in problems[0].detail


def test_a_directory_of_a_zip_that_is_too_large() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(1000):
            archive.writestr(str(number), b"")
    with refused("max_index_bytes"):
        list(stored("a.zip", buffer.getvalue()).open_container("a.zip", limits=Limits(max_index_bytes=10_000)).list())


# ---- hdf5


def hdf5(build: Callable[[Any], None]) -> fsabs.Memory:
    h5py = pytest.importorskip("h5py")
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        build(file)
    return stored("a.h5", buffer.getvalue())


def test_an_hdf5_dataset_of_a_tebibyte() -> None:
    fs = hdf5(lambda file: file.create_dataset("big", (1 << 40,), "u1", chunks=(1 << 20,)))
    assert fs.stat("a.h5").size < 10_000
    with container(fs, "a.h5") as file:
        assert file.stat("big").size == 1 << 40
        for read in (
            file.read_bytes,
            lambda path: file.open(path).readline(),
            lambda path: list(file.read_many([path])),
        ):
            with refused("max_ratio"):
                read("big")
        assert [problem.kind for problem in file.verify()] == ["limit"]
    with fs.open_container("a.h5", limits=Limits(max_ratio=None)) as file, file.open("big", "rb") as big:
        assert big.read(10) == bytes(10)


def test_an_hdf5_dataset_of_which_nothing_was_written() -> None:
    fs = hdf5(lambda file: file.create_dataset("none", (20_000_000,), "u1", fillvalue=7))
    with container(fs, "a.h5") as file:
        assert file.read_bytes("none") == b"\7" * 20_000_000
        assert file.verify() == []


def test_an_hdf5_string_of_which_nothing_was_written() -> None:
    fs = hdf5(lambda file: file.create_dataset("text", (), "S2000000000"))
    assert fs.stat("a.h5").size < 10_000
    with container(fs, "a.h5") as file:
        tracemalloc.start()
        try:
            assert file.stat("text").size == 0
            assert list(file.list()) == ["text"]
            with refused("max_ratio"):
                file.read_bytes("text")
            assert tracemalloc.get_traced_memory()[1] < 1_000_000_000
        finally:
            tracemalloc.stop()


def test_hdf5_strings_that_all_are_one_long_string() -> None:
    import numpy as np

    def build(file: Any) -> None:
        h5py = pytest.importorskip("h5py")
        texts = file.create_dataset("texts", (200_000,), h5py.string_dtype(), chunks=(50_000,), compression="gzip")
        texts[:] = np.array(["x"] * 200_000, object)
        texts[7] = "y" * 100_000  # in a .npy, each takes as much as the longest

    fs = hdf5(build)
    with fs.open_container("a.h5") as file:
        assert file.stat("texts").size == 0  # what can't be opened has none
        with refused("max_ratio"):
            file.read_bytes("texts")


def test_links_of_an_hdf5_file_that_double() -> None:
    h5py = pytest.importorskip("h5py")

    def soft(file: Any) -> None:
        for level in range(30):
            group = file.create_group(f"d{level}")
            group["a"] = group["b"] = h5py.SoftLink(f"/d{level + 1}")
        file.create_group("d30")

    def hard(file: Any) -> None:
        below = file.create_group("last")
        for level in range(30):
            group = file.create_group(f"d{level}")
            group["a"] = group["b"] = below
            below = group

    for build in (soft, hard):
        with container(hdf5(build), "a.h5", limits=Limits(max_linked_entries=300)) as file:
            with refused("max_linked_entries", "ELOOP"):
                list(file.list(recursive=True))
            with refused("max_linked_entries", "ELOOP"):
                list(file.glob("*/" * 22 + "x"))
            with cheap():
                assert [problem.kind for problem in file.verify()] == ["limit"]
    with hdf5(soft).open_container("a.h5", limits=Limits(max_links=10)) as file, refused("max_links", "ELOOP"):
        file.stat("d0" + "/a" * 20)


def test_groups_that_lie_deep() -> None:
    with hdf5(lambda file: file.create_group("g/" * 2500)).open_container("a.h5") as file, refused("max_depth"):
        list(file.list(recursive=True))


# ---- local links, patterns, lines


def test_local_links_that_double(tmp_path: Path) -> None:
    for level in range(25):
        (tmp_path / f"d{level}").mkdir()
        for name in "ab":
            (tmp_path / f"d{level}" / name).symlink_to(tmp_path / f"d{level + 1}")
    (tmp_path / "d25").mkdir()
    for links in ("follow", "inside"):
        fs = fsabs.from_url(str(tmp_path), limits=Limits(max_linked_entries=30), links=links)
        with refused("max_linked_entries", "ELOOP"):
            list(fs.list(recursive=True, detail=links == "inside"))
        for pattern in ("**/x", "*/" * 22 + "x"):
            with refused("max_linked_entries", "ELOOP"):
                list(fs.glob(pattern))
            with refused("max_linked_entries", "ELOOP"):
                list(fsabs.spi.LayerFS(fs).glob(pattern))
    assert len(list(fsabs.Local(tmp_path, links="refuse").list(recursive=True))) == 26 + 50


def test_a_link_to_a_large_directory_is_listed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(300):
        (tmp_path / "data" / str(number)).touch()
    root = tmp_path / "root"
    root.mkdir()
    (root / "data").symlink_to(tmp_path / "data")
    fs = fsabs.from_url(str(root), limits=Limits(max_linked_entries=10))
    assert len(list(fs.list(recursive=True))) == 301
    assert len(list(fs.glob("*/*"))) == 300


def test_patterns() -> None:
    fs = stored("a" * 200 + ".txt", b"")
    deep = "/".join("a" * 100)
    fs.makedirs(deep)
    fs.write_bytes(f"{deep}/x", b"")
    with cheap(10):
        assert list(fs.glob("**/" * 5000 + "x")) == [f"{deep}/x"]
        assert list(fs.glob("**/a/" * 49 + "y")) == []
        assert list(fs.glob("*a" * 60 + "b")) == []
    with refused("max_pattern_parts", "E2BIG"):
        list(fs.glob("**/a/" * 60 + "x"))
    fs.limits = Limits(max_pattern_parts=None)
    assert list(fs.glob("**/a/" * 60 + "x")) == [f"{deep}/x"]


@pytest.mark.parametrize("mode", ["rb", "r"])
def test_a_line_without_an_end(mode: str) -> None:
    fs = stored("a", b"first\n" + bytes(3_000_000) + b"\nlast\n")
    fs.limits = Limits(max_line_length=1_000_000)
    with fs.open("a", mode) as file:
        assert len(file.readline()) == 6
        start = file.tell()
        with refused("max_line_length", "EFBIG"):
            file.readline()
        file.seek(start)
        with refused("max_line_length", "EFBIG"):
            list(file)
        file.seek(start)
        with pickle.loads(pickle.dumps(file)) as again, refused("max_line_length", "EFBIG"):
            again.readline()
        assert len(file.readline(2_000_000)) == 2_000_000  # so many were asked for
        assert len(file.read()) == 1_000_006
    fs.limits = Limits(max_line_length=3_000_001)
    with fs.open("a", mode) as file:
        assert [len(line) for line in file] == [6, 3_000_001, 5]


def test_limits_of_lines_that_are_no_sizes() -> None:
    fs = stored("a", b"first\nlast")
    for limit in (1e6, math.inf, sys.maxsize, 10**30):
        fs.limits = Limits(max_line_length=limit)  # type: ignore[arg-type]
        for mode in ("rb", "r"):
            with fs.open("a", mode) as file:
                assert [len(file.readline()), len(file.readline()), len(file.readline())] == [6, 4, 0]


# ---- how they are set


def test_limits_reach_the_containers_on_the_path(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x", bytes(9 * 2**20))
    with zipfile.ZipFile(tmp_path / "outer.zip", "w") as archive:
        archive.writestr("inner.zip", inner.getvalue())
    url = f"{tmp_path}/outer.zip/inner.zip"
    assert fsabs.from_url(url).limits == Limits()
    limits = Limits(max_ratio=5)
    for cached in (None, False, str(tmp_path / "cache")):
        fs = fsabs.from_url(url, limits=limits, cache=cached)
        assert fs.limits is limits
        with refused("max_ratio"):
            fs.read_bytes("x")
    with refused("max_ratio"), fsabs.open_url(url + "/x", "rb", limits=limits) as file:
        file.read()
    assert fsabs.from_url(url, limits=limits).subfs("").limits is limits
    assert fsabs.lazify(lambda: fsabs.from_url(url, limits=limits)).limits is limits


def test_limits_of_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "pfio.ini"
    config.write_text(f"[corp]\nscheme = file\nlimits = max_ratio=12.5, max_links = none\nprefix = {tmp_path}\n")
    monkeypatch.setenv("PFIO_CONFIG_PATH", str(config))
    assert fsabs.from_url("corp:///").limits == Limits(max_ratio=12.5, max_links=None)
    assert fsabs.from_url("corp:///", limits=Limits(max_links=3)).limits == Limits(max_links=3)
    for bad, said in (
        ("max_rato=3", "no limit 'max_rato'"),
        ("max_links=x", "a number or none"),
        ("max_links=-1", "-1"),
    ):
        config.write_text(f"[corp]\nscheme = file\nlimits = {bad}\n")
        with pytest.raises(fsabs.ConfigError, match=said):
            fsabs.from_url("corp:///")


def test_limits_are_numbers(tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [{"max_ratio": -1}, {"max_links": "3"}, {"max_depth": True}]
    for bad in wrong:
        with pytest.raises(ValueError, match="must be a number of at least 0 or None"):
            fsabs.from_url(str(tmp_path), limits=Limits(**bad))
    with pytest.raises(TypeError, match="fsabs.Limits"):
        fsabs.from_url(str(tmp_path), limits={"max_ratio": 3})  # type: ignore[call-overload]


# ---- JSON of others


DEEP = b"[" * 100_000 + b"]" * 100_000


def test_json_that_is_nested_too_deep(tmp_path: Path) -> None:
    from fsabs import manifest, trace
    from fsabs.prepare.plan import PrepareReport
    from fsabs.readers.data import MDSDataReader

    with pytest.raises(ValueError, match="nested too deep"):
        parse_json(DEEP)
    heading = b'{"manifest":"fsabs","format":1}\n'
    fs = stored("footer.jsonl", heading + DEEP + b"\n")
    fs.write_bytes("entry.jsonl", heading + b'{"name":"a","size":' + DEEP + b'}\n{"entries":1,"bytes":1}\n')
    fs.mkdir("mds")
    fs.write_bytes("mds/index.json", b'{"version":2,"shards":' + DEEP + b"}")
    for name in ("footer.jsonl", "entry.jsonl"):
        with pytest.raises(fsabs.CorruptFileError), manifest.Manifest(fs.url(name)) as found:
            found.find("a")
    with pytest.raises(fsabs.CorruptFileError, match="nested too deep"):
        list(MDSDataReader(data_dir=fs.subfs("mds")).create_shards())
    with pytest.raises(ValueError, match="nested too deep"):
        PrepareReport.from_json(DEEP)
    with gzip.open(tmp_path / "merged.json.gz", "wb") as file:
        file.write(DEEP)
    with pytest.raises((OSError, ValueError)):
        trace.analyze(tmp_path)
