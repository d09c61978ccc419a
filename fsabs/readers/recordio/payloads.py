"""The memory of a reader for reads by number: payloads, up to a limit of bytes, and the positions of their records.

When the payload of an uncompressed chunk is evicted, the CRC-32 of each of its records is taken first: it comes from
bytes that the chunk's own CRC has vouched for, so that a record can then be read alone, and still be checked.
"""

from __future__ import annotations

import itertools
from array import array
from operator import attrgetter

from ...core import process
from .format import crc32

_RECORDS = 4 << 20  # of which it is kept where they lie: 8 bytes each
_LEAST_RECORDS = 4  # in a chunk whose records are worth to be read alone, ...
_LEAST_SIZE = 64 << 10  # ... and its bytes


class ChunkLayout:
    """The positions of a chunk's records: record i is `payload[places[i] + 4 : places[i + 1]]`."""

    __slots__ = ("places", "sums")

    def __init__(self, places: array[int]) -> None:
        self.places = places
        self.sums: array[int] | None = None
        """The CRC-32 of each record, where it was taken."""


class CachedPayload:
    """The payload of a chunk, decompressed and checked, and its layout."""

    __slots__ = ("data", "layout", "number", "plain", "used")

    def __init__(self, number: int, data: bytes, layout: ChunkLayout, plain: bool) -> None:
        self.number = number
        self.data = data
        self.layout = layout
        self.plain = plain
        self.used = 0

    def fill(self, found: list[bytes], wanted: list[int], slots: list[int], first: int) -> None:
        """Put the records whose numbers stand at `slots` of `wanted` there in `found`; `first` is the chunk's first."""
        data, places = self.data, self.layout.places
        for slot in slots:
            at = wanted[slot] - first
            found[slot] = data[places[at] + 4 : places[at + 1]]

    def take_checksums(self) -> None:
        """Take the CRC of each record, if that may pay."""
        layout = self.layout
        places = layout.places
        if self.plain and layout.sums is None and len(places) > _LEAST_RECORDS and len(self.data) >= _LEAST_SIZE:
            view = memoryview(self.data)
            layout.sums = array("I", [crc32(view[a + 4 : b]) for a, b in itertools.pairwise(places)])


class PayloadCache:
    """Payloads by the number of their chunk, of `limit` bytes in all (one at least), and layouts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cached: dict[int, CachedPayload] = {}
        self._layouts: dict[int, ChunkLayout] = {}
        self._size = 0
        self._records = 0
        self._clock = itertools.count()
        self._lock = process.Lock()

    def get(self, number: int) -> CachedPayload | None:
        """The payload of a chunk, if it is here."""
        cached = self._cached.get(number)
        if cached is not None:
            cached.used = next(self._clock)
        return cached

    def layout(self, number: int) -> ChunkLayout | None:
        """The layout of a chunk, if it is known."""
        return self._layouts.get(number)

    def put(self, cached: CachedPayload) -> None:
        """Keep a payload, and evict those that were not used for longest."""
        cached.used = next(self._clock)
        with self._lock:
            self._size += len(cached.data)
            if self._size > self._limit:
                self._make_room(len(cached.data))
            if cached.number not in self._layouts:
                self._records += len(cached.layout.places)
                if self._records > _RECORDS:
                    self._layouts.clear()
                    self._records = len(cached.layout.places)
                self._layouts[cached.number] = cached.layout
            self._cached[cached.number] = cached

    def _make_room(self, size: int) -> None:
        """Evict an eighth more than necessary, so that not every payload evicts."""
        total = sum(len(cached.data) for cached in self._cached.values()) + size
        for cached in sorted(self._cached.values(), key=attrgetter("used")):
            if total <= self._limit - self._limit // 8:
                break
            cached.take_checksums()
            del self._cached[cached.number]
            total -= len(cached.data)
        self._size = total

    @property
    def size(self) -> int:
        """Of the payloads that are here, in bytes."""
        return self._size if self._cached else 0

    def free_cached(self) -> None:
        """Free the payloads; where records lie is still known."""
        with self._lock:
            cached, self._cached, self._size = self._cached, {}, 0
        for one in cached.values():
            one.take_checksums()

    def clear(self) -> None:
        """Free everything."""
        with self._lock:
            self._cached = {}
            self._layouts = {}
            self._size = self._records = 0
