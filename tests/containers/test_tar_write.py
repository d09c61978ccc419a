"""Tar, written: whole or not at all, one entry a name, the same bytes for the same members; read back by others."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fsabs
from fsabs import FS, Local, Memory, MissingDependencyError
from fsabs.containers.tar import Tar
from fsabs.containers.tar.compression import codec_of_content
from fsabs.core.registry import COMPRESSIONS
from fsabs.spi import LayerWriter, Writer

from .forks import all_end_well, forked
from .tarballs import COMPRESS, DECOMPRESS, contents, opened, tarball

pytestmark = pytest.mark.quick

SUFFIXES = {"none": ".tar", "gz": ".tar.gz", "bz2": ".tbz2", "xz": ".TXZ", "zst": ".tar.zst"}
TREE = {"a": b"alpha", "d/b": bytes(3000), "d/" + "long" * 50 + "/ü": b"", "e f": b"x" * 100_000}


def _write(fs: FS, name: str, tree: dict[str, bytes], **options: Any) -> bytes:
    with fs.open_container(name, "w", **options) as tar:
        for path, data in tree.items():
            tar.write_bytes(path, data)
    return fs.read_bytes(name)


@pytest.mark.parametrize("kind", SUFFIXES)
def test_tarfile_reads_it(kind: str) -> None:
    data = _write(Memory(), "a" + SUFFIXES[kind], TREE)
    if kind != "none":
        assert data.startswith(COMPRESS[kind](b"")[:3])
    with tarfile.open(fileobj=io.BytesIO(DECOMPRESS[kind](data))) as archive:
        found = {m.name: getattr(archive.extractfile(m), "read")() for m in archive}  # noqa: B009
        assert found == TREE
        assert {(m.mtime, m.mode, m.uid, m.gid, m.uname) for m in archive} == {(0, 0o644, 0, 0, "")}


@pytest.mark.parametrize("kind", SUFFIXES)
def test_the_tar_command_reads_it(kind: str, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    name = "a" + SUFFIXES[kind]
    _write(fs, name, TREE)
    os.mkdir(tmp_path / "out")
    subprocess.run(["tar", "-C", tmp_path / "out", "-xf", tmp_path / name], check=True)
    assert contents(Local(tmp_path / "out")) == TREE


@pytest.mark.parametrize("kind", SUFFIXES)
def test_the_same_members_are_the_same_bytes(kind: str, tmp_path: Path) -> None:
    first = _write(Memory(), "a" + SUFFIXES[kind], TREE)
    assert _write(Local(tmp_path), "other" + SUFFIXES[kind], TREE) == first


def test_options() -> None:
    fs = Memory()
    data = _write(fs, "odd.name", TREE, force_type="tar", compression="gz", compresslevel=1, timestamp=5)
    assert data[4:8] == b"\x05\0\0\0"
    with fs.open_container("odd.name", force_type="tar") as tar:
        assert tar.stat("a").last_modified == 5
    assert _write(fs, "half.tar", {"x": b""}, timestamp=0.5) != _write(fs, "half.tar", {"x": b""})
    assert _write(fs, "plain.tar.gz", TREE, compression="none") == _write(fs, "plain.tar", TREE)
    for bad in ({"compression": "lz4"}, {"compression": "gz", "compresslevel": 10}, {"compresslevel": 3}):
        with pytest.raises(ValueError, match="lz4|levels 0 to 9|no level"):
            fs.open_container("new.tar", "w", **bad)
    assert not fs.exists("new.tar")


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_each_suffix_of_a_compression_names_it(compression: str, tmp_path: Path) -> None:
    own, *short = COMPRESSIONS[compression]
    for suffix in (f".tar{own}", *short):
        data = _write(Local(tmp_path), f"a{suffix}", TREE)
        codec = codec_of_content(data[:6], "")
        assert codec is not None
        assert codec.name == compression
        with fsabs.from_url(f"{tmp_path}/a{suffix}/d") as folder:
            assert folder.read_bytes("b") == TREE["d/b"]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = Memory()
    data = _write(fs, "a.tar.zst", TREE)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'fsabs\[zstd\]'"):
        fs.open_container("a.tar.zst")
    with pytest.raises(MissingDependencyError, match="to write a tar.zst"):
        fs.open_container("a.tar.zst", "w")
    assert fs.read_bytes("a.tar.zst") == data


def test_an_empty_tar_and_empty_directories() -> None:
    fs = Memory()
    for kind in SUFFIXES:
        assert DECOMPRESS[kind](_write(fs, "e" + SUFFIXES[kind], {})) == bytes(10240)
    with fs.open_container("d.tar", "x") as tar:
        tar.mkdir("d", 0o700)
        tar.makedirs("d/e/f")
        tar.makedirs("d/e/f", exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(fs.read_bytes("d.tar"))) as archive:
        assert [(m.name, m.isdir(), m.mode) for m in archive] == [
            ("d", True, 0o755),
            ("d/e/f", True, 0o755),
        ]


# ---- one name, one member


def test_what_is_there_is_not_written_again() -> None:
    fs = Memory()
    with fs.open_container("a.tar", "w") as tar:
        tar.write_bytes("x", b"first")
        tar.write_bytes("d/y", b"")
        for mode in ("wb", "xb"):
            with pytest.raises(FileExistsError) as caught:
                tar.open("x", mode)
            assert caught.value.filename == "memory:///a.tar/x"
        with pytest.raises(IsADirectoryError):
            tar.open("d", "wb")
        with pytest.raises(NotADirectoryError):
            tar.open("x/deeper", "wb")
        for path in ("d", "x", ""):
            with pytest.raises(FileExistsError):
                tar.mkdir(path)
        with pytest.raises(NotADirectoryError):
            tar.mkdir("x/deeper")
        tar.mkdir("needs/no/parent")
        assert tar.isdir("needs/no")
        with pytest.raises(FileExistsError):
            tar.mkdir("needs")
    assert contents(fs.open_container("a.tar")) == {"x": b"first", "d/y": b""}


def test_several_members_at_once_and_a_name_that_was_given_up() -> None:
    fs = Memory()
    with fs.open_container("a.tar", "w") as tar:
        one, two = tar.open("one", "wb"), tar.open("two", "wb")
        with pytest.raises(FileExistsError):
            tar.open("one", "wb")
        for i in range(100):
            one.write(b"1" * i)
            two.write(b"2" * i)
        assert not tar.exists("two")
        two.close()
        assert tar.stat("two").size == 4950
        one.close()
        with pytest.raises(RuntimeError), tar.open("three", "wb") as file:
            file.write(b"lost" * 1_000_000)
            raise RuntimeError
        tar.write_bytes("three", b"3")
        assert list(tar.list()) == ["one", "three", "two"]
        for attempt in (lambda: tar.open("one", "rb"), lambda: tar.read_bytes("one")):
            with pytest.raises(io.UnsupportedOperation):
                attempt()
        assert "entries" not in tar.info()
        assert isinstance(tar, Tar)
        assert tar.compression == "none"
        with pytest.raises(io.UnsupportedOperation):
            tar.verify()
    read = fs.open_container("a.tar")
    assert contents(read) == {"one": b"1" * 4950, "two": b"2" * 4950, "three": b"3"}
    assert read.verify() == []  # type: ignore[attr-defined]


def test_threads_write_members(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    expected = {f"t{i}/{j}": os.urandom(3000 * j) for i in range(8) for j in range(8)}
    with fs.open_container("a.tar.gz", "w") as tar:

        def write(i: int) -> None:
            for j in range(8):
                tar.write_bytes(f"t{i}/{j}", expected[f"t{i}/{j}"])

        threads = [threading.Thread(target=write, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert contents(fs.open_container("a.tar.gz")) == expected


def test_a_large_member_goes_through_a_temporary_file(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    block = os.urandom(1 << 20)
    with fs.open_container("a.tar", "w") as tar, tar.open("big", "wb") as file:
        for _ in range(20):
            file.write(block)
    assert fs.open_container("a.tar").read_bytes("big") == block * 20


def test_a_blob_becomes_a_member(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    fs.write_bytes("x", block := os.urandom(3 << 20))
    with fs.open_container("a.tar.zst", "w") as tar, fs.open_blob("x") as blob:
        assert isinstance(tar, Tar)
        tar.subfs("d")._write_blob("d/x", blob)
        with pytest.raises(FileExistsError) as caught:
            tar._write_blob("d/x", blob)
        assert caught.value.filename == tar.url("d/x")
    read = fs.open_container("a.tar.zst")
    assert contents(read) == {"d/x": block}
    with pytest.raises(io.UnsupportedOperation):
        read.write_bytes("x", b"1")


# ---- whole or not at all


@pytest.mark.parametrize("suffix", SUFFIXES.values())
def test_an_exception_leaves_no_archive_and_an_old_one_as_it_was(suffix: str, tmp_path: Path) -> None:
    fs = Local(tmp_path)
    name = "a" + suffix
    for _ in range(2):
        with pytest.raises(RuntimeError), fs.open_container(name, "w") as tar:
            tar.write_bytes("new", b"n" * 100_000)
            raise RuntimeError
        assert not fs.exists(name)
    old = _write(fs, name, TREE)
    with pytest.raises(RuntimeError), fs.open_container(name, "w") as tar:
        tar.write_bytes("new", b"n")
        raise RuntimeError
    assert fs.read_bytes(name) == old
    assert os.listdir(tmp_path) == [name]
    with pytest.raises(FileExistsError):
        fs.open_container(name, "x").close()


class Away(Memory):
    """A store that takes nothing while it is `away`."""

    away = False

    def _create(self, key: str, exclusive: bool) -> Writer:
        return AwayWriter(self, super()._create(key, exclusive))


class AwayWriter(LayerWriter):
    def __init__(self, fs: Away, inner: Writer) -> None:
        super().__init__(inner)
        self._fs = fs

    def write(self, data: bytes) -> None:
        if self._fs.away:
            raise TimeoutError("the store is away")
        super().write(data)


def test_a_failure_of_the_store_is_raised_at_close() -> None:
    fs = Away()
    tar = fs.open_container("a.tar", "w")
    fs.away = True
    with pytest.raises(TimeoutError):
        tar.write_bytes("x", b"1" * 3_000_000)
    fs.away = False
    with pytest.raises(TimeoutError):  # half of a member may have come through
        tar.write_bytes("y", b"1")
    with pytest.raises(TimeoutError):
        tar.close()
    assert not fs.exists("a.tar")


def test_a_closed_archive_takes_nothing() -> None:
    fs = Memory()
    tar = fs.open_container("a.tar", "w")
    tar.close()
    tar.close()
    with pytest.raises(ValueError, match="closed"):
        tar.open("x", "wb")
    assert contents(fs.open_container("a.tar")) == {}


def test_an_archive_is_not_closed_over_an_open_member() -> None:
    fs = Memory()
    tar = fs.open_container("a.tar", "w")
    late = tar.open("late", "wb")
    with pytest.raises(OSError, match="still open for writing.*: late") as caught:
        tar.close()
    assert caught.value.errno == errno.EBUSY
    with pytest.raises(ValueError, match="closed"):
        late.close()
    assert not fs.exists("a.tar")


def test_a_forked_child_adds_nothing(tmp_path: Path) -> None:
    fs = Local(tmp_path)
    with fs.open_container("a.tar.gz", "w") as tar:
        tar.write_bytes("before", b"1")
        half = tar.open("half", "wb")
        half.write(b"half")

        def child() -> bool:
            with pytest.raises(io.UnsupportedOperation):
                tar.write_bytes("child", b"2")
            half.close()
            tar.close()
            return True

        assert all_end_well(forked(child))
        half.close()
    assert contents(fs.open_container("a.tar.gz")) == {"before": b"1", "half": b"half"}


# ---- adding to an archive


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_adding_to_a_plain_tar(form: int) -> None:
    fs = Memory()
    fs.write_bytes("a.tar", tarball(TREE, form) if form != tarfile.USTAR_FORMAT else tarball({"a": b"alpha"}, form))
    old = contents(fs.open_container("a.tar"))
    with fs.open_container("a.tar", "a") as tar:
        assert tar.stat("a").size == 5
        assert tar.exists("d") == ("d/b" in old)
        tar.write_bytes("new/x", b"new")
        with pytest.raises(FileExistsError):
            tar.open("a", "xb")
    added = fs.open_container("a.tar")
    assert contents(added) == {**old, "new/x": b"new"}
    assert added.verify() == []  # type: ignore[attr-defined]
    with tarfile.open(fileobj=io.BytesIO(fs.read_bytes("a.tar"))) as archive:
        assert archive.getnames() == [*old, "new/x"]


def test_an_added_member_takes_the_place_of_an_old_one() -> None:
    fs = Memory()
    fs.write_bytes("a.tar", tarball(TREE))
    with fs.open_container("a.tar", "a") as tar:
        tar.write_bytes("a", b"again")
        tar.write_bytes("a", b"and again")
        assert tar.stat("a").size == 9
    added = fs.open_container("a.tar")
    assert contents(added) == {**TREE, "a": b"and again"}
    assert [p.kind for p in added.verify()] == ["duplicate"] * 2  # type: ignore[attr-defined]


def test_adding_to_a_tar_without_an_end_and_to_none() -> None:
    fs = Memory()
    fs.write_bytes("a.tar", tarball({"a": b"1"})[:1024])
    for _ in range(2):
        with fs.open_container("a.tar", "a") as tar:
            tar.write_bytes(f"b{tar.exists('b0'):d}", b"2")
    assert contents(fs.open_container("a.tar")) == {"a": b"1", "b0": b"2", "b1": b"2"}
    with fs.open_container("new.tar.gz", "a") as tar:
        tar.write_bytes("x", b"1")
    assert contents(fs.open_container("new.tar.gz")) == {"x": b"1"}


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
def test_adding_to_a_compressed_tar_is_refused_and_harms_nothing(kind: str) -> None:
    fs = Memory()
    fs.write_bytes("a.tar", COMPRESS[kind](tarball(TREE)))
    with pytest.raises(io.UnsupportedOperation, match="only a plain tar"):
        fs.open_container("a.tar", "a")
    assert contents(fs.open_container("a.tar")) == TREE
    fs.write_bytes("b.tar", tarball(TREE))
    with pytest.raises(io.UnsupportedOperation, match="only a plain tar"):
        fs.open_container("b.tar", "a", compression=kind)


@pytest.mark.parametrize("end", [1024, 512])
def test_adding_would_lose_what_is_behind_the_end(end: int) -> None:
    first, second = tarball({"a": b"1"}), tarball({"b": b"2"})
    ended = first[: len(first.rstrip(b"\0")) + 511 & ~511] + bytes(end)
    for behind in (second, b"rubbish"):
        if end == 512 and behind is second:
            continue  # which is damage: a member is missing in between
        fs = Memory()
        fs.write_bytes("a.tar", ended + behind)
        with fs.open_container("a.tar") as tar:
            assert contents(tar) == {"a": b"1"}
        with pytest.raises(
            io.UnsupportedOperation, match=r"behind the archive's end, at offset 1024.* lose it"
        ) as caught:
            fs.open_container("a.tar", "a")
        assert caught.value.filename == fs.url("a.tar")
        assert fs.read_bytes("a.tar") == ended + behind
    fs.write_bytes("a.tar", ended + bytes(100_000))
    with fs.open_container("a.tar", "a") as tar:
        tar.write_bytes("b", b"2")
    assert contents(fs.open_container("a.tar")) == {"a": b"1", "b": b"2"}


def test_adding_fails_and_the_old_archive_stays() -> None:
    fs = Memory()
    fs.write_bytes("a.tar", tarball(TREE))
    with pytest.raises(RuntimeError), fs.open_container("a.tar", "a") as tar:
        tar.write_bytes("x", b"")
        raise RuntimeError
    assert contents(fs.open_container("a.tar")) == TREE


# ---- nesting, and everything at random


@pytest.mark.parametrize("outer", ["o.tar", "o.tar.gz"])
@pytest.mark.parametrize("inner", ["i.tar", "i.tar.xz"])
def test_nested_writing_and_reading(outer: str, inner: str) -> None:
    fs = Memory()
    with fs.open_container(outer, "w") as out:
        out.write_bytes("first", b"1")
        with out.open_container("d/" + inner, "w") as nested:
            nested.write_bytes("x/y", b"deep" * 1000)
        with pytest.raises(RuntimeError), out.open_container("lost.tar", "w") as nested:
            nested.write_bytes("x", b"")
            raise RuntimeError
        out.write_bytes("last", b"2")
    with fs.open_container(outer) as out, out.open_container("d/" + inner) as nested:
        assert list(out.list(recursive=True)) == ["d/", "d/" + inner, "first", "last"]
        assert nested.read_bytes("x/y") == b"deep" * 1000
        assert nested.url("x/y") == f"memory:///{outer}/d/{inner}/x/y"


_segment = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
_path = st.lists(_segment.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4).map("/".join)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(_path, st.binary(max_size=2000)), max_size=12),
    st.sampled_from(sorted(SUFFIXES)),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
def test_round_trips(members: list[tuple[str, bytes]], kind: str, form: int) -> None:
    fs = Memory()
    written: dict[str, bytes] = {}
    with fs.open_container("a" + SUFFIXES[kind], "w") as tar:
        for path, data in members:
            try:
                tar.write_bytes(path, data)
            except (FileExistsError, IsADirectoryError, NotADirectoryError):
                continue
            written[path] = data
    assert contents(fs.open_container("a" + SUFFIXES[kind])) == written
    packed = fs.read_bytes("a" + SUFFIXES[kind])
    with tarfile.open(fileobj=io.BytesIO(DECOMPRESS[kind](packed))) as archive:
        assert {m.name: getattr(archive.extractfile(m), "read")() for m in archive} == written  # noqa: B009
    theirs = opened(COMPRESS[kind](tarball(written, form)))
    assert contents(theirs) == written
    assert theirs.verify() == []
