"""Zip, added to: what is there stays as it is, what is written again is replaced, over archives of any origin."""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from fsabs import CorruptFileError, Memory
from fsabs.containers.zip import Zip

from .zips import DEFLATED, Made, by_hand, contents, extra_field, packed, read_by_zipfile, zipped

pytestmark = pytest.mark.quick

TREE = {"a.txt": b"alpha" * 50, "dir/b.bin": bytes(range(256)) * 10, "dir/sub/c": b"", "ü/ñ €.txt": b"unicode"}


def test_adding_keeps_what_is_there() -> None:
    parent = Memory()
    old = zipped(TREE, DEFLATED, b"the comment")
    parent.write_bytes("a.zip", old)
    with Zip(parent, "a.zip", "a") as archive:
        assert list(archive.list()) == ["a.txt", "dir/", "ü/"]
        assert archive.stat("dir/b.bin").size == 2560
        archive.write_bytes("new", b"new")
        archive.write_bytes("dir/sub/new", b"newer")
        archive.mkdir("empty")
        everything = list(archive.list(recursive=True))
        assert list(archive.list("dir")) == ["b.bin", "sub/"]
        assert list(archive.list("dir/sub")) == ["c", "new"]
    data = parent.read_bytes("a.zip")
    assert data.startswith(old[: old.index(b"PK\1\2")])
    assert read_by_zipfile(data) == {**TREE, "new": b"new", "dir/sub/new": b"newer", "empty/": b""}
    with zipfile.ZipFile(io.BytesIO(data)) as found, zipfile.ZipFile(io.BytesIO(old)) as before:
        assert found.comment == b"the comment"
        for info in before.infolist():
            now = found.getinfo(info.filename)
            assert (now.date_time, now.CRC, now.compress_type) == (info.date_time, info.CRC, info.compress_type)
    archive_ = Zip(parent, "a.zip")
    assert archive_.verify() == []
    assert list(archive_.list(recursive=True)) == everything
    assert everything[-2:] == ["ü/", "ü/ñ €.txt"]


def test_adding_replaces() -> None:
    parent = Memory()
    twice = by_hand([Made(b"x", b"0"), Made(b"y", b"y"), Made(b"x", b"1"), Made(b"z", b"z")])
    parent.write_bytes("a.zip", twice)
    with Zip(parent, "a.zip", "a") as archive:
        assert archive.capabilities.replace
        with pytest.raises(FileExistsError):
            archive.open("x", "xb")
        archive.write_bytes("x", b"22")
        assert archive.stat("x").size == 2
        archive.write_bytes("x", b"333")
        archive.write_bytes("n", b"4")
        archive.write_bytes("n", b"5")
        for path, kind in (("x/y", NotADirectoryError), ("y/z", NotADirectoryError)):
            with pytest.raises(kind):
                archive.write_bytes(path, b"")
        with pytest.raises(FileExistsError):
            archive.mkdir("y")
    assert contents(Zip(parent, "a.zip")) == {"x": b"333", "y": b"y", "z": b"z", "n": b"5"}
    with zipfile.ZipFile(io.BytesIO(parent.read_bytes("a.zip"))) as found:
        assert [info.filename for info in found.infolist()] == ["x", "y", "z", "x", "n"]
        assert found.read("x") == b"333"
    assert [(one.path, one.kind) for one in Zip(parent, "a.zip").verify()] == [("x", "duplicate")]  # the first of two


@pytest.mark.parametrize(("zip64", "prefix"), [(False, b""), (True, b"#!/bin/sh\nexit\n" * 10)])
def test_adding_to_what_we_do_not_understand(prefix: bytes, zip64: bool) -> None:
    sizes = extra_field(1, struct.pack("<2Q", 3, 3))
    old = [
        Made(b"method", b"???", method=98, extra=extra_field(0x9999, b"kept"), comment=b"kept, too"),
        Made(b"secret", b"???", flags=1),
        Made(b"../up", b"hostile"),
        Made(b"big", b"abc", size=2**32, compressed=2**32, extra=sizes, crc=891568578),
        packed("good", b"good" * 100),
        Made(b"caf\x82", b"cp437"),
    ]
    before = by_hand(old, zip64=zip64, comment=b"comment")
    parent = Memory()
    parent.write_bytes("a.zip", prefix + before)
    with Zip(parent, "a.zip", "a") as archive:
        archive.write_bytes("new", b"new")
        archive.write_bytes("café", b"replaced")
    data = parent.read_bytes("a.zip")
    directory = before[before.index(b"PK\1\2") :][: -22 - 7 - 76 * zip64]
    assert data.startswith(prefix + before[: before.index(b"PK\1\2")])
    assert directory[: directory.rindex(b"PK\1\2")] in data
    found = Zip(parent, "a.zip")
    for name, content in {"big": b"abc", "good": b"good" * 100, "new": b"new", "café": b"replaced"}.items():
        assert found.read_bytes(name) == content
    assert [problem.kind for problem in found.verify()] == ["unsafe name", "unreadable", "unreadable"]
    with zipfile.ZipFile(io.BytesIO(data)) as others:
        assert others.read("new") == b"new"
        assert others.comment == b"comment"


def test_adding_nothing_changes_nothing() -> None:
    for data in (zipped(TREE, DEFLATED, b"c"), b"prefix" + zipped(TREE)):
        parent = Memory()
        parent.write_bytes("a.zip", data)
        with Zip(parent, "a.zip", "a"):
            pass
        assert parent.read_bytes("a.zip") == data


def test_adding_would_lose_what_is_behind_the_end() -> None:
    parent = Memory()
    parent.write_bytes("a.zip", zipped(TREE) + b"junk")
    with pytest.raises(CorruptFileError, match="4 bytes behind"):
        Zip(parent, "a.zip", "a")
    assert parent.read_bytes("a.zip") == zipped(TREE) + b"junk"


def test_adding_to_an_archive_in_an_archive() -> None:
    parent = Memory()
    parent.write_bytes("o.zip", zipped({"i.zip": zipped({"x": b"x"}), "beside": b"b"}))
    with Zip(parent, "o.zip", "a") as outer:
        with outer.open_zip("i.zip", "a") as inner:
            inner.write_bytes("y", b"y")
        with pytest.raises(io.UnsupportedOperation):
            outer.open_zip("i.zip", "a")  # it was written just now
        with pytest.raises(io.UnsupportedOperation):
            outer.open("beside")
        outer.copy("beside", "copied")
    found = Zip(parent, "o.zip")
    assert found.read_bytes("copied") == b"b"
    assert contents(found.open_zip("i.zip")) == {"x": b"x", "y": b"y"}
    assert found.verify() == []
