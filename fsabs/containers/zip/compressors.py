"""Compressors of zip members: stored, deflated, bzip2 and lzma."""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from typing import Any, Protocol

from . import records

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
            return zlib.compressobj(-1 if self._level is None else self._level, zlib.DEFLATED, -zlib.MAX_WBITS)
        if self.method == records.BZIP2:
            return bz2.BZ2Compressor(9 if self._level is None else self._level)
        if self.method == records.LZMA:
            return _Lzma(6 if self._level is None else self._level)
        return _Copy()
