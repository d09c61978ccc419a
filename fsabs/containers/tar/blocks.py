"""The search for the start of a deflate block (RFC 1951): candidates have the form of one, and zlib confirms them.

What may be the beginning of a block is asked of a copy of the decoder that has come so far. It is given a block of
ours in that place, and gives what is in it, random bytes, if a block is what it was waiting for; in the middle of
anything else it takes the bits for something else. Blocks with fixed codes have no form to find them by, and the last
block of a stream is left alone.
"""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from .decoders import FrameDecoder

WINDOW = 32 * 1024
"""Decoded bytes that a block may refer back to."""
_STEP = 16 * 1024  # compressed bytes that are searched at once
_MAX_OUT = 4 * 1024 * 1024  # decoded bytes after which it is given up
_HEADER = 3 + 5 + 5 + 4  # bits in front of the lengths of a dynamic block's first code
_ROOM = _HEADER // 8 + 9  # bytes behind a position that are looked at
_Integers = npt.NDArray[np.int64]


class Block(NamedTuple):
    """The beginning of a block."""

    byte: int
    bit: int
    """Of that byte, counted from the lowest."""
    out: int
    """Decoded bytes up to there."""
    window: bytes
    """The last of them."""


def block_ahead(scout: Any, data: bytes, resumed: Callable[[int, bytes], FrameDecoder]) -> Block | None:
    """Return the first block that begins in `data` with a whole window before it; None if none is found.

    `scout` is a decompressor of zlib that waits for `data`; it is used up. All positions are from its own on.
    `resumed` makes a decoder that starts at a block, of the bit and the window of that.
    """
    way = _Way(scout, data)
    try:
        while way.out < WINDOW:
            if way.at == len(data) or not way.go(min(way.at + 4096, len(data))):
                return None
        for start in range(way.at, len(data), _STEP):
            for position, stored in _candidates(data, start):
                if position // 8 + stored < way.at:  # in a header that was passed for another candidate's sake
                    continue
                if not way.go(position // 8 + stored):
                    return None
                if way.waits_for_stored() if stored else way.waits_for_block(position % 8):
                    block = Block(position // 8, position % 8, way.out, way.window)
                    return block if way.agrees(block, resumed(block.bit, block.window)) else None
    except zlib.error:  # the data is damaged; who decodes it will say so
        pass
    return None


class _Way:
    """A decompressor on its way through `data`."""

    def __init__(self, scout: Any, data: bytes) -> None:
        self._scout = scout
        self._data = data
        self.at = 0
        self.out = 0
        self.window = b""

    def go(self, stop: int) -> bool:
        """Go on to the byte `stop`; False where the stream ends before, or too much comes out."""
        data, self.at = self._data[self.at : stop], max(stop, self.at)
        while not self._scout.eof and self.out < _MAX_OUT:
            found = self._scout.decompress(data, WINDOW)
            self.out += len(found)
            self.window = (self.window + found)[-WINDOW:]
            data = self._scout.unconsumed_tail
            if not data and len(found) < WINDOW:
                return True
        return False

    def waits_for_block(self, bit: int) -> bool:
        """Return whether a block begins at this bit of the next byte."""
        before = self._data[self.at] & (1 << bit) - 1
        probe, marks = _fixed_probe()
        return self._gives(marks, (before | probe << bit).to_bytes(len(marks) + 3, "little"))

    def waits_for_stored(self) -> bool:
        """Return whether a stored block's size follows, and another block after it."""
        probe, marks = _stored_probe()
        return self._gives(marks, probe)

    def _gives(self, expected: bytes, probe: bytes) -> bool:
        try:
            return cast(bytes, self._scout.copy().decompress(probe, WINDOW)) == expected
        except zlib.error:
            return False

    def agrees(self, block: Block, resumed: FrameDecoder) -> bool:
        """Return whether a decoder that starts at the block returns the data of this one, which is just after it."""
        some = self._data[self.at : block.byte + _STEP]
        there: bytes = self._scout.copy().decompress(some, WINDOW)
        return resumed.decode(self._data[block.byte : self.at] + some, WINDOW) == there


# ---- blocks of ours


@functools.cache
def _marks() -> bytes:
    """Random, so that no archive can be made to contain them; literals of 8 bits in the fixed code."""
    return bytes(byte % 144 for byte in os.urandom(16))


@functools.cache
def _fixed_probe() -> tuple[int, bytes]:
    """The bits of a block with fixed codes, the first one lowest, and what is in it."""
    bits = 0b01_0
    for at, mark in enumerate(_marks()):
        code = 0x30 + mark  # its highest bit comes first
        bits |= int(f"{code:08b}"[::-1], 2) << 3 + 8 * at
    return bits, _marks()


@functools.cache
def _stored_probe() -> tuple[bytes, bytes]:
    """A stored block from its size on, another one, and what is in them."""
    size = len(_marks())
    stored = size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + _marks()
    return stored + b"\0" + stored, 2 * _marks()


# ---- what looks like the beginning of a block


def _candidates(data: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Bits that may begin a block, in order, from the byte `start` on: the position, and for a stored block 1.

    A stored block is given by the last three bits before its size; where its padding is longer they are as good.
    """
    piece = data[start : start + _STEP + _ROOM]
    piece += bytes(_STEP + _ROOM - len(piece))
    found = [(8 * start + int(at), 0) for at in _dynamic(piece)]
    found += [(8 * start + int(at), 1) for at in _stored(piece)]
    return iter(sorted(found))


def _dynamic(data: bytes) -> _Integers:
    """Return the bits where a block with dynamic codes may begin, whose first code is complete."""
    near, sums = np.ndarray(_STEP, "<u4", data, strides=(1,)), _kraft_sums()
    found = []
    for bit in range(8):
        head = near >> bit
        # Not the last block; dynamic; at most 286 literals and lengths; at most 30 distances.
        usual = (head & 0b111 == 0b10_0) & (head & 0xF0 != 0xF0) & (head & 0x1E00 != 0x1E00)
        at = np.flatnonzero(usual)
        count = 4 + (head[at] >> 13 & 15).astype(np.int64)
        whole, rest = divmod(bit + _HEADER, 8)
        lengths = np.ndarray(_STEP, "<i8", data, whole, (1,))[at] >> rest & (1 << 3 * count) - 1
        total = sum(sums[lengths >> 12 * four & 0xFFF] for four in range(5))
        found.append(8 * at[total == 128] + bit)
    positions: _Integers = np.concatenate(found)
    return positions


def _stored(data: bytes) -> _Integers:
    """Return the positions of what may be the last bits of a stored block's header: a size and its complement."""
    size, complement = np.ndarray(_STEP, "<u2", data, 1, (1,)), np.ndarray(_STEP, "<u2", data, 3, (1,))
    at = np.flatnonzero((size ^ complement) == 0xFFFF)
    positions: _Integers = 8 * at[np.frombuffer(data, np.uint8)[at] >> 5 == 0] + 5
    return positions


@functools.cache
def _kraft_sums() -> _Integers:
    """For four code lengths of 3 bits: the share of all codes that they take, of 128."""
    share = np.array([0, *(128 >> length for length in range(1, 8))])
    lengths = np.arange(1 << 12)
    sums: _Integers = np.sum([share[lengths >> 3 * at & 7] for at in range(4)], axis=0)
    return sums
