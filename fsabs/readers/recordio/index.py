"""The index of a file: where its chunks lie and which records they hold, from their headers alone.

`Index.load` seeks over the payloads, reading ahead as far as that pays; an index that took more than one read is
kept in the cache directory, by the file's version. Where the file may be damaged (`on_error="skip"`), the index
continues after the damage with the next chunk whose payload's CRC is right, and lists what it left out.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ...core import errors
from ...core.blobs import Blob
from ...disk import indexes
from ...urls import opening
from .format import (
    HEADER,
    LENGTH,
    MAGIC_BYTES,
    NONE,
    Chunk,
    Damage,
    Skipped,
    crc32,
    decompress,
    foreign,
    naming,
    parse,
    wrong_count,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...core.fs import FS, StrPath


OnError = Literal["raise", "skip"]


def check_on_error(on_error: str) -> None:
    """Raise `ValueError` for what is no `OnError`."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error is 'raise' or 'skip', not {on_error!r}")


_ROW = struct.Struct("<Q4I")
_VERIFIED = struct.Struct("<Q")
_KIND = "recordio-2"
_KEPT_FROM = 2  # reads that an index must have cost to be kept
_LEAST, _FIRST, _MOST = 4096, 65536, 4 << 20  # bytes that are read ahead
_WINDOW = 16 << 20  # bytes of neighbouring chunks that are read at once to be counted
WORTH_KEEPING = 0.02
"""Seconds that counting the records takes, from which on the result is kept on the disk."""
_PIECE = 8 << 20
_FIRST_SEARCHED, _MOST_SEARCHED = 4096, 1 << 20  # bytes that are searched at once: at first, and after doubling


class Index:
    """The chunks of one version of a file.

    `url`, `version` and `size` are the file's; `chunks` and `records` count; `damage` is what was skipped. No checksum
    covers a header: `verified` counts the leading chunks that are known to hold as many records as their headers say.
    It grows as the file is read (see `verify`); nothing else changes.
    """

    url: str
    version: str | None
    size: int
    chunks: int
    records: int
    damage: tuple[Skipped, ...]
    verified: int
    _body: bytes | memoryview
    _firsts: memoryview
    _rows: memoryview

    def __init__(self, path: str | os.PathLike[str], *, on_error: OnError = "raise") -> None:
        """Read the index of the file at a URL or path; `load` does so for a file of an FS, with the same errors."""
        with opening.open_url(path, "rb") as file:
            self.__setstate__(Index.of(file.raw.blob, on_error=on_error).__getstate__())

    @classmethod
    def _made(cls, blob: Blob, body: bytes | memoryview, damage: Sequence[Skipped] = (), verified: int = 0) -> Index:
        index = cls.__new__(cls)
        index.__setstate__((blob.url, blob.version, blob.size, body, tuple(damage), verified))
        return index

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.url, self.version, self.size, self._body, self.damage, self.verified = state
        view = memoryview(self._body)
        self.chunks = self._verified_from = len(view) // (_ROW.size + 8)
        self._rows = view[8 * (self.chunks + 1) :]
        self._firsts = view[: 8 * (self.chunks + 1)].cast("Q")
        self.records = self._firsts[self.chunks]

    def __getstate__(self) -> tuple[Any, ...]:
        return self.url, self.version, self.size, bytes(self._body), self.damage, self.verified

    @classmethod
    def load(cls, fs: FS, path: StrPath, *, on_error: OnError = "raise") -> Index:
        """The index of the file at `path`.

        Raises `CorruptFileError` for what is no chunk (padding, garbage, a cut), `io.UnsupportedOperation` for the
        layouts of Paddle's C++ and of pyrecordio, which have the same magic number, and what `FS.open` raises.
        """
        with fs.open(path, "rb") as file:
            return cls.of(file.raw.blob, on_error=on_error)

    @classmethod
    def of(cls, blob: Blob, *, on_error: OnError = "raise") -> Index:
        """Return the index of a file that is open."""
        check_on_error(on_error)
        identity = None if blob.url.startswith("memory:") else blob.identity
        kept = blob.has_strong_version  # asked before anything is read
        if (cached := indexes.load(_KIND, identity)) is not None:
            return cls._made(blob, cached[8:], verified=_VERIFIED.unpack_from(cached)[0])
        scan = _HeaderScan(blob, skip=on_error == "skip")
        scan.run()
        body = _packed(scan.chunks)
        if scan.ahead.reads >= _KEPT_FROM and not scan.damage and kept:
            indexes.save(_KIND, identity, [_VERIFIED.pack(0), body])
        return cls._made(blob, body, scan.damage)

    def fits(self, blob: Blob) -> bool:
        """Return whether this is the whole index of this version of the file; False if the store has no versions."""
        same = blob.version is not None and (self.url, self.version, self.size) == (blob.url, blob.version, blob.size)
        return same and not self.damage

    def digest(self) -> str:
        """Return a digest of all chunks: their places, checksums and numbers of records."""
        return hashlib.blake2b(self._body, digest_size=16).hexdigest()

    def verify(
        self, blob: Blob, number: int, counted: Callable[[Chunk, bytes], int], skip: bool
    ) -> tuple[Chunk, str] | None:
        """Prove the counts of all chunks before chunk `number`; return the first that is wrong, and what is wrong.

        No checksum covers a header, and a wrong count would give every later record another's number. So the chunks
        before one are counted before a record of it is read by its number, once for each version of a file. What is
        read in order is verified in passing.

        `counted(chunk, stored)` returns the number of records in a chunk, or raises `Damage`. With `skip`, the count of
        a chunk whose payload is damaged is taken as its header has it: nothing better is known.
        """
        began = time.monotonic()
        self._take_proof(blob)
        while self.verified < number:
            chunks = self._neighbours(self.verified, number)
            wrong = _first_wrong(blob, chunks, counted, skip)
            self.verified = max(self.verified, chunks[-1].number + 1 if wrong is None else wrong[0].number)
            if wrong is not None:
                return wrong
        if time.monotonic() - began > WORTH_KEEPING and not skip:
            self._keep_proof(blob)
        return None

    def verify_from_end(
        self, blob: Blob, number: int, counted: Callable[[Chunk, bytes], int], skip: bool
    ) -> tuple[Chunk, str] | None:
        """Prove the counts of the chunks after chunk `number`, as `verify` does of those before it.

        A record that is numbered from the end needs no others.
        """
        at = max(number + 1, self.verified)
        while at < self._verified_from:
            chunks = self._neighbours(at, self._verified_from)
            wrong = _first_wrong(blob, chunks, counted, skip)
            if wrong is not None:
                return wrong
            at = chunks[-1].number + 1
        self._verified_from = min(self._verified_from, number + 1)
        return None

    def _neighbours(self, first: int, end: int) -> list[Chunk]:
        """Return the chunks from number `first` on that are read at once."""
        chunks = [self.chunk(first)]
        for number in range(first + 1, end):
            chunk = self.chunk(number)
            if chunk.end - chunks[0].offset > _WINDOW:
                break
            chunks.append(chunk)
        return chunks

    def _keep_proof(self, blob: Blob) -> None:
        """Keep in the index cache how many chunks are verified."""
        if not self.damage and not self.url.startswith("memory:"):
            indexes.save(_KIND, blob.strong_identity, [_VERIFIED.pack(self.verified), self._body])

    def _take_proof(self, blob: Blob) -> None:
        """Take over what another process has verified since this index was made."""
        identity = None if self.url.startswith("memory:") else blob.identity
        if not self.damage and (cached := indexes.load(_KIND, identity)) is not None:
            self.verified = max(self.verified, _VERIFIED.unpack_from(cached)[0])

    def assume_counts(self) -> None:
        """Take the counts of all headers as they are, so that no chunk is read to verify that of another.

        For whoever divides a file by this index: all parts have the same numbers, and the one that has a chunk with
        another number of records raises when it reads that.
        """
        self.verified = self.chunks

    def chunk(self, number: int) -> Chunk:
        """The chunk of a number, from 0 on."""
        if not 0 <= number < self.chunks:
            raise IndexError(f"chunk {number} of {self.chunks}")
        offset, crc, compressor, size, records = _ROW.unpack_from(self._rows, number * _ROW.size)
        return Chunk(number, offset, crc, compressor, size, records, self._firsts[number])

    def find(self, record: int) -> int:
        """The number of the chunk that holds a record."""
        if not 0 <= record < self.records:
            raise IndexError(f"record {record} of {self.records}")
        return bisect_right(self._firsts, record) - 1

    def by_chunk(self, records: Sequence[int]) -> list[tuple[Chunk, list[int]]]:
        """Return the chunks that hold these records, ascending, each with the positions of its records in `records`."""
        order = sorted(range(len(records)), key=records.__getitem__)
        ascending = sorted(records)
        groups: list[tuple[Chunk, list[int]]] = []
        at = 0
        while at < len(order):
            chunk = self.chunk(self.find(ascending[at]))
            end = bisect_left(ascending, chunk.first + chunk.records, at)
            groups.append((chunk, order[at:end]))
            at = end
        return groups

    def __len__(self) -> int:
        """The number of records."""
        return self.records

    def num_records(self) -> int:
        """Return the number of records, as the Go code and its Python wrapper call it."""
        return self.records

    def locate(self, record: int) -> tuple[int, int]:
        """Return the number of the chunk that holds a record and the record's number within it, or `(-1, -1)`."""
        if not 0 <= record < self.records:
            return -1, -1
        chunk = self.find(record)
        return chunk, record - self._firsts[chunk]

    def close(self) -> None:
        """Do nothing: an index holds no file open. It can be used with `contextlib.closing`."""

    def __repr__(self) -> str:
        return f"Index({self.url!r}, chunks={self.chunks}, records={self.records})"


def _first_wrong(
    blob: Blob, chunks: Sequence[Chunk], counted: Callable[[Chunk, bytes], int], skip: bool
) -> tuple[Chunk, str] | None:
    """Count the records of neighbouring chunks; return the first one with a wrong count, and what is wrong."""
    sizes = [min(chunk.size, LENGTH.size) if _is_single(chunk) else chunk.size for chunk in chunks]
    with naming(*chunks):
        contents = blob.pread_many([(size, chunk.payload) for size, chunk in zip(sizes, chunks, strict=True)])
    for chunk, stored in zip(chunks, contents, strict=True):
        try:
            records = _length_of_single(chunk, stored) if _is_single(chunk) else counted(chunk, stored)
        except Damage as exc:
            if not skip:
                return chunk, str(exc)
            records = chunk.records
        if records != chunk.records:
            return chunk, wrong_count(chunk.records, records)
    return None


def _is_single(chunk: Chunk) -> bool:
    """Return whether a record's length is enough to count: there is one record, and it is not compressed."""
    return chunk.compressor == NONE and chunk.records == 1


def _length_of_single(chunk: Chunk, stored: bytes) -> int:
    size = LENGTH.unpack(stored)[0] if len(stored) == LENGTH.size else -1
    if size + LENGTH.size != chunk.size:
        raise Damage(f"a record of {size} bytes in a payload of {chunk.size}")
    return 1


def _packed(chunks: Sequence[Chunk]) -> bytes:
    """The number of each chunk's first record and of all records, and a row for each chunk."""
    total = chunks[-1].first + chunks[-1].records if chunks else 0
    firsts = struct.pack(f"<{len(chunks) + 1}Q", *(chunk.first for chunk in chunks), total)
    rows = (_ROW.pack(one.offset, one.crc, one.compressor, one.size, one.records) for one in chunks)
    return b"".join([firsts, *rows])


class _ReadAhead:
    """The heads of chunks, many in one read where chunks are small, and little more than the head where not."""

    def __init__(self, blob: Blob) -> None:
        self.reads = 0
        self._blob = blob
        self._start = 0
        self._data = b""
        self._window = _FIRST
        self._used = 2

    def at(self, offset: int, size: int) -> tuple[bytes, int]:
        """Bytes, and the place in them from which `size` bytes of the file from `offset` lie, as far as it goes."""
        place = offset - self._start
        if place < 0 or place + min(size, self._blob.size - offset) > len(self._data):
            if self._used >= 4:
                self._window = min(2 * self._window, _MOST)
            elif self._used == 1:
                self._window = max(self._window // 4, _LEAST)
            self._data = self._blob.pread(max(size, self._window), offset)
            self._start, place, self._used = offset, 0, 0
            self.reads += 1
        self._used += 1
        return self._data, place


class _HeaderScan:
    """One pass over the headers of a file."""

    def __init__(self, blob: Blob, skip: bool) -> None:
        self.chunks: list[Chunk] = []
        self.damage: list[Skipped] = []
        self.ahead = _ReadAhead(blob)
        self._blob = blob
        self._skip = skip
        self._budget = 4 * blob.size  # of bytes that may be read to get over damage

    def run(self) -> None:
        offset, end = 0, self._blob.size
        while offset < end:
            last = self.chunks[-1] if self.chunks else None
            number, first = (last.number + 1, last.first + last.records) if last else (0, 0)
            data, place = self.ahead.at(offset, HEADER.size)
            try:
                chunk = parse(data, place, number, offset, first, end)
                if not chunk.records:
                    self._check_empty(chunk)
            except Damage as exc:
                offset = self._over(number, offset, str(exc))
                continue
            self.chunks.append(chunk)
            offset = chunk.end

    def _check_empty(self, chunk: Chunk) -> None:
        """No CRC covers a header: a chunk that claims to hold nothing has to show it."""
        if chunk.size > 1024:
            raise Damage(f"no records in a payload of {chunk.size} bytes")
        data, place = self.ahead.at(chunk.payload, chunk.size)
        stored = data[place : place + chunk.size]
        if crc32(stored) != chunk.crc or decompress(chunk.compressor, stored, 1024):
            raise Damage("no records in a payload that is not empty")

    def _over(self, number: int, offset: int, reason: str) -> int:
        """Return the offset after the damage at `offset` from which to continue, if there is one."""
        blob = self._blob
        data, place = self.ahead.at(offset, HEADER.size)
        if name := foreign(data, place, offset, blob.size, blob.pread):
            reason = f"this is the RecordIO of {name}, another layout than Go's"
            raise errors.unsupported("open", blob.url, reason) from None
        if not self._skip:
            raise errors.corrupt(blob.url, f"chunk {number} at offset {offset}: {reason}") from None
        if self.chunks and not self._sound(self.chunks[-1]):
            # The chunk before it has a wrong size, perhaps: what that hides is looked for.
            before = self.chunks[-1]
            found, self._budget = _next_chunk(blob, before.offset + 1, self._budget)
            if found < offset:
                self.chunks.pop()
                reason = f"its CRC is wrong, and what follows it at offset {offset} is no chunk"
                return self._lost(before.number, before.offset, found, reason)
        found, self._budget = _next_chunk(blob, offset + 1, self._budget)
        return self._lost(number, offset, found, reason)

    def _lost(self, number: int, start: int, end: int, reason: str) -> int:
        self.damage.append(Skipped(self._blob.url, number, start, end - start, None, reason))
        return end

    def _sound(self, chunk: Chunk) -> bool:
        if chunk.size > self._budget:
            return True
        self._budget -= chunk.size
        return _payload_crc(self._blob, chunk) == chunk.crc


# ---- the next good chunk after damage


def _payload_crc(blob: Blob, chunk: Chunk) -> int:
    """The CRC-32 of a chunk's payload as stored, read in pieces."""
    value = 0
    for offset in range(chunk.payload, chunk.end, _PIECE):
        value = crc32(blob.pread(min(_PIECE, chunk.end - offset), offset), value)
    return value


def _next_chunk(blob: Blob, start: int, budget: int) -> tuple[int, int]:
    """The offset of the first good chunk from `start` on (or the file's end), and what is left of `budget`.

    A chunk counts as good if its CRC is right and the file ends after it, or continues with another's magic number: so
    much is needed because a record may hold a RecordIO file itself. No more than `budget` bytes of payloads are read.
    """
    offset, window = start, _FIRST_SEARCHED
    while offset < blob.size:
        data = blob.pread(window + HEADER.size, offset)
        place = data.find(MAGIC_BYTES)
        while 0 <= place < window:
            try:
                chunk = parse(data, place, 0, offset + place, 0, blob.size)
            except Damage:
                if len(data) - place < HEADER.size and offset + len(data) < blob.size:
                    break
            else:
                if chunk.size > budget:
                    return blob.size, 0
                budget -= chunk.size
                if _is_good(blob, chunk):
                    return chunk.offset, budget
            place = data.find(MAGIC_BYTES, place + 1)
        offset += window
        window = min(2 * window, _MOST_SEARCHED)
    return blob.size, budget


def _is_good(blob: Blob, chunk: Chunk) -> bool:
    return blob.pread(4, chunk.end) in (b"", MAGIC_BYTES) and _payload_crc(blob, chunk) == chunk.crc
