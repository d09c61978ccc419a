"""Compression of payloads: nothing, snappy's framing format, gzip. Everything is bounded before it is allocated.

Snappy's framing format is github.com/google/snappy/blob/main/framing_format.txt: a stream identifier, then frames of at
most 65,536 bytes, each with a masked CRC-32C of what it decompresses to. Some writers emit a frame for each of their
small writes, others full ones; both are read, full ones are written. The blocks within the frames are pyarrow's work.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, cast

from .format import GZIP, MAX_PAYLOAD, NONE, Damage, crc32c

FRAME = 65536
_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _PLAIN, _IDENTIFIER_TYPE, _FIRST_SKIPPABLE = 0x00, 0x01, 0xFF, 0x80
_PIECE = 16 << 20
_MEMBERS = 1024  # writers make one; each costs a copy of what follows it


def decompress(compressor: int, data: bytes, limit: int = MAX_PAYLOAD) -> bytes:
    """The payload that `data` is the stored form of; `Damage` if it is none, or longer than `limit` bytes."""
    if compressor == NONE or not data:  # an empty chunk is stored as nothing, or as a stream of nothing
        found = data
    elif compressor == GZIP:
        found = _gunzip(data, limit)
    else:
        found = _unframe(data, limit)
    if len(found) > limit:
        raise _too_long(limit)
    return found


def compress(compressor: int, payload: bytes) -> bytes:
    """The stored form of a payload."""
    if compressor == NONE:
        return payload
    if compressor == GZIP:
        deflate = zlib.compressobj(wbits=31)  # 31: with gzip's header (no time in it) and trailer
        return deflate.compress(payload) + deflate.flush()
    return b"".join([_IDENTIFIER, *(_frame(payload[at : at + FRAME]) for at in range(0, len(payload), FRAME))])


def _too_long(limit: int) -> Damage:
    return Damage(f"the payload decompresses to more than {limit} bytes")


# ---- gzip


@functools.cache
def _inflate() -> tuple[Callable[..., Any], tuple[type[Exception], ...]]:
    """Return the function that makes a decompressor, and the error that it raises; isal's if it is installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, (zlib.error,)
    made: Callable[..., Any] = isal_zlib.decompressobj
    return made, (cast("type[Exception]", isal_zlib.error), zlib.error)


def _gunzip(data: bytes, limit: int) -> bytes:
    """One member or several, as gzip has it, and nothing after them."""
    make, failures = _inflate()
    parts: list[bytes] = []
    left = limit + 1
    for _ in range(_MEMBERS):
        inflate = make(wbits=31)
        try:
            while not inflate.eof:
                part = inflate.decompress(data, min(left, _PIECE))
                parts.append(part)
                left -= len(part)
                if left <= 0:
                    raise _too_long(limit)
                data = inflate.unconsumed_tail
                if not part and not data and not inflate.eof:
                    raise Damage("the gzip stream is cut off")
        except failures as exc:
            raise Damage(f"the gzip stream is damaged: {exc}") from None
        data = inflate.unused_data
        if not data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise Damage(f"a gzip stream of more than {_MEMBERS} members")


# ---- snappy's framing format


def _unframe(data: bytes, limit: int) -> bytes:
    if data[: len(_IDENTIFIER)] != _IDENTIFIER:
        raise Damage(f"no stream of snappy's framing format: it begins with {data[: len(_IDENTIFIER)].hex()}")
    parts: list[bytes] = []
    at, left, end = len(_IDENTIFIER), limit, len(data)
    decode = _block_decoder()
    while at < end:
        kind = data[at]
        start = at + 4
        at = start + int.from_bytes(data[at + 1 : start], "little")
        if at > end or start > end:
            raise Damage("a snappy frame is cut off")
        if kind <= _PLAIN:
            part = _unframed(kind, data, start, at, decode)
            left -= len(part)
            if left < 0:
                raise _too_long(limit)
            parts.append(part)
        elif kind == _IDENTIFIER_TYPE:
            if data[start - 4 : at] != _IDENTIFIER:
                raise Damage("a snappy stream identifier is damaged")
        elif kind < _FIRST_SKIPPABLE:
            raise Damage(f"a snappy frame of the unknown kind 0x{kind:02x}")
    return b"".join(parts)


def _unframed(kind: int, data: bytes, start: int, stop: int, decode: Callable[[bytes, int], bytes]) -> bytes:
    part = data[start + 4 : stop]
    if kind == _COMPRESSED:
        part = decode(part, _declared(part))
    if stop - start < 4 or len(part) > FRAME:
        raise Damage(f"a snappy frame of {stop - start} bytes")
    crc = crc32c(part)
    if ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF != int.from_bytes(data[start : start + 4], "little"):
        raise Damage("a snappy frame's CRC-32C is wrong")
    return part


def _declared(block: bytes) -> int:
    """The size that a block of raw snappy says it decompresses to, from its leading varint."""
    size = 0
    for shift, byte in zip((0, 7, 14, 21, 28), block[:5], strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    else:
        raise Damage("a snappy block has no size")
    if size > FRAME:
        raise Damage(f"a snappy block of {size} bytes, where {FRAME} is the most")
    return size


@functools.cache
def _codec() -> Any:
    from pyarrow import Codec

    return Codec("snappy")


def _block_decoder() -> Callable[[bytes, int], bytes]:
    inner = _codec().decompress

    def decode(block: bytes, size: int) -> bytes:
        try:
            found: bytes = inner(block, size, asbytes=True)
        except (OSError, ValueError) as exc:  # pyarrow's ArrowIOError and ArrowInvalid
            raise Damage(f"a snappy block is damaged: {exc}") from None
        return found

    return decode


def _frame(part: bytes) -> bytes:
    crc = crc32c(part)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    packed: bytes = _codec().compress(part, asbytes=True)
    kind = _COMPRESSED
    if len(packed) >= len(part) - len(part) // 8:  # as the Go implementation: what gains little stays as it is
        kind, packed = _PLAIN, part
    return b"%c%b%b%b" % (kind, (len(packed) + 4).to_bytes(3, "little"), masked.to_bytes(4, "little"), packed)
