"""A store that notes what is requested of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fsabs import FS
from fsabs.core.blobs import Blob, BlobLayer
from fsabs.core.layers import LayerFS
from fsabs.core.ranges import plan

GAP = 16 * 1024


class Counting(LayerFS):
    """A store whose blobs read over small gaps, as those of S3 do, with the size and offset of each request."""

    default_concurrency = 8

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.requests: list[tuple[int, int]] = []

    def _open_blob(self, key: str, *how: Any) -> Blob:
        inner = self.inner._open_blob(key, *how)
        return _CountingBlob(self, key, inner, inner.size, inner.version)

    @property
    def fetched(self) -> int:
        return sum(size for size, _ in self.requests)


class _CountingBlob(BlobLayer):
    _origin: Counting

    @property
    def max_gap_bytes(self) -> int:
        return GAP

    def _pread(self, size: int, offset: int) -> bytes:
        self._origin.requests.append((size, offset))
        return self._inner.pread(size, offset)

    def _pread_into(self, view: memoryview, offset: int) -> int:
        self._origin.requests.append((len(view), offset))
        return self._inner.pread_into(view, offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        wanted = plan(ranges, GAP, 8 << 20)
        return wanted.assemble([self._pread(*request) for request in wanted.requests])
