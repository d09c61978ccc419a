"""RangeFile: a blob as a Python file for pyarrow, of which some ranges may have been fetched together."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ...core import errors
from ...core.blobs import Blob


class RangeFile(io.RawIOBase):
    """Reads what is asked for: from the fetched ranges, or from the blob. Closing it leaves the blob open."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._starts: list[int] = []
        self._contents: list[memoryview] = []
        self._position = 0

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges (start, end), ascending, in place of those before, and read from them."""
        self._starts = [start for start, _ in ranges]
        if self._blob.max_gap_bytes:  # requests to a store are under way together
            self._contents = [memoryview(one) for one in self._blob.pread_many([(end - at, at) for at, end in ranges])]
        else:
            self._contents = [self._filled(start, end) for start, end in ranges]

    def _filled(self, start: int, end: int) -> memoryview:
        """Return a range, in memory of Arrow's, which is used again and again."""
        import pyarrow as pa

        view = memoryview(pa.allocate_buffer(end - start)).cast("B")
        if (size := self._blob.pread_into(view, start)) != end - start:
            raise errors.corrupt(self._blob.url, f"{size} bytes at offset {start} where {end - start} were expected")
        return view.toreadonly()

    def read(self, size: int = -1, /) -> Any:
        """Return a buffer of up to `size` bytes from the position; of all that is left if it is negative."""
        left = max(0, self._blob.size - self._position)
        size = left if size is None or size < 0 else min(size, left)
        data = self._fetched(size)
        found = data if data is not None else self._filled(self._position, self._position + size)
        self._position += len(found)
        return found

    def _fetched(self, size: int) -> memoryview | None:
        number = bisect_right(self._starts, self._position) - 1
        if number < 0:
            return None
        content, at = self._contents[number], self._position - self._starts[number]
        return None if at + size > len(content) else content[at : at + size]

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer` as far as the file goes; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position."""
        self._position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._blob.size}[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def size(self) -> int:
        """Return the size of the file."""
        return self._blob.size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True
