"""Zip, damaged: cut, flipped, lying, hostile. Never wrong bytes, never silence, never another library's exception."""

from __future__ import annotations

import base64
import errno
import io
import struct
import zlib
from collections.abc import Callable

import pytest

from fsabs import FS, CorruptFileError, Limits, Memory
from fsabs.containers.zip import Zip

from .zips import (
    BZIP2,
    COMPRESSED,
    DEFLATED,
    LZMA,
    METHODS,
    STORED,
    ZSTD,
    Made,
    by_hand,
    contents,
    opened,
    packed,
    zipped,
)

WHOLE = {"a": b"alpha" * 9, "d/": b"", "d/b": bytes(range(8)), "é": b"unicode", "z": b""}

# zip -P pw of one file: the old PKWARE encryption, with a data descriptor.
ENCRYPTED = base64.b64decode(
    "UEsDBAoACQAAAMQoZFLaiUmbGAAAAAwAAAAFABwAcy50eHRVVAkAA79qQGC/akBgdXgLAAEEAAAAAAQAAAAAm5xeljVUM8gIZiI0B5rPN57sJms4exI3"
    "UEsHCNqJSZsYAAAADAAAAFBLAQIeAwoACQAAAMQoZFLaiUmbGAAAAAwAAAAFABgAAAAAAAEAAACkgQAAAABzLnR4dFVUBQADv2pAYHV4CwABBAAAAAAE"
    "AAAAAFBLBQYAAAAAAQABAEsAAABnAAAAAAA="
)

ARCHIVES: dict[str, Callable[[], bytes]] = {
    "stored": lambda: zipped(WHOLE),
    "deflated": lambda: zipped(WHOLE, DEFLATED, b"comment"),
    "bzip2": lambda: zipped({"a": WHOLE["a"]}, BZIP2),
    "lzma": lambda: zipped({"a": WHOLE["a"]}, LZMA),
    "zstd": lambda: by_hand([packed("a", WHOLE["a"], ZSTD)]),
    "zip64": lambda: by_hand([Made(b"x", b"abc"), packed("y", b"content" * 9)], zip64=True),
    "nested": lambda: zipped({"a": b"1", "i.zip": zipped({"b": b"inner"}), "c": b"2"}),
    "nested last": lambda: zipped({"i.zip": zipped({"b": b"inner"}, STORED, b"with a comment")}),
    "descriptor": lambda: by_hand(
        [Made(b"x", b"abc", flags=8, descriptor=b"PK\7\x08" + struct.pack("<3L", zlib.crc32(b"abc"), 3, 3))]
    ),
}


def everything(archive: FS) -> dict[str, bytes]:
    """All that can be read of an archive, archives in it included."""
    found = contents(archive)
    for name in list(found):
        if name.endswith(".zip"):
            found |= {f"{name}/{inner}": data for inner, data in everything(archive.open_zip(name)).items()}
    return found


def _check_error(exc: OSError) -> None:
    assert str(exc.filename).startswith("memory:///a.zip")
    assert exc.errno in (errno.EBADMSG, errno.EOPNOTSUPP, errno.EFBIG)
    assert len(str(exc.strerror)) > 20


@pytest.mark.parametrize("kind", ARCHIVES)
def test_cut_at_any_byte(kind: str) -> None:
    data = ARCHIVES[kind]()
    everything(opened(data))
    for size in range(len(data)):
        with pytest.raises(CorruptFileError) as caught:
            opened(data[:size])
        _check_error(caught.value)


def test_cut_at_the_front() -> None:
    data = zipped(WHOLE)
    whole = everything(opened(data))
    for start in range(1, len(data)):
        with pytest.raises(CorruptFileError) as caught:
            everything(opened(data[start:]))
        _check_error(caught.value)
    assert whole


MASKS = (0xFF, 0x01, 0x80, 0x20)


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.nightly) for turn in (1, 2, 3))])
@pytest.mark.parametrize("kind", ARCHIVES)
def test_any_byte_flipped(kind: str, turn: int) -> None:
    data = ARCHIVES[kind]()
    right = everything(opened(data))
    known = set(right.values())
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= MASKS[(at + turn) % 4]
        try:
            archive = opened(bytes(damaged))
            names = [name for name in archive.list(recursive=True) if not name.endswith("/")]
        except OSError as exc:
            _check_error(exc)
            continue
        for name in names:
            try:
                found = archive.read_bytes(name)
            except OSError as exc:
                _check_error(exc)
                continue
            assert found in known, (at, name)
            if name in right:
                assert found == right[name], (at, name)
        assert isinstance(archive.verify(), list)


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_crc(method: int) -> None:
    data = zipped({"x": b"content" * 100}, method)
    crc = struct.pack("<L", zlib.crc32(b"content" * 100))
    archive = opened(data.replace(crc, b"\1\2\3\4"))

    def in_pieces() -> None:
        with archive.open("x", "rb", 64) as file:
            while file.read(64):
                pass

    def by_positions() -> None:
        with archive.open_blob("x") as blob:
            blob.pread_many([(350, 0), (350, 350)])

    readers: list[Callable[[], object]] = [
        lambda: archive.read_bytes("x"),
        lambda: list(archive.read_many(["x"])),
        lambda: archive.open("x", "rb").read(),
        lambda: archive.open_blob("x").read_all(),
        in_pieces,
        by_positions,
    ]
    told = "CRC-32 [0-9a-f]{8} .* at offset 0 .* 04030201 was expected"
    for read in readers:
        with pytest.raises(CorruptFileError, match=told) as caught:
            read()
        assert caught.value.filename == "memory:///a.zip/x"
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("x", "damaged")]


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (Made(b"x", crc=7), "CRC-32"),
        (packed("x", b"", crc=7), "CRC-32"),
        (Made(b"x", local={"name": b"other"}), "not the name in the directory"),
        (Made(b"x", local={"signature": b"PK\0\0"}), "no local header"),
        (Made(b"x", b"data", size=0, compressed=0, crc=zlib.crc32(b"data")), "CRC-32"),
    ],
)
def test_an_empty_member_that_is_not_right(member: Made, reason: str) -> None:
    """Opening one looks at what no read of it would."""
    archive = opened(by_hand([Made(b"fine", b"data"), member, Made(b"empty")]))
    for read in (archive.read_bytes, lambda path: archive.open(path, "rb").read()):
        with pytest.raises(CorruptFileError, match=reason) as caught:
            read("x")
        assert caught.value.filename == archive.url("x")
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("x", "damaged")]
    with archive.open("empty", "rb") as file:
        assert file.read() == b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"PK", "not a zip file"),
        (bytes(200_000), "not a zip file"),
        (zipped(WHOLE)[:100], "cut"),
        (b"PK\5\6" + bytes(17), "not a zip file"),
    ],
)
def test_what_is_no_zip(data: bytes, reason: str) -> None:
    parent = Memory()
    parent.write_bytes("a.zip", data)
    for mode in "ra":
        with pytest.raises(CorruptFileError, match=reason) as caught:
            Zip(parent, "a.zip", mode)
        _check_error(caught.value)
    assert parent.read_bytes("a.zip") == data


def test_directories_that_lie() -> None:
    members = [Made(b"x", b"abc"), Made(b"y", b"def")]
    size = len(by_hand(members)) - by_hand(members).index(b"PK\1\2") - 22
    counts = ({3: 3, 4: 3}, {3: 1, 4: 1}, {3: 0, 4: 0}, {4: 9})
    for end in (*counts, {5: size - 1}, {5: size + 1}, {5: 0}, {6: 0xFFFFFF00}):
        with pytest.raises(OSError) as caught:
            everything(opened(by_hand(members, end=end)))
        _check_error(caught.value)
    with pytest.raises(io.UnsupportedOperation, match="split"):
        opened(by_hand(members, end={1: 1, 2: 1}))
    for member in (members[0]._replace(local={"signature": b"PK\1\1"}), Made(b"x", offset=3)):
        with pytest.raises(CorruptFileError, match="local header"):
            opened(by_hand([member], between=bytes(100))).read_bytes("x")


def test_a_signature_in_a_name_or_a_field_is_no_record() -> None:
    odd = b"PK\1\2" * 12
    members = [Made(b"x" + odd, b"1", extra=struct.pack("<2H", 0x9999, 48) + odd), Made(odd, b"2", comment=odd)]
    archive = opened(by_hand(members))
    assert contents(archive) == {"x" + odd.decode(): b"1", odd.decode(): b"2"}
    assert archive.verify() == []


def test_a_digital_signature_ends_the_directory() -> None:
    plain = by_hand([Made(b"x", b"abc")])
    at = plain.index(b"PK\5\6")
    signature = b"PK\5\5" + struct.pack("<H", 4) + b"sign"
    end = bytearray(plain[at:])
    end[12:16] = struct.pack("<L", struct.unpack_from("<L", end, 12)[0] + len(signature))
    assert contents(opened(plain[:at] + signature + bytes(end))) == {"x": b"abc"}


@pytest.mark.parametrize(
    "change",
    [{"method": 8}, {"flags": 1}, {"name": b"y"}, {"name": b"xy"}, {"name": b""}, {"name": b"\x82", "flags": 0x800}],
)
def test_a_local_header_that_is_another(change: dict[str, object]) -> None:
    archive = opened(by_hand([Made(b"x", b"abc", local=change), Made(b"z", b"abcd")]))
    for read in (archive.read_bytes, lambda path: archive.open(path, "rb").read(1)):
        with pytest.raises(CorruptFileError, match="not the (directory's|name in the directory)"):
            read("x")
    assert archive.read_bytes("z") == b"abcd"
    assert [(one.path, one.kind) for one in archive.verify()] == [("x", "damaged")]


def test_headers_that_are_swapped_give_no_other_members_bytes() -> None:
    members = [Made(b"a", b"first"), Made(b"b", b"other"), Made(b"c", b"third")]
    plain = by_hand(members)
    second = plain.index(b"PK\3\4", 4)
    for offset in (second, 1, plain.rindex(b"PK\3\4")):
        archive = opened(by_hand([members[0]._replace(offset=offset), *members[1:]]))
        for read in (archive.read_bytes, lambda path, fs=archive: fs.open(path, "rb").read(1)):
            with pytest.raises(CorruptFileError):
                read("a")


# ---- sizes and bombs


@pytest.mark.parametrize("method", COMPRESSED)
def test_a_member_of_another_size(method: int) -> None:
    content = b"0123456789" * 10
    assert contents(opened(by_hand([packed("x", content, method)]))) == {"x": content}
    for told in (0, 1, 99, 101, 5000):
        archive = opened(by_hand([packed("x", content, method, size=told)]))
        for read in (archive.read_bytes, lambda path, fs=archive: fs.open(path, "rb").read()):
            with pytest.raises(CorruptFileError):
                read("x")


def test_a_stream_that_is_cut() -> None:
    member = packed("x", b"content")
    with pytest.raises(CorruptFileError, match="ends in the middle"):
        data = member.data[:-1]
        opened(by_hand([member._replace(data=data)])).read_bytes("x")


def test_a_stored_member_of_two_sizes() -> None:
    with pytest.raises(CorruptFileError, match="stored member of 4 bytes that takes 3"):
        opened(by_hand([Made(b"x", b"abc", size=4)])).open("x")


def test_a_bomb_by_what_it_claims() -> None:
    bomb = packed("x", b"small" * 100, size=0xFFFFFFFF)
    archive = opened(by_hand([bomb, Made(b"y", b"good")]))
    for read in (archive.open, archive.read_bytes, lambda path: list(archive.read_many([path]))):
        with pytest.raises(OSError, match="bomb.*max_ratio=1100") as caught:
            read("x")
        assert caught.value.filename == "memory:///a.zip/x"
        assert caught.value.errno == errno.EFBIG
        assert not isinstance(caught.value, CorruptFileError)
    assert archive.read_bytes("y") == b"good"
    assert [(problem.path, problem.kind) for problem in archive.verify()] == [("x", "limit")]
    with pytest.raises(CorruptFileError, match="holds 500 bytes where 4294967295"):
        opened(by_hand([bomb]), limits=Limits(max_ratio=None)).read_bytes("x")
    zeros = zipped({"x": bytes(9 << 20)}, DEFLATED)
    assert len(opened(zeros).read_bytes("x")) == 9 << 20
    with pytest.raises(OSError, match="max_ratio=5:"):
        opened(zeros, limits=Limits(max_ratio=5)).read_bytes("x")


# ---- entries that share bytes


def test_overlapping_entries() -> None:
    for made, bad in (
        ([Made(b"a", b"x" * 100, size=140, compressed=140), Made(b"b", b"y" * 10)], ["a"]),
        ([Made(b"a", b"x" * 10), Made(b"b", b"y" * 10, offset=0)], ["a", "b"]),
        ([Made(b"a", b"x" * 10), Made(b"b", b"y" * 10, size=11, compressed=11)], ["b"]),
        ([Made(b"a", b"x" * 10), Made(b"b", b"y" * 10, offset=1 << 31)], ["b"]),
        ([Made(b"a", b"x" * 9 + b"PK\3\4" + bytes(90)), Made(b"b", b"y", offset=40)], ["a", "b"]),
        ([Made(b"a", b"x" * 90, local_extra=bytes(20)), Made(b"b", b"y", offset=31 + 20 + 85)], ["a", "b"]),
    ):
        archive = opened(by_hand(made))
        for name in bad:
            for read in (archive.read_bytes, lambda path, fs=archive: fs.open(path, "rb").read()):
                with pytest.raises(CorruptFileError) as caught:
                    read(name)
                _check_error(caught.value)
        for name in {"a", "b"} - set(bad):
            assert archive.read_bytes(name) == made["ab".index(name)].data
        assert sorted(problem.path for problem in archive.verify()) == bad


def test_a_bomb_of_overlapping_entries() -> None:
    # As Fifield's: each file holds the local headers of those behind it, and then the same kernel as all the others.
    kernel = packed("kernel", bytes(1 << 20))
    members = [
        kernel._replace(name=f"{n}".encode(), offset=0, compressed=len(kernel.data), data=b"" if n else kernel.data)
        for n in range(10)
    ]
    archive = opened(by_hand(members), limits=Limits(max_ratio=1))
    for name in archive.list():
        with pytest.raises(CorruptFileError, match="overlapping"):
            archive.read_bytes(name)
    assert {problem.kind for problem in archive.verify()} == {"limit"}
    assert {problem.kind for problem in opened(by_hand(members)).verify()} == {"damaged"}


# ---- what can't be read


def test_what_can_not_be_read_is_refused_by_name() -> None:
    unread: list[tuple[bytes, str, str]] = [(ENCRYPTED, "s.txt", "encrypted")]
    unread += [(by_hand([Made(b"x", b"abc", flags=1 << flag)]), "x", "encrypted") for flag in (0, 6, 13)]
    unread += [(by_hand([Made(b"x", b"abc", flags=1 << 5)]), "x", "patch")]
    for method, name in ((9, "deflate64"), (98, "PPMd"), (1, "shrink"), (77, "unknown")):
        unread.append((by_hand([Made(b"x", b"abc", method=method), Made(b"y")]), "x", f"{method} .{name}"))
    for data, path, reason in unread:
        archive = opened(data)
        for read in (archive.open, archive.read_bytes, lambda path, fs=archive: list(fs.read_many([path]))):
            with pytest.raises(io.UnsupportedOperation, match=reason) as caught:
                read(path)
            _check_error(caught.value)
            assert caught.value.filename == f"memory:///a.zip/{path}"
        assert [(problem.path, problem.kind) for problem in archive.verify()] == [(path, "unreadable")]


def test_verify_tells_everything() -> None:
    members = [
        Made(b"good", b"good"),
        Made(b"crc", b"data", crc=1),
        Made(b"../up", b"hostile", crc=2),
        Made(b"twice", b"1", crc=3),
        Made(b"twice", b"2"),
        Made(b"secret", b"?", flags=1),
        packed("short", b"short", size=6),
        Made(b"empty", b"", local={"signature": b"XXXX"}),
        Made(b"good/below", b""),
        Made(b"big", b"z" * 100, size=200, compressed=200),
    ]
    found = opened(by_hand(members) + b"junk").verify()
    assert sorted((problem.path, problem.kind) for problem in found) == [
        ("", "trailing data"),
        ("../up", "damaged"),
        ("../up", "unsafe name"),
        ("big", "damaged"),
        ("crc", "damaged"),
        ("empty", "damaged"),
        ("good", "conflict"),
        ("secret", "unreadable"),
        ("short", "damaged"),
        ("twice", "damaged"),
        ("twice", "duplicate"),
    ]
    assert all(len(problem.detail) > 10 and "[" not in problem.detail for problem in found)
