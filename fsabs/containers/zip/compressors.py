"""Compressors of zip members: stored, deflated, bzip2 and lzma; many members at once in threads."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, cast

from ...core.threads import in_threads
from ..decoding import crc32, fastest_zlib
from . import records

_ISAL_LEVEL = 2  # the highest, 3, takes twice the time for 1 to 4 % fewer bytes
_GROUP_FILES = 64
_GROUP_BYTES = 512 * 1024
_STORED_BYTES = 1024 * 1024
"""As many as a written file collects: a group of them is passed on without a copy."""

_LZMA_PROPERTIES = {"lc": 3, "lp": 0, "pb": 2, "dict_size": 1 << 23}


_LZMA_HEADER = struct.pack("<BBHBL", 9, 4, 5, 0x5D, 1 << 23)  # the same, as zip files have it


class Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class _Copy:
    """A compressor that stores its input as it is."""

    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


class _Lzma:
    """LZMA with a zip file's header before it."""

    def __init__(self, level: int) -> None:
        how: dict[str, Any] = {"id": lzma.FILTER_LZMA1, "preset": level, **_LZMA_PROPERTIES}
        self._inner = lzma.LZMACompressor(lzma.FORMAT_RAW, filters=[how])
        self._start = _LZMA_HEADER

    def compress(self, data: bytes, /) -> bytes:
        start, self._start = self._start, b""
        return start + self._inner.compress(data)

    def flush(self) -> bytes:
        return self._start + self._inner.flush()


_METHODS = {"stored": records.STORED, "deflated": records.DEFLATED, "bzip2": records.BZIP2, "lzma": records.LZMA}


def _deflater(level: int | None) -> tuple[Any, int]:
    """The library that deflates at `level`, and its own level: for None isal's second highest, or zlib's usual one."""
    if level is not None:
        return zlib, level
    library = fastest_zlib()
    return library, zlib.Z_DEFAULT_COMPRESSION if library is zlib else _ISAL_LEVEL


class CompressedMember(NamedTuple):
    """A member that is ready to be written; a directory's content is None."""

    path: str
    content: bytes | None
    crc: int
    size: int


class Compression:
    """A method by name, and its level: `stored`, `deflated` (0 to 9), `bzip2` (1 to 9), `lzma` (0 to 9)."""

    def __init__(self, name: str, level: int | None) -> None:
        if name not in _METHODS:
            raise ValueError(f"unknown compression {name!r}; known: {', '.join(_METHODS)}")
        least = 1 if name == "bzip2" else 0
        if level is not None and (name == "stored" or not least <= level <= 9):
            has = "has no level" if name == "stored" else f"has the levels {least} to 9"
            raise ValueError(f"compresslevel={level}: compression {name!r} {has}")
        self.method = _METHODS[name]
        self._level = level

    def start(self) -> Compressor:
        """A compressor of one member."""
        if self.method == records.DEFLATED:
            library, level = _deflater(self._level)
            return cast(Compressor, library.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS))
        if self.method == records.BZIP2:
            return bz2.BZ2Compressor(9 if self._level is None else self._level)
        if self.method == records.LZMA:
            return _Lzma(6 if self._level is None else self._level)
        return _Copy()

    def compressed(self, path: str, data: bytes) -> CompressedMember:
        """Compress the whole content of a member."""
        crc = crc32(data)
        if self.method == records.STORED:
            return CompressedMember(path, data, crc, len(data))
        if self.method == records.DEFLATED:
            library, level = _deflater(self._level)
            return CompressedMember(path, library.compress(data, level, -zlib.MAX_WBITS), crc, len(data))
        compressor = self.start()
        return CompressedMember(path, compressor.compress(data) + compressor.flush(), crc, len(data))

    def compressed_many(
        self, members: Iterable[tuple[str, bytes | None]], size: int
    ) -> Iterator[list[CompressedMember]]:
        """Compress members in up to `size` threads, in order; at most two groups for each of them wait."""
        if self.method == records.STORED or size < 2:
            return map(self._group_compressed, _groups(members, _STORED_BYTES))
        return in_threads(self._group_compressed, _groups(members, _GROUP_BYTES), size)

    def _group_compressed(self, group: list[tuple[str, bytes | None]]) -> list[CompressedMember]:
        return [self._one_compressed(member) for member in group]

    def _one_compressed(self, member: tuple[str, bytes | None]) -> CompressedMember:
        path, data = member
        return CompressedMember(path, None, 0, 0) if data is None else self.compressed(path, data)


def _groups(members: Iterable[tuple[str, bytes | None]], most_bytes: int) -> Iterator[list[tuple[str, bytes | None]]]:
    """Yield the members in groups: handing a task over to a thread costs time, and so does a write."""
    group: list[tuple[str, bytes | None]] = []
    size = 0
    for member in members:
        group.append(member)
        size += len(member[1] or b"")
        if len(group) >= _GROUP_FILES or size >= most_bytes:
            yield group
            group, size = [], 0
    if group:
        yield group
