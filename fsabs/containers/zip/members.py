"""The members of an archive as blobs: slices of the archive's bytes where they are stored, else decompressed.

A member's local header is read together with its first bytes, once: the index doesn't know how long it is. A CRC-32 is
checked whenever all of a member's bytes have passed from first to last. A large compressed member is decompressed as
it is read, in bounded memory; a read that goes backwards starts again, for deflate from one of up to 64 checkpoints.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from ... import errors, process
from ...blobs import Blob, BlobSlice, Origin
from . import decoders, records
from .decoders import DamagedError, Decoder, Source
from .entries import Entry
from .names import hash_of

SMALL = 8 * 1024 * 1024
"""Compressed members up to this size are decompressed whole, at their first read."""
EAGER = 1024 * 1024
"""What is read in one go with the local header; for more than that a request of its own is nothing."""
NEAR = 16 * 1024
"""How far into a member a first read may start that fetches what is before it, too."""
SLACK = 64
"""Bytes that a local header may be longer than guessed (Info-ZIP's, say, has more timestamps than the central one)."""
BLOCK = 1024 * 1024
"""What a large member is decompressed by."""
LEAST_SPACING = 4 * 1024 * 1024
MOST_CHECKPOINTS = 64
"""Checkpoints take about 50 KB each, and stand at least that many bytes of content apart."""
UNSUSPICIOUS = SMALL
"""A member of up to this size is no bomb, whatever its ratio."""

_ENCRYPTION = records.FLAG_ENCRYPTED | records.FLAG_STRONG_ENCRYPTION | records.FLAG_MASKED


def check(entry: Entry, url: str, max_ratio: float | None) -> None:
    """Refuse a member that can't be read, or shouldn't be, before anything of it is read."""
    if entry.flags & _ENCRYPTION:
        raise errors.unsupported("open", url, "the member is encrypted, and fsabs reads no encrypted members")
    if entry.flags & records.FLAG_PATCH:
        raise errors.unsupported(
            "open", url, "the member is a patch of another file (PKWARE's compressed patched data)"
        )
    if entry.method not in decoders.READABLE:
        name = records.METHODS.get(entry.method, "unknown")
        reason = f"the member's compression method is {entry.method} ({name}), which fsabs doesn't read"
        raise errors.unsupported("open", url, reason)
    _check_room(entry, url, records.LOCAL.size)
    if entry.method == records.STORED and entry.compressed != entry.size:
        reason = f"a stored member of {entry.size} bytes that takes {entry.compressed} bytes"
        raise errors.corrupt(url, reason, "open")
    if max_ratio is not None and entry.size > max(UNSUSPICIOUS, max_ratio * entry.compressed):
        reason = (
            f"a decompression bomb, as it seems: {entry.compressed} bytes that say they are {entry.size}, over the "
            f"ratio of {max_ratio:g} that is let through (max_ratio=)"
        )
        raise errors.corrupt(url, reason, "open")


def open_member(origin: Origin, key: str, entry: Entry, archive: Blob, max_ratio: float | None) -> Blob:
    """The member's blob; what is wrong with its header or its bytes is raised by the first read."""
    check(entry, origin._url(key), max_ratio)
    if entry.method == records.STORED:
        return Stored(origin, key, entry, archive)
    if is_small(entry):
        blob = Inflated(origin, key, entry, archive)
        if not entry.size:  # no read would look at it
            blob.read_all()
        return blob
    return Streamed(origin, key, entry, archive)


def is_small(entry: Entry) -> bool:
    """Whether the member is read whole rather than streamed."""
    if entry.method == records.STORED:
        return entry.size <= EAGER
    return entry.size <= SMALL and entry.compressed <= 2 * SMALL


# ---- from an entry to its bytes in the archive


def request(entry: Entry) -> tuple[int, int]:
    """The `(size, offset)` in the archive that holds the local header and all of the data, if the guess is right."""
    return entry.header + SLACK + entry.compressed, entry.offset


def content(answer: bytes, entry: Entry, archive: Blob, url: str) -> bytes:
    """The content of a member, checked, from what `request` gave; reads the rest if that was too little."""
    return unpack(_data(answer, entry, archive, url, entry.compressed), entry, url)


def unpack(data: bytes, entry: Entry, url: str) -> bytes:
    """The content, checked, of a member whose bytes in the archive are `data`."""
    if entry.method != records.STORED:
        try:
            data = decoders.decode(data, entry.method, entry.flags, entry.size)
        except DamagedError as exc:
            raise damaged(entry, url, exc) from exc
    check_crc(entry, url, zlib.crc32(data))
    return data


def damaged(entry: Entry, url: str, exc: DamagedError) -> OSError:
    """The error for a compressed stream that isn't right."""
    return errors.corrupt(url, f"the member at offset {entry.offset} of the archive can't be decompressed: {exc}")


def check_crc(entry: Entry, url: str, found: int) -> None:
    """Compare a CRC-32 with the directory's."""
    if found != entry.crc:
        reason = f"CRC-32 {found:08x} of the member at offset {entry.offset} where {entry.crc:08x} was expected"
        raise errors.corrupt(url, reason)


def _data(answer: bytes, entry: Entry, archive: Blob, url: str, wanted: int) -> bytes:
    """`wanted` bytes of the member's data, from an answer that starts with the local header."""
    start = header_size(answer, entry, url)
    data = answer[start : start + wanted]
    if len(data) < wanted:
        data += archive.pread(wanted - len(data), entry.offset + start + len(data))
    return data


def header_size(answer: bytes, entry: Entry, url: str) -> int:
    """The size of the local header that `answer` starts with, which must be this entry's."""
    if len(answer) < records.LOCAL.size or answer[:4] != records.LOCAL_SIGNATURE:
        found = f"{answer[:4]!r} where PK\\3\\4 was expected"
        raise errors.corrupt(url, f"no local header at offset {entry.offset} of the archive: {found}")
    _, _, flags, method, _, _, _, _, name, extra = records.LOCAL.unpack_from(answer)
    if method != entry.method or (flags ^ entry.flags) & records.FLAG_ENCRYPTED:
        told = f"method {method}, flags {flags:#x} where {entry.method}, {entry.flags:#x} was expected"
        raise errors.corrupt(url, f"the local header at offset {entry.offset} is not the directory's: {told}")
    if hash_of(answer[records.LOCAL.size : records.LOCAL.size + name]) & records.MAX32 != entry.tag:
        other = answer[records.LOCAL.size : records.LOCAL.size + min(name, 100)]
        reason = f"the local header at offset {entry.offset} is of {other!r}, which is not the name in the directory"
        raise errors.corrupt(url, reason)
    size: int = records.LOCAL.size + name + extra
    _check_room(entry, url, size)
    return size


def find(entry: Entry, archive: Blob, url: str) -> int:
    """Where a member's data starts in the archive, from the local header alone."""
    answer = archive.pread(entry.header + SLACK, entry.offset)
    return entry.offset + header_size(answer, entry, url)


def _check_room(entry: Entry, url: str, header: int) -> None:
    stop = entry.offset + header + entry.compressed
    if stop > entry.limit:
        limit = f"what follows starts at {entry.limit}" if entry.limit else "another entry starts there, too"
        reason = f"overlapping entries: the member takes the bytes from {entry.offset} to {stop}, and {limit}"
        raise errors.corrupt(url, reason, "open")


# ---- the blobs


class _Member(Blob):
    """What the blobs of members share: an entry, and the archive that its offset is of."""

    __slots__ = ("_archive", "_entry")

    def __init__(self, origin: Origin, key: str, entry: Entry, archive: Blob) -> None:
        super().__init__(origin, key, entry.size, entry.version(archive.version))
        self._entry = entry
        self._archive = archive

    @property
    def archive(self) -> Blob:
        """The archive's blob."""
        return self._archive

    def _find(self) -> int:
        return find(self._entry, self._archive, self.url)


class Stored(_Member):
    """A stored member: a slice of the archive. One in an archive that is stored in another is a slice of that."""

    __slots__ = ("_seen", "_slice")

    def __init__(self, origin: Origin, key: str, entry: Entry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._slice: BlobSlice | None = None
        self._seen = (0, 0)  # so many bytes from the start have passed, and their CRC-32

    def _whole(self) -> BlobSlice:
        """The slice; found by reading the local header, if that was not read yet."""
        return self._slice or self._set_start(self._find())

    def _set_start(self, start: int) -> BlobSlice:
        base = self._archive._whole() if isinstance(self._archive, Stored) else self._archive
        self._slice = found = BlobSlice(self._origin, self._key, base, start, self.size)
        return found

    def _pread(self, size: int, offset: int) -> bytes:
        if self._slice is None and offset <= NEAR and size <= EAGER:
            data = self._first(size, offset)
        else:
            data = self._whole()._pread(size, offset)
        self._pass(data, offset)
        return data

    def _first(self, size: int, offset: int) -> bytes:
        """Header and data in one read."""
        entry = self._entry
        answer = self._archive.pread(entry.header + SLACK + offset + size, entry.offset)
        self._set_start(entry.offset + header_size(answer, entry, self.url))
        data = _data(answer, entry, self._archive, self.url, offset + size)
        return data[offset:] if offset else data

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found = self._whole()._pread_many(ranges)
        for data, (_, offset) in zip(found, ranges, strict=True):
            self._pass(data, offset)
        return found

    def read_all(self) -> bytes:
        """The whole content, its CRC-32 checked."""
        if not self.size:
            check_crc(self._entry, self.url, 0)
        return super().read_all()

    def _pass(self, data: bytes, offset: int) -> None:
        """Check the CRC-32 of what has been read from the start to the end, in one read or in several."""
        seen, crc = self._seen if offset else (0, 0)
        if offset == seen:
            seen, crc = seen + len(data), zlib.crc32(data, crc)
            if seen == self.size:
                check_crc(self._entry, self.url, crc)
            self._seen = (seen, crc)


class Inflated(_Member):
    """A small compressed member, decompressed at its first read and kept while the blob is open."""

    __slots__ = ("_content",)

    def __init__(self, origin: Origin, key: str, entry: Entry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._content: bytes | None = None

    def _pread(self, size: int, offset: int) -> bytes:
        found = self._content
        if found is None:
            answer = self._archive.pread(*request(self._entry))
            self._content = found = content(answer, self._entry, self._archive, self.url)
        return found if size == len(found) else found[offset : offset + size]

    def read_all(self) -> bytes:
        """The whole content."""
        self._clip(0, 0)
        return self._pread(self.size, 0)

    def _close(self) -> None:
        self._content = None


class _Checkpoint(NamedTuple):
    """A place in a stream that can be started from: bytes before it, their CRC-32, a decoder that is only copied."""

    position: int
    crc: int
    decoder: Decoder | None


class _Pass:
    """Where a process's pass over a stream is: a decoder, and the block that it gave last."""

    __slots__ = ("block", "crc", "decoder", "position")

    def __init__(self) -> None:
        self.decoder: Decoder | None = None
        self.position = 0  # behind the block
        self.crc = 0
        self.block = b""


class Streamed(_Member):
    """A large compressed member, decompressed as it is read.

    Memory: a decoder, one block, the checkpoints, and what is asked for. Each process has a pass of its own; threads
    take turns.
    """

    __slots__ = ("_checkpoints", "_lock", "_pass", "_spacing", "_start")

    def __init__(self, origin: Origin, key: str, entry: Entry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._start: int | None = None
        self._lock = process.Lock()
        self._pass = process.PerProcess(_Pass)
        self._spacing = max(LEAST_SPACING, self.size // MOST_CHECKPOINTS)
        self._checkpoints: tuple[_Checkpoint, ...] = (_Checkpoint(0, 0, None),)

    def _pread(self, size: int, offset: int) -> bytes:
        with self._lock:
            now = self._pass.get()
            try:
                return self._read(now, size, offset)
            except BaseException as exc:
                now.decoder = None
                if isinstance(exc, DamagedError):
                    raise damaged(self._entry, self.url, exc) from exc
                raise

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """In the order of the content, whatever the order of the ranges."""
        found = [b""] * len(ranges)
        for at in sorted(range(len(ranges)), key=lambda at: ranges[at][1]):
            if ranges[at][0]:
                found[at] = self._pread(*ranges[at])
        return found

    def _close(self) -> None:
        self._pass.close()
        self._checkpoints = self._checkpoints[:1]

    def _read(self, now: _Pass, size: int, offset: int) -> bytes:
        self._go(now, offset)
        found = []
        while size:
            start = offset - (now.position - len(now.block))
            if start >= len(now.block):
                self._advance(now)
                continue
            found.append(now.block[start : start + size])
            size -= len(found[-1])
            offset += len(found[-1])
        return found[0] if len(found) == 1 else b"".join(found)

    def _go(self, now: _Pass, offset: int) -> None:
        """Make the pass stand before `offset`, or with it in its block, the nearest way."""
        best = next(checkpoint for checkpoint in reversed(self._checkpoints) if checkpoint.position <= offset)
        behind = offset < now.position - len(now.block)
        if now.decoder is None or behind or best.position > now.position:
            now.decoder = best.decoder.copy() if best.decoder is not None else self._decoder()
            now.position, now.crc, now.block = best.position, best.crc, b""

    def _decoder(self) -> Decoder:
        if self._start is None:
            self._start = self._find()
        source = Source(self._archive, self._start, self._start + self._entry.compressed)
        return decoders.decoder(self._entry.method, self._entry.flags, self.size, source)

    def _advance(self, now: _Pass) -> None:
        """Decompress the next block; at the end check the stream's end and the CRC-32."""
        assert now.decoder is not None
        block = now.decoder.read(min(BLOCK, self.size - now.position))
        if not block:
            raise DamagedError(f"it holds {now.position} bytes where {self.size} were expected")
        position, crc = now.position + len(block), zlib.crc32(block, now.crc)
        if position == self.size:
            now.decoder.finish()
            check_crc(self._entry, self.url, crc)
        now.position, now.crc, now.block = position, crc, block
        if position - self._checkpoints[-1].position >= self._spacing:
            decoder = now.decoder.copy()
            if decoder is not None:
                self._checkpoints = (*self._checkpoints, _Checkpoint(position, crc, decoder))
