"""Zip, read: every variety that others write, names, times and modes; against zipfile and archives of Info-ZIP's."""

from __future__ import annotations

import base64
import bz2
import io
import lzma
import os
import stat
import struct
import sys
import types
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import zstandard

from fsabs import CorruptFileError, Local, MissingDependencyError
from fsabs.containers import decoding
from fsabs.containers.zip import Zip, members

from .stores import CountingFS
from .zips import (
    BZIP2,
    DEFLATED,
    LZMA,
    METHODS,
    STORED,
    ZSTD,
    Made,
    by_hand,
    contents,
    extra_field,
    many_entries,
    opened,
    packed,
    zipped,
)

pytestmark = pytest.mark.quick

TREE = {"a.txt": b"alpha" * 50, "dir/b.bin": bytes(range(256)) * 10, "dir/sub/c": b"", "ü/ñ €.txt": b"unicode"}

# zip 3.0 -ry of d/ü.txt, a link and s.txt: other extra fields in the local headers; UTF-8 that is not flagged.
INFO_ZIP = base64.b64decode(
    "UEsDBAoAAAAAAMQoZFIAAAAAAAAAAAAAAAACABwAZC9VVAkAA79qQGAPfwBrdXgLAAEEAAAAAAQAAAAAUEsDBAoAAAAAAMQoZFJf/dBXBgAAAAYA"
    "AAAIABwAZC/DvC50eHRVVAkAA79qQGAPfwBrdXgLAAEEAAAAAAQAAAAAbsOkbWUKUEsDBAoAAAAAAFSJdF1YM8vbBQAAAAUAAAAEABwAbGlua1VU"
    "CQADD38Aaw9/AGt1eAsAAQQAAAAABAAAAABzLnR4dFBLAwQKAAAAAADEKGRS2olJmwwAAAAMAAAABQAcAHMudHh0VVQJAAO/akBgD38Aa3V4CwAB"
    "BAAAAAAEAAAAAHNlY3JldCB0ZXh0ClBLAQIeAwoAAAAAAMQoZFIAAAAAAAAAAAAAAAACABgAAAAAAAAAEADtQQAAAABkL1VUBQADv2pAYHV4CwAB"
    "BAAAAAAEAAAAAFBLAQIeAwoAAAAAAMQoZFJf/dBXBgAAAAYAAAAIABgAAAAAAAEAAACkgTwAAABkL8O8LnR4dFVUBQADv2pAYHV4CwABBAAAAAAE"
    "AAAAAFBLAQIeAwoAAAAAAFSJdF1YM8vbBQAAAAUAAAAEABgAAAAAAAAAAAD/oYQAAABsaW5rVVQFAAMPfwBrdXgLAAEEAAAAAAQAAAAAUEsBAh4D"
    "CgAAAAAAxChkUtqJSZsMAAAADAAAAAUAGAAAAAAAAQAAAKSBxwAAAHMudHh0VVQFAAO/akBgdXgLAAEEAAAAAAQAAAAAUEsFBgAAAAAEAAQAKwEA"
    "ABIBAAAAAA=="
)
# printf hello | zip - -: a zip64 local header, and a zip64 end record that nothing needs.
INFO_ZIP_STREAM = base64.b64decode(
    "UEsDBC0AAAAAAFSJdF2GphA2//////////8BABQALQEAEAAFAAAAAAAAAAUAAAAAAAAAaGVsbG9QSwECHgMtAAAAAABUiXRdhqYQNgUAAAAFAAAA"
    "AQAAAAAAAAABAAAAgBEAAAAALVBLBgYsAAAAAAAAAB4DLQAAAAAAAAAAAAEAAAAAAAAAAQAAAAAAAAAvAAAAAAAAADgAAAAAAAAAUEsGBwAAAABn"
    "AAAAAAAAAAEAAABQSwUGAAAAAAEAAQAvAAAAOAAAAAAA"
)


@pytest.mark.parametrize("method", METHODS)
def test_reads_what_zipfile_writes(method: int) -> None:
    archive = opened(zipped(TREE, method))
    assert contents(archive) == TREE
    assert archive.verify() == []
    data = bytes(i * 7 % 251 for i in range(300_000))
    for size in (0, 1, 2 * 128 * 1024, 300_000):
        assert contents(opened(zipped({"x": data[:size]}, method))) == {"x": data[:size]}
    archive = opened(zipped({"x": data}, method))
    with archive.open("x", "rb", 1000) as file:
        assert file.read(10) == data[:10]
        file.seek(200_000)
        assert file.read(5000) == data[200_000:205_000]
        file.seek(-7, io.SEEK_END)
        assert file.read() == data[-7:]
    with archive.open_blob("x") as blob:
        assert blob.pread_many([(5, 100), (0, 3), (5, 50)]) == [data[100:105], b"", data[50:55]]
        assert blob.pread(10**9, len(data) - 2) == data[-2:]


def test_reads_what_zipfile_streams() -> None:
    class Unseekable(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, data: bytes) -> int:  # type: ignore[override]
            self.data += data
            return len(data)

    out = Unseekable()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in TREE.items():
            archive.writestr(name, data, DEFLATED if name == "a.txt" else STORED)
        with archive.open("zip64", "w", force_zip64=True) as file:
            file.write(b"its descriptor has 64-bit sizes")
    found = opened(bytes(out.data))
    assert contents(found) == {**TREE, "zip64": b"its descriptor has 64-bit sizes"}
    assert found.verify() == []


@pytest.mark.parametrize("signature", [b"", b"PK\7\x08"])
def test_data_descriptors(signature: bytes) -> None:
    data = b"content" * 10
    descriptor = signature + struct.pack("<3L", zlib.crc32(data), len(data), len(data))
    archive = opened(by_hand([Made(b"x", data, flags=8, descriptor=descriptor), Made(b"y", b"other")]))
    assert contents(archive) == {"x": data, "y": b"other"}
    assert archive.verify() == []


def test_reads_what_info_zip_writes() -> None:
    archive = opened(INFO_ZIP)
    assert contents(archive) == {"d/ü.txt": "näme\n".encode(), "link": b"s.txt", "s.txt": b"secret text\n"}
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("d/ü.txt", "odd name")]
    assert archive.stat("s.txt").last_modified == 1614834367  # the extended timestamp: odd seconds, and UTC
    assert archive.stat("d").last_modified == 1614834367
    link = archive.stat("link")
    assert stat.S_ISLNK(link.mode)
    assert link.isfile()
    assert archive.read_bytes("link") == b"s.txt"
    streamed = opened(INFO_ZIP_STREAM)
    assert contents(streamed) == {"-": b"hello"}
    assert streamed.verify() == []


# ---- where the archive lies in its file


@pytest.mark.parametrize("prefix", [b"#!/bin/sh\nexit\n", b"MZ" + bytes(100_000), b"PK"])
def test_a_prefix(prefix: bytes) -> None:
    out = io.BytesIO(prefix)
    with zipfile.ZipFile(out, "a") as counted:  # the offsets count it; those of an archive behind the command cat don't
        for name, data in TREE.items():
            counted.writestr(name, data)
    for whole in (prefix + zipped(TREE, DEFLATED), prefix + zipped(TREE, DEFLATED, b"a comment"), out.getvalue()):
        archive = opened(whole)
        assert contents(archive) == TREE
        assert archive.verify() == []
    zip64 = opened(prefix + by_hand([Made(b"x", b"1"), packed("y", b"22" * 100)], zip64=True))
    assert contents(zip64) == {"x": b"1", "y": b"22" * 100}
    assert zip64.verify() == []


def test_a_comment_is_no_end() -> None:
    fake = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, 46, 0, 0)
    for comment in (fake, fake + b"x", b"PK\5\6", b"x" * 65535, fake * 100, b"PK\5\6" * 16383, b"PK\6\7" + bytes(16)):
        archive = opened(zipped(TREE, STORED, comment))
        assert contents(archive) == TREE
        assert archive.verify() == []


def test_an_archive_in_the_comment() -> None:
    archive = opened(zipped({"a": b"one"}, STORED, zipped({"a": b"other"})))
    assert contents(archive) == {"a": b"one"}
    outer = zipped({"a": b"one"})
    start = len(outer) + by_hand([Made(b"a", b"other")]).index(b"PK\1\2")
    ambiguous = zipped({"a": b"one"}, STORED, by_hand([Made(b"a", b"other")], end={6: start}))
    with pytest.raises(CorruptFileError, match="several") as caught:
        opened(ambiguous)
    assert caught.value.filename == "memory:///a.zip"
    fakes = by_hand([], end={6: 0})
    with pytest.raises(CorruptFileError, match="several"):
        opened(
            zipped({"a": b"one"}, STORED, b"".join(fakes[:20] + struct.pack("<H", 22 * n) for n in range(19, -1, -1)))
        )


def test_bytes_behind_the_end() -> None:
    for junk in (b"\n", bytes(1000), b"PK\5\6"):
        archive = opened(zipped(TREE) + junk)
        assert contents(archive) == TREE
        assert [(problem.path, problem.kind) for problem in archive.verify()] == [("", "trailing data")]


def test_an_empty_archive() -> None:
    for data in (zipped({}), zipped({}, STORED, b"comment"), by_hand([], zip64=True)):
        archive = opened(data)
        assert list(archive.list(recursive=True)) == []
        assert archive.isdir("")
        assert archive.verify() == []
        with pytest.raises(FileNotFoundError):
            archive.open("x")


# ---- zip64


def test_zip64_of_zipfile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    data = zipped(TREE, DEFLATED)
    assert b"PK\6\6" in data
    archive = opened(data)
    assert contents(archive) == TREE
    assert archive.verify() == []


def test_zip64_where_it_is_needed() -> None:
    big = extra_field(1, struct.pack("<3Q", 3, 3, 0)) + extra_field(0x9999, b"??")
    some = extra_field(0x9999, b"??") + extra_field(1, struct.pack("<Q", 35))  # of "y": its offset only
    members = [
        Made(b"x", b"abc", size=2**32, compressed=2**32, offset=2**32, extra=big, crc=zlib.crc32(b"abc")),
        Made(b"yy", b"def", offset=2**32, extra=some),
    ]
    archive = opened(by_hand(members))
    assert archive.read_bytes("x") == b"abc"
    with pytest.raises(CorruptFileError, match="local header"):
        archive.read_bytes("yy")  # its field tells 35, where there is none
    right = members[1]._replace(extra=some[:-8] + struct.pack("<Q", 34))
    assert contents(opened(by_hand([members[0], right]))) == {"x": b"abc", "yy": b"def"}


@pytest.mark.parametrize("content", [b"", bytes(7), bytes(15), bytes(23)])
def test_a_zip64_field_that_is_too_short(content: bytes) -> None:
    made = Made(b"x", b"abc", size=2**32, compressed=2**32, offset=2**32, extra=extra_field(1, content))
    with pytest.raises(CorruptFileError, match="zip64"):
        opened(by_hand([made]))
    # With no zip64 field the numbers stand as they are, and can't be true.
    archive = opened(by_hand([made._replace(extra=b"")]))
    with pytest.raises(CorruptFileError):
        archive.open("x")


def test_zip64_end_records_that_lie() -> None:
    right = by_hand([Made(b"x", b"abc")], zip64=True)
    record, locator = right.index(b"PK\6\6"), right.index(b"PK\6\7")
    for at, change in (
        (record, b"XX"),  # no record where the locator says
        (record + 4, b"\xff"),  # a record that doesn't end at its locator
        (record + 16, b"\1"),  # a disk
        (record + 24, b"\2"),  # more entries
        (record + 40, b"\x7f"),  # a larger directory
        (record + 48, b"\x7f"),  # elsewhere
        (locator + 16, b"\2"),  # of two disks
        (locator, b"XX"),  # the end record needs it
    ):
        with pytest.raises(OSError) as caught:
            opened(right[:at] + change + right[at + len(change) :])
        assert isinstance(caught.value, (CorruptFileError, io.UnsupportedOperation))
        assert caught.value.filename == "memory:///a.zip"
    with pytest.raises(CorruptFileError, match="disagree"):
        opened(by_hand([Made(b"x", b"abc")], zip64=True, end={4: 7}))


def test_more_than_65535_entries() -> None:
    data = many_entries(70_000)
    archive = opened(data)
    assert len(list(archive.list(recursive=True))) == 71_001
    assert archive.isfile("train/999/0069999.jpg")
    # Old tools have no zip64 records, and count modulo 65536.
    directory = data.index(b"PK\1\2")
    whole = data[: data.index(b"PK\6\6")]
    for counted in (4464, 4465):
        end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, counted, counted, len(whole) - directory, directory, 0)
        if counted == 4464:
            old = opened(whole + end)
            assert old.isfile("train/999/0069999.jpg")
            with Zip(old.parent, "a.zip", "a") as adding:
                adding.write_bytes("new", b"new")
            with zipfile.ZipFile(io.BytesIO(old.parent.read_bytes("a.zip"))) as found:
                assert len(found.infolist()) == 70_001
                assert found.read("new") == b"new"
        else:
            with pytest.raises(CorruptFileError, match="70000 entries in a directory of 4465"):
                opened(whole + end)


# ---- methods of compression


def test_zstd() -> None:
    content = b"zstandard" * 1000
    frames = b"".join(zstandard.ZstdCompressor().compress(content[at : at + 1000]) for at in range(0, 9000, 1000))
    members = [packed("a", content, ZSTD), packed("b", content, ZSTD)._replace(data=frames), packed("c", b"", ZSTD)]
    archive = opened(by_hand(members))
    assert contents(archive) == {"a": content, "b": content, "c": b""}
    assert archive.verify() == []


class _StandardZstd(types.ModuleType):
    """Python 3.14's compression.zstd, as far as it is used, on another library."""

    class ZstdError(Exception):
        pass

    class DecompressionParameter:
        window_log_max = 100

    class ZstdDecompressor:
        def __init__(self, options: dict[int, int]) -> None:
            self._inner = zstandard.ZstdDecompressor(max_window_size=1 << options[100]).decompressobj()
            self._pending = b""
            self.eof, self.needs_input, self.unused_data = False, True, b""

        def decompress(self, data: bytes, max_length: int) -> bytes:
            try:
                self._pending += self._inner.decompress(data) if data else b""
            except zstandard.ZstdError as exc:
                raise _StandardZstd.ZstdError(str(exc)) from exc
            found, self._pending = self._pending[:max_length], self._pending[max_length:]
            self.needs_input = not self._pending
            self.eof = self._inner.eof and not self._pending
            self.unused_data = self._inner.unused_data if self.eof else b""
            return found


def test_zstd_of_the_standard_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "STANDARD_ZSTD", True)
    monkeypatch.setitem(sys.modules, "compression", types.ModuleType("compression"))
    monkeypatch.setitem(sys.modules, "compression.zstd", _StandardZstd("compression.zstd"))
    test_zstd()
    damaged = packed("x", b"content", ZSTD)._replace(data=b"no zstd stream at all")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(CorruptFileError, match="bad zstd data"):
        opened(by_hand([damaged])).read_bytes("x")


def test_zstd_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = opened(by_hand([packed("x", b"content", ZSTD), Made(b"y", b"stored")]))
    monkeypatch.setattr(decoding, "STANDARD_ZSTD", False)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingDependencyError, match="zstd"):
        archive.read_bytes("x")
    assert archive.read_bytes("y") == b"stored"


def test_bzip2_of_several_streams() -> None:
    content = b"0123456789" * 1000
    data = b"".join(bz2.compress(content[at : at + 4000]) for at in range(0, 10_000, 4000))
    member = packed("x", content, BZIP2)
    assert contents(opened(by_hand([member._replace(data=data)]))) == {"x": content}
    with pytest.raises(CorruptFileError):
        opened(by_hand([member._replace(data=data + data[:-1])])).read_bytes("x")


def _lzma(content: bytes, properties: bytes = b"\x5d" + struct.pack("<L", 1 << 23)) -> bytes:
    engine = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, "dict_size": 1 << 23}])
    return b"\x09\x04\x05\x00" + properties + engine.compress(content) + engine.flush()


def test_lzma_with_and_without_an_end_mark() -> None:
    content = bytes(i * i % 251 for i in range(20_000))
    whole = _lzma(content)
    sizes: dict[str, Any] = {"size": len(content), "crc": zlib.crc32(content), "method": LZMA}
    marked = Made(b"x", whole, flags=2, **sizes)
    unmarked = Made(b"x", whole[:-6], **sizes)  # the mark and the coder's last bytes are gone, no content is
    for member in (marked, marked._replace(flags=0), unmarked):
        assert contents(opened(by_hand([member]))) == {"x": content}
    with pytest.raises(CorruptFileError, match="ends in the middle"):
        opened(by_hand([unmarked._replace(flags=2)])).read_bytes("x")
    # A header that claims a dictionary of 4 GiB costs no such memory.
    huge = marked._replace(data=_lzma(content, b"\x5d\xff\xff\xff\xff"))
    assert contents(opened(by_hand([huge]))) == {"x": content}
    for properties in (b"\xff\0\0\x80\0", b"\x5d\0"):
        with pytest.raises(CorruptFileError, match="LZMA|damaged|holds"):
            opened(by_hand([marked._replace(data=_lzma(content, properties))])).read_bytes("x")
    for length in range(14):
        with pytest.raises(CorruptFileError):
            opened(by_hand([marked._replace(data=whole[:length])])).read_bytes("x")


def test_over_local_files_and_by_suffix(tmp_path: Path) -> None:
    (tmp_path / "A.ZIP").write_bytes(zipped(TREE, DEFLATED))
    (tmp_path / "dir.zip").mkdir()
    fs = Local(tmp_path)
    archive = fs.open_container("A.ZIP")
    assert isinstance(archive, Zip)
    assert contents(archive) == TREE
    assert archive.url("ü/ñ €.txt") == fs.url("A.ZIP") + "/%C3%BC/%C3%B1%20%E2%82%AC.txt"
    assert repr(archive.subfs("dir")) == f"Zip({fs!r}, {str(tmp_path)[1:] + '/A.ZIP'!r}, 'dir')"
    assert contents(archive.subfs("dir")) == {"b.bin": TREE["dir/b.bin"], "sub/c": b""}
    for path, kind in (("dir.zip", IsADirectoryError), ("no.zip", FileNotFoundError), ("A.ZIP/no", NotADirectoryError)):
        with pytest.raises(kind):
            fs.open_zip(path)


@pytest.mark.parametrize(("outer", "middle"), [(STORED, STORED), (DEFLATED, BZIP2), (LZMA, DEFLATED)])
def test_zip_in_zip_in_zip(outer: int, middle: int) -> None:
    inner = zipped(TREE, DEFLATED)
    data = zipped({"d/m.zip": zipped({"i.zip": inner, "x": b"x"}, middle), "y": b"y"}, outer)
    archive = Zip(opened(data).open_zip("d/m.zip"), "i.zip")
    assert contents(archive) == TREE
    assert archive.verify() == []
    assert archive.url("a.txt") == "memory:///a.zip/d/m.zip/i.zip/a.txt"


def test_members_of_nested_stored_archives_are_slices_of_the_outermost(tmp_path: Path) -> None:
    (tmp_path / "o.zip").write_bytes(zipped({"m.zip": zipped({"i.zip": zipped(TREE)})}))
    store = CountingFS(Local(tmp_path))
    archive = store.open_zip("o.zip").open_zip("m.zip").open_zip("i.zip")
    with archive.open_blob("dir/b.bin") as blob:
        assert blob.pread(1, 0) == TREE["dir/b.bin"][:1]
        store.taken()
        assert blob.pread(4, 250) == TREE["dir/b.bin"][250:254]
        assert store.taken() == [(4, (tmp_path / "o.zip").read_bytes().index(TREE["dir/b.bin"]) + 250)]


def test_isa_l_and_zlib_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever is installed inflates: the same bytes, the same refusals."""
    data = os.urandom(3000) + b"words and " * 3000
    right = packed("x", data)
    wrong = (
        right._replace(name=b"short", size=len(data) - 1),
        right._replace(name=b"long", size=len(data) + 1),
        right._replace(name=b"crc", crc=1),
        right._replace(name=b"cut", data=right.data[:-9]),
    )
    more = right._replace(name=b"more", data=right.data + b"?")
    for engine in (zlib, decoding.fastest_zlib()):
        monkeypatch.setattr(members, "_zlib", engine)
        archive = opened(by_hand([right, more, *wrong]))
        assert archive.read_bytes("x") == archive.read_bytes("more") == data
        for one in wrong:
            with pytest.raises(CorruptFileError):
                archive.read_bytes(one.name.decode())
