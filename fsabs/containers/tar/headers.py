"""The blocks of a tar: what one header, one set of pax records and one sparse map say.

Sources: POSIX.1-2017 `pax` (ustar and pax interchange formats), the GNU tar manual's "Basic Tar Format" and "Storing
Sparse Files", and the v7 format that both grew from. Nothing here reads a file; errors are `HeaderError`, to which the
reader adds the URL and the offset.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

BLOCK = 512

REGULAR = frozenset(b"\0" + b"0" + b"7")
"""Types of plain files: v7's, ustar's, and the contiguous file that is only a hint."""
HARD_LINK, SYMLINK, DIRECTORY = ord("1"), ord("2"), ord("5")
SPECIAL = frozenset(b"346")
"""Character device, block device, fifo: they hold nothing to read."""
PAX, PAX_GLOBAL = frozenset(b"xX"), ord("g")
GNU_LONG_NAME, GNU_LONG_LINK, GNU_SPARSE, GNU_DUMP_DIRECTORY = ord("L"), ord("K"), ord("S"), ord("D")
GNU_VOLUME, GNU_CONTINUED = ord("V"), ord("M")

_MAX_SIZE = 2**63 - 1  # of a file, as the systems have it
_MAX_TIME = 2**62  # seconds: no system has times that far from 1970
_HEADER = struct.Struct("100s8s8s8s12s12s8sc100s8s32s32s8s8s155s12x")
_SPARSE_IN_HEADER = (386, 4)  # offset and number of the entries of a GNU sparse header
_SPARSE_IN_EXTENSION = (0, 21)

Segments = tuple[tuple[int, int], ...]
"""The parts of a sparse file that have data: `(offset, size)`, ascending."""


class HeaderError(ValueError):
    """A block that is not what it should be."""


class Header(NamedTuple):
    """One header block, as it stands."""

    name: bytes
    mode: int
    size: int
    """Bytes of payload in the archive."""
    mtime: float | None
    type: int
    link: bytes


def parse(block: bytes) -> Header:
    """The header in a block of 512 bytes; `HeaderError` if its checksum is wrong."""
    name, mode, _, _, size, mtime, checksum, kind, link, magic, _, _, _, _, prefix = _HEADER.unpack(block)
    _check_sum(block, checksum)
    name = _text(name)
    # The old GNU format (magic "ustar  ") keeps other things in the place of the prefix.
    if magic.startswith(b"ustar") and magic != b"ustar  \0" and (before := _text(prefix)):
        name = before + b"/" + name
    bits = _lenient(mode)
    return Header(
        name,
        0o644 if bits is None else bits & 0o7777,
        _size(size),
        _time(_lenient(mtime)),
        kind[0],
        _text(link),
    )


def is_header(block: bytes) -> bool:
    """Return whether a block is a header with a right checksum."""
    try:
        _check_sum(block, block[148:156])
    except HeaderError:
        return False
    return len(block) == BLOCK


def _check_sum(block: bytes, field: bytes) -> None:
    try:
        stated = number(field)
    except HeaderError:
        raise HeaderError(f"no tar header: its checksum reads {field!r}") from None
    actual = sum(block) - sum(block[148:156]) + 8 * 32
    if stated == actual:
        return
    # Some old writers summed signed bytes.
    if stated != actual - 256 * sum(byte > 127 for at, byte in enumerate(block) if not 148 <= at < 156):
        raise HeaderError(f"wrong checksum of a tar header: {stated} is stated, {actual} is right")


def number(field: bytes) -> int:
    """A number field: octal digits, or GNU's base 256 with the highest bit set; an empty one is 0."""
    if field[:1] >= b"\x80":
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") - (1 << bits)
        return value - (1 << bits) if field[0] & 0x40 else value
    digits = field.partition(b"\0")[0].strip(b" ")
    if not digits:
        return 0
    try:
        if digits.isdigit():
            return int(digits, 8)
    except ValueError:  # an 8 or a 9
        pass
    raise HeaderError(f"{field!r} is no octal number")


def _size(field: bytes) -> int:
    size = number(field)
    if not 0 <= size <= _MAX_SIZE:
        raise HeaderError(f"a negative size, or one that no file has: {size}")
    return size


def _lenient(field: bytes) -> int | None:
    """A number that no content hangs on; None if it is none."""
    try:
        return number(field)
    except HeaderError:
        return None


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def pax_records(data: bytes) -> list[tuple[str, bytes]]:
    """The records `length key=value\\n` of a pax header, in order."""
    records = []
    at = 0
    while at < len(data) and data[at] != 0:
        space = data.find(b" ", at)
        end = at + (_whole(data[at:space]) or 0) if space > 0 else 0
        keyword, equals, value = data[space + 1 : end - 1].partition(b"=")
        if not equals or not keyword or end > len(data) or data[end - 1 : end] != b"\n":
            raise HeaderError(f"no pax record at byte {at} of the extended header: {data[at : at + 40]!r}")
        records.append((keyword.decode("utf-8", "surrogateescape"), value))
        at = end
    return records


def pax_number(records: dict[str, bytes], keyword: str) -> int | None:
    """A whole number among pax records; None if it isn't there."""
    if keyword not in records:
        return None
    value = _whole(records[keyword])
    if value is None:
        raise HeaderError(f"the pax record {keyword}={records[keyword]!r} is no number")
    return value


def pax_time(records: dict[str, bytes], default: float | None) -> float | None:
    """The modification time among pax records."""
    try:
        time = _time(float(records["mtime"]))
    except (KeyError, ValueError):
        return default
    return default if time is None else time


def _time(seconds: float | None) -> float | None:
    """A time that a file can have; None if it is none, as NaN is."""
    return float(seconds) if seconds is not None and abs(seconds) < _MAX_TIME else None


def _whole(digits: bytes) -> int | None:
    """A number that a size may be, with zeros before it or not."""
    if not digits.isdigit() or len(digits := digits.lstrip(b"0") or b"0") > 20:
        return None
    value = int(digits)
    return value if value <= _MAX_SIZE else None


# ---- sparse files


def gnu_sparse(block: bytes, extension: bool) -> tuple[list[tuple[int, int]], bool]:
    """The segments in an old GNU sparse header, or in a block behind it, and whether one more such block follows."""
    start, count = _SPARSE_IN_EXTENSION if extension else _SPARSE_IN_HEADER
    segments = []
    for at in range(start, start + 24 * count, 24):
        if not block[at]:
            break
        segments.append((_size(block[at : at + 12]), _size(block[at + 12 : at + 24])))
    return segments, bool(block[504 if extension else 482])


def gnu_sparse_size(block: bytes) -> int:
    """The size of the whole file in an old GNU sparse header."""
    return _size(block[483:495])


def pax_sparse(records: list[tuple[str, bytes]]) -> list[tuple[int, int]] | None:
    """The segments in the pax records of GNU's formats 0.0 and 0.1; None where there are none."""
    found = dict(records)
    if "GNU.sparse.map" in found:
        numbers = found["GNU.sparse.map"].split(b",") if found["GNU.sparse.map"] else []
    elif "GNU.sparse.numblocks" in found:
        numbers = [value for key, value in records if key in ("GNU.sparse.offset", "GNU.sparse.numbytes")]
    else:
        return None
    return _pairs(numbers)


def pax_sparse_1_0(data: bytes) -> tuple[list[tuple[int, int]], int] | None:
    """The map at the start of a payload in GNU's format 1.0, and its padded size; None if `data` is not all of it."""
    lines = data.split(b"\n")
    if len(lines) < 2:
        return None
    entries = _whole(lines[0])
    if entries is None:
        raise HeaderError(f"no sparse map: {lines[0][:40]!r}")
    count = 2 * entries + 1
    if len(lines) <= count:
        return None
    size = sum(len(line) + 1 for line in lines[:count])
    return _pairs(lines[1:count]), size + -size % BLOCK


def _pairs(numbers: list[bytes]) -> list[tuple[int, int]]:
    values = [value for value in map(_whole, numbers) if value is not None]
    if len(numbers) % 2 or len(values) < len(numbers):
        raise HeaderError("a sparse map that is no list of offsets and sizes")
    return list(zip(values[::2], values[1::2], strict=True))


def checked_segments(segments: list[tuple[int, int]], size: int, stored: int) -> Segments:
    """The segments with data; `HeaderError` unless they are ascending, inside of `size`, and sum up to `stored`."""
    end = 0
    for offset, length in segments:
        if offset < end or offset + length > size:
            raise HeaderError(f"a sparse map with {length} bytes at offset {offset} of {size}")
        end = offset + length
    kept = tuple((offset, length) for offset, length in segments if length)
    if sum(length for _, length in kept) != stored:
        raise HeaderError(f"a sparse map of {sum(length for _, length in kept)} bytes for {stored} that are stored")
    return kept
