"""Ranges of a file as other libraries ask for them: with negative and missing bounds, all of a file's in one batch."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.fs import FS

Bounds = tuple[int | None, int | None]


def read_ranges(fs: FS, path: str, bounds: Sequence[Bounds]) -> list[bytes]:
    """Return the bytes of a file between each start and end; a negative bound counts from the file's end."""
    with fs.open_blob(path) as blob:
        ranges = [_range(start, end, blob.size) for start, end in bounds]
        if len(ranges) == 1:
            return [blob.pread(*ranges[0])]
        return blob.pread_many(ranges)


def _range(start: int | None, end: int | None, file_size: int) -> tuple[int, int]:
    """Return size and offset."""
    begin, stop, _ = slice(start, end).indices(file_size)
    return max(0, stop - begin), begin
