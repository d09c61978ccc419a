"""The members of an archive as blobs: slices of the archive's bytes where they are stored, else decompressed.

A member's local header is read together with its first bytes, once: the index doesn't know how long it is. A CRC-32 is
checked whenever all of a member's bytes have passed from first to last. A large compressed member is decompressed as
it is read, in bounded memory; a read that goes backwards starts again, for deflate from one of up to 64 checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from typing import NamedTuple

from ...core import hooks, process
from ...core.blobs import Blob, BlobSlice, Origin
from ...core.limits import Limits
from . import decoders, entries, records
from .contents import content, damaged, find, header_size, is_fine, refuse, request, wrong_crc
from .decoders import DamagedError, MemberDecoder, crc32
from .entries import SLACK, ZipEntry
from .sources import CompressedSource

EAGER = 1024 * 1024
"""What is read in one go with the local header; for more than that a request of its own is nothing."""
NEAR = 16 * 1024
"""How far into a member a first read may start that fetches what is before it, too."""
BLOCK = 1024 * 1024
"""What a large member is decompressed by."""
LEAST_SPACING = 4 * 1024 * 1024
MOST_CHECKPOINTS = 64
"""Checkpoints take about 50 KB each, and stand at least that many bytes of content apart."""


def open_member(origin: Origin, key: str, entry: ZipEntry, archive: Blob, limits: Limits) -> Blob:
    """The member's blob; what is wrong with its header or its bytes is raised by the first read."""
    if not is_fine(entry):
        refuse(entry, origin, key, limits)
    blob: Stored | Inflated
    if entry.method == records.STORED:
        blob = Stored(origin, key, entry, archive)
    elif is_small(entry):
        blob = Inflated(origin, key, entry, archive)
    else:
        return Streamed(origin, key, entry, archive)
    if not entry.size:  # no read would look at it
        blob.read_all()
    return blob


def is_small(entry: ZipEntry) -> bool:
    """Return whether the member is read whole rather than streamed."""
    if entry.method == records.STORED:
        return entry.size <= EAGER
    return entry.size <= entries.SMALL and entry.compressed <= 2 * entries.SMALL


# ---- from an entry to its bytes in the archive


# ---- the blobs


class _Member(Blob):
    """The base of members' blobs: an entry, and the archive that its offset is of."""

    __slots__ = ("_archive", "_entry")

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry.size, entry.version(archive.version))
        self._entry = entry
        self._archive = archive

    @property
    def archive(self) -> Blob:
        """The archive's blob."""
        return self._archive

    def _find(self) -> int:
        return find(self._entry, self._archive, self._origin, self._key)


class Stored(_Member):
    """A stored member: a slice of the archive. One in an archive that is stored in another is a slice of that."""

    __slots__ = ("_seen", "_slice")

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._slice: BlobSlice | None = None
        self._seen = (0, 0)  # so many bytes from the start have passed, and their CRC-32

    @property
    def smallest_window(self) -> int:  # type: ignore[override]
        """As of the archive."""
        return self._archive.smallest_window

    @property
    def largest_window(self) -> int:  # type: ignore[override]
        """As of the archive."""
        return self._archive.largest_window

    @property
    def streams(self) -> bool:  # type: ignore[override]
        """As of the archive."""
        return self._archive.streams

    def whole(self) -> BlobSlice:
        """The slice; found by reading the local header, if that was not read yet."""
        return self._slice or self._set_start(self._find())

    def bottom(self) -> tuple[Blob, int]:
        """The undermost blob that the member is a slice of, and the offset of its first byte there."""
        found = self.whole()
        return found._inner, found.start

    def _set_start(self, start: int) -> BlobSlice:
        base = self._archive.whole() if isinstance(self._archive, Stored) else self._archive
        self._slice = found = BlobSlice(self._origin, self._key, base, start, self.size)
        return found

    def _pread(self, size: int, offset: int) -> bytes:
        if self._slice is None and offset <= NEAR and size <= EAGER:
            data = self._first(size, offset)
        else:
            data = self.whole()._pread(size, offset)
        self._pass(data, offset)
        return data

    def _pread_into(self, view: memoryview, offset: int) -> int:
        if self._slice is None and offset <= NEAR and len(view) <= EAGER:
            return super()._pread_into(view, offset)  # by `_first`
        size = self.whole()._pread_into(view, offset)
        self._pass(view, offset)
        return size

    def _first(self, size: int, offset: int) -> bytes:
        """Header and data in one read."""
        entry = self._entry
        answer = self._archive.pread(entry.header + SLACK + offset + size, entry.offset)
        start = header_size(answer, entry, self._origin, self._key)
        found = self._set_start(entry.offset + start)
        data = answer[start + offset : start + offset + size]
        return data if len(data) == size else data + found._pread(size - len(data), offset + len(data))

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        found = self.whole()._pread_many(ranges)
        for data, (_, offset) in zip(found, ranges, strict=True):
            self._pass(data, offset)
        return found

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        pieces = self.whole()._stream(start)
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
            self.whole()  # the local header is looked at
            self._pass(b"", 0)
        return super().read_all()

    def _pass(self, data: bytes | memoryview, offset: int) -> None:
        """Check the CRC-32 of what has been read from the start to the end, in one read or in several."""
        seen, crc = self._seen if offset else (0, 0)
        if offset == seen:
            seen, crc = seen + len(data), crc32(data, crc)
            if seen == self.size and crc != self._entry.crc:
                raise wrong_crc(self._entry, self.url, crc)
            self._seen = (seen, crc)


class Inflated(_Member):
    """A small compressed member, decompressed at its first read and kept while the blob is open."""

    __slots__ = ("_content",)

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._content: bytes | None = None

    def _pread(self, size: int, offset: int) -> bytes:
        found = self._content
        if found is None:
            answer = self._archive.pread(*request(self._entry))
            self._content = found = content(answer, self._entry, self._archive, self._origin, self._key)
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
    decoder: MemberDecoder | None


class _Pass:
    """The state of a process's pass over a stream: a decoder, and the block that it returned last."""

    __slots__ = ("block", "crc", "decoder", "position")

    def __init__(self) -> None:
        self.decoder: MemberDecoder | None = None
        self.position = 0  # behind the block
        self.crc = 0
        self.block = b""

    def close(self) -> None:
        """End what is under way of reading."""
        if self.decoder is not None:
            self.decoder.close()
            self.decoder = None


class Streamed(_Member):
    """A large compressed member, decompressed as it is read.

    Memory: a decoder, one block, the checkpoints, and what is asked for. Each process has a pass of its own; threads
    take turns.
    """

    __slots__ = ("_checkpoints", "_lock", "_pass", "_spacing", "_start")

    def __init__(self, origin: Origin, key: str, entry: ZipEntry, archive: Blob) -> None:
        super().__init__(origin, key, entry, archive)
        self._start: int | None = None
        self._lock = process.Lock()
        self._pass = process.PerProcess(_Pass, _Pass.close)
        self._spacing = max(LEAST_SPACING, self.size // MOST_CHECKPOINTS)
        self._checkpoints: tuple[_Checkpoint, ...] = (_Checkpoint(0, 0, None),)

    def _pread(self, size: int, offset: int) -> bytes:
        with self._lock:
            now = self._pass.get()
            try:
                return self._read(now, size, offset)
            except BaseException as exc:
                now.close()
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
            now.close()
            now.decoder = best.decoder.copy() if best.decoder is not None else self._decoder()
            now.position, now.crc, now.block = best.position, best.crc, b""

    def _decoder(self) -> MemberDecoder:
        if self._start is None:
            self._start = self._find()
        source = CompressedSource(self._archive, self._start, self._start + self._entry.compressed)
        return decoders.decoder(self._entry.method, self._entry.flags, self.size, source)

    def _advance(self, now: _Pass) -> None:
        """Decompress the next block; at the end check the stream's end and the CRC-32."""
        assert now.decoder is not None
        begin = time.monotonic_ns() if hooks.active is not None else 0
        block = now.decoder.read(min(BLOCK, self.size - now.position))
        if (instrument := hooks.active) is not None:
            instrument.record_span("decompress", decoders.NAMES[self._entry.method], begin, len(block), self.url)
        if not block:
            raise DamagedError(f"it holds {now.position} bytes where {self.size} were expected")
        position, crc = now.position + len(block), crc32(block, now.crc)
        if position == self.size:
            now.decoder.finish()
            if crc != self._entry.crc:
                raise wrong_crc(self._entry, self.url, crc)
        now.position, now.crc, now.block = position, crc, block
        if position - self._checkpoints[-1].position >= self._spacing:
            decoder = now.decoder.copy()
            if decoder is not None:
                self._checkpoints = (*self._checkpoints, _Checkpoint(position, crc, decoder))
