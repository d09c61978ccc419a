"""Reading records in order: windows of chunks in one read, checked and split a chunk at a time.

A `Scan` is a plain iterator whose every step is one of a list's iterator until a chunk is used up. It holds both in one
object, which is replaced and never changed, so that threads may share it, a forked child continues with its copy, and
a pickle from its position.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ...core import process
from ...core.errors import CorruptFileError

if TYPE_CHECKING:
    from .format import Chunk
    from .index import Index

FIRST_WINDOW, LARGEST_WINDOW = 512 << 10, 8 << 20  # bytes that are read at once: at first, and after doubling
_SLOW = 0.001  # seconds; what is read faster stays in the processor's cache if it is small, and is not doubled


class _Batch(NamedTuple):
    """The records of a chunk that are still to be given; `after` is the number of the record behind them."""

    records: Iterator[bytes]
    after: int


class ScannedReader(Protocol):
    """The methods of `RecordReader` that a scan is made of."""

    @property
    def index(self) -> Index: ...
    def prove(self, number: int) -> None: ...
    def _skip(self, chunk: Chunk, exc: CorruptFileError) -> None: ...
    def _is_alone(self, chunk: Chunk) -> bool: ...
    def _alone(self, chunk: Chunk) -> bytes: ...
    def _stored(self, chunk: Chunk, end: int) -> bytes: ...
    def _split(self, chunk: Chunk, data: bytes, start: int) -> list[bytes]: ...


class Scan(Iterator[bytes]):
    """The records of a `RecordReader` from `start` to `stop`, in order."""

    def __init__(self, reader: ScannedReader, start: int, stop: int, window: int = FIRST_WINDOW) -> None:
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
        """The number of the record that comes next; where a chunk is skipped, of its first record."""
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
        if at == self._start and number > index.proved:
            self._reader.prove(number)
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
        if reader._is_alone(chunk):
            return [reader._alone(chunk)]
        start = chunk.payload - self._offset
        if not 0 <= start <= start + chunk.size <= len(self._data):
            self._data = b""
            begin = time.monotonic()
            self._data, self._offset = reader._stored(chunk, self._ahead(chunk)), chunk.payload
            if time.monotonic() - begin > _SLOW:
                self._window = min(2 * self._window, LARGEST_WINDOW)
            start = 0
        return reader._split(chunk, self._data, start)

    def _ahead(self, chunk: Chunk) -> int:
        """Up to which offset to read: the end of the chunk, and of as many behind it as the window has room for."""
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


def _resumed(kind: type[Scan], reader: ScannedReader, position: int, stop: int) -> Scan:
    scan = kind.__new__(kind)
    Scan.__init__(scan, reader, position, stop)
    return scan
