"""Decoding an xz stream from a block inside of it; where the blocks are, its index tells.

Source: the .xz file format, version 1.2. What `xz -T` writes has many blocks, what `xz` wrote before it had threads and
what the standard library writes has one.
"""

from __future__ import annotations

import lzma
import struct
from collections.abc import Iterator
from itertools import pairwise

from ...core.blobs import Blob
from .decoders import DecodeError, FrameDecoder, ResumePoint

_HEADER = 12  # bytes of a stream's header, and of its footer
_MAX_INDEX = 4 * 1024 * 1024  # bytes; a block takes 4 to 10
_HOW = struct.Struct(f"<QQ{_HEADER}s")
"""Bytes from the block to the stream's index, and from there to the stream's end; the stream's header."""


def places(blob: Blob) -> Iterator[ResumePoint]:
    """Yield the positions of the blocks of a file of one stream, except the first; none if they are unknown."""
    if blob.size < 2 * _HEADER:
        return
    footer, header = blob.pread(_HEADER, blob.size - _HEADER), blob.pread(_HEADER, 0)
    behind = 4 * (struct.unpack_from("<I", footer, 4)[0] + 1) + _HEADER
    index = blob.size - behind
    if footer[8:] != header[6:8] + b"YZ" or behind > _MAX_INDEX or index < _HEADER:
        return
    records = _numbers(blob.pread(behind - _HEADER, index)[1:-4])
    out, src = 0, _HEADER
    found = []
    for stored, size in list(pairwise(records[1:]))[::2][: records[0] if records else 0]:
        found.append(ResumePoint(out, src, _HOW.pack(index - src, behind, header)))
        out, src = out + size, src + stored + -stored % 4
    if src == index:  # or it is the index of the last of several streams
        yield from found[1:]


def _numbers(data: bytes) -> list[int]:
    """The variable-length integers, 7 bits in a byte, the lowest first; the padding makes zeros of its own."""
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


class ResumedXz(FrameDecoder):
    """The rest of an xz stream, from a block on; each block's checksum is checked. The index is passed over."""

    def __init__(self, left: int, behind: int, header: bytes) -> None:
        """`left` bytes of blocks, and `behind` them bytes of index and footer."""
        self._state = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        self._state.decompress(header)
        self._left = left
        self._behind = behind
        self._fed_behind = b""

    @classmethod
    def at(cls, how: bytes) -> FrameDecoder:
        """The decoder for one of the `places`."""
        return cls(*_HOW.unpack(how))

    @property
    def eof(self) -> bool:
        """See `FrameDecoder`."""
        return len(self._fed_behind) >= self._behind and self._state.needs_input

    @property
    def unused(self) -> bytes:
        """See `FrameDecoder`."""
        return self._fed_behind[self._behind :]

    @property
    def needs_input(self) -> bool:
        """See `FrameDecoder`."""
        return self._state.needs_input

    def decode(self, data: bytes, limit: int) -> bytes:
        """See `FrameDecoder`."""
        blocks = data[: self._left]
        self._left -= len(blocks)
        self._fed_behind += data[len(blocks) :]
        try:
            return self._state.decompress(blocks, limit)
        except lzma.LZMAError as exc:
            raise DecodeError(str(exc)) from exc
