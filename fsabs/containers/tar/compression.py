"""The compressions of a tar: gz, bz2, xz and zst, recognised by their magic, decoded and encoded in bounded pieces.

Sources: RFC 1952 (gzip), the bzip2 file format, the .xz file format 1.2, RFC 8878 (Zstandard). Each is a sequence of
frames one behind the other, which carry their own checksums. Inside of a long frame decoding can start at the blocks of
an xz stream (`xz -T` writes many, the standard library one), and in a gzip member where `indexed_gzip` has found that
it can.
"""

from __future__ import annotations

import functools
import importlib
import io
import lzma
import struct
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, cast

from ...core import errors, process
from ...core.blobs import Blob, BlobSlice
from ...core.buffers import BytesBuffer
from ...core.files import BlobFile
from ...core.limits import DEFAULT, Limits
from ...core.registry import COMPRESSIONS
from ...disk import indexes
from .. import decoding
from ..decoding import Codec, DecodedBlob, Decoder, Inflate, Reader, SeekPoint, SeekPoints, WindowTooLarge

# ---- gzip: seek points inside of a member


class GzipBlob(DecodedBlob):
    """The content of a gzip file.

    Where `indexed_gzip` is installed (`fsabs[gz]`), the first jump over much that has no seek point makes that library
    look for seek points in all of the file; they are kept in the cache directory for all processes.
    """

    __slots__ = ("_index",)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._index = process.PerProcess(functools.partial(GzipIndex.find, self._source, self.size))

    def _index_for(self, offset: int, distance: int) -> Reader | None:
        index = self._index.get() if distance > 4 * _spacing(self.size) else None
        return None if index is None else _IndexReader(index, offset)

    def _close(self) -> None:
        super()._close()
        self._index.close()


def _spacing(size: int) -> int:
    """Return the distance of two seek points of a gzip file in decoded bytes; each takes 32 KiB of memory."""
    return max(decoding.SPACING, size // decoding.MAX_POINTS)


GZIP_INDEX = "gzip-1"
"""The kind of the cached index: what `indexed_gzip` exports, deflated, for most of it is content."""
GZIP_UNIT = 16 * 1024 * 1024
"""Bytes between two seek points of a gzip stream that are decoded at once, at most."""
_GZIP_UNITS = 2  # that are kept
_GZIP_STEP = 32 * 1024 * 1024  # of a search for seek points: an interrupt waits for one


class _IndexReader(NamedTuple):
    """The content of a gzip file from `offset` on."""

    content: GzipIndex
    offset: int

    def read(self, size: int) -> bytes:
        buffer = BytesBuffer(size)
        with buffer.view as view:
            self.content.read_into(view, self.offset)
        return buffer.release()

    def read_into(self, view: memoryview) -> int:
        return self.content.read_into(view, self.offset)


class GzipIndex:
    """The content of a gzip file by `indexed_gzip`; good in threads.

    That library decodes from a seek point on in each call. So what lies between two, a unit, is decoded at once when it
    is read from again, and the last few units are kept.
    """

    def __init__(self, source: Blob, size: int, library: Any) -> None:
        self._url = source.url
        self._size = size
        self._failures = (library.ZranError, library.CrcError)
        file = BlobFile(BlobSlice(source._origin, source._key, source, 0, source.size))  # which has no descriptor
        options = {"spacing": _spacing(size), "readbuf_size": decoding.SPACING // 2, "buffer_size": 1}
        self._raw = library.IndexedGzipFile(fileobj=file, **options).detach()
        self._starts: list[int] = []
        self._units: dict[int, memoryview] = {}  # by their starts, the least recently used first
        self._touched = -1  # the start of the unit that was read from last, and was not decoded whole
        self._lock = process.Lock()

    @classmethod
    def find(cls, source: Blob, size: int) -> GzipIndex | None:
        """Return the index of the file `source`, whose content has `size` bytes; None if there can't be one."""
        try:
            library = importlib.import_module("indexed_gzip.indexed_gzip")  # which has all of its errors
        except ImportError:
            return None
        index, identity = cls(source, size, library), source.strong_identity
        kept = indexes.load(GZIP_INDEX, source.identity)
        try:
            if kept is not None:
                index._raw.import_index(fileobj=io.BytesIO(zlib.decompress(kept)))
            else:
                indexes.save(GZIP_INDEX, identity, [index._build()])
        except (*index._failures, zlib.error) as exc:
            if exc.__cause__ is not None:  # the store's error, or a signal handler's
                raise exc.__cause__ from None
            return None  # it is decoded without, and what is wrong is found
        index._starts += [out for out, _ in index._raw.seek_points()]
        return index

    def _build(self) -> bytes:
        for offset in [*range(_GZIP_STEP, self._size, _GZIP_STEP), self._size]:
            self._raw.seek(offset)
        exported = io.BytesIO()
        self._raw.export_index(fileobj=exported)
        return zlib.compress(exported.getbuffer(), 1)

    def read_into(self, view: memoryview, offset: int) -> int:
        """As `Blob.pread_into`."""
        done = 0
        with self._lock:
            while done < len(view):
                done += self._read_some(view[done:], offset + done)
        return done

    def _read_some(self, view: memoryview, offset: int) -> int:
        """Read from one unit: by itself at the first time, so that a jump decodes little; then all of the unit."""
        at = bisect_right(self._starts, offset) - 1
        start = self._starts[at] + (offset - self._starts[at]) // GZIP_UNIT * GZIP_UNIT
        stop = min(start + GZIP_UNIT, self._size, *self._starts[at + 1 : at + 2])
        view = view[: stop - offset]
        unit = self._units.pop(start, None)
        if unit is None and start != self._touched:
            self._touched = start
            self._decode(view, offset)
            return len(view)
        if unit is None:
            self._decode(unit := memoryview(bytearray(stop - start)), start)
        self._units[start] = unit
        while len(self._units) > _GZIP_UNITS:
            del self._units[next(iter(self._units))]
        view[:] = unit[offset - start :][: len(view)]
        return len(view)

    def _decode(self, view: memoryview, offset: int) -> None:
        try:
            self._raw.seek(offset)
            if self._raw.readinto(view) == len(view):
                return
        except self._failures as exc:
            if exc.__cause__ is not None:
                raise exc.__cause__ from None
            raise errors.corrupt(self._url, f"bad gz data at offset {offset} of the content: {exc}") from exc
        raise errors.corrupt(self._url, f"the gz data ends before offset {offset + len(view)} of the content")


# ---- xz: the blocks of a stream

_XZ_HEADER = 12  # bytes of a stream's header, and of its footer
_XZ_MAX_INDEX = 4 * 1024 * 1024  # bytes; a block takes 4 to 10
_XZ_STATE = struct.Struct(f"<QQ{_XZ_HEADER}s")
"""Of a seek point: the bytes to the stream's index, and from there to the stream's end; the stream's header."""


def xz_blocks(blob: Blob) -> Iterator[SeekPoint]:
    """Yield the blocks of a file of one stream, except the first, as its index tells them; none if they are unknown."""
    if blob.size < 2 * _XZ_HEADER:
        return
    footer, header = blob.pread(_XZ_HEADER, blob.size - _XZ_HEADER), blob.pread(_XZ_HEADER, 0)
    behind = 4 * (struct.unpack_from("<I", footer, 4)[0] + 1) + _XZ_HEADER
    index = blob.size - behind
    if footer[8:] != header[6:8] + b"YZ" or behind > _XZ_MAX_INDEX or index < _XZ_HEADER:
        return
    records = _xz_numbers(blob.pread(behind - _XZ_HEADER, index)[1:-4])
    out, src, found = 0, _XZ_HEADER, []
    for stored, size in list(pairwise(records[1:]))[::2][: records[0] if records else 0]:
        found.append(SeekPoint(out, src, _XZ_STATE.pack(index - src, behind, header)))
        out, src = out + size, src + stored + -stored % 4
    if src == index:  # or it is the index of the last of several streams
        yield from found[1:]


def add_blocks(points: SeekPoints, compression: TarCodec, blob: Blob, size: int) -> None:
    """Add the seek points inside of frames that a compressed file of `size` decoded bytes tells: the blocks of xz."""
    if compression.name == "xz" and size > decoding.SPACING:
        for block in xz_blocks(blob):
            points.add(block)


def _xz_numbers(data: bytes) -> list[int]:
    """The variable-length integers, 7 bits in a byte, the lowest first; the padding makes zeros of its own."""
    found, value, shift = [], 0, 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            found.append(value)
            value = shift = 0
    return found


class _Xz(Decoder):
    """An xz stream."""

    def __init__(self, limits: Limits = DEFAULT) -> None:
        state = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=limits.max_window_bytes)
        super().__init__(state, lzma.LZMAError, limits=limits)

    def _decode(self, data: bytes, limit: int) -> bytes:
        try:
            return super()._decode(data, limit)
        except lzma.LZMAError as exc:
            if "limit" not in str(exc):
                raise
            raise WindowTooLarge(self._limits.reason("max_window_bytes", "the dictionary of an xz stream")) from exc


class _XzBlocks(_Xz):
    """The rest of an xz stream, from a block on; each block's checksum is checked. The index is passed over."""

    def __init__(self, state: bytes, limits: Limits = DEFAULT) -> None:
        self._left, self._behind, header = _XZ_STATE.unpack(state)
        super().__init__(limits)
        self._state.decompress(header)
        self._rest = b""  # what was fed behind the blocks

    @property
    def eof(self) -> bool:
        return len(self._rest) >= self._behind and self.needs_input

    @property
    def unused(self) -> bytes:
        return self._rest[self._behind :]

    def decode(self, data: bytes, limit: int) -> bytes:
        blocks = data[: self._left]
        self._left -= len(blocks)
        self._rest += data[len(blocks) :]
        return super().decode(blocks, limit)


# ---- encoders


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


def _bz2_encoder(level: int, _: float) -> Encoder:
    import bz2

    return bz2.BZ2Compressor(level)


def _xz_encoder(level: int, _: float) -> Encoder:
    return lzma.LZMACompressor(preset=level)


def _zst_encoder(level: int, _: float) -> Encoder:
    if decoding.STANDARD_ZSTD:
        zstd = importlib.import_module("compression.zstd")
        parameters = zstd.CompressionParameter
        options = {parameters.compression_level: level, parameters.checksum_flag: 1}
        return cast(Encoder, zstd.ZstdCompressor(options=options))
    try:
        import zstandard
    except ImportError as exc:
        raise errors.missing("zstandard", "zstd", "to write a tar.zst") from exc
    return cast(Encoder, zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj())


# ---- the compressions


class TarCodec(NamedTuple):
    """One compression."""

    codec: Codec
    levels: range
    default_level: int
    encoder: Callable[[int, float], Encoder]
    """From a level and, where the format has a place for it, a time in seconds since 1970."""
    blob: type[DecodedBlob] = DecodedBlob
    """The class of an archive's content."""

    @property
    def name(self) -> str:
        """The name."""
        return self.codec.name


def codec_of_name(name: str) -> TarCodec:
    """The compression of that name; `ValueError` for an unknown one."""
    if name not in _CODECS:
        raise ValueError(f"unknown compression {name!r}; known: none, {', '.join(_CODECS)}")
    return _CODECS[name]


def codec_of_content(data: bytes, url: str) -> TarCodec | None:
    """The compression that the first `MAGIC_SIZE` bytes of the file at `url` tell, or None.

    `UnsupportedOperation` for one that can't be read.
    """
    for magic, name in _UNREADABLE.items():
        if data.startswith(magic):
            reason = f"the file is compressed by {name}; {', '.join(_CODECS)} can be read"
            raise errors.unsupported("open", url, reason)
    return next((found for found in _CODECS.values() if found.codec.starts(data)), None)


def codec_of_filename(filename: str) -> TarCodec | None:
    """The compression that a file's suffix names, or None."""
    lower = filename.lower()
    return next((_CODECS[name] for name, suffixes in COMPRESSIONS.items() if lower.endswith(suffixes)), None)


def _starts_gzip(data: bytes) -> bool:
    return data.startswith(b"\x1f\x8b")


def _starts_xz(data: bytes) -> bool:
    return data.startswith(b"\xfd7zXZ\0")


_gz_decoder = functools.partial(Inflate, 31)  # 31: with gzip's header and trailer
_GZ = Codec("gz", "tar.gunzip", _gz_decoder, _starts_gzip, padded=True)
_BZ2 = Codec("bz2", "tar.bunzip2", decoding.bzip2_decoder, decoding.starts_bzip2, padded=True)
_XZ = Codec("xz", "tar.unxz", _Xz, _starts_xz, _XzBlocks, padded=True, has_window=True)
_ZST = Codec("zst", "tar.unzstd", decoding.zstd_decoder, decoding.starts_zstd, padded=True, has_window=True)
_CODECS = {
    "gz": TarCodec(_GZ, range(10), 6, _GzEncoder, GzipBlob),
    "bz2": TarCodec(_BZ2, range(1, 10), 9, _bz2_encoder),
    "xz": TarCodec(_XZ, range(10), 6, _xz_encoder),
    "zst": TarCodec(_ZST, range(-7, 23), 3, _zst_encoder),
}
"""A compression has a row here, and the ends of its files' names in `COMPRESSIONS`."""
_UNREADABLE = {
    b"\x5d\0\0": "lzma (.lzma)",  # the usual properties, and a dictionary of whole 64 KiB
    b"\x04\x22\x4d\x18": "lz4",
    b"\x02\x21\x4c\x18": "lz4 (of its old format)",
    b"\x1f\x9d": "compress (.Z)",
    b"LZIP": "lzip (.lz)",
    b"\x89LZO\0": "lzop (.lzo)",
    b"\xff\x06\0\0sN": "snappy",
}
