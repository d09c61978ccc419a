"""Decoding a gzip member (RFC 1952), from its start or from a block of deflate (RFC 1951) inside of it."""

from __future__ import annotations

import functools
import zlib
from typing import Any, cast

from .decoders import DecodeError, FrameDecoder, ResumePoint

_STEP = 64 * 1024  # given to zlib at once: what it leaves of it is copied, and stays in the copies of its state
_TRAILER = 8  # bytes behind the deflated data: CRC-32 and size
_LOOKS_AHEAD = 512 * 1024  # most compressors begin a block every 10 to 100 KB, libdeflate every 300 KB


class GzDecoder(FrameDecoder):
    """A gzip member; zlib checks its CRC and its size."""

    LOOKS_AHEAD = _LOOKS_AHEAD

    def __init__(self, state: Any = None) -> None:
        self._state = state or zlib.decompressobj(wbits=31)  # 31: with gzip's header and trailer
        self._fed = b""
        self._at = 0  # of what was fed: the first byte that zlib hasn't taken
        self._full = False

    @property
    def eof(self) -> bool:
        """See `FrameDecoder`."""
        return cast(bool, self._state.eof)

    @property
    def unused(self) -> bytes:
        """See `FrameDecoder`."""
        return cast(bytes, self._state.unused_data) + self._fed[self._at :]

    @property
    def needs_input(self) -> bool:
        """See `FrameDecoder`."""
        return self._at >= len(self._fed) and not self._full

    def decode(self, data: bytes, limit: int) -> bytes:
        """See `FrameDecoder`."""
        if data:
            self._fed, self._at = self._fed[self._at :] + data, 0
        piece = self._fed[self._at : self._at + _STEP]
        try:
            found: bytes = self._state.decompress(piece, limit)
        except zlib.error as exc:
            raise DecodeError(str(exc)) from exc
        self._at += len(piece) - (0 if self._state.eof else len(self._state.unconsumed_tail))
        self._full = len(found) >= limit  # a long match may be inside still, with no input left
        return found

    def copy(self) -> tuple[FrameDecoder, int] | None:
        """See `FrameDecoder`."""
        return None if self.eof else (GzDecoder(self._state.copy()), len(self._fed) - self._at)

    def place_ahead(self, following: bytes) -> ResumePoint | None:
        """See `FrameDecoder`."""
        from .blocks import block_ahead  # loads NumPy

        waiting = self._fed[self._at : self._at + _LOOKS_AHEAD]
        if self.eof:
            return None
        found = block_ahead(self._state.copy(), waiting + following[: _LOOKS_AHEAD - len(waiting)], ResumedGz)
        if found is None:
            return None
        how = bytes([found.bit]) + zlib.compress(found.window, 1, wbits=-15)
        return ResumePoint(found.out, found.byte - (len(self._fed) - self._at), how)


class ResumedGz(GzDecoder):
    """The rest of a gzip member, from a block that begins at a bit of the first byte fed.

    The trailer is passed over: its CRC and size are of the whole member.
    """

    def __init__(self, bit: int, window: bytes) -> None:
        """`window` is the decoded data before the block, 32 KiB of it."""
        super().__init__(zlib.decompressobj(wbits=-15, zdict=window))
        blocks, self._low_bits = _empty_blocks(bit)
        self._state.decompress(blocks)
        self._bit: int | None = bit  # None once the first byte has been fed
        self._behind = b""  # what was fed behind the deflated data

    @classmethod
    def at(cls, how: bytes) -> FrameDecoder:
        """The decoder for a `ResumePoint` that a gzip member's decoder has found."""
        return cls(how[0], zlib.decompress(how[1:], wbits=-15))

    @property
    def eof(self) -> bool:
        """See `FrameDecoder`."""
        return len(self._behind) >= _TRAILER

    @property
    def unused(self) -> bytes:
        """See `FrameDecoder`."""
        return self._behind[_TRAILER:]

    @property
    def needs_input(self) -> bool:
        """See `FrameDecoder`."""
        return self._state.eof or super().needs_input

    def decode(self, data: bytes, limit: int) -> bytes:
        """See `FrameDecoder`."""
        if self._state.eof:
            self._behind += data
            return b""
        if self._bit is not None and data:
            data = bytes([data[0] >> self._bit << self._bit | self._low_bits]) + data[1:]
            self._bit = None
        found = super().decode(data, limit)
        if self._state.eof:
            self._behind = super().unused
        return found

    def copy(self) -> tuple[FrameDecoder, int] | None:
        """See `FrameDecoder`."""
        return None


@functools.cache
def _empty_blocks(bit: int) -> tuple[bytes, int]:
    """Empty blocks that end in front of `bit` of a byte: the whole bytes, and that byte's low bits."""
    bits, size = _odd_block() if bit % 2 else (0, 0)
    while size % 8 != bit:
        bits |= 0b0000000_01_0 << size  # fixed codes, and the end of the block
        size += 10
    data = bits.to_bytes(size // 8 + 1, "little")
    return data[:-1], data[-1]


def _odd_block() -> tuple[int, int]:
    """An empty block that has an odd number of bits: the bits, the first one lowest, and their number."""
    bits = size = 0
    fields = [(0, 1), (2, 2), (0, 5), (0, 5), (15, 4)]  # not the last, dynamic codes: 257, 1 and 19 of them
    for symbol in (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15):
        fields.append(({18: 1, 0: 2, 1: 2}.get(symbol, 0), 3))  # 18 is coded as 0, 0 as 10, 1 as 11
    fields += [(0, 1), (138 - 11, 7), (0, 1), (118 - 11, 7)]  # no code for 256 literals
    fields += [(0b11, 2), (0b01, 2), (0, 1)]  # one bit for the end of the block, no distances; and the end
    for value, width in fields:
        bits |= value << size
        size += width
    return bits, size
