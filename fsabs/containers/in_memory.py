"""A small archive of a store: read from there until the requests for that have cost as much as all of its bytes would,
and from memory from then on.

A shuffled epoch of 3,000 files in a zip of 13 MB is 3,000 requests, and all of its bytes are one. How much of an
archive will be read is not known when it is opened: this rule costs at most twice what the best decision would have
cost. What is fetched for a few members is these members.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

from ..core import process, ranges
from ..core.blobs import Blob, BlobLayer, Origin

MAX_BYTES = 32 * 1024 * 1024
"""The size of the largest archive that is held: what one batch of its members may take."""
MAX_TOTAL = 64 * 1024 * 1024
"""What all archives of a process may take. Those that come first stay until they are closed: were they replaced, a data
set of many archives would be fetched again and again."""
SMALL = 32 * 1024
"""The size in bytes up to which a read's cost is that of its request."""
ROUND_TRIP = 256 * 1024
"""The bytes that come in the time of a request that is waited for."""
REQUEST = 96 * 1024
"""The same of a request that is under way together with others."""

FIRST = 1024 * 1024
"""What is spent in any case before an archive is held: a replaced one is noticed by the next request, and what is read
from memory sends none."""


def in_memory_if_small(origin: Origin, key: str, blob: Blob) -> Blob:
    """Return the bytes of an archive, as they are read best: `blob` itself if it is large, or no store's."""
    if blob.max_gap_bytes and 0 < blob.size <= MAX_BYTES:
        return SmallArchive(origin, key, blob)
    return blob


class SmallArchive(BlobLayer):
    """The archive in `inner`, of a store whose requests take a round trip. A pickle leaves the content out."""

    __slots__ = ("_content", "_lock", "_spent")

    def __init__(self, origin: Origin, key: str, inner: Blob) -> None:
        super().__init__(origin, key, inner, inner.size, inner.version)
        self._lock = process.Lock()
        self._content: bytes | None = None
        self._spent = 0  # on small reads, in bytes that would have come in their time

    def _pread(self, size: int, offset: int) -> bytes:
        content = self._content or self._fetched([(size, offset)])
        return self._inner.pread(size, offset) if content is None else content[offset : offset + size]

    def _pread_into(self, view: memoryview, offset: int) -> int:
        content = self._content or self._fetched([(len(view), offset)])
        if content is None:
            return self._inner.pread_into(view, offset)
        view[:] = memoryview(content)[offset : offset + len(view)]
        return len(view)

    def _pread_many(self, wanted: Sequence[ranges.Range]) -> list[bytes]:
        content = self._content or self._fetched(wanted)
        if content is None:
            return self._inner.pread_many(wanted)
        return [content[offset : offset + size] for size, offset in wanted]

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        content = self._content
        return self._inner._stream(start) if content is None else iter([memoryview(content)[start:]])

    def _close(self) -> None:
        _held.discard(self)
        self._content = None
        super()._close()

    def _fetched(self, wanted: Sequence[ranges.Range]) -> bytes | None:
        """Return the content if it is time to fetch it, before `wanted` is."""
        requests = ranges.plan(wanted, self.max_gap_bytes, self.size).requests
        self._spent += (ROUND_TRIP if len(requests) == 1 else REQUEST) * sum(size <= SMALL for size, _ in requests)
        if self._spent < max(self.size, FIRST):
            return None
        with self._lock:
            if self._content is None and _has_room(self.size):
                self._content = self._inner.read_all()
                _held.add(self)
        return self._content

    def __reduce__(self) -> tuple[object, ...]:
        return SmallArchive, (self._origin, self._key, self._inner)


_held: weakref.WeakSet[SmallArchive] = weakref.WeakSet()


def _has_room(size: int) -> bool:
    return sum(archive.size for archive in list(_held)) + size <= MAX_TOTAL
