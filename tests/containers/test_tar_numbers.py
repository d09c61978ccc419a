"""Numbers of pax records, which may have any number of zeros before them."""

from __future__ import annotations

import tarfile
import time

import pytest

from fsabs import CorruptFileError, Memory
from fsabs.containers.tar import Tar

pytestmark = pytest.mark.quick


def header(name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.USTAR_FORMAT)


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def record(text: str, digits: int) -> bytes:
    """A record whose length is written with so many digits."""
    return f"{digits + len(text) + 2:0{digits}} {text}\n".encode()


def archive(records: bytes, content: bytes) -> bytes:
    extended = header("pax", len(records), tarfile.XHDTYPE) + padded(records)
    return extended + header("x", 0) + padded(content) + header("y", 1) + padded(b"y") + bytes(1024)


@pytest.mark.parametrize("digits", [3, 20, 21, 22, 40, 5000])
def test_zeros_before_a_number(digits: int) -> None:
    records = record("path=name", digits) + record(f"size={3:0{digits}}", digits)
    with Memory() as fs:
        fs.write_bytes("a.tar", archive(records, b"abc"))
        with Tar(fs, "a.tar") as tar:
            assert {name: tar.read_bytes(name) for name in tar.list()} == {"name": b"abc", "y": b"y"}
            assert tar.verify() == []


@pytest.mark.parametrize("text", ["size=-3", "size=" + "9" * 21, "size=0x3"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with Memory() as fs:
        fs.write_bytes("a.tar", archive(record(text, 2), b"abc"))
        with pytest.raises(CorruptFileError, match="is no number"):
            fs.open_container("a.tar")


@pytest.mark.parametrize("records", [b"0" * 1_000_000, b"0" * 500_000 + b" a=b\n", b"0" * 500_000 + b"5 a=b\n"])
def test_lengths_that_lead_nowhere_are_refused_soon(records: bytes) -> None:
    with Memory() as fs:
        fs.write_bytes("a.tar", archive(records, b""))
        begin = time.monotonic()
        with pytest.raises(CorruptFileError, match="no pax record at byte 0"):
            fs.open_container("a.tar")
        assert time.monotonic() - begin < 20
