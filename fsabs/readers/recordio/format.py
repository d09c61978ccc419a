"""The layout of a RecordIO file: chunk headers, and the records in a chunk's payload.

A file is chunks one after the other, with nothing before, between or after them; no records make a file of 0 bytes.
A chunk is a header of five little-endian u32 (magic 0x01020304; CRC-32 of the payload as stored; compressor: 0 none,
1 snappy's framing format, 2 gzip; size of the payload as stored; number of records) and the payload, which
decompresses to each record's length as a little-endian u32 and its bytes. The source is the Go implementation,
github.com/wangkuiyi/recordio (header.go, chunk.go, writer.go).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import repeat
from typing import NamedTuple, cast

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


def crc32c(data: bytes, value: int = 0) -> int:
    """Return the CRC-32C (Castagnoli) of `data`, continued from `value`."""
    import google_crc32c

    return cast(int, google_crc32c.extend(value, data))


def name_chunks(chunks: list[Chunk], exc: OSError) -> None:
    """Add the chunks of a failed read to its error; of several chunks the failed one is unknown."""
    what = str(chunks[0]) if len(chunks) == 1 else f"one of {len(chunks)} chunks, from {chunks[0]} to {chunks[-1]}"
    exc.strerror = f"{what}: {exc.strerror}"
    exc.args = (exc.errno, exc.strerror)
