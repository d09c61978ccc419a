"""A sparse member as a blob: its parts with data lie one behind the other in the archive, the rest is zeros."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from ...core.blobs import Blob, BlobSlice, Origin
from .headers import Segments


class SparseBlob(Blob):
    """`size` bytes, of which the archive holds the `segments`, one behind the other from `start` of `parent` on."""

    __slots__ = ("_segments", "_starts", "_stored")

    def __init__(self, origin: Origin, key: str, parent: Blob, start: int, size: int, segments: Segments) -> None:
        super().__init__(origin, key, size, parent.version)
        self._segments = segments
        self._starts = [0, *accumulate(length for _, length in segments)]  # of the segments, in what is stored
        self._stored = BlobSlice(origin, key, parent, start, self._starts[-1], parent.version)

    def _pread(self, size: int, offset: int) -> bytes:
        end = offset + size
        at = max(0, bisect_right(self._segments, offset, key=_first) - 1)
        found: list[bytes] = []
        for (begin, length), stored in zip(self._segments[at:], self._starts[at:], strict=False):
            if begin >= end:
                break
            first, last = max(begin, offset), min(begin + length, end)
            if last > first:
                found.append(bytes(first - offset))
                found.append(self._stored.pread(last - first, stored + first - begin))
                offset = last
        found.append(bytes(end - offset))
        return b"".join(found)


def _first(segment: tuple[int, int]) -> int:
    return segment[0]
