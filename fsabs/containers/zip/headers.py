"""The headers of a written member: the local one, and its record in the central directory."""

from __future__ import annotations

import stat as stat_bits
import struct
from typing import NamedTuple

from . import records

LIMIT32 = records.MAX32
"""From these numbers on a field is moved to a zip64 record."""


_VERSIONS = {records.STORED: 20, records.DEFLATED: 20, records.BZIP2: 46, records.LZMA: 63}


VERSION_ZIP64 = 45


class MemberHeader(NamedTuple):
    """The fields of a member that both of its headers have."""

    name: bytes
    method: int
    dos: int
    crc: int
    compressed: int
    size: int
    mode: int

    def local(self) -> bytes:
        """The local header."""
        name, method, dos, crc, compressed, size, _ = self
        if compressed < LIMIT32 and size < LIMIT32:
            fixed = (_VERSIONS[method], self._flags(), method, dos, crc, compressed, size)
            return records.LOCAL.pack(records.LOCAL_SIGNATURE, *fixed, len(name), 0) + name
        extra = struct.pack("<2H2Q", records.EXTRA_ZIP64, 16, size, compressed)
        fixed = (self._version(True), self._flags(), method, dos, crc, records.MAX32, records.MAX32)
        return records.LOCAL.pack(records.LOCAL_SIGNATURE, *fixed, len(name), len(extra)) + name + extra

    def central(self, offset: int) -> bytes:
        """The directory's record, the local header being at `offset`."""
        size, compressed, where, extra, big = self.size, self.compressed, offset, b"", False
        if max(size, compressed, where) >= LIMIT32:
            fields = (size, compressed, where)
            large = [number for number in fields if number >= LIMIT32]
            extra, big = struct.pack(f"<2H{len(large)}Q", records.EXTRA_ZIP64, 8 * len(large), *large), True
            size, compressed, where = (number if number < LIMIT32 else records.MAX32 for number in fields)
        version = self._version(big)
        attributes = self.mode << 16 | (records.DOS_DIRECTORY if stat_bits.S_ISDIR(self.mode) else 0)
        fixed = (records.HOST_UNIX << 8 | version, version, self._flags(), self.method, self.dos, self.crc, compressed)
        lengths = (size, len(self.name), len(extra), 0, 0, 0)
        record = records.CENTRAL.pack(records.CENTRAL_SIGNATURE, *fixed, *lengths, attributes, where)
        return record + self.name + extra

    def _version(self, big: bool) -> int:
        return max(_VERSIONS[self.method], VERSION_ZIP64 if big else 0)

    def _flags(self) -> int:
        utf8 = 0 if self.name.isascii() else records.FLAG_UTF8
        return utf8 | (records.FLAG_LZMA_END_MARK if self.method == records.LZMA else 0)


class PlainHeaders:
    """The headers of a whole archive's ordinary files: those of `MemberHeader`, in a third of the time.

    All but name, CRC, sizes and offset are packed once.
    """

    def __init__(self, method: int, dos: int, mode: int) -> None:
        header = MemberHeader(b"", method, dos, 0, 0, 0, mode)
        self._local = header.local()[: -_LOCAL_REST.size]
        self._central = header.central(0)[: -_CENTRAL_REST.size]
        self._attributes = mode << 16

    def pack(self, name: bytes, crc: int, compressed: int, size: int, offset: int) -> tuple[bytes, bytes] | None:
        """Return the local header and the directory's record, each without the name that follows it.

        None if the member needs others. `offset` is that of the local header.
        """
        if compressed >= LIMIT32 or size >= LIMIT32 or offset >= LIMIT32 or not name.isascii():
            return None
        numbers, length = (crc, compressed, size), len(name)
        return (
            self._local + _LOCAL_REST.pack(*numbers, length, 0),
            self._central + _CENTRAL_REST.pack(*numbers, length, 0, 0, 0, 0, self._attributes, offset),
        )


_LOCAL_REST = struct.Struct("<3L2H")
"""The fields of `records.LOCAL` from the CRC on."""
_CENTRAL_REST = struct.Struct("<3L5H2L")
"""The fields of `records.CENTRAL` from the CRC on."""
