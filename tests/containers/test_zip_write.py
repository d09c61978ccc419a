"""Zip, written: what comes out is read by zipfile and unzip. What all formats have is in test_writing.py."""

from __future__ import annotations

import io
import shutil
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from fsabs import Memory
from fsabs.containers.zip import Zip, records, writing

from .zips import (
    contents,
    opened,
    read_by_zipfile,
)

pytestmark = pytest.mark.quick

NAMES = {"stored": 0, "deflated": 8, "bzip2": 12, "lzma": 14}
TREE = {"a.txt": b"alpha" * 50, "dir/b.bin": bytes(range(256)) * 10, "dir/sub/c": b"", "ü/ñ €.txt": b"unicode"}


def written(files: dict[str, bytes], **options: Any) -> bytes:
    """The bytes of an archive that we write."""
    parent = Memory()
    with Zip(parent, "a.zip", "w", **options) as archive:
        for name, data in files.items():
            archive.write_bytes(name, data)
    return parent.read_bytes("a.zip")


@pytest.mark.parametrize("compression", NAMES)
def test_zipfile_reads_what_we_write(compression: str) -> None:
    data = written(TREE, compression=compression)
    assert read_by_zipfile(data) == TREE
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            assert info.compress_type == NAMES[compression]
            assert info.date_time == (1980, 1, 1, 0, 0, 0)
            assert info.external_attr >> 16 == 0o100644
            assert not info.flag_bits & 8  # the local headers have sizes and CRC: readers of streams need them
    archive_ = opened(data)
    assert contents(archive_) == TREE
    assert archive_.verify() == []


@pytest.mark.skipif(shutil.which("unzip") is None, reason="no unzip")
def test_unzip_reads_what_we_write(tmp_path: Path) -> None:
    for compression in ("stored", "deflated", "bzip2"):
        (tmp_path / "a.zip").write_bytes(written(TREE, compression=compression))
        done = subprocess.run(["unzip", "-tqq", tmp_path / "a.zip"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_stream_of_it_is_read_without_the_directory() -> None:
    data = written(TREE, compression="deflated")
    found: dict[str, bytes] = {}
    at = 0
    while data[at : at + 4] == b"PK\3\4":
        crc, compressed, size, name, extra = struct.unpack_from("<3L2H", data, at + 14)
        start = at + 30 + name + extra
        content = zlib.decompress(data[start : start + compressed], -15)
        assert (zlib.crc32(content), len(content)) == (crc, size)
        found[data[at + 30 : at + 30 + name].decode()] = content
        at = start + compressed
    assert found == TREE


def test_the_same_input_gives_the_same_bytes() -> None:
    for options in ({}, {"compression": "deflated", "compresslevel": 1}, {"timestamp": 1_700_000_000.0}):
        assert written(TREE, **options) == written(TREE, **options)
    assert len(written(TREE, compression="deflated", compresslevel=0)) > len(written(TREE, compression="deflated"))
    stamped = opened(written(TREE, timestamp=1_700_000_001.9))
    assert stamped.stat("a.txt").last_modified == 1_700_000_000


def test_options_are_checked_before_anything_is_made() -> None:
    parent = Memory()
    parent.write_bytes("a.zip", b"old")
    options: list[dict[str, Any]] = [
        {"compression": "zip"},
        {"compression": "deflated", "compresslevel": 10},
        {"compression": "bzip2", "compresslevel": 0},
        {"compresslevel": 6},
        {"timestamp": 0.0},
        {"timestamp": 1e12},
        {"timestamp": float("nan")},
    ]
    for wrong in options:
        with pytest.raises(ValueError):
            Zip(parent, "a.zip", "w", **wrong)
    with pytest.raises(ValueError, match="mode"):
        Zip(parent, "a.zip", "rw")
    with pytest.raises(TypeError):
        parent.open_zip("a.zip", "w", compresion="stored")
    assert parent.read_bytes("a.zip") == b"old"


def test_modes() -> None:
    parent = Memory()
    for mode, expected in (("x", {"x": b"2"}), ("a", {"x": b"2"}), ("w", {})):
        with Zip(parent, "a.zip", mode) as archive:
            if mode == "x":
                archive.write_bytes("x", b"2")
        assert contents(Zip(parent, "a.zip")) == expected
    with Zip(parent, "new.zip", "a") as archive:
        archive.write_bytes("x", b"1")
        archive.write_bytes("x", b"2")
    assert contents(Zip(parent, "new.zip")) == {"x": b"2"}
    parent.mkdir("d.zip")
    for mode in "rwxa":
        with pytest.raises((IsADirectoryError, FileExistsError)):
            Zip(parent, "d.zip", mode)


def test_a_name_is_written_once() -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "w", timestamp=1_700_000_000) as archive:
        archive.makedirs("d/e")
        archive.mkdir("d/new", 0o700)
        first, second = archive.open("same", "wb"), archive.open("same", "wb")
        first.write(b"first")
        second.write(b"second")
        second.close()
        with pytest.raises(FileExistsError) as caught:
            first.close()
        assert caught.value.filename == "memory:///a.zip/same"
        assert archive.stat("same").last_modified == 1_700_000_000
    found = Zip(parent, "a.zip")
    assert contents(found) == {"same": b"second"}
    assert [oct(found.stat(path).mode) for path in ("d/new", "d/e")] == ["0o40700", "0o40755"]


@pytest.mark.parametrize("name", ["C:/x", "a/..\\b", "\\x", "x" * 65_536, "\udc80"])
def test_names_that_can_not_be_stored(name: str) -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "w") as archive:
        for make in (lambda: archive.write_bytes(name, b""), lambda: archive.mkdir(name)):
            with pytest.raises(OSError, match="name") as caught:
                make()
            assert caught.value.filename == archive.url(name)
        archive.write_bytes("good", b"good")
    assert contents(Zip(parent, "a.zip")) == {"good": b"good"}


# ---- zip64


def test_zip64_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "LIMIT32", 1000)
    monkeypatch.setattr(writing, "LIMIT16", 4)
    files = {f"{n}": bytes(n * 300) for n in range(8)}
    for compression in ("stored", "deflated"):
        data = written(files, compression=compression)
        assert b"PK\6\6" in data
        assert read_by_zipfile(data) == files
        found = opened(data)
        assert contents(found) == files
        assert found.verify() == []
        parent = Memory()
        parent.write_bytes("a.zip", b"prefix" + data)
        with Zip(parent, "a.zip", "a") as archive:
            archive.write_bytes("new", bytes(5000))
        assert read_by_zipfile(parent.read_bytes("a.zip")) == {**files, "new": bytes(5000)}
        assert contents(Zip(parent, "a.zip")) == {**files, "new": bytes(5000)}


def test_more_than_65535_members() -> None:
    parent = Memory()
    with Zip(parent, "a.zip", "w") as archive:
        assert len(list(archive.add_members((f"{n}", b"") for n in range(65_540)))) == 65_540
    with zipfile.ZipFile(io.BytesIO(parent.read_bytes("a.zip"))) as found:
        assert len(found.infolist()) == 65_540
    assert sum(1 for _ in Zip(parent, "a.zip").list()) == 65_540
