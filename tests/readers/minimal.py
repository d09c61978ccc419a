"""RecordIO by the book: a parser and a builder that share nothing with the package, for the tests to compare with."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"


class Parsed(NamedTuple):
    """A chunk: the fields of its header, and its records."""

    offset: int
    crc: int
    compressor: int
    size: int
    number: int
    payload: bytes
    records: list[bytes]


def parse(data: bytes) -> list[Parsed]:
    """The chunks of a file; `AssertionError` for whatever is not as it must be."""
    chunks = []
    at = 0
    while at < len(data):
        magic, crc, compressor, size, count = struct.unpack("<IIIII", data[at : at + 20])
        stored = data[at + 20 : at + 20 + size]
        assert magic == 0x01020304
        assert len(stored) == size
        assert zlib.crc32(stored) == crc
        payload = _decoded(compressor, stored)
        records, place = [], 0
        for _ in range(count):
            (length,) = struct.unpack("<I", payload[place : place + 4])
            records.append(payload[place + 4 : place + 4 + length])
            assert len(records[-1]) == length
            place += 4 + length
        assert place == len(payload)
        chunks.append(Parsed(at, crc, compressor, size, count, payload, records))
        at += 20 + size
    return chunks


def records(data: bytes) -> list[bytes]:
    """All records of a file."""
    return [record for chunk in parse(data) for record in chunk.records]


def chunk(
    records: list[bytes],
    compressor: int = 0,
    stored: bytes | None = None,
    count: int | None = None,
    crc: int | None = None,
) -> bytes:
    """A chunk with these records, and with what else its header is to say."""
    payload = b"".join(struct.pack("<I", len(record)) + record for record in records)
    if stored is None:
        stored = _encoded(compressor, payload)
    crc = zlib.crc32(stored) if crc is None else crc
    return (
        struct.pack("<5I", 0x01020304, crc, compressor, len(stored), len(records) if count is None else count) + stored
    )


def _decoded(compressor: int, stored: bytes) -> bytes:
    codecs: tuple[Callable[[bytes], bytes], ...] = (bytes, unframed, gzip.decompress)
    return codecs[compressor](stored)


def _encoded(compressor: int, payload: bytes) -> bytes:
    codecs: tuple[Callable[[bytes], bytes], ...] = (bytes, framed, lambda data: gzip.compress(data, mtime=0))
    return codecs[compressor](payload)


# ---- snappy's framing format, plain frames only when it writes


def crc32c(data: bytes) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    """The checksum of a frame."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def frame(kind: int, body: bytes) -> bytes:
    """One frame."""
    return bytes([kind]) + len(body).to_bytes(3, "little") + body


def framed(data: bytes, step: int = 65536) -> bytes:
    """A stream of uncompressed frames of `step` bytes."""
    parts = [data[at : at + step] for at in range(0, len(data), step)]
    return IDENTIFIER + b"".join(frame(1, masked(part) + part) for part in parts)


def unframed(data: bytes) -> bytes:
    """What a stream holds; the frames' checksums are looked at where they are short."""
    assert data.startswith(IDENTIFIER)
    found, at = [], len(IDENTIFIER)
    while at < len(data):
        kind, size = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        body = data[at + 4 : at + 4 + size]
        assert kind in (0, 1)
        assert len(body) == size
        part = body[4:] if kind == 1 else unsnapped(body[4:])
        assert len(part) <= 65536
        assert len(part) > 4096 or masked(part) == body[:4]
        found.append(part)
        at += 4 + size
    return b"".join(found)


def unsnapped(data: bytes) -> bytes:
    """A block of raw snappy (github.com/google/snappy/blob/main/format_description.txt)."""
    size = shift = at = 0
    while True:
        size |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at : at + extra], "little")
                at += extra
            out += data[at : at + length + 1]
            at += length + 1
            continue
        if tag & 3 == 1:
            length, offset, at = (tag >> 2 & 7) + 4, (tag >> 5) << 8 | data[at], at + 1
        else:
            width = 2 if tag & 3 == 2 else 4
            length, offset, at = (tag >> 2) + 1, int.from_bytes(data[at : at + width], "little"), at + width
        for _ in range(length):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)
