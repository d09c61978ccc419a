"""The members of an archive: from an entry to its content, checked, and to a blob of it.

What may be wrong with an entry is checked before anything is read (`refuse`), its local header with the first bytes:
the index doesn't know how long that is. A stored member is a slice of the archive; a small compressed one is read and
decompressed whole, a large one as it is read, in bounded memory (`DecodedBlob`). A CRC-32 is checked whenever all of a
member's bytes have passed from first to last.
"""

from __future__ import annotations

import functools
import lzma
import struct
import time
import zlib
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from ...core import errors, hooks
from ...core.blobs import Blob, BlobSlice, BytesBlob, Origin, forwarded
from ...core.limits import UNSUSPICIOUS_BYTES, Limits
from .. import decoding
from ..decoding import Codec, Cursor, Declared, DecodedBlob, DecodeError, Decoder, Inflate, SeekPoints, crc32
from . import records
from .records import ENCRYPTION, SLACK, UNREADABLE, SmallRead, ZipEntry

EAGER = 1024 * 1024
"""What is read in one go with the local header; for more than that a request of its own is nothing."""
NEAR = 16 * 1024
"""How far into a member a first read may start that fetches what is before it, too."""


def open_member(origin: Origin, key: str, entry: ZipEntry, archive: Blob, limits: Limits) -> Blob:
    """The member's blob; what is wrong with its header or its bytes is raised by the first read."""
    if not is_fine(entry):
        refuse(entry, origin, key, limits)
    blob: Stored | Inflated | Streamed
    if entry.method == records.STORED:
        blob = Stored(origin, key, entry, archive)
    elif is_small(entry):
        blob = Inflated(origin, key, entry, archive)
    else:
        blob = Streamed(origin, key, entry, archive, limits)
    if not entry.size:  # no read would look at it
        blob.read_all()
    return blob


def is_small(entry: ZipEntry) -> bool:
    """Return whether the member is read whole rather than streamed."""
    if entry.method == records.STORED:
        return entry.size <= EAGER
    return entry.size <= records.SMALL and entry.compressed <= 2 * records.SMALL


# ---- entries


def is_fine(entry: ZipEntry) -> bool:
    """Return whether a quick check finds nothing wrong with a member; `refuse` does the full one."""
    compressed, size = entry.compressed, entry.size
    return (
        not entry.flags & UNREADABLE
        and entry.method in records.READABLE
        and entry.offset + 30 + compressed <= entry.limit
        and (compressed == size if entry.method == records.STORED else size <= UNSUSPICIOUS_BYTES)
    )


def refuse(entry: ZipEntry, origin: Origin, key: str, limits: Limits) -> None:
    """Raise what is wrong with a member, before anything of it is read, if anything is: `is_fine` doesn't know all."""
    url = origin._url(key)
    if entry.flags & ENCRYPTION:
        raise errors.unsupported("open", url, "the member is encrypted, and fsabs reads no encrypted members")
    if entry.flags & records.FLAG_PATCH:
        raise errors.unsupported(
            "open", url, "the member is a patch of another file (PKWARE's compressed patched data)"
        )
    if entry.method not in records.READABLE:
        name = records.UNREADABLE_METHODS.get(entry.method, "unknown")
        reason = f"the member's compression method is {entry.method} ({name}), which fsabs doesn't read"
        raise errors.unsupported("open", url, reason)
    _check_room(entry, origin, key, records.LOCAL.size)
    if entry.method == records.STORED and entry.compressed != entry.size:
        reason = f"a stored member of {entry.size} bytes that takes {entry.compressed} bytes"
        raise errors.corrupt(url, reason, "open")
    if limits.declares_too_much(entry.size, entry.compressed):
        what = f"a decompression bomb, as it seems: {entry.compressed} bytes that say they are {entry.size}"
        raise limits.error("max_ratio", what, "open", url)


def _check_room(entry: ZipEntry, origin: Origin, key: str, header: int) -> None:
    stop = entry.offset + header + entry.compressed
    if stop > entry.limit:
        limit = f"what follows starts at {entry.limit}" if entry.limit else "another entry starts there, too"
        reason = f"overlapping entries: the member takes the bytes from {entry.offset} to {stop}, and {limit}"
        raise errors.corrupt(origin._url(key), reason, "open")


# ---- local headers


def header_size(raw: bytes, entry: ZipEntry, origin: Origin, key: str) -> int:
    """The size of the local header that `raw` starts with, which must be this entry's."""
    name = entry.name
    # In the common case both headers tell the same; a member that was written as a stream has its sizes elsewhere.
    if raw[4:28] != entry.fields or raw[30 : 30 + len(name)] != name or raw[:4] != records.LOCAL_SIGNATURE:
        _check_header(raw, entry, origin, key)
    size = 30 + raw[26] + (raw[27] << 8) + raw[28] + (raw[29] << 8)
    if entry.offset + size + entry.compressed > entry.limit:
        _check_room(entry, origin, key, size)
    return size


def _check_header(raw: bytes, entry: ZipEntry, origin: Origin, key: str) -> None:
    """Raise what is wrong with a local header that is other than was expected, if it is.

    The two names may be in two encodings: a program that adds to an archive writes the directory anew, in UTF-8.
    """
    if len(raw) < records.LOCAL.size or raw[:4] != records.LOCAL_SIGNATURE:
        found = f"{raw[:4]!r} where PK\\3\\4 was expected"
        raise errors.corrupt(origin._url(key), f"no local header at offset {entry.offset} of the archive: {found}")
    _, _, flags, method, _, _, _, _, length, _ = records.LOCAL.unpack_from(raw)
    if method != entry.method or (flags ^ entry.flags) & records.FLAG_ENCRYPTED:
        fields = f"method {method}, flags {flags:#x} where {entry.method}, {entry.flags:#x} was expected"
        reason = f"the local header at offset {entry.offset} is not the directory's: {fields}"
        raise errors.corrupt(origin._url(key), reason)
    name = raw[records.LOCAL.size : records.LOCAL.size + length]
    if name != entry.name and _text(name, flags) != _text(entry.name, entry.flags):
        reason = f"is of {name[:100]!r}, which is not the name in the directory"
        raise errors.corrupt(origin._url(key), f"the local header at offset {entry.offset} {reason}")


def _text(name: bytes, flags: int) -> str:
    return name.decode("utf-8" if flags & records.FLAG_UTF8 else "cp437", "surrogateescape")


def find(entry: ZipEntry, archive: Blob, origin: Origin, key: str) -> int:
    """Return the offset of a member's data in the archive, from the local header alone."""
    raw = archive.pread(entry.header + SLACK, entry.offset)
    return entry.offset + header_size(raw, entry, origin, key)


# ---- contents of small members


def request(entry: ZipEntry) -> tuple[int, int]:
    """The `(size, offset)` in the archive that holds the local header and all of the data, if the guess is right."""
    return entry.header + SLACK + entry.compressed, entry.offset


def checked(raw: bytes, read: SmallRead, origin: Origin, key: str) -> bytes | None:
    """The content of a small member, from what `read` has read; None if anything is other than expected.

    What that is, `content` tells: most reads are done without the time that it takes.
    """
    _, _, lead, name, most, compressed, size, crc, method, flags = read
    stop = 30 + len(name)
    if not raw.startswith(lead) or raw[30:stop] != name:
        return None
    start = stop + raw[28] + (raw[29] << 8)
    if start > most:
        return None
    data = raw[start : start + compressed]
    if method:
        content = _decoded(data, method, flags, size, origin, key)
        if content is None:
            return None
        data = content
    return data if crc32(data) == crc else None


def content(raw: bytes, entry: ZipEntry, archive: Blob, origin: Origin, key: str) -> bytes:
    """The content of a member, checked, from what `request` gave; reads the rest if that was too little."""
    start = header_size(raw, entry, origin, key)
    data = raw[start : start + entry.compressed]
    if len(data) < entry.compressed:
        data += archive.pread(entry.compressed - len(data), entry.offset + start + len(data))
    if entry.method == records.STORED:
        if (crc := crc32(data)) != entry.crc:
            raise _declared(entry).wrong_crc(origin._url(key), crc)
        return data
    found = _decoded(data, entry.method, entry.flags, entry.size, origin, key)
    if found is not None and crc32(found) == entry.crc:
        return found
    codec = _codec(entry.method, entry.flags, entry.size)
    return Cursor(BytesBlob(origin, key, data), codec, SeekPoints(), declared=_declared(entry)).read_all(entry.size)


def _decoded(data: bytes, method: int, flags: int, size: int, origin: Origin, key: str) -> bytes | None:
    """Compressed data, decoded at once to exactly `size` bytes; None where that can't be done, or anything is wrong."""
    begin = time.monotonic_ns() if hooks.active is not None else 0
    codec = _codec(method, flags, size)
    try:
        if method == records.DEFLATED:
            engine = _zlib.decompressobj(-zlib.MAX_WBITS)
            found: bytes = engine.decompress(data, size + 1)
            ended = engine.eof
        else:
            decoder = codec.decoder()
            found = decoder.decode(data, size + 1)
            ended = decoder.eof and not decoder.unused
    except (_zlib.error, DecodeError):
        return None
    if (instrument := hooks.active) is not None:
        instrument.record_span("decompress", codec.span, begin, len(found), origin._url(key))
    return found if ended and len(found) == size else None


_zlib = decoding.fastest_zlib()


def _declared(entry: ZipEntry) -> Declared:
    return Declared(f"the member at offset {entry.offset} of the archive", entry.size, entry.crc)


# ---- compressed data

_CODECS = {
    records.DEFLATED: Codec("deflate", "zip.inflate", functools.partial(Inflate, -zlib.MAX_WBITS)),
    records.BZIP2: Codec("bzip2", "zip.bunzip2", decoding.bzip2_decoder, decoding.starts_bzip2),
    records.ZSTANDARD: Codec("zstd", "zip.unzstd", decoding.zstd_decoder, decoding.starts_zstd, has_window=True),
}
_LZMA_HEADER = struct.Struct("<HHBL")  # the SDK's version, size of the rest (5), lc and lp and pb, dictionary's size
_LEAST_DICTIONARY = 4096


def _codec(method: int, flags: int, size: int) -> Codec:
    if method == records.LZMA:
        decoder = functools.partial(_LzmaDecoder, size)
        return Codec("LZMA", "zip.unlzma", decoder, marks_end=bool(flags & records.FLAG_LZMA_END_MARK))
    return _CODECS[method]


class _LzmaDecoder(Decoder):
    """LZMA with the header that zip files put before it; the end mark is optional (APPNOTE 5.8)."""

    def __init__(self, size: int) -> None:
        super().__init__(None, lzma.LZMAError)
        self._size = size  # of the content
        self._header = b""

    @property
    def eof(self) -> bool:
        return self._state is not None and super().eof

    @property
    def needs_input(self) -> bool:
        return self._state is None or super().needs_input

    def decode(self, data: bytes, limit: int) -> bytes:
        if self._state is None:
            self._header += data
            if len(self._header) < _LZMA_HEADER.size:
                return b""
            self._state, data = self._started(), self._header[_LZMA_HEADER.size :]
        return super().decode(data, limit)

    def _started(self) -> lzma.LZMADecompressor:
        _, rest, packed, wanted = _LZMA_HEADER.unpack_from(self._header)
        left, lc = divmod(packed, 9)
        pb, lp = divmod(left, 5)
        # No more than the content's size is ever used, and a damaged header could claim 4 GiB of memory.
        dictionary = max(_LEAST_DICTIONARY, min(wanted, self._size))
        properties = {"id": lzma.FILTER_LZMA1, "lc": lc, "lp": lp, "pb": pb, "dict_size": dictionary}
        try:
            if rest == 5:
                return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[properties])
        except (lzma.LZMAError, ValueError):
            pass
        raise DecodeError(f"no valid LZMA properties at its start: {self._header[: _LZMA_HEADER.size]!r}")


# ---- the blobs


class MemberData(Blob):
    """A member's bytes as they stand in the archive: a slice of that, whose start is found when it is read first.

    In an archive that is stored in another, it is a slice of that other.
    """

    __slots__ = ("_archive", "_entry", "_slice")

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry.compressed, entry.version(archive.version))
        self._entry = entry
        self._archive = archive
        self._slice: BlobSlice | None = None

    @property
    def archive(self) -> Blob:
        """The archive's blob."""
        return self._archive

    if not TYPE_CHECKING:  # which knows them from `Blob`
        smallest_window = forwarded("_archive.smallest_window")
        largest_window = forwarded("_archive.largest_window")
        streams = forwarded("_archive.streams")

    def located(self) -> BlobSlice:
        """The slice; found by reading the local header, if that was not read yet."""
        return self._slice or self._set_start(find(self._entry, self._archive, self._origin, self._key))

    def bottom(self) -> tuple[Blob, int]:
        """The undermost blob that the member is a slice of, and the offset of its first byte there."""
        found = self.located()
        return found._inner, found.start

    def _set_start(self, start: int) -> BlobSlice:
        base = self._archive.located() if isinstance(self._archive, Stored) else self._archive
        self._slice = found = BlobSlice(self._origin, self._key, base, start, self.size)
        return found

    def _pread(self, size: int, offset: int) -> bytes:
        if self._slice is not None or offset > NEAR or size > EAGER:
            return self.located()._pread(size, offset)
        entry = self._entry  # header and data in one read
        raw = self._archive.pread(entry.header + SLACK + offset + size, entry.offset)
        start = header_size(raw, entry, self._origin, self._key)
        found = self._set_start(entry.offset + start)
        data = raw[start + offset : start + offset + size]
        return data if len(data) == size else data + found._pread(size - len(data), offset + len(data))

    def _pread_into(self, view: memoryview, offset: int) -> int:
        if self._slice is None and offset <= NEAR and len(view) <= EAGER:
            return super()._pread_into(view, offset)
        return self.located()._pread_into(view, offset)

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self.located()._pread_many(ranges)

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return self.located()._stream(start)


class Stored(MemberData):
    """A stored member: its bytes in the archive, and the CRC-32 of those."""

    __slots__ = ("_seen",)

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._seen = (0, 0)  # so many bytes from the start have passed, and their CRC-32

    def _pread(self, size: int, offset: int) -> bytes:
        data = super()._pread(size, offset)
        self._pass(data, offset)
        return data

    def _pread_into(self, view: memoryview, offset: int) -> int:
        size = super()._pread_into(view, offset)
        self._pass(view, offset)
        return size

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found = super()._pread_many(ranges)
        for data, (_, offset) in zip(found, ranges, strict=True):
            self._pass(data, offset)
        return found

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        pieces = super()._stream(start)
        return None if pieces is None else self._passed(start, pieces)

    def _passed(self, start: int, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        """The pieces, their CRC-32 checked as they pass."""
        try:
            for piece in pieces:
                self._pass(piece, start)
                start += len(piece)
                yield piece
        finally:
            if isinstance(pieces, Generator):
                pieces.close()

    def read_all(self) -> bytes:
        """The whole content, its CRC-32 checked."""
        if not self.size:
            self.located()  # the local header is looked at
            self._pass(b"", 0)
        return super().read_all()

    def _pass(self, data: bytes | memoryview, offset: int) -> None:
        """Check the CRC-32 of what has been read from the start to the end, in one read or in several."""
        seen, crc = self._seen if offset else (0, 0)
        if offset == seen:
            seen, crc = seen + len(data), crc32(data, crc)
            if seen == self.size and crc != self._entry.crc:
                raise _declared(self._entry).wrong_crc(self.url, crc)
            self._seen = (seen, crc)


class Inflated(Blob):
    """A small compressed member, decompressed at its first read and kept while the blob is open."""

    __slots__ = ("_archive", "_content", "_entry")

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry.size, entry.version(archive.version))
        self._entry = entry
        self._archive = archive
        self._content: bytes | None = None

    def _pread(self, size: int, offset: int) -> bytes:
        found = self._content
        if found is None:
            raw = self._archive.pread(*request(self._entry))
            self._content = found = content(raw, self._entry, self._archive, self._origin, self._key)
        return found if size == len(found) else found[offset : offset + size]

    def read_all(self) -> bytes:
        """The whole content."""
        self._clip(0, 0)
        return self._pread(self.size, 0)

    def _close(self) -> None:
        self._content = None


class Streamed(DecodedBlob):
    """A large compressed member, decompressed as it is read."""

    __slots__ = ()

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob, limits: Limits) -> None:
        source = MemberData(origin, key, entry, archive)
        codec = _codec(entry.method, entry.flags, entry.size).within(limits)
        super().__init__(origin, key, source, codec, entry.size, source.version, declared=_declared(entry))

    __reduce__ = Blob.__reduce__
