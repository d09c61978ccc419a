"""Zip, read: names and what they must not be, directories, times, modes, versions."""

from __future__ import annotations

import errno
import io
import struct
import sys
import zipfile
import zlib

import pytest

from fsabs import CorruptFileError, Memory
from fsabs.containers.zip import Zip

from .zips import DEFLATED, Made, by_hand, contents, deflated, extra_field, opened, read_by_zipfile, walked, zipped

pytestmark = pytest.mark.quick


# ---- names


def test_names_in_code_page_437_and_in_utf8() -> None:
    members = [
        Made("héllo.txt".encode("cp437"), b"1"),
        Made("Ñandú/█".encode("cp437"), b"2", host=0),
        Made("漢字.txt".encode(), b"3", flags=0x800),
        Made("é.txt".encode(), b"4", host=0),  # UTF-8 by its bytes, but nothing says so, and it is of DOS
        Made(b"\xff\xfe", b"5", flags=0x800),
    ]
    archive = opened(by_hand(members))
    expected = {"héllo.txt": b"1", "Ñandú/█": b"2", "漢字.txt": b"3", "├⌐.txt": b"4", "\xa0■": b"5"}
    assert contents(archive) == expected
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("\xa0■", "odd name")]


def test_every_name_in_utf8_is_checked() -> None:
    # Each half of a character is in a name of its own: together they decode, and neither alone does.
    whole = "é".encode()
    archive = opened(by_hand([Made(b"a" + whole[:1], b"1", flags=0x800), Made(whole[1:] + b"b", b"2", flags=0x800)]))
    assert contents(archive) == {"a├": b"1", "⌐b": b"2"}
    assert len(archive.verify()) == 2


def test_unicode_path_fields() -> None:
    def field(raw: bytes, name: str, version: int = 1) -> bytes:
        return extra_field(0x7075, struct.pack("<BL", version, zlib.crc32(raw)) + name.encode())

    members = [
        Made(b"__.txt", b"1", extra=field(b"__.txt", "漢字.txt")),
        Made(b"renamed", b"2", extra=field(b"old name", "漢字")),  # of another name: left behind by a rename
        Made(b"newer", b"3", extra=field(b"newer", "漢字", 2)),
        Made(b"broken", b"4", extra=extra_field(0x7075, struct.pack("<BL", 1, zlib.crc32(b"broken")) + b"\xff")),
        Made(b"short", b"5", extra=extra_field(0x7075, b"\1")),
        Made(b"evil", b"6", extra=field(b"evil", "../up")),
    ]
    archive = opened(by_hand(members))
    assert contents(archive) == {"漢字.txt": b"1", "renamed": b"2", "newer": b"3", "broken": b"4", "short": b"5"}
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("../up", "unsafe name")]


def test_names_of_any_length() -> None:
    names = ["x" * n for n in (1, 7, 8, 9, 15, 16, 17, 255, 4000, 65_000)] + ["é" * n for n in (3, 4, 5)]
    members = {name: name[:10].encode() for name in names}
    assert contents(opened(zipped(members))) == members


def test_backslashes() -> None:
    archive = opened(by_hand([Made(b"dir\\a", b"1", host=0), Made(b"dir\\b", b"2", host=3), Made(b"w\\", host=10)]))
    assert contents(archive) == {"dir/a": b"1", "dir\\b": b"2"}
    assert archive.isdir("w")
    assert [problem.kind for problem in archive.verify()] == ["odd name", "odd name"]


@pytest.mark.parametrize(
    ("name", "host", "asked"),
    [
        (b"../x", 3, "../x"),
        (b"/x", 3, "/x"),
        (b"a/../x", 3, "a/../x"),
        (b"a/..", 3, None),
        (b"..", 3, ".."),
        (b"..\\x", 3, "..\\x"),
        (b"..\\x", 0, "..\\x"),
        (b"\\x", 3, "\\x"),
        (b"\\\\host\\share", 0, "\\\\host\\share"),
        (b"C:\\x", 0, "C:\\x"),
        (b"C:/x", 3, "C:/x"),
        (b"a\0b", 3, None),
        (b"", 3, None),
        (b"./", 3, None),
    ],
)
def test_names_that_are_refused(name: bytes, host: int, asked: str | None) -> None:
    archive = opened(by_hand([Made(b"good", b"good"), Made(name, b"bad", host=host), Made(b"last/one", b"last")]))
    assert contents(archive) == {"good": b"good", "last/one": b"last"}
    (problem,) = archive.verify()
    assert (problem.path, problem.kind) == (name.decode(), "unsafe name")
    if asked is not None:
        for read in (archive.open, archive.read_bytes, lambda path: next(archive.read_many([path]))):
            with pytest.raises(PermissionError) as caught:
                read(asked)
            assert caught.value.errno == errno.EACCES
            assert caught.value.filename.startswith("memory:///a.zip")


def test_names_that_are_only_odd() -> None:
    names = [b"./a", b"b//c", b"d/./e", b"f/.", b"g//", b".hidden", b"h/.hidden", b"...", b"i/..j", b"c:d", b"k/"]
    archive = opened(by_hand([Made(name, b"" if name[-1:] in b"/." else name) for name in names]))
    files = {"a": b"./a", "b/c": b"b//c", "d/e": b"d/./e", ".hidden": b".hidden", "h/.hidden": b"h/.hidden"}
    assert contents(archive) == {**files, "...": b"", "i/..j": b"i/..j", "c:d": b"c:d"}
    assert all(archive.isdir(name) for name in ("f", "g", "k"))
    assert [problem.kind for problem in archive.verify()] == ["odd name"] * 5


def test_of_several_entries_of_a_name_the_last_wins() -> None:
    members = [Made(b"a", b"first"), Made(b"b", b"b"), Made(b"a", b"second"), Made(b"./a", b"third")]
    archive = opened(by_hand(members))
    assert contents(archive) == {"a": b"third", "b": b"b"}
    assert [(one.path, one.kind) for one in archive.verify()] == [
        ("a", "odd name"),
        ("a", "duplicate"),
        ("a", "duplicate"),
    ]


def test_a_file_where_a_directory_is() -> None:
    archive = opened(by_hand([Made(b"a/b", b"b"), Made(b"a", b"a"), Made(b"c/"), Made(b"c", b"c")]))
    assert archive.read_bytes("a") == b"a"
    assert archive.read_bytes("a/b") == b"b"
    assert list(archive.list()) == ["a", "a/", "c", "c/"]
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("a", "conflict"), ("c", "conflict")]


# ---- directories


def test_directories() -> None:
    members = {"x/": b"", "x-y": b"1", "x/b": b"2", "x/a/deep/er": b"3", "x0": b"4", "z/": b"", "é/é": b"5"}
    archive = opened(zipped(members))
    assert list(archive.list()) == ["x-y", "x/", "x0", "z/", "é/"]
    assert list(archive.list("x")) == ["a/", "b"]
    everything = ["x-y", "x/", "x/a/", "x/a/deep/", "x/a/deep/er", "x/b", "x0", "z/", "é/", "é/é"]
    assert list(archive.list(recursive=True)) == everything
    assert list(archive.list("x", recursive=True)) == ["a/", "a/deep/", "a/deep/er", "b"]
    assert list(archive.list("z", recursive=True)) == []
    assert list(archive.list(recursive=True, detail=True)) == walked(archive)
    assert archive.isdir("x/a/deep")
    assert not archive.exists("x/a/d")
    assert archive.stat("x").last_modified is not None
    assert archive.stat("x/a").last_modified is None
    assert not archive.exists("\udc80")
    for path, kind in (("\udc80", FileNotFoundError), ("x-y", NotADirectoryError), ("x-y/z", NotADirectoryError)):
        for recursive in (False, True):
            with pytest.raises(kind):
                archive.list(path, recursive=recursive)


# ---- times, modes, versions


def test_times() -> None:
    when = extra_field(0x5455, struct.pack("<Bl", 1, -5))
    members = [
        Made(b"dos", dos=(2024 - 1980) << 25 | 2 << 21 | 29 << 16 | 12 << 11 | 34 << 5 | 28),
        Made(b"none", dos=0),
        Made(b"nonsense", dos=0xFFFFFFFF),
        Made(b"leap second", dos=0x0021BF7F),
        Made(b"extended", extra=extra_field(0x9999, b"") + when),
        Made(b"no mtime", extra=extra_field(0x5455, b"\2\0\0\0\0")),
        Made(b"short", extra=extra_field(0x5455, b"\1\0")),
    ]
    archive = opened(by_hand(members))
    times = {name: archive.stat(name).last_modified for name in archive.list()}
    assert times == {
        "dos": 1709210096.0,
        "none": None,
        "nonsense": None,
        "leap second": 315619199.0,
        "extended": -5.0,
        "no mtime": 315532800.0,
        "short": 315532800.0,
    }


def test_modes() -> None:
    members = [
        Made(b"unix", attributes=0o100755 << 16),
        Made(b"bare", attributes=0o600 << 16),
        Made(b"dos", host=0),
        Made(b"dos read-only", host=0, attributes=1),
        Made(b"link", attributes=0o120777 << 16),
        Made(b"device", attributes=0o060644 << 16),
        Made(b"dir/", attributes=0o040700 << 16),
        Made(b"dos dir/", host=0, attributes=0x10),
    ]
    archive = opened(by_hand(members))
    assert {name: oct(archive.stat(name).mode) for name in archive.list()} == {
        "unix": "0o100755",
        "bare": "0o100600",
        "dos": "0o100644",
        "dos read-only": "0o100444",
        "link": "0o120777",
        "device": "0o100644",
        "dir/": "0o40700",
        "dos dir/": "0o40755",
    }


def test_a_version_tells_contents_apart() -> None:
    parent = Memory()
    versions = set()
    for data in (b"one", b"two", b"two"):
        parent.write_bytes("a.zip", zipped({"x": data, "y": data}))
        archive = Zip(parent, "a.zip")
        versions |= {archive.stat("x").version, archive.stat("y").version}
        with archive.open_blob("x") as blob:
            assert blob.version == archive.stat("x").version
    assert len(versions) == 6


# ---- names that the two headers of a member tell differently


def added_by_zipfile(data: bytes) -> bytes:
    """The archive after Python's zipfile has added a member to it: it writes the directory anew, in UTF-8."""
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("added", b"by zipfile")
    return out.getvalue()


CONTENT = b"content" * 1000
OLD = {"café": "café".encode("cp437"), "größe/ñ.txt": "größe/ñ.txt".encode("cp437"), "plain": b"plain"}


@pytest.mark.parametrize(("compressed", "streamed"), [(False, False), (True, True)])
def test_an_archive_in_code_page_437_that_zipfile_has_added_to(compressed: bool, streamed: bool) -> None:
    data = deflated(CONTENT) if compressed else CONTENT
    numbers = struct.pack("<4s3L", b"PK\7\10", zlib.crc32(CONTENT), len(data), len(CONTENT))
    right = Made(b"", data, DEFLATED * compressed, 8 * streamed, len(CONTENT), zlib.crc32(CONTENT), host=0)
    right = right._replace(descriptor=numbers if streamed else b"")
    changed = added_by_zipfile(by_hand([right._replace(name=raw) for raw in OLD.values()]))
    assert (b"caf\xc3\xa9" in changed) == (sys.version_info < (3, 14))  # which leaves a name as it is
    archive = opened(changed)
    assert contents(archive) == {**dict.fromkeys(OLD, CONTENT), "added": b"by zipfile"} == read_by_zipfile(changed)
    for name in OLD:
        with archive.open_blob(name) as blob:
            assert blob.pread(100, 3000) == CONTENT[3000:3100]
    assert archive.verify() == []
    parent = archive.parent
    with Zip(parent, "a.zip", "a") as adding:
        adding.write_bytes("ours", b"1")
    assert contents(Zip(parent, "a.zip"))["café"] == CONTENT
    assert read_by_zipfile(parent.read_bytes("a.zip"))["café"] == CONTENT


def test_what_zipfile_makes_of_names_in_utf8_that_are_not_flagged() -> None:
    changed = added_by_zipfile(by_hand([Made("é".encode(), b"1"), Made("漢".encode(), b"2", flags=0x800)]))
    kept = sys.version_info >= (3, 14)  # zipfile leaves the name as it is, and reads it in cp437; here it is UTF-8
    added = {"漢": b"2", "added": b"by zipfile"}
    in_cp437 = {"é".encode().decode("cp437"): b"1", **added}
    assert contents(opened(changed)) == ({"é": b"1", **added} if kept else in_cp437)
    assert read_by_zipfile(changed) == in_cp437


def test_a_name_in_another_encoding_that_says_something_else() -> None:
    member = Made("café".encode(), b"1", flags=0x800, local={"name": b"caf\x83", "flags": 0})
    archive = opened(by_hand([member, Made(b"next", b"1")]))
    for read in (archive.read_bytes, lambda path: archive.open(path, "rb").read(1)):
        with pytest.raises(CorruptFileError, match="not the name in the directory"):
            read("café")
