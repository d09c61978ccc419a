"""The frame around content that is kept outside of this process: it says what it holds, and checks it.

In the order of its bytes, integers little-endian: the magic `fsabsCE1`; lengths of the name (4 bytes) and of the
content (8); CRC-32C of the content (4) and of what is before this field and the name (4); the name; the content. The
name is what `Identity.encode` gives.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import google_crc32c

checksum: Callable[[bytes], int] = google_crc32c.value
"""Return the CRC-32C of `bytes`."""
MAGIC = b"fsabsCE1"
_HEAD = struct.Struct("<8sIQI")
_CRC = struct.Struct("<I")
HEAD_SIZE = _HEAD.size + _CRC.size
"""Bytes before the name."""
CONTENT_AT, CONTENT = 12, struct.Struct("<QI")
"""Where size and checksum of the content stand in a frame, and how."""
LONGEST_NAME = 1 << 16


class FrameHead(NamedTuple):
    """The lengths in a frame's head, and the checksum of the content."""

    name_size: int
    size: int
    crc: int

    @property
    def start(self) -> int:
        """The offset of the content."""
        return HEAD_SIZE + self.name_size

    @property
    def total(self) -> int:
        """Bytes of the whole frame."""
        return self.start + self.size


def pack(name: bytes, size: int, crc: int) -> bytes:
    """Return what goes before content of `size` bytes that has this CRC-32C."""
    head = _HEAD.pack(MAGIC, len(name), size, crc)
    return head + _CRC.pack(checksum(head + name)) + name


def read_head(data: bytes | bytearray) -> FrameHead | None:
    """Return the head that `data` begins with; None if there is none. It is not checked: `name_of` does."""
    if len(data) < HEAD_SIZE or data[: len(MAGIC)] != MAGIC:
        return None
    head = FrameHead(*_HEAD.unpack_from(data)[1:])
    return head if head.name_size <= LONGEST_NAME else None


def name_of(data: bytes, head: FrameHead) -> bytes | None:
    """Return the name in a frame whose head is in `data`; None if head or name are damaged."""
    name = data[HEAD_SIZE : head.start]
    if _CRC.unpack_from(data, _HEAD.size)[0] != checksum(data[: _HEAD.size] + name):
        return None
    return name


def unpack(frame: bytes, name: bytes) -> bytes | None:
    """Return the content in a frame; None if it isn't that of `name`, whole and right."""
    head = read_head(frame)
    if head is None or len(frame) != head.total or frame[HEAD_SIZE : head.start] != name:
        return None
    content = frame[head.start :]
    return content if checksum(content) == head.crc and name_of(frame, head) == name else None
