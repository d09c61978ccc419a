"""The CRC-32 of many names at once, and what is odd about their bytes: an index is built by these."""

from __future__ import annotations

import functools
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LONG = 256  # bytes; longer names are taken one by one
_ONES = 0x0101010101010101
_HIGH = 0x8080808080808080


class Hashed(NamedTuple):
    """Of each name: its CRC-32, whether it is other than ASCII, and whether there is a NUL in it."""

    crcs: NDArray[np.uint32]
    wide: NDArray[np.bool_]
    nul: NDArray[np.bool_]


def hashed(data: bytes | bytearray, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> Hashed:
    """The names that start there in `data`, which has to go on for 8 bytes behind the last one."""
    import numpy as np

    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    crcs = np.full(len(starts), 0xFFFFFFFF, np.uint32)
    seen, zero = np.zeros(len(starts), np.uint64), np.zeros(len(starts), np.uint64)
    for at in range(0, min(int(lengths.max(initial=0)), _LONG), 8):
        here: Any = slice(None) if lengths.min() > at else np.flatnonzero(lengths > at)
        left = lengths[here] - at
        word = words[starts[here] + at]
        if left.min() < 8:  # a space is in place of what isn't the name's
            used = (8 * np.minimum(left, 8)).astype(np.uint64)
            mask = np.where(used < 64, (np.uint64(1) << (used & np.uint64(63))) - np.uint64(1), ~np.uint64(0))
            word = (word & mask) | (np.uint64(0x2020202020202020) & ~mask)
        seen[here] |= word
        zero[here] |= (word - np.uint64(_ONES)) & ~word
        crcs[here] = _crcs(crcs[here], word, left)
    crcs ^= np.uint32(0xFFFFFFFF)
    wide, nul = (seen & np.uint64(_HIGH)) != 0, (zero & np.uint64(_HIGH)) != 0
    for at in np.flatnonzero(lengths > _LONG).tolist():
        name = bytes(data[int(starts[at]) : int(starts[at] + lengths[at])])
        crcs[at], wide[at], nul[at] = zlib.crc32(name), not name.isascii(), b"\0" in name
    return Hashed(crcs, wide, nul)


def _crcs(crcs: NDArray[np.uint32], word: NDArray[np.uint64], left: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Take in up to 8 bytes, of which `left` are there, two at a time."""
    import numpy as np

    by_one, by_two = _tables()
    least, most = int(left.min()), int(left.max())
    for at in range(0, min(8, most), 2):
        pair = (word >> np.uint64(8 * at)).astype(np.uint32)
        mixed = (crcs ^ pair) & np.uint32(0xFFFF)
        both = by_two[mixed] ^ (crcs >> np.uint32(16))
        if least < at + 2:
            one = by_one[mixed & np.uint32(0xFF)] ^ (crcs >> np.uint32(8))
            both = np.where(left >= at + 2, both, np.where(left == at + 1, one, crcs))
        crcs = both
    return crcs


@functools.cache
def _tables() -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the tables that update a CRC-32 by one byte and by two (polynomial 0xEDB88320, as in APPNOTE 4.4.7)."""
    import numpy as np

    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & np.uint32(1), (one >> np.uint32(1)) ^ np.uint32(0xEDB88320), one >> np.uint32(1))
    two = np.arange(1 << 16, dtype=np.uint32)
    for _ in range(2):
        two = one[two & np.uint32(0xFF)] ^ (two >> np.uint32(8))
    return one, two
