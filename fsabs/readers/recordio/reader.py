"""`RecordReader`: the records of a file by number, in batches, in ranges and in order, over any FS; `Scan` and
`Scanner`, which go through them in order; `open_recordio`, by URL; and `PayloadCache`, what a reader keeps of chunks.

All reads are positioned: threads share a reader, a forked child continues with it, and it pickles. A chunk is read and
checked as a whole. Payloads are kept up to a limit of bytes; the positions of their records, which are small, are kept
longer. When the payload of an uncompressed chunk is evicted, the CRC-32 of each of its records is taken first: it comes
from bytes that the chunk's own CRC has vouched for, so that a record can then be read without the rest of its chunk,
and still be checked.
"""

from __future__ import annotations

import itertools
import operator
import time
from array import array
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from ...core import errors, hooks, process
from ...core.errors import CorruptFileError
from ...core.writing import ClosesOnExit
from ..locate import locate
from .format import (
    LENGTH,
    MAX_PAYLOAD,
    NONE,
    Chunk,
    Damage,
    Skipped,
    count,
    crc32,
    decompress,
    naming,
    places,
    split,
)
from .index import Index, OnError

if TYPE_CHECKING:
    from ...core.fs import FS, StrPath

_ONE_RECORD = 1 << 20  # from this size on, a chunk of one uncompressed record is read without a copy
_FIRST_GROUP, _MOST_GROUP = 4 << 20, 64 << 20  # bytes of chunks that read_many reads at once; more where it is slow
_SLOW = 0.005  # seconds; after a read that takes longer, twice as many bytes are read at once
FIRST_WINDOW, LARGEST_WINDOW = 512 << 10, 8 << 20  # bytes that a scan reads at once: at first, and after doubling
_SLOW_SCAN = 0.001  # seconds; a window that is read faster is not doubled: a small one stays in the processor's cache
_FEW = 4  # of a chunk, at most its records divided by this are read without the rest of it


class RecordReader(ClosesOnExit):
    """The records of the RecordIO file at `path`.

    Args:
        fs: the FS that the file is in.
        path: of the file.
        on_error: `raise` a `CorruptFileError` for what is damaged, when the file is opened (the chain of headers) or a
            chunk is read (all else); or `skip` it in `scan` and list it in `skipped`. A record that is asked for by its
            number, or in a slice, and is damaged raises in any case. Behind a damaged header, reading goes on at the
            next chunk whose CRC is right and that is followed by another chunk or the end of the file. Records that
            hold RecordIO files themselves, uncompressed, can be mistaken for it.
        cache_bytes: how much decompressed data is kept for reads by number; at least one chunk is.
        max_chunk_bytes: a chunk that is larger, decompressed, is refused as damaged.
        index: one of this file that was loaded before, so that the headers are not read again; it is used if it is
            whole and the file has still the version that it is of.

    The reader pins the file's version: where it is replaced, a store that has versions raises `StaleFileError`. Errors
    name the file, the chunk, its offset, and its records. `len()` counts all records that the headers state.
    """

    def __init__(
        self,
        fs: FS,
        path: StrPath,
        *,
        on_error: OnError = "raise",
        cache_bytes: int = 64 << 20,
        max_chunk_bytes: int = MAX_PAYLOAD,
        index: Index | None = None,
    ) -> None:
        file = fs.open(path, "rb")
        try:
            if index is None or not index.fits(file.raw.blob):
                index = Index.of(file.raw.blob, on_error=on_error)
        except BaseException:
            file.close()
            raise
        self.index = index
        self._skips = on_error == "skip"
        self._file = file
        self._blob = file.raw.blob
        self._owned: FS | None = None
        self._limit = max_chunk_bytes
        self._cache_bytes = cache_bytes
        self._cache = PayloadCache(cache_bytes)
        self._group = _FIRST_GROUP
        self._last_single = -1  # the chunk that one record was last read of, without the rest
        self._skipped: dict[int, Skipped] = {}

    @property
    def url(self) -> str:
        """The full URL of the file."""
        return self.index.url

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that was skipped so far, in the order of the file; always empty with `on_error="raise"`."""
        return sorted([*self.index.damage, *self._skipped.values()], key=operator.attrgetter("offset"))

    # ---- records by number

    def __len__(self) -> int:
        """The number of records."""
        return self.index.records

    @overload
    def __getitem__(self, which: int) -> bytes: ...
    @overload
    def __getitem__(self, which: slice) -> list[bytes]: ...
    def __getitem__(self, which: int | slice) -> bytes | list[bytes]:
        """The record of a number (from the end if negative), or those of a slice."""
        if isinstance(which, slice):
            start, stop, step = which.indices(len(self))
            if step == 1 and not self._skips:  # a scan that skips would leave out what is damaged
                return list(self.scan(start, stop))
            return self.read_many(range(start, stop, step))
        record = self._record_number(which)
        number = self.index.find(record)
        if operator.index(which) < 0:
            self.verify_counts(number, from_end=True)
        elif number > self.index.verified:
            self.verify_counts(number)
        chunk = self.index.chunk(number)
        cached = self._cache.get(number)
        if cached is None:
            if self._is_one_record(chunk):
                return self._read_one_record(chunk)
            layout = self._cache.layout(number)
            if layout is not None and layout.sums is not None and self._last_single != number:
                self._last_single = number  # the next time, the whole chunk is read
                return self._read_singles([(chunk, layout, record - chunk.first)])[0]
            cached = self._keep(chunk, self._stored(chunk, chunk.end))
        at = record - chunk.first
        positions = cached.layout.places
        return cached.data[positions[at] + 4 : positions[at + 1]]

    def read_many(self, indices: Iterable[int]) -> list[bytes]:
        """The records of many numbers, in their order; each chunk is read once, and many in one call of the store."""
        wanted = self._record_numbers(indices)
        found = [b""] * len(wanted)
        missing: list[tuple[Chunk, list[int]]] = []
        singles: list[tuple[Chunk, ChunkLayout, int]] = []
        slots_of_singles: list[int] = []
        groups = self.index.by_chunk(wanted)
        if groups and groups[-1][0].number > self.index.verified:
            self.verify_counts(groups[-1][0].number, {chunk.number for chunk, _ in groups})
        for chunk, slots in groups:
            cached = self._cache.get(chunk.number)
            if cached is not None:
                cached.fill(found, wanted, slots, chunk.first)
                continue
            layout = self._cache.layout(chunk.number)
            if layout is not None and layout.sums is not None and _FEW * len(slots) <= chunk.records:
                singles += [(chunk, layout, wanted[slot] - chunk.first) for slot in slots]
                slots_of_singles += slots
            else:
                missing.append((chunk, slots))
        for slot, record in zip(slots_of_singles, self._read_singles(singles), strict=True):
            found[slot] = record
        self._read_whole(missing, found, wanted)
        return found

    def _read_whole(self, missing: list[tuple[Chunk, list[int]]], found: list[bytes], wanted: list[int]) -> None:
        """Read chunks, many at once, and take the records from them."""
        at = 0
        while at < len(missing):
            group, size = [missing[at]], missing[at][0].size
            while (at := at + 1) < len(missing) and (size := size + missing[at][0].size) <= self._group:
                group.append(missing[at])
            for (chunk, slots), data in zip(group, self._many([chunk for chunk, _ in group]), strict=True):
                if data is None:
                    record = self._read_one_record(chunk)
                    for slot in slots:
                        found[slot] = record
                else:
                    self._keep(chunk, data).fill(found, wanted, slots, chunk.first)

    def _read_singles(self, wanted: list[tuple[Chunk, ChunkLayout, int]]) -> list[bytes]:
        """Return records of uncompressed chunks, read without the rest of the chunks; each has a CRC of its own."""
        if not wanted:
            return []
        ranges = []
        for chunk, layout, at in wanted:
            start = layout.places[at] + 4
            ranges.append((layout.places[at + 1] - start, chunk.payload + start))
        with naming(*(chunk for chunk, _, _ in wanted)):
            found = self._blob.pread_many(ranges)
        for record, (chunk, layout, at) in zip(found, wanted, strict=True):
            if layout.sums is not None and crc32(record) != layout.sums[at]:
                raise self._corrupt(chunk, f"record {chunk.first + at} is not what it was when it was read before")
        return found

    def _record_number(self, which: int) -> int:
        record = operator.index(which)
        if record < 0:
            record += self.index.records
        if not 0 <= record < self.index.records:
            raise IndexError(f"record {which} of {self.index.records}: {self.url}")
        return record

    def _record_numbers(self, indices: Iterable[int]) -> list[int]:
        wanted = list(indices)
        if set(map(type, wanted)) <= {int} and (not wanted or 0 <= min(wanted) <= max(wanted) < self.index.records):
            return wanted
        return list(map(self._record_number, wanted))

    # ---- records in order

    def scan(self, start: int = 0, stop: int | None = None, *, window: int = FIRST_WINDOW) -> Scan:
        """An iterator of the records from `start` to `stop`, which count as in a slice; about `window` bytes are read
        at first, and twice as many after each read that takes more than a millisecond.
        """
        first, last, _ = slice(start, stop).indices(len(self))
        return Scan(self, first, last, window)

    def __iter__(self) -> Scan:
        return self.scan()

    # ---- chunks: reading, checking, splitting, keeping

    def verify_counts(self, number: int, wanted: Container[int] = (), from_end: bool = False) -> None:
        """Verify that the chunks before chunk `number` hold as many records as their headers say: numbers depend on it.
        Where they count from the end, the chunks after it are verified.

        `CorruptFileError` naming the first one that doesn't. A file's chunks are counted once (see `Index.verify`);
        those that are `wanted` are kept.
        """

        def counted(chunk: Chunk, stored: bytes) -> int:
            if chunk.number in wanted:
                self._keep(chunk, stored)  # which counts them, too
                return chunk.records
            return count(self._payload(chunk, stored, 0)[0])

        verify = self.index.verify_from_end if from_end else self.index.verify
        found = verify(self._blob, number, counted, self._skips)
        if found is not None:
            chunk, reason = found
            side = "before" if from_end else "behind"
            raise self._corrupt(chunk, f"{reason}: the numbers of the records {side} it are unknown")

    def _stored(self, chunk: Chunk, end: int) -> bytes:
        """The file from the chunk's payload to `end`."""
        self._check_size(chunk)
        with naming(chunk):
            return self._blob.pread(end - chunk.payload, chunk.payload)

    def _many(self, chunks: list[Chunk]) -> list[bytes | None]:
        """Return the payloads as stored; None for a chunk of one large record, which is read by itself."""
        for chunk in chunks:
            self._check_size(chunk)
        ranges = [(0 if self._is_one_record(chunk) else chunk.size, chunk.payload) for chunk in chunks]
        begin = time.monotonic()
        with naming(*chunks):
            found = self._blob.pread_many(ranges)
        if time.monotonic() - begin > _SLOW:
            self._group = min(2 * self._group, _MOST_GROUP)
        return [data if size else None for data, (size, _) in zip(found, ranges, strict=True)]

    def _check_size(self, chunk: Chunk) -> None:
        if chunk.size > (self._limit if chunk.compressor == NONE else self._limit + self._limit // 8 + 1024):
            raise self._corrupt(chunk, f"a payload of {chunk.size} bytes; {self._limit} are allowed (max_chunk_bytes)")

    def _payload(self, chunk: Chunk, data: bytes, start: int) -> tuple[bytes, int, int]:
        """The bytes that hold the decompressed payload, and from where to where; its stored form is in `data`."""
        stop = start + chunk.size
        whole = start == 0 and stop == len(data)
        if crc32(data if whole else memoryview(data)[start:stop]) != chunk.crc:
            raise Damage("the CRC of its payload is wrong")
        if chunk.compressor == NONE:
            return data, start, stop
        begin = time.monotonic_ns() if hooks.active is not None else 0
        payload = decompress(chunk.compressor, data if whole else data[start:stop], self._limit)
        if (instrument := hooks.active) is not None:
            instrument.record_span("decompress", "recordio.decompress", begin, len(payload), self.url)
        return payload, 0, len(payload)

    def _split(self, chunk: Chunk, data: bytes, start: int) -> list[bytes]:
        """The records of a chunk whose payload lies in `data` from `start`."""
        try:
            records = split(*self._payload(chunk, data, start), chunk.records)
        except Damage as exc:
            raise self._corrupt(chunk, str(exc)) from None
        self._note_verified(chunk)
        return records

    def _note_verified(self, chunk: Chunk) -> None:
        """Note that a chunk holds as many records as its header says."""
        if chunk.number == self.index.verified:
            self.index.verified = chunk.number + 1

    def _keep(self, chunk: Chunk, stored: bytes) -> CachedPayload:
        """Check a chunk, and keep it."""
        try:
            data, start, stop = self._payload(chunk, stored, 0)
            layout = self._cache.layout(chunk.number)
            if layout is None:
                layout = ChunkLayout(array("I", places(data, start, stop, chunk.records)))
        except Damage as exc:
            raise self._corrupt(chunk, str(exc)) from None
        self._note_verified(chunk)
        cached = CachedPayload(chunk.number, data, layout, chunk.compressor == NONE)
        self._cache.put(cached)
        return cached

    def _is_one_record(self, chunk: Chunk) -> bool:
        return chunk.records == 1 and chunk.compressor == NONE and chunk.size >= _ONE_RECORD

    def _read_one_record(self, chunk: Chunk) -> bytes:
        """The only record of an uncompressed chunk, with no copy of it: it may be of 2 GiB."""
        self._check_size(chunk)
        with naming(chunk):
            length, record = self._blob.pread_many([(4, chunk.payload), (chunk.size - 4, chunk.payload + 4)])
        if crc32(record, crc32(length)) != chunk.crc:
            raise self._corrupt(chunk, "the CRC of its payload is wrong")
        if LENGTH.unpack(length)[0] != len(record):
            raise self._corrupt(chunk, f"a record of {LENGTH.unpack(length)[0]} bytes in a payload of {chunk.size}")
        self._note_verified(chunk)
        return record

    # ---- what went wrong

    def _corrupt(self, chunk: Chunk, reason: str) -> CorruptFileError:
        return errors.corrupt(self.url, f"{chunk}: {reason}")

    def _skip(self, chunk: Chunk, exc: CorruptFileError) -> None:
        """Note that a chunk is skipped, or raise."""
        if not self._skips:
            raise exc
        size = chunk.end - chunk.offset
        try:
            records = count(self._payload(chunk, self._stored(chunk, chunk.end), 0)[0])
        except (Damage, OSError):
            records = chunk.records  # nothing better is known
        reason = str(exc.strerror).removeprefix(f"{chunk}: ").removesuffix(" [read]")
        self._skipped[chunk.offset] = Skipped(self.url, chunk.number, chunk.offset, size, records, reason)

    # ---- closing, pickling

    @property
    def kept_bytes(self) -> int:
        """The size of the decompressed data that is kept now for reads by number."""
        return self._cache.size

    def free_cached(self) -> None:
        """Free what is kept for reads by number; the reader stays as it is."""
        self._cache.free_cached()

    def close(self) -> None:
        """Close the file; closing twice is no error."""
        self._file.close()
        self._cache.clear()
        if self._owned is not None:
            self._owned.close()

    def own(self, fs: FS) -> None:
        """Close `fs`, too, when this is closed."""
        self._owned = fs

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._file.closed

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blob": None, "_cache": None, "_skipped": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._blob = self._file.raw.blob
        self._cache = PayloadCache(self._cache_bytes)

    def __repr__(self) -> str:
        return f"RecordReader({self.url!r}, records={len(self)})"


# ---- records in order


class _Batch(NamedTuple):
    """The records of a chunk that are still to be given; `after` is the number of the record after them."""

    records: Iterator[bytes]
    after: int


class Scan(Iterator[bytes]):
    """The records of a `RecordReader` from `start` to `stop`, in order."""

    def __init__(self, reader: RecordReader, start: int, stop: int, window: int = FIRST_WINDOW) -> None:
        self._reader = reader
        self._start = start
        self._stop = stop
        self._batch = _Batch(iter(()), start)
        self._data = b""  # the file's bytes from _offset on
        self._offset = 0
        self._window = window
        self._lock = process.Lock()

    def __next__(self) -> bytes:
        for record in self._batch.records:
            return record
        return self._next_chunk()

    def read_into(self, records: list[bytes], count: int) -> None:
        """Append the next `count` records to a list, fewer at the end; what comes before an error is appended, too."""
        wanted = len(records) + count
        while True:
            records.extend(islice(self._batch.records, wanted - len(records)))
            if len(records) == wanted:
                return
            try:
                records.append(self._next_chunk())
            except StopIteration:
                return

    @property
    def position(self) -> int:
        """The number of the next record; if its chunk turns out to be damaged and is skipped, a higher one comes."""
        batch = self._batch
        return batch.after - length_hint(batch.records)

    def _next_chunk(self) -> bytes:
        with self._lock:
            while True:
                batch = self._batch
                for record in batch.records:  # another thread was faster, or a chunk was read
                    return record
                if batch.after >= self._stop:
                    self._data = b""
                    raise StopIteration
                self._batch = self._read(batch.after)

    def _read(self, at: int) -> _Batch:
        """The records from number `at` to the end of their chunk."""
        index = self._reader.index
        number = index.find(at)
        if at == self._start and number > index.verified:
            self._reader.verify_counts(number)
        chunk = index.chunk(number)
        end = min(chunk.first + chunk.records, self._stop)
        try:
            records = self._records(chunk)
        except CorruptFileError as exc:
            self._reader._skip(chunk, exc)
            return _Batch(iter(()), end)
        if at > chunk.first or end < chunk.first + chunk.records:
            records = records[at - chunk.first : end - chunk.first]
        return _Batch(iter(records), end)

    def _records(self, chunk: Chunk) -> list[bytes]:
        reader = self._reader
        start = chunk.payload - self._offset
        if not 0 <= start <= start + chunk.size <= len(self._data):
            if reader._is_one_record(chunk):
                return [reader._read_one_record(chunk)]
            self._data = b""
            begin = time.monotonic()
            self._data, self._offset = reader._stored(chunk, self._ahead(chunk)), chunk.payload
            if time.monotonic() - begin > _SLOW_SCAN:
                self._window = min(2 * self._window, LARGEST_WINDOW)
            start = 0
        return reader._split(chunk, self._data, start)

    def _ahead(self, chunk: Chunk) -> int:
        """Up to which offset to read: the end of the chunk, and of as many after it as the window has room for."""
        index, end, limit = self._reader.index, chunk.end, chunk.payload + self._window
        for number in range(chunk.number + 1, index.chunks):
            following = index.chunk(number)
            if following.end > limit or following.first >= self._stop:
                break
            end = following.end
        return end

    def __reduce__(self) -> tuple[Any, ...]:
        return _resumed, (type(self), self._reader, self.position, self._stop)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._reader!r} at {self.position}>"


def _resumed(kind: type[Scan], reader: RecordReader, position: int, stop: int) -> Scan:
    scan = kind.__new__(kind)
    Scan.__init__(scan, reader, position, stop)
    return scan


class Scanner(Scan, ClosesOnExit):
    """The records of a file from number `start`, `len` of them, as the Go implementation's scanner takes them.

    A negative `start` means 0; a `len` that is negative or too large means all that follow; a `start` after the end
    yields nothing. As a context manager, or by `close()`, it closes the file.
    """

    def __init__(self, fs: FS, path: StrPath, start: int = 0, len: int = -1, *, on_error: OnError = "raise") -> None:
        reader = RecordReader(fs, path, on_error=on_error)
        total = reader.index.records
        first = min(max(start, 0), total)
        super().__init__(reader, first, total if len < 0 else min(first + len, total))

    @property
    def skipped(self) -> list[Skipped]:
        """The damage that was skipped so far, with `on_error="skip"`."""
        return self._reader.skipped

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def open_recordio(url: StrPath, *, on_error: OnError = "raise", **options: Any) -> RecordReader:
    """Open the file at a URL; `options` are those of `from_url`. Closing the reader closes all that was opened."""
    fs, path = locate(url, **options)
    try:
        reader = RecordReader(fs, path, on_error=on_error)
    except BaseException:
        fs.close()
        raise
    reader.own(fs)
    return reader


_RECORDS = 4 << 20  # whose positions are kept, at most: 4 bytes each, 8 with a CRC
_LEAST_RECORDS = 4  # in a chunk whose records are worth to be read alone, ...
_LEAST_SIZE = 64 << 10  # ... and its bytes


class ChunkLayout:
    """The positions of a chunk's records: record i is `payload[places[i] + 4 : places[i + 1]]`."""

    __slots__ = ("places", "sums")

    def __init__(self, places: array[int]) -> None:
        self.places = places
        self.sums: array[int] | None = None
        """The CRC-32 of each record, where it was taken."""


class CachedPayload:
    """The payload of a chunk, decompressed and checked, and its layout."""

    __slots__ = ("data", "layout", "number", "plain")

    def __init__(self, number: int, data: bytes, layout: ChunkLayout, plain: bool) -> None:
        self.number = number
        self.data = data
        self.layout = layout
        self.plain = plain

    def fill(self, found: list[bytes], wanted: list[int], slots: list[int], first: int) -> None:
        """Put the records whose numbers stand at `slots` of `wanted` there in `found`; `first` is the chunk's first."""
        data, places = self.data, self.layout.places
        for slot in slots:
            at = wanted[slot] - first
            found[slot] = data[places[at] + 4 : places[at + 1]]

    def take_checksums(self) -> None:
        """Take the CRC of each record, if that may pay."""
        layout = self.layout
        places = layout.places
        if self.plain and layout.sums is None and len(places) > _LEAST_RECORDS and len(self.data) >= _LEAST_SIZE:
            view = memoryview(self.data)
            layout.sums = array("I", [crc32(view[a + 4 : b]) for a, b in itertools.pairwise(places)])


class PayloadCache:
    """Payloads by the number of their chunk, of `limit` bytes in all (one at least), and layouts."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cached: OrderedDict[int, CachedPayload] = OrderedDict()  # the one used last at the end
        self._layouts: dict[int, ChunkLayout] = {}
        self.size = 0
        """The bytes of the payloads that are kept."""
        self._records = 0
        self._lock = process.Lock()

    def get(self, number: int) -> CachedPayload | None:
        """The payload of a chunk, if it is here."""
        try:
            self._cached.move_to_end(number)
        except KeyError:
            return None
        return self._cached.get(number)  # another thread may have evicted it

    def layout(self, number: int) -> ChunkLayout | None:
        """The layout of a chunk, if it is known."""
        return self._layouts.get(number)

    def put(self, cached: CachedPayload) -> None:
        """Keep a payload, and evict those that were not used for longest."""
        with self._lock:
            if cached.number not in self._layouts:
                self._records += len(cached.layout.places)
                if self._records > _RECORDS:
                    self._layouts.clear()
                    self._records = len(cached.layout.places)
                self._layouts[cached.number] = cached.layout
            before = self._cached.pop(cached.number, None)
            self._cached[cached.number] = cached
            self.size += len(cached.data) - (0 if before is None else len(before.data))
            while self.size > self._limit and len(self._cached) > 1:
                _, evicted = self._cached.popitem(last=False)
                evicted.take_checksums()
                self.size -= len(evicted.data)

    def free_cached(self) -> None:
        """Free the payloads; where records lie is still known."""
        with self._lock:
            cached, self._cached, self.size = self._cached, OrderedDict(), 0
        for one in cached.values():
            one.take_checksums()

    def clear(self) -> None:
        """Free everything."""
        with self._lock:
            self._cached = OrderedDict()
            self._layouts = {}
            self.size = self._records = 0
