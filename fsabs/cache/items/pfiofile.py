"""Files that PFIO's item caches have preserved, as PFIO 2 writes them: a table, and behind it the items' bytes.

An entry of the table is two numbers of 8 bytes in the machine's byte order: the item's offset in the file, and its
size, -1 for an item that is not there. Nothing in the file says what it is, and nothing checks an item.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from ...disk.descriptors import open_ours

_ENTRY = struct.Struct("=Qq")


def entries(path: str, length: int) -> list[tuple[int, int]] | None:
    """Return offsets and sizes of `length` items; None if the file can't be a cache of PFIO's of that length."""
    start = length * _ENTRY.size
    with open(open_ours(path, os.O_RDONLY), "rb") as file:
        size, table = os.fstat(file.fileno()).st_size, file.read(start)
    if len(table) != start:
        return None
    found = list(_ENTRY.iter_unpack(table))
    ends = start
    for offset, count in sorted(one for one in found if one[1] > 0):
        if offset < ends:
            return None
        ends = offset + count
    sane = all(count == -1 or (count >= 0 and start <= offset <= size) for offset, count in found)
    return found if sane and ends == size else None


def items(path: str, table: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each item that is there."""
    with open(open_ours(path, os.O_RDONLY), "rb") as file:
        for number, (offset, size) in enumerate(table):
            if size >= 0:
                yield number, os.pread(file.fileno(), size, offset)
