"""The index of a tar as flat buffers: what is kept in the cache directory, and mapped by every process.

Little-endian: a head of `_HEAD` (the number of members, and the sizes of the parts), the rows (`_ROW`: offset, size,
time, mode, and where the name ends), the names one behind the other, and the rest as JSON: links, sparse files, names
that are refused, problems, and for a compressed archive how it is decoded. Members are in the order of their names.
Behind the head, in the byte order of the machine and in order, are the hashes that names are found by: CRC-32 of the
name in the upper half, its row in the lower (8 bytes). A binary search of numbers takes no Python code for its steps.
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload
from zlib import crc32

from ...core.limits import parse_json
from ..problems import Problem
from ..tree import NameTree
from .index import Member, TarIndex

KIND = "tar-2"
"""Of the cached index; another number is another layout."""
_HEAD = struct.Struct("<QQQ")
_ROW = struct.Struct("<QQdQI")
_HASH_SIZE = 8
_ROW_BITS = 32


class Decoding(NamedTuple):
    """The decoding of a compressed archive."""

    codec: str
    size: int
    """Decoded bytes."""
    points: tuple[tuple[int, int], ...]
    """Starts of frames: offset in the decoded, offset in the compressed bytes."""


def pack(index: TarIndex, decoding: Decoding | None) -> list[bytes]:
    """The parts of an index, to be written one behind the other."""
    entries = index.tree.entries
    names, rows, hashes, extras, end = [], bytearray(), [], {}, 0
    for at, name in enumerate(sorted(entries)):
        member = entries[name]
        names.append(_encoded(name))
        hashes.append(crc32(names[-1]) << _ROW_BITS | at)
        end += len(names[-1])
        time = math.nan if member.mtime is None else member.mtime
        rows += _ROW.pack(member.offset, member.size, time, end, member.mode)
        if member.extra is not None:
            extras[at] = member.extra
    rest = {
        "links": index.links,
        "refused": dict(index.refused),
        "problems": index.problems,
        "end": index.end,
        "extras": extras,
        "decoding": decoding,
    }
    text = json.dumps(rest).encode()
    hashes.sort()
    return [_HEAD.pack(len(names), end, len(text)), array("Q", hashes).tobytes(), bytes(rows), *names, text]


def unpack(view: memoryview) -> tuple[TarIndex, Decoding | None]:
    """The index in a buffer that `pack` filled; `ValueError` for any other."""
    try:
        count, name_size, rest_size = _HEAD.unpack_from(view)
        rows = _HEAD.size + count * _HASH_SIZE
        starts = rows + count * _ROW.size
        if len(view) != starts + name_size + rest_size:
            raise ValueError(f"an index of {len(view)} bytes for {count} members")
        rest = parse_json(bytes(view[starts + name_size :]))
        names = Names(view[rows:starts], view[starts : starts + name_size], count)
        extras = {
            int(at): extra if isinstance(extra, str) else _segments(extra) for at, extra in rest["extras"].items()
        }
        tree = NameTree(Members(view[_HEAD.size : rows].cast("Q"), names, extras), names)
        problems = tuple(Problem(*problem) for problem in rest["problems"])
        index = TarIndex(tree, rest["links"], rest["refused"], problems, rest["end"])
        decoding = rest["decoding"]
        return index, decoding and Decoding(decoding[0], decoding[1], _segments(decoding[2]))
    except (struct.error, KeyError, TypeError, IndexError) as exc:
        raise ValueError(f"no index of a tar: {exc}") from exc


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _segments(pairs: list[list[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in pairs)


class Names(Sequence[str]):
    """The names in order, decoded one by one when they are asked for."""

    def __init__(self, rows: memoryview, names: memoryview, count: int) -> None:
        self.rows = rows
        self._names = names
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[one] for one in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        start = self._end(at - 1) if at else 0
        return str(self._names[start : self._end(at)], "utf-8", "surrogatepass")

    def _end(self, at: int) -> int:
        end: int = _ROW.unpack_from(self.rows, at * _ROW.size)[3]
        return end


class Members(Mapping[str, Member]):
    """The members by name, found by their hashes."""

    def __init__(self, hashes: memoryview, names: Names, extras: Mapping[int, Any]) -> None:
        self._hashes = hashes
        self._names = names
        self._extras = extras

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> Member:
        hashes, least = self._hashes, crc32(_encoded(name)) << _ROW_BITS
        for at in range(bisect_left(hashes, least), len(hashes)):
            row = hashes[at] - least
            if row >> _ROW_BITS:  # of another hash
                break
            if self._names[row] == name:
                return self._member(row)
        raise KeyError(name)

    def _member(self, at: int) -> Member:
        offset, size, time, _, mode = _ROW.unpack_from(self._names.rows, at * _ROW.size)
        return Member(offset, size, None if math.isnan(time) else time, mode, self._extras.get(at))
