"""An archive for the tests of seek points, in the ways that compressors make blocks and frames."""

from __future__ import annotations

import gzip
import lzma
import random
import struct
import zlib
from collections.abc import Callable
from itertools import pairwise

from isal import isal_zlib

from .tarballs import tarball

seeded = random.Random(11)
_WORDS = [seeded.randbytes(seeded.randint(2, 9)).hex().encode() for _ in range(2000)]


def text(size: int) -> bytes:
    """Words."""
    return b" ".join(seeded.choices(_WORDS, k=size // 10 + 10))[:size]


# Text, what can't be compressed, zeros, and data that is compressed already: blocks of it look like blocks of ours.
MEMBERS = {
    f"folder{at % 3}/member{at:02}": (
        text(90_000) + seeded.randbytes(40_000) + bytes(30_000) + gzip.compress(text(60_000), 1 + at % 9)
    )
    for at in range(16)
}
PLAIN = tarball(MEMBERS)


def deflated(level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY, memory: int = 8) -> Callable[[bytes], bytes]:
    """One member of gzip, by zlib."""

    def compress(data: bytes) -> bytes:
        encoder = zlib.compressobj(level, wbits=31, strategy=strategy, memLevel=memory)
        return encoder.compress(data) + encoder.flush()

    return compress


def _flushed(data: bytes, how: int = zlib.Z_SYNC_FLUSH) -> bytes:
    """As by pigz: an empty stored block behind each piece."""
    encoder = zlib.compressobj(6, wbits=31)
    pieces = [encoder.compress(data[at : at + 131072]) + encoder.flush(how) for at in range(0, len(data), 131072)]
    return b"".join(pieces) + encoder.flush()


def _varying(data: bytes) -> bytes:
    """One member whose blocks are made in different ways, those with fixed codes among them."""
    out, header = [], b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    for at in range(0, len(data), 50_000):
        strategy = (zlib.Z_FIXED, zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)[at // 50_000 % 3]
        encoder = zlib.compressobj(at // 50_000 % 10, wbits=-15, strategy=strategy)
        # Its last block is empty or not there: what comes next goes on behind a flush.
        out.append(encoder.compress(data[at : at + 50_000]) + encoder.flush(zlib.Z_SYNC_FLUSH))
    return header + b"".join(out) + b"\x03\0" + struct.pack("<II", zlib.crc32(data), len(data))


def _isal(level: int) -> Callable[[bytes], bytes]:
    def compress(data: bytes) -> bytes:
        encoder = isal_zlib.compressobj(level, wbits=31)
        found: bytes = encoder.compress(data) + encoder.flush()
        return found

    return compress


def _members(data: bytes) -> bytes:
    """Long members of gzip and short ones."""
    ends = [0, 1_000_000, 1_100_000, 1_150_000, 2_300_000, len(data)]
    pieces = [data[start:end] for start, end in pairwise(ends)]
    return b"".join(gzip.compress(piece, 1 + at) for at, piece in enumerate(pieces)) + bytes(1000)


def blocks_of_xz(data: bytes) -> bytes:
    """One stream of many blocks, as by `xz -T`, put together from streams of one block."""
    header, body, records = b"", [], b""
    for at in range(0, len(data), 200_000):
        piece = data[at : at + 200_000]
        stream = lzma.compress(piece, preset=0)
        behind = 4 * (struct.unpack_from("<I", stream, len(stream) - 8)[0] + 1) + 12
        index, header = stream[-behind:-12], stream[:12]
        body.append(stream[12:-behind])
        stored = _number(index[2:])[0]
        records += _as_number(stored) + _as_number(len(piece))
    index = b"\0" + _as_number(len(body)) + records
    index += bytes(-len(index) % 4)
    index += struct.pack("<I", zlib.crc32(index))
    footer = struct.pack("<I", len(index) // 4 - 1) + header[6:8]
    return header + b"".join(body) + index + struct.pack("<I", zlib.crc32(footer)) + footer + b"YZ"


def _as_number(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found, value = found + bytes([value & 0x7F | 0x80]), value >> 7
    return found + bytes([value])


def _number(data: bytes) -> tuple[int, int]:
    value = shift = at = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return value, at


GZ: dict[str, Callable[[bytes], bytes]] = {
    "stored": deflated(0),
    "usual": deflated(6),
    "best": deflated(9),
    "huffman": deflated(6, zlib.Z_HUFFMAN_ONLY),
    "fixed and stored": deflated(6, zlib.Z_FIXED),
    "small blocks": deflated(6, memory=1),
    "isal": _isal(1),
    "one block": _isal(0),
    "flushed": _flushed,
    "flushed fully": lambda data: _flushed(data, zlib.Z_FULL_FLUSH),
    "varying": _varying,
    "members": _members,
}
XZ: dict[str, Callable[[bytes], bytes]] = {
    "xz": blocks_of_xz,
    "streams of xz": lambda data: blocks_of_xz(data[:1_500_000]) + blocks_of_xz(data[1_500_000:]),
}
