"""Tar, written: whole or not at all, one entry a name, the same bytes for the same members; read back by others."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS, Local, Memory, MissingDependencyError
from fsabs.containers import decoding
from fsabs.containers.tar import Tar
from fsabs.containers.tar.compression import codec_of_content
from fsabs.core.registry import COMPRESSIONS

from .tarballs import COMPRESS, DECOMPRESS, contents, tarball

pytestmark = pytest.mark.quick

SUFFIXES = {"none": ".tar", "gz": ".tar.gz", "bz2": ".tbz2", "xz": ".TXZ", "zst": ".tar.zst"}
TREE = {"a": b"alpha", "d/b": bytes(3000), "d/" + "long" * 50 + "/ü": b"", "e f": b"x" * 100_000}


def _write(fs: FS, name: str, tree: dict[str, bytes], **options: Any) -> bytes:
    with fs.open_container(name, "w", **options) as tar:
        for path, data in tree.items():
            tar.write_bytes(path, data)
    return fs.read_bytes(name)


@pytest.mark.parametrize("kind", SUFFIXES)
def test_tarfile_and_the_tar_command_read_it(kind: str, tmp_path: Path) -> None:
    fs, name = Local(tmp_path), "a" + SUFFIXES[kind]
    data = _write(fs, name, TREE)
    assert data == _write(Memory(), "other" + SUFFIXES[kind], TREE)
    if kind != "none":
        assert data.startswith(COMPRESS[kind](b"")[:3])
    with tarfile.open(fileobj=io.BytesIO(DECOMPRESS[kind](data))) as archive:
        found = {m.name: getattr(archive.extractfile(m), "read")() for m in archive}  # noqa: B009
        assert found == TREE
        assert {(m.mtime, m.mode, m.uid, m.gid, m.uname) for m in archive} == {(0, 0o644, 0, 0, "")}
    os.mkdir(tmp_path / "out")
    subprocess.run(["tar", "-C", tmp_path / "out", "-xf", tmp_path / name], check=True)
    assert contents(Local(tmp_path / "out")) == TREE


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
    monkeypatch.setattr(decoding, "STANDARD_ZSTD", False)
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


def test_a_name_is_taken_until_it_is_given_up() -> None:
    fs = Memory()
    with fs.open_container("a.tar", "w") as tar:
        with tar.open("one", "wb") as one, pytest.raises(FileExistsError):
            tar.open("one", "wb")
        assert one.closed
        with pytest.raises(RuntimeError), tar.open("three", "wb") as file:
            file.write(b"lost" * 1_000_000)
            raise RuntimeError
        tar.write_bytes("three", b"3")
        assert isinstance(tar, Tar)
        assert tar.compression == "none"
    read = fs.open_container("a.tar")
    assert contents(read) == {"one": b"", "three": b"3"}
    assert read.verify() == []  # type: ignore[attr-defined]


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


def test_adding_to_a_compressed_tar_is_refused_and_harms_nothing() -> None:
    fs = Memory()
    for kind in ("gz", "bz2", "xz", "zst"):
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
