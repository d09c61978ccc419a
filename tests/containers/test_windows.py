"""Windows and dictionaries of compressed data: what a decoder keeps has a limit, and what is over it is no damage."""

from __future__ import annotations

import errno
import io
import lzma
import tarfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

import fsabs
from fsabs import Limits, Memory
from fsabs.readers.data import JsonLinesDataReader

from .blocks import blocks_of_xz
from .zips import Made, by_hand

pytestmark = pytest.mark.quick

GIB = 1 << 30
LINES = b'{"n": 1}\n{"n": 2}\n' * 100
ZSTANDARD = 93


def tar(content: bytes = LINES) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as file:
        info = tarfile.TarInfo("x")
        info.size = len(content)
        file.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zstd(content: bytes, log: int, eighths: int = 0) -> bytes:
    """A frame of raw blocks that says it needs a window of `2**log` bytes, and so many eighths of that (RFC 8878)."""
    pieces = [content[at : at + 100_000] for at in range(0, len(content), 100_000)] or [b""]
    blocks = [
        (len(piece) << 3 | (at == len(pieces) - 1)).to_bytes(3, "little") + piece for at, piece in enumerate(pieces)
    ]
    return b"\x28\xb5\x2f\xfd\0" + bytes([log - 10 << 3 | eighths]) + b"".join(blocks)


def one_segment(size: int) -> bytes:
    """The start of a frame without a window, which says that all of its content has `size` bytes."""
    return b"\x28\xb5\x2f\xfd\xe0" + size.to_bytes(8, "little") + b"\1\0\0"


def xz(content: bytes) -> bytes:
    """A stream whose block says that its dictionary has 4 GiB."""
    data = bytearray(lzma.compress(content))
    size = 4 * (data[12] + 1)
    at = data.index(b"\x21\x01", 12) + 2  # LZMA2, one byte of properties
    data[at] = 40
    data[12 + size - 4 : 12 + size] = zlib.crc32(data[12 : 12 + size - 4]).to_bytes(4, "little")
    return bytes(data)


def zipped(frame: bytes, size: int, crc: int) -> bytes:
    return by_hand([Made(b"x", frame, method=ZSTANDARD, size=size, crc=crc)])


def read_member(fs: Memory, name: str) -> bytes:
    with fs.open_container(name) as archive:
        return archive.read_bytes("x")


def read_lines(fs: Memory, name: str) -> bytes:
    reader = JsonLinesDataReader(fs.subfs(""))
    (shard,) = reader.create_shards()
    return b"".join(b'{"n": %d}\n' % record["n"] for record in reader.read_at(shard.name, range(shard.end)))


LARGE = LINES * 5000  # more than is read whole

CASES: dict[str, tuple[str, Callable[[bytes], bytes], bytes, Callable[[Memory, str], bytes]]] = {
    "tar": ("a.tar.zst", lambda frame: frame, tar(), read_member),
    "JSON lines": ("a.jsonl.zst", lambda frame: frame, LINES, read_lines),
    "large member of a zip": ("a.zip", lambda frame: zipped(frame, len(LARGE), zlib.crc32(LARGE)), LARGE, read_member),
}


def content_of(case: str) -> bytes:
    return LINES if case == "tar" else CASES[case][2]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("log", [27, 28, 31])
def test_windows_of_zstd_up_to_2_gib_are_read(case: str, log: int) -> None:
    name, packed, content, read = CASES[case]
    with Memory() as fs:
        fs.write_bytes(name, packed(zstd(content, log)))
        assert read(fs, name) == content_of(case)


@pytest.mark.parametrize("case", CASES)
def test_a_window_over_the_limit_is_named_and_no_damage(case: str) -> None:
    name, packed, content, read = CASES[case]
    for frame, limits, size in (
        (zstd(content, 31, 1), None, 2 * GIB + GIB // 4),
        (zstd(content, 41), None, 1 << 41),
        (zstd(content, 28), Limits(max_window_bytes=1 << 27), 1 << 28),
        (one_segment(3 * GIB), None, 3 * GIB),
    ):
        with Memory() as fs:
            fs.write_bytes(name, packed(frame))
            fs.limits = limits or fs.limits
            with pytest.raises(OSError, match=f"a zstd window of {size} bytes, over the limit max_window_bytes=") as it:
                read(fs, name)
            assert (it.value.errno, bool(it.value.filename)) == (errno.EFBIG, True)
            assert not isinstance(it.value, fsabs.CorruptFileError)


def test_without_a_limit_it_is_the_librarys() -> None:
    with Memory() as fs:
        fs.limits = Limits(max_window_bytes=None)
        fs.write_bytes("a.tar.zst", zstd(tar(), 32))
        with pytest.raises(OSError, match=f"{1 << 32} bytes, and zstd decodes those of {1 << 31} at most") as caught:
            read_member(fs, "a.tar.zst")
        assert caught.value.errno == errno.EFBIG


def test_a_small_member_of_a_zip_has_the_limit_too() -> None:
    with Memory() as fs:
        fs.write_bytes("a.zip", zipped(zstd(LINES, 35), len(LINES), zlib.crc32(LINES)))
        with pytest.raises(OSError, match="max_window_bytes") as caught:
            read_member(fs, "a.zip")
        assert caught.value.errno == errno.EFBIG


@pytest.mark.parametrize(
    ("name", "content", "read"), [("a.tar.xz", tar(), read_member), ("a.jsonl.xz", LINES, read_lines)]
)
def test_a_dictionary_of_xz_over_the_limit_is_named(name: str, content: bytes, read: Any) -> None:
    with Memory() as fs:
        fs.write_bytes(name, xz(content))
        with pytest.raises(OSError, match="xz.*over the limit max_window_bytes=") as caught:
            read(fs, name)
        assert (caught.value.errno, bool(caught.value.filename)) == (errno.EFBIG, True)
        assert not isinstance(caught.value, fsabs.CorruptFileError)


def test_limits_hold_where_decoding_starts_at_a_block_of_xz() -> None:
    content = bytes(range(256)) * 40_000
    with Memory() as fs:
        fs.write_bytes("a.tar.xz", blocks_of_xz(tar(content)))
        with fs.open_container("a.tar.xz") as archive, archive.open("x", "rb") as file:
            file.seek(8_960_000)
            assert file.read(256) == content[:256]
        fs.limits = Limits(max_window_bytes=1000)
        with (
            fs.open_container("a.tar.xz") as archive,  # its index is known
            archive.open("x", "rb") as file,
            pytest.raises(OSError, match="max_window_bytes=1000"),
        ):
            file.seek(8_960_000)
            file.read(256)
