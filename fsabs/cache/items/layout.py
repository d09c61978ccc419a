"""The format of a cache's file: header, state, entries, and the checksum that ties an entry to its bytes.

A cache is one file:

    0                header    what the file is; written once, with a checksum of its own
    1024             state     cursor, used, count, sealed, hand: five u64
    4096             items     `length` entries, one for each number; space reserved when the file is made
    table_start      table     `slots` entries (and WINDOW more, so that probing never wraps) for keys; sparse
    data_start       data      value, then its key if it has one; sparse, appended at the cursor

An entry has 32 bytes: offset u64, length u64 (of the value), hash u64 (of the key), check u32, tail u16 (bytes of the
key), kind u8, visited u8. Everything is in the machine's byte order: a file does not move between machines, and one
of another order has another magic. A kind of EMPTY is no entry, GONE a removed one; the others are the user's.

`check` is the CRC-32C of value and key, mixed with length, kind and, for an item, its number: an entry that is half
written, points elsewhere, is another item's or has changed by a bit does not fit its bytes, not even where it claims to
be empty.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from ..checksums import checksum, crc32c

MAGIC = b"fsabs\x00C\x01"
VERSION = 2
HEADER = struct.Struct("@8sIIQQQQ64s32s")
HEADER_CHECK = struct.Struct("@I")
STATE_AT = 1024
STATE = struct.Struct("@QQQQQ")  # cursor, used, count, sealed, hand
RESERVE = struct.Struct("@QQQ")
WORD = struct.Struct("@Q")
SEALED_AT = STATE_AT + 24
HAND_AT = STATE_AT + 32
ITEMS_START = 4096
ENTRY = struct.Struct("@QQQIHBB")
ENTRY_SIZE = 32
ITEM = struct.Struct("@QQ8xI2xBx")  # what a hit of an item needs of its entry: offset, length, check, kind
BYTES = struct.Struct("@QQ8xI4x")  # what a hit of plain bytes needs: offset, length, check, which tells the kind
VISITED_AT = 31
WINDOW = 128  # how far from its place a key may stand
PAGE = 4096
EMPTY, GONE = 0, 255
NUMBER_FACTOR = 2 * 0x85EBCA6B
FARTHEST = 1 << 43  # bytes; ext4 ends a file at 16 TiB
LONGEST_KEY = 0xFFFF
assert ENTRY.size == ITEM.size == BYTES.size == ENTRY_SIZE


class SlotTableLayout(NamedTuple):
    """The sizes and the format of a cache's file, as its header has them."""

    length: int
    """Numbered items, 0 to length - 1."""
    slots: int
    """Places for keys. Give twice as many as there will be keys: a table that is nearly full refuses some."""
    align: int
    """Values begin at a multiple of this many bytes. PAGE, where what is removed shall give its space back."""
    contents: bytes
    """What the values are, in at most 64 bytes; a file with other contents is refused."""
    fingerprint: bytes
    """32 bytes of what the values are derived from, see `fingerprint()`; of zeros where it isn't known."""
    generation: int
    """A random number for each file."""

    @property
    def table_start(self) -> int:
        """The offset of the entries of keys."""
        return _up(ITEMS_START + self.length * ENTRY_SIZE, PAGE)

    @property
    def data_start(self) -> int:
        """The offset of the values."""
        table = (self.slots + WINDOW) * ENTRY_SIZE if self.slots else 0
        return _up(self.table_start + table, max(PAGE, self.align))

    def pack(self) -> bytes:
        """The header."""
        head = HEADER.pack(
            MAGIC,
            VERSION,
            ENTRY_SIZE,
            self.length,
            self.slots,
            self.align,
            self.generation,
            self.contents,
            self.fingerprint,
        )
        return head + HEADER_CHECK.pack(checksum(head))

    def room(self, size: int) -> int:
        """The space that `size` bytes take."""
        return _up(size, self.align)


def unpack(head: bytes) -> SlotTableLayout:
    """The layout in a header; a `ValueError` that says what is wrong with it."""
    if len(head) < HEADER.size + HEADER_CHECK.size:
        raise ValueError(f"the file has {len(head)} bytes, less than the header of a cache")
    magic, version, entry, length, slots, align, generation, contents, fingerprint = HEADER.unpack_from(head)
    if magic != MAGIC:
        raise ValueError(f"no cache of fsabs: it begins with {magic!r}, not {MAGIC!r}")
    if HEADER_CHECK.unpack_from(head, HEADER.size)[0] != checksum(head[: HEADER.size]):
        raise ValueError("the header of the cache does not have its checksum")
    if version != VERSION or entry != ENTRY_SIZE:
        raise ValueError(f"the cache has format version {version}, and this is version {VERSION}")
    return SlotTableLayout(length, slots, align, contents.rstrip(b"\0"), fingerprint, generation)


def fingerprint(source: str | bytes) -> bytes:
    """The 32 bytes that stand for a description of a source (its URL and version, say); zeros for an empty one."""
    data = source.encode() if isinstance(source, str) else source
    return hashlib.blake2b(data, digest_size=32).digest() if data else bytes(32)


def salt(kind: int) -> int:
    """Return the value that a kind mixes into a check: not 0, so that an entry of zeros never passes."""
    return (kind * 0x9E3779B1) & 0xFFFFFFFF


def salt_of(number: int, kind: int) -> int:
    """Return what number and kind of an item mix into its check.

    2^31 numbers in a row have different ones. The lowest bit is the kind's alone, so that an entry of zeros never fits.
    """
    return salt(kind) ^ (number * NUMBER_FACTOR & 0xFFFFFFFF)


def check_of(value: bytes, key: bytes, kind: int, number: int = 0) -> int:
    """The check of an entry. Without a key: `crc32c(value) ^ length ^ salt_of(number, kind)`, in 32 bits."""
    crc = checksum(value)
    if key:
        crc = crc32c()[1](crc, key)
    return (crc ^ len(value) ^ salt_of(number, kind)) & 0xFFFFFFFF


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
