"""`RecordWriter`: a RecordIO file being written, whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...core import process
from ...core.writing import AbortsOnError
from .format import COMPRESSORS, HEADER, LENGTH, MAGIC, MAX_PAYLOAD, MAX_RECORD, NONE, compress, crc32

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

    from ...core.fs import FS, StrPath

_PIECE = 8 << 20
MOST_PREFIXES = 256 << 20
"""Bytes of a chunk's payload at most, where records are so small that their own limit is never reached."""


class RecordWriter(AbortsOnError):
    """Writes records to the file at `path`, which is visible, complete, once `close()` has returned, or never.

    Args:
        fs: the FS that the file will be in.
        path: of the file; what was there is replaced.
        compressor: `none`, `snappy` or `gzip`.
        max_chunk_bytes: a chunk is ended before a record that would bring its records, without their length prefixes,
            above this many bytes; a larger record gets a chunk of its own. Smaller chunks are better for reads by
            number, larger ones for compression.

    Used as a context manager, an exception in the block leaves nothing behind.
    """

    def __init__(self, fs: FS, path: StrPath, *, compressor: str = "snappy", max_chunk_bytes: int = 32 << 20) -> None:
        if compressor not in COMPRESSORS:
            raise ValueError(f"compressor is one of {', '.join(COMPRESSORS)}, not {compressor!r}")
        if max_chunk_bytes < 1:
            raise ValueError(f"max_chunk_bytes must be at least 1, not {max_chunk_bytes}")
        self._compressor = COMPRESSORS[compressor]
        self._limit = max_chunk_bytes
        self._records = 0
        self._payload = bytearray()  # of the chunk that is being filled
        self._count = 0  # of its records
        self._most = min(MAX_PAYLOAD, max(MOST_PREFIXES, 2 * max_chunk_bytes))
        self._lock = process.Lock()
        self._file = fs.open(path, "wb")

    @property
    def url(self) -> str:
        """The full URL of the file."""
        return self._file.name

    @property
    def records(self) -> int:
        """The number of records written so far."""
        return self._records

    def write(self, record: Buffer) -> None:
        """Add a record, of any size up to 2 GiB - 1; an empty one is a record, too.

        An exception in the middle of it, as Ctrl-C raises one, aborts the file: it would end in a part of a chunk.
        """
        if not isinstance(record, bytes) or len(record) > self._limit:
            with memoryview(record) as view:
                if self._compressor == NONE and view.nbytes > self._limit:
                    self._write_alone(view.cast("B") if view.contiguous else memoryview(view.tobytes()))
                    return
                if not isinstance(record, bytes):
                    record = view.tobytes()
        size = len(record)
        _check(size)
        with self._lock:
            self._check_open()
            if self._count and not self._has_room(size):
                self._flush()
            with _Whole(self):
                self._payload += LENGTH.pack(size)
                self._payload += record
                self._count += 1
                self._records += 1

    def _has_room(self, size: int) -> bool:
        total = len(self._payload) + LENGTH.size + size
        return total - LENGTH.size * (self._count + 1) <= self._limit and total <= self._most

    def _flush(self) -> None:
        """Write the chunk that is being filled."""
        stored = compress(self._compressor, bytes(self._payload))
        header = HEADER.pack(MAGIC, crc32(stored), self._compressor, len(stored), self._count)
        with _Whole(self):
            self._file.write(header)
            self._file.write(stored)
            self._payload, self._count = bytearray(), 0

    def _write_alone(self, record: memoryview) -> None:
        """Write an uncompressed chunk of one large record, with no copy of the whole of it."""
        _check(record.nbytes)
        length = LENGTH.pack(record.nbytes)
        with self._lock:
            self._check_open()
            if self._count:
                self._flush()
            header = HEADER.pack(MAGIC, crc32(record, crc32(length)), NONE, len(length) + record.nbytes, 1)
            with _Whole(self):
                self._file.write(header + length)
                for at in range(0, record.nbytes, _PIECE):
                    self._file.write(record[at : at + _PIECE])
                self._records += 1

    def _check_open(self) -> None:
        if self._file.closed:
            raise ValueError(f"write to a closed file: {self.url}")

    def close(self) -> None:
        """Make the file visible, or raise what went wrong and leave things as they were; closing twice is no error."""
        if self._file.closed:
            return
        with self._lock:
            try:
                if self._count and not self._file.inherited:
                    self._flush()
            except BaseException:
                self._file.abort()
                raise
            self._file.close()

    def abort(self) -> None:
        """Close without making anything visible."""
        self._payload, self._count = bytearray(), 0
        self._file.abort()

    @property
    def closed(self) -> bool:
        """True after `close()` or `abort()`."""
        return self._file.closed

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"RecordWriter({self.url!r}, records={self._records})"


class _Whole:
    """A block that aborts the file of a writer unless all of it is done: nothing may follow a part of a chunk."""

    __slots__ = ("_writer",)

    def __init__(self, writer: RecordWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: object, trace: object) -> None:
        if kind is not None:
            self._writer.abort()


def _check(size: int) -> None:
    if size > MAX_RECORD:
        raise ValueError(f"a record of {size} bytes: the most is {MAX_RECORD}")
