"""A small archive of a store: read from the store until the requests have cost as much as a fetch of the whole archive,
and from memory after that.

A shuffled epoch of 3,000 files in a zip of 13 MB is 3,000 requests, and all of its bytes are one. How much of an
archive will be read is not known when it is opened: in requests, this rule costs about twice what the best decision
would have cost, at most. A few members are fetched alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

from ..core import process, ranges
from ..core.blobs import Blob, BlobLayer, BlobSlice, Origin

MAX_BYTES = 32 * 1024 * 1024
"""The size in bytes of the largest archive that is kept in memory: the limit of one batch of members."""
MAX_TOTAL = 64 * 1024 * 1024
"""The limit in bytes for all archives of a process. An archive is kept until it is closed: with eviction, a data set of
many archives would be fetched again and again."""
SMALL = 32 * 1024
"""The size in bytes up to which a read costs its request, and not its transfer."""
ROUND_TRIP = 256 * 1024
"""The cost of a request that is sent alone: the bytes that are transferred in the same time."""
REQUEST = 96 * 1024
"""The cost of one of several requests in flight, in bytes."""
FIRST = 3
"""The number of requests that are sent to the store in any case: a request finds out that the archive was replaced, and
a read from memory does not."""


def in_memory_if_small(origin: Origin, key: str, blob: Blob) -> Blob:
    """Return `blob`, an archive's bytes, or a `SmallArchive` around it if it is small and an object of a store."""
    if blob.max_gap_bytes and 0 < blob.size <= MAX_BYTES:
        return SmallArchive(origin, key, blob)
    return blob


class SmallArchive(BlobLayer):
    """The archive in `inner`, of a store whose requests take a round trip. A pickle leaves the content out."""

    __slots__ = ("_content", "_cost", "_lock", "_requests")

    def __init__(self, origin: Origin, key: str, inner: Blob) -> None:
        super().__init__(origin, key, inner, inner.size, inner.version)
        self._lock = process.Lock()
        self._content: bytes | None = None
        self._requests = 0
        self._cost = 0  # of small reads, in bytes

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
        _in_memory.pop(id(self), None)
        self._content = None
        super()._close()

    def _fetched(self, wanted: Sequence[ranges.Range]) -> bytes | None:
        """Return the content, fetched before `wanted` is read; None if that is not worthwhile, or there is no room."""
        if _is_held(self._inner):
            return None
        requests = ranges.plan(wanted, self.max_gap_bytes, self.size).requests
        self._requests += len(requests)
        self._cost += (ROUND_TRIP if len(requests) == 1 else REQUEST) * sum(size <= SMALL for size, _ in requests)
        if self._cost < self.size or self._requests <= FIRST:
            return None
        with self._lock:
            if self._content is None and self._has_room():
                try:
                    self._content = self._inner.read_all()
                except BaseException:
                    _in_memory.pop(id(self), None)
                    raise
        return self._content

    def _has_room(self) -> bool:
        """Reserve memory for the content; return whether there is enough."""
        _in_memory[id(self)] = self
        archives = [reference() for reference in _in_memory.valuerefs()]
        if sum(archive.size for archive in archives if archive is not None) <= MAX_TOTAL:
            return True
        _in_memory.pop(id(self), None)
        return False

    def __reduce__(self) -> tuple[object, ...]:
        return SmallArchive, (self._origin, self._key, self._inner)


def _is_held(blob: Blob) -> bool:
    """Return whether the bytes of `blob` are in memory, with those of the archive that it lies in."""
    archive = blob._inner if isinstance(blob, BlobSlice) else blob
    return isinstance(archive, SmallArchive) and archive._content is not None


_in_memory: weakref.WeakValueDictionary[int, SmallArchive] = weakref.WeakValueDictionary()
