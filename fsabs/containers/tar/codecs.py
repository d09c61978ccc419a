"""The compressions of a tar: gz, bz2, xz and zst, recognised by their magic, decoded and encoded in bounded pieces.

Sources: RFC 1952 (gzip), the bzip2 and xz file formats, RFC 8878 (Zstandard). Each is a sequence of independent frames
(gzip calls them members, xz and bzip2 streams) one behind the other; a frame carries its own checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, cast

from ...core import errors
from .decoders import DecodeError, FrameDecoder
from .gz import GzDecoder, ResumedGz

MAGIC_SIZE = 6
"""Bytes that are enough to tell any compression."""

_ZSTD_STEP = 4096  # compressed bytes fed at once: a block of 4 bytes may stand for 128 KiB, and there is no other limit


class _Native(FrameDecoder):
    """A bzip2 or xz stream, by the standard library's decompressors."""

    def __init__(self, state: Any, failures: tuple[type[Exception], ...]) -> None:
        self._state = state
        self._failures = failures

    @property
    def eof(self) -> bool:
        """See `FrameDecoder`."""
        return cast(bool, self._state.eof)

    @property
    def unused(self) -> bytes:
        """See `FrameDecoder`."""
        return cast(bytes, self._state.unused_data)

    @property
    def needs_input(self) -> bool:
        """See `FrameDecoder`."""
        return cast(bool, self._state.needs_input)

    def decode(self, data: bytes, limit: int) -> bytes:
        """See `FrameDecoder`."""
        try:
            return cast(bytes, self._state.decompress(data, limit))
        except self._failures as exc:
            raise DecodeError(str(exc)) from exc


class _ZstdDecoder(FrameDecoder):
    """A Zstandard frame; a skippable one holds nothing."""

    def __init__(self) -> None:
        zstandard = _zstandard("read")
        self._state = zstandard.ZstdDecompressor().decompressobj()
        self._failure: type[Exception] = zstandard.ZstdError
        self._tail = b""
        self._at = 0

    @property
    def eof(self) -> bool:
        """See `FrameDecoder`."""
        return cast(bool, self._state.eof)

    @property
    def unused(self) -> bytes:
        """See `FrameDecoder`."""
        return cast(bytes, self._state.unused_data) + self._tail[self._at :]

    @property
    def needs_input(self) -> bool:
        """See `FrameDecoder`."""
        return self._at >= len(self._tail)

    def decode(self, data: bytes, limit: int) -> bytes:
        """See `FrameDecoder`; gives more than `limit` by at most what 4 KiB of input stand for."""
        if data:
            self._tail, self._at = self._tail[self._at :] + data, 0
        found: list[bytes] = []
        try:
            while limit > 0 and not self.eof and not self.needs_input:
                found.append(self._state.decompress(self._tail[self._at : self._at + _ZSTD_STEP]))
                self._at += _ZSTD_STEP
                limit -= len(found[-1])
        except self._failure as exc:
            raise DecodeError(str(exc)) from exc
        return b"".join(found)


class Encoder(Protocol):
    """A compressor of one frame."""

    def compress(self, data: bytes, /) -> bytes:
        """Take `data`; returns what has come out so far."""

    def flush(self) -> bytes:
        """The rest, and the end of the frame."""


class _GzEncoder:
    """A gzip member whose header is the same everywhere: no name, the system "unknown", the time that is given."""

    def __init__(self, level: int, timestamp: float) -> None:
        self._deflate = zlib.compressobj(level, wbits=-15)
        speed = {9: 2, 1: 4}.get(level, 0)  # RFC 1952's XFL
        self._header = struct.pack("<4sIBB", b"\x1f\x8b\x08\0", int(timestamp) & 0xFFFFFFFF, speed, 255)
        self._crc = 0
        self._size = 0

    def compress(self, data: bytes, /) -> bytes:
        """Take `data`; returns what has come out so far."""
        header, self._header = self._header, b""
        self._crc = zlib.crc32(data, self._crc)
        self._size += len(data)
        return header + self._deflate.compress(data)

    def flush(self) -> bytes:
        """The rest, and the end of the member."""
        return self._header + self._deflate.flush() + struct.pack("<II", self._crc, self._size & 0xFFFFFFFF)


class TarCodec(NamedTuple):
    """One compression."""

    name: str
    suffixes: tuple[str, ...]
    levels: range
    default_level: int
    decoder: Callable[[], FrameDecoder]
    encoder: Callable[[int, float], Encoder]
    """From a level and, where the format has a place for it, a time in seconds since 1970."""
    resume: Callable[[bytes], FrameDecoder] | None = None
    """The decoder that starts at a `Place`, from its `how`."""

    def starts(self, data: bytes) -> bool:
        """Return whether `data` (of `MAGIC_SIZE` bytes, or all there is) is the start of a frame."""
        return _codec_name(data) == self.name


def codec(name: str) -> TarCodec:
    """The compression of that name; `ValueError` for an unknown one."""
    if name not in _CODECS:
        raise ValueError(f"unknown compression {name!r}; known: none, {', '.join(_CODECS)}")
    return _CODECS[name]


def codec_of_content(data: bytes) -> TarCodec | None:
    """The compression that the first `MAGIC_SIZE` bytes of a file tell, or None."""
    name = _codec_name(data)
    return None if name is None else _CODECS[name]


def codec_of_filename(filename: str) -> TarCodec | None:
    """The compression that a file's suffix tells, or None."""
    lower = filename.lower()
    return next((found for found in _CODECS.values() if lower.endswith(found.suffixes)), None)


def _codec_name(data: bytes) -> str | None:
    if data.startswith(b"\x1f\x8b"):
        return "gz"
    if data.startswith(b"BZh") and data[3:4] in tuple(b"%d" % digit for digit in range(1, 10)):
        return "bz2"
    if data.startswith(b"\xfd7zXZ\0"):
        return "xz"
    if data.startswith(b"\x28\xb5\x2f\xfd") or (data[1:4] == b"\x2a\x4d\x18" and 0x50 <= data[0] <= 0x5F):
        return "zst"
    return None


def _zstandard(purpose: str) -> Any:
    try:
        import zstandard
    except ImportError as exc:
        raise errors.missing("zstandard", "zstd", f"to {purpose} a tar.zst") from exc
    return zstandard


def _bz2_decoder() -> FrameDecoder:
    import bz2

    return _Native(bz2.BZ2Decompressor(), (OSError, ValueError))


def _xz_decoder() -> FrameDecoder:
    import lzma

    return _Native(lzma.LZMADecompressor(lzma.FORMAT_XZ), (lzma.LZMAError,))


def _xz_resume(how: bytes) -> FrameDecoder:
    from .xz import ResumedXz

    return ResumedXz.at(how)


def _bz2_encoder(level: int, _: float) -> Encoder:
    import bz2

    return bz2.BZ2Compressor(level)


def _xz_encoder(level: int, _: float) -> Encoder:
    import lzma

    return lzma.LZMACompressor(preset=level)


def _zst_encoder(level: int, _: float) -> Encoder:
    return cast(Encoder, _zstandard("write").ZstdCompressor(level=level, write_checksum=True).compressobj())


_CODECS = {
    "gz": TarCodec("gz", (".gz", ".tgz"), range(10), 6, GzDecoder, _GzEncoder, ResumedGz.at),
    "bz2": TarCodec("bz2", (".bz2", ".tbz2", ".tbz", ".tb2"), range(1, 10), 9, _bz2_decoder, _bz2_encoder),
    "xz": TarCodec("xz", (".xz", ".txz"), range(10), 6, _xz_decoder, _xz_encoder, _xz_resume),
    "zst": TarCodec("zst", (".zst", ".tzst"), range(-7, 23), 3, _ZstdDecoder, _zst_encoder),
}
