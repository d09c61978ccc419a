"""The index of a tar: found in the cache directory, or made by a pass over the archive and kept there.

A kept index is one buffer, which every process maps. Its parts, little-endian where nothing else is said:

    head     the number of members, and the sizes of names and rest (`_HEAD`)
    hashes   CRC-32 of a member's name in the upper half, its row in the lower (8), in order; the machine's byte order
    rows     of each member, in the order of the names: offset, size, time, mode, end of its name (`_ROW`)
    names    one behind the other
    rest     JSON: links, sparse files, names that are refused, problems, and how a compressed archive is decoded

A name is found by its hash: a binary search of numbers takes no Python code for its steps.
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

from ...core.blobs import Blob
from ...core.fs import FS
from ...core.identity import Identity
from ...core.limits import Limits, parse_json
from ...disk import indexes
from ..base import Problem
from ..decoding import MAGIC_SIZE, SPACING, Cursor, DecodedBlob, SeekPoint, SeekPoints
from ..tree import NameTree
from . import compression, headers
from .compression import TarCodec
from .headers import BLOCK
from .index import HeaderScanner, Member, PlainSource, StreamSource, TarIndex, trailing_data

KIND = "tar-3"
"""Of the cached index; another number is another layout."""
_HEAD = struct.Struct("<QQQ")
_ROW = struct.Struct("<QQdQI")
_HASH_SIZE = 8
_ROW_BITS = 32


class Decoding(NamedTuple):
    """The decoding of a compressed archive."""

    codec: TarCodec
    size: int
    """Decoded bytes."""
    points: SeekPoints


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
        "decoding": decoding and [decoding.codec.name, decoding.size, decoding.points.spacing, _rows(decoding.points)],
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
        if rest["decoding"] is None:
            return index, None
        name, size, spacing, rows = rest["decoding"]
        points = [SeekPoint(out, src, bytes.fromhex(how)) for out, src, how in rows]
        return index, Decoding(compression.codec_of_name(name), size, SeekPoints(points, spacing))
    except (struct.error, KeyError, TypeError, IndexError) as exc:
        raise ValueError(f"no index of a tar: {exc}") from exc


def _rows(points: SeekPoints) -> list[tuple[int, int, str]]:
    return [(point.out, point.src, point.how.hex()) for point in points.lasting()]


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


# ---- the index of an archive, from the cache directory or by a pass

_WORTH_KEEPING = 32  # members: the pass over fewer costs next to nothing

_Scanned = tuple[TarIndex, Decoding | None]


def load(parent: FS, key: str, blob: Blob, limits: Limits) -> tuple[TarIndex, DecodedBlob | None]:
    """Return the index of an archive, and its decoded content if it is compressed; kept for the next who asks."""
    identity = blob.settled_identity  # asked before anything is read
    found = _cached(blob.identity)
    index, decoding = found or _scan(blob, limits)
    if found is None and identity is not None and _worth_keeping(index, decoding):
        indexes.save(KIND, identity, pack(index, decoding))
        if (cached := _cached(identity)) is not None:
            index = cached[0]  # mapped: one copy for all processes
    if decoding is None:
        return index, None
    codec, size, points = decoding
    return index, codec.blob(parent, key, blob, codec.codec, size, blob.version, points)


def _cached(identity: Identity | None) -> _Scanned | None:
    """Return what an earlier pass over this version of the archive found."""
    if identity is None or (view := indexes.load(KIND, identity)) is None:
        return None
    try:
        return unpack(view)
    except ValueError:  # damaged: as good as none
        return None


def _worth_keeping(index: TarIndex, decoding: Decoding | None) -> bool:
    """Return whether reading the index from the cache would cost less than another pass over the archive."""
    return len(index.tree) >= _WORTH_KEEPING or (decoding is not None and decoding.size > SPACING)


def _scan(blob: Blob, limits: Limits) -> _Scanned:
    """Pass over an archive; return its index, and if it is compressed, how it is decoded."""
    start = blob.pread(BLOCK, 0)
    codec = None if headers.is_header(start) else compression.codec_of_content(start[:MAGIC_SIZE])
    if codec is None:
        return HeaderScanner(PlainSource(blob), blob.url, limits).run(), None
    points = SeekPoints()
    source = StreamSource(Cursor(blob, codec.codec, points), blob, limits)
    index = HeaderScanner(source, blob.url, limits).run()
    if source.drain() and trailing_data(index.end) not in index.problems:
        index = index._replace(problems=(*index.problems, trailing_data(index.end)))
    compression.add_blocks(points, codec, blob, source.end)
    return index, Decoding(codec, source.end, points)
