"""The layout of a RecordIO file: chunk headers, the records in a chunk's payload, and the compression of payloads.

A file is chunks one after the other, with nothing before, between or after them; no records make a file of 0 bytes.
A chunk is a header of five little-endian u32 (magic 0x01020304; CRC-32 of the payload as stored; compressor: 0 none,
1 snappy's framing format, 2 gzip; size of the payload as stored; number of records) and the payload, which
decompresses to each record's length as a little-endian u32 and its bytes. The source is the Go implementation,
github.com/wangkuiyi/recordio (header.go, chunk.go, writer.go).

Snappy's framing format is github.com/google/snappy/blob/main/framing_format.txt: a stream identifier, then frames of at
most 65,536 bytes, each with a masked CRC-32C of what it decompresses to. Some writers emit a frame for each of their
small writes, others full ones; both are read, full ones are written. The blocks within the frames are pyarrow's work.
Everything is bounded before it is allocated.
"""

from __future__ import annotations

import contextlib
import functools
import struct
import zlib
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NamedTuple, cast

try:
    from isal.isal_zlib import crc32 as crc32
except ImportError:  # five times slower, and right as well
    from zlib import crc32 as crc32

MAGIC = 0x01020304
MAGIC_BYTES = MAGIC.to_bytes(4, "little")
HEADER = struct.Struct("<5I")
LENGTH = struct.Struct("<I")

COMPRESSORS = {"none": 0, "snappy": 1, "gzip": 2}
NONE, SNAPPY, GZIP = COMPRESSORS.values()

_MOST_FROM = (1, 22, 1040)  # bytes that one stored byte can decompress to, by compressor, rounded up
MAX_RECORD = 2**31 - 1
"""The largest record, in bytes."""
MAX_PAYLOAD = MAX_RECORD + LENGTH.size
"""The largest payload of a chunk when decompressed, in bytes: more is taken for a bomb."""


class Damage(Exception):
    """A fault of a chunk, described in its message; never leaves this package."""


class Chunk(NamedTuple):
    """The position of a chunk, and the fields of its header."""

    number: int
    """The number of the chunk in the file, from 0."""
    offset: int
    """The offset of the header in the file, in bytes."""
    crc: int
    """CRC-32 of the payload as stored."""
    compressor: int
    """0 none, 1 snappy, 2 gzip."""
    size: int
    """The size of the payload as stored, in bytes."""
    records: int
    """The number of records."""
    first: int
    """The number, in the file, of its first record."""

    @property
    def payload(self) -> int:
        """The offset of the payload in the file."""
        return self.offset + HEADER.size

    @property
    def end(self) -> int:
        """The offset of the chunk's end in the file."""
        return self.offset + HEADER.size + self.size

    def __str__(self) -> str:
        last = self.first + self.records - 1
        which = "no records" if not self.records else f"records {self.first} to {last}"
        return f"chunk {self.number} at offset {self.offset} ({which})"


class Skipped(NamedTuple):
    """A part of a file that was skipped because it is damaged."""

    url: str
    """The file."""
    chunk: int
    """The number of the chunk that is damaged, or that would have begun there."""
    offset: int
    """The offset of the part, in bytes."""
    size: int
    """Its size, in bytes."""
    records: int | None
    """The number of lost records; None if it is unknown."""
    reason: str
    """The fault."""

    def __str__(self) -> str:
        lost = "an unknown number of" if self.records is None else self.records
        where = f"{self.url}: chunk {self.chunk} at offset {self.offset}, {self.size} bytes"
        return f"{where}, {lost} records lost: {self.reason}"


def parse(head: bytes, at: int, number: int, offset: int, first: int, end: int) -> Chunk:
    """Return the chunk whose header is in `head` from `at` and in the file at `offset`; `end` is where the file ends.

    Raises `Damage` for what is no header, or one of a chunk that the file has no room for.
    """
    left = min(HEADER.size, len(head) - at)
    magic = int.from_bytes(head[at : at + min(4, left)], "little")
    if left >= 4 and magic != MAGIC and offset == 0:
        raise Damage(f"the file is no RecordIO file: it begins with 0x{magic:08x}, not with 0x{MAGIC:08x}")
    if left >= 4 and magic != MAGIC:
        raise Damage(f"no chunk begins here: magic 0x{magic:08x} where 0x{MAGIC:08x} was expected")
    if left < HEADER.size:
        raise Damage(f"{left} bytes where a chunk's header of {HEADER.size} was expected")
    _, crc, compressor, size, records = HEADER.unpack_from(head, at)
    if compressor > GZIP:
        raise Damage(f"unknown compressor {compressor}")
    if offset + HEADER.size + size > end:
        raise Damage(f"{end - offset - HEADER.size} bytes where a payload of {size} was expected")
    if records > (size + 64) * _MOST_FROM[compressor] // LENGTH.size or (compressor == NONE and size and not records):
        raise Damage(f"{records} records in a payload of {size} bytes")
    return Chunk(number, offset, crc, compressor, size, records, first)


def foreign(head: bytes, at: int, offset: int, end: int, payload: Callable[[int, int], bytes]) -> str | None:
    """Return the name of the other layout with the same magic that the header at `at` is of, or None.

    Paddle's C++ writes magic, number of records, CRC-32, compressor, size; PyPI's pyrecordio writes that order with
    CRC-32C and the compressors 1, 2 and 3. `payload(size, offset)` reads the file.
    """
    if len(head) - at < HEADER.size:
        return None
    magic, records, crc, compressor, size = HEADER.unpack_from(head, at)
    start = offset + HEADER.size
    if magic != MAGIC or compressor > 3 or start + size > end or size < LENGTH.size or not records:
        return None
    follows = payload(4, start + size)
    if follows and follows != MAGIC_BYTES:
        return None
    data = payload(min(size, 1 << 26), start)
    if len(data) == size and crc32(data) == crc and compressor <= GZIP:
        return "Paddle's C++ implementation"
    if len(data) == size and crc32c(data) == crc:
        return "PyPI's pyrecordio"
    return "Paddle's C++ implementation or PyPI's pyrecordio"


def split(data: bytes, start: int, stop: int, records: int) -> list[bytes]:
    """Return the `records` records that `data[start:stop]` consists of; `Damage` if it doesn't."""
    unpack, at = LENGTH.unpack_from, start
    try:
        found = [data[at + 4 : (at := at + 4 + unpack(data, at)[0])] for _ in repeat(None, records)]
    except struct.error:
        at = stop + 1
    if at != stop:  # `at` only grows: where it ends right, no record went too far
        raise Damage(_unfit(data, start, stop, records))
    return found


def places(data: bytes, start: int, stop: int, records: int) -> list[int]:
    """Return the positions of the records in `data[start:stop]`: record i is `data[places[i] + 4 : places[i + 1]]`,
    from `start`.
    """
    unpack, at = LENGTH.unpack_from, start
    try:
        found = [(at := at + 4 + unpack(data, at)[0]) - start for _ in repeat(None, records)]
    except struct.error:
        at = stop + 1
    if at != stop:
        raise Damage(_unfit(data, start, stop, records))
    return [0, *found]


def count(data: bytes) -> int:
    """Return the number of records in `data`; `Damage` if it doesn't consist of records."""
    records = at = 0
    while at < len(data):
        if at + 4 > len(data) or (at := at + 4 + LENGTH.unpack_from(data, at)[0]) > len(data):
            raise Damage(f"record {records} of the chunk does not fit in")
        records += 1
    return records


def wrong_count(stated: int, records: int) -> str:
    """Return the message for a chunk of another number of records than its header states."""
    return f"{records} records in a chunk whose header states {stated}"


def _unfit(data: bytes, start: int, stop: int, records: int) -> str:
    try:
        return wrong_count(records, count(data[start:stop]))
    except Damage:
        pass
    at = start
    for number in range(records):
        size = LENGTH.unpack_from(data, at)[0] if at + 4 <= stop else None
        if size is None or at + 4 + size > stop:
            says = "has no length" if size is None else f"of {size} bytes does not fit in"
            return f"record {number} of the chunk {says}: {stop - at} of {stop - start} bytes are left"
        at += 4 + size
    return f"{stop - at} bytes are left over behind the {records} records of the chunk"


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of `data`."""
    import google_crc32c

    return cast(int, google_crc32c.value(data))


@contextlib.contextmanager
def naming(*chunks: Chunk) -> Iterator[None]:
    """Add the chunks of a failed read to its error; of several chunks the failed one is unknown."""
    try:
        yield
    except OSError as exc:
        what = str(chunks[0]) if len(chunks) == 1 else f"one of {len(chunks)} chunks, from {chunks[0]} to {chunks[-1]}"
        exc.strerror = f"{what}: {exc.strerror}"
        exc.args = (exc.errno, exc.strerror)
        raise


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
