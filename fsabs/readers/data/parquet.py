"""ParquetDataReader: the rows of Parquet files of any FS, read by the ranges of the wanted columns.

The format is Apache Parquet's (github.com/apache/parquet-format); pyarrow decodes it. A footer is read once, by one
request, and kept by the file's version; a row group is fetched as the ranges of its column chunks and decoded whole, or
in parts of some rows where it is large. A row group that can't hold wanted rows, by its statistics, is skipped
(by `filters`).
"""

from __future__ import annotations

import contextlib
import functools
import io
import operator
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core import errors
from ...core.blobs import Blob
from ...core.errors import CorruptFileError
from .base import LOST, Metadata, Mode, OnError, Shard, ShardContent, check_numbers, check_on_error, digest_of
from .files import FileShardsReader, Location, derived
from .order import Numbers, WindowOrder, by_shard
from .partitions import fields_of, scalars_of, values_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc


SUFFIXES = (".parquet", ".parq", ".pq")
CHUNK_BYTES = 32 << 20
"""Decoded bytes, by the footer, of a row group that is read whole; of all its columns, so that the order of rows does
not depend on which of them are read."""
_TAIL = 64 << 10  # bytes that are read for a footer: enough for most
_LARGEST_FOOTER = 256 << 20
_KIND = "parquet-1"
_DECODED = 64 << 20  # bytes of decoded row groups that are kept for reads by number
_SIGNATURE = 28  # bytes after a footer that is not encrypted, of a file with columns that are
_STREAM = 1 << 20  # bytes that are fetched at once of a column of a row group that is read in parts


class Footer(NamedTuple):
    """What a file's footer says of its row groups."""

    size: int
    version: str | None
    rows: tuple[int, ...]
    """Of each row group."""
    decoded: tuple[int, ...]
    """Bytes of each row group before compression, of all columns."""
    wanted: tuple[bool, ...]
    """Which row groups the filters leave."""
    digest: str


class Chunk(NamedTuple):
    """A row group, or a part of it."""

    name: str
    group: int
    first: int
    """The number of its first row in the file."""
    start: int
    """The number of its first row in the row group."""
    rows: int
    whole: bool
    """It is the whole row group."""


class ParquetDataReader(FileShardsReader["_Groups", Footer]):
    """The rows of the Parquet files at `location`: a URL, a path, a glob pattern, a directory, an FS.

    A record is a dict of the columns' values, as `pyarrow.Table.to_pylist` makes them. Each file is a shard, or several
    where filters leave row groups out. Directories such as `year=2024` are columns, too: of integers, or text.

    Args:
        location: a directory means the files in it, and below, that end in `.parquet`, `.parq` or `.pq`.
        columns: of the file, in this order; None reads all. Only their bytes are fetched.
        filters: conditions such as `[("year", ">=", 2020)]`, or an expression, as pyarrow takes them. Row groups whose
            statistics rule them out are not read; rows of the others are given as they are.
        on_error: "raise" a `CorruptFileError` for a row group that can't be decoded, or "skip" its rows.
        chunk_bytes: a row group of more decoded bytes is read in parts of about so many. The order of shuffled rows
            depends on it.

    Raises `CorruptFileError` with the file and the row group for damage, `ValueError` for a column that a file has not
    or has with another type than the first file, and `StaleFileError` for a file that changed after `create_shards`.
    """

    open_at_once = 64

    def __init__(
        self,
        location: Location,
        *,
        columns: Sequence[str] | None = None,
        filters: Sequence[Any] | pc.Expression | None = None,
        on_error: OnError = "raise",
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        super().__init__(location)
        if columns is not None and (isinstance(columns, str) or not columns):
            raise ValueError(f"columns is a list of names, or None for all, not {columns!r}")
        if chunk_bytes < 1:
            raise ValueError(f"chunk_bytes must be at least 1, not {chunk_bytes}")
        check_on_error(on_error)
        self._columns = None if columns is None else list(columns)
        self._filters = filters
        self._expression = None if filters is None else _expression(filters)
        self.on_error = on_error
        self._chunk_bytes = chunk_bytes
        self._partitions: dict[str, type[int] | type[str]] | None = None
        self._schema: Any = None
        self._casts = False  # whether files have other types than `schema`
        self._decoded: OrderedDict[Chunk, Any] = OrderedDict()
        self._scan: _GroupScan | None = None

    # ---- shards

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """The runs of row groups that are read, of each file."""
        self._list(self._is_called(*SUFFIXES), "Parquet file")
        self._partitions = fields_of(stat.filename for stat in self._stats.values())
        return [shard for name in self._index_all() for shard in self._runs(name)]

    def _runs(self, name: str) -> Iterator[Shard]:
        footer = self._index(name)
        start = at = 0
        for rows, wanted in zip(footer.rows, footer.wanted, strict=True):
            if not wanted:
                if at > start:
                    yield Shard(name, start, at - start)
                start = at + rows
            at += rows
        if at > start:
            yield Shard(name, start, at - start)

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path, the size, and a digest of the footer."""
        footer = self._index(shard_name)
        return ShardContent(self._files.path(shard_name), footer.size, footer.digest)

    def order(self, shards: Sequence[Shard], seed: int | None, window: int) -> WindowOrder:
        """Return the orders of the epochs over shards of this reader, whose chunks are row groups or parts of them."""
        chunks, groups = [], 0
        for number, shard in enumerate(shards):
            there, firsts = self._chunks_of(shard.name)
            first, last = firsts.searchsorted([shard.start, shard.end]).tolist()
            for chunk in there[first:last]:
                groups += chunk.start == 0
                chunks.append((number, chunk.first, chunk.rows, groups))
        return WindowOrder(shards, np.array(chunks, np.int64).reshape(-1, 4), seed, window, self._chunk_bytes)

    def _chunks(self, name: str) -> Iterator[Chunk]:
        footer = self._index(name)
        first = 0
        for group, (rows, decoded, wanted) in enumerate(zip(footer.rows, footer.decoded, footer.wanted, strict=True)):
            parts = min(max(1, -(-decoded // self._chunk_bytes)), max(1, rows))
            size = -(-rows // parts)
            for start in range(0, rows if wanted else 0, max(1, size)):
                yield Chunk(name, group, first + start, start, min(size, rows - start), parts == 1)
            first += rows

    def _chunks_of(self, name: str) -> tuple[list[Chunk], Numbers]:
        """Return the chunks of a file, and the numbers of their first rows."""
        groups = self._shard(name)
        return groups.chunks, groups.firsts

    def _open_shard(self, shard_name: str) -> _Groups:
        chunks = list(self._chunks(shard_name))
        return _Groups(chunks, np.array([chunk.first for chunk in chunks], np.int64))

    # ---- footers

    def _index_of(self, name: str) -> Footer:
        """Read and check a file's footer."""
        with self._open_listed(name) as blob:
            tail = _footer(blob)
            found = _parse(blob.url, tail)
            groups = [found.row_group(group) for group in range(found.num_row_groups)]
            if any(group.num_columns != found.num_columns for group in groups):  # pyarrow would end the process
                raise errors.corrupt(blob.url, "a row group has other columns than the schema", "create_shards")
            rows = [group.num_rows for group in groups]
            if sum(rows) != found.num_rows or any(count < 0 for count in rows):
                reason = f"the footer says {found.num_rows} rows, and its row groups have {sum(rows)}"
                raise errors.corrupt(blob.url, reason, "create_shards")
            partitions = self._partitions_of(name)
            self._check_schema(blob.url, found, partitions)
            decoded = [max(0, group.total_byte_size) for group in groups]
            limits, largest = self._files.fs.limits, max(decoded, default=0)
            if limits.declares_too_much(largest, blob.size):  # it is read in parts, of which there would be too many
                what = f"a row group of {largest} bytes in a file of {blob.size}"
                raise limits.error("max_ratio", what, "create_shards", blob.url)
            wanted = [True] * len(rows)
            if self._expression is not None:
                _check_columns(blob, found, range(found.num_row_groups))
                admitted = self._admitted(blob.url, tail, partitions)
                wanted = [group in admitted for group in range(len(rows))]
            digest = digest_of(tail)
            return Footer(blob.size, blob.version, tuple(rows), tuple(decoded), tuple(wanted), digest)

    def _partitions_of(self, name: str) -> dict[str, pa.Scalar]:
        """Return the columns that a file's directories stand for."""
        path = self._stat(name).filename
        if self._partitions is None:
            if not values_of(path):  # the files need not be listed for it
                return {}
            self._partitions = fields_of(stat.filename for stat in self._files.list())
        return scalars_of(path, self._partitions) if self._partitions else {}

    def _admitted(self, url: str, tail: bytes, partitions: dict[str, pa.Scalar]) -> set[int]:
        """Return the numbers of the row groups that may have rows which the filters want, by their statistics."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.dataset as ds

        known = [
            pc.field(name) == value if value.is_valid else pc.field(name).is_null()
            for name, value in partitions.items()
        ]
        guarantee = functools.reduce(operator.and_, known) if known else None
        file = ds.ParquetFileFormat().make_fragment(pa.py_buffer(tail), partition_expression=guarantee)
        schema = file.physical_schema
        for name, value in partitions.items():
            if name not in schema.names:
                schema = schema.append(pa.field(name, value.type))
        try:
            return {group.id for group in file.subset(self._expression, schema=schema).row_groups}
        except pa.ArrowException as exc:
            raise ValueError(f"the filters {self._filters!r} don't fit {url}: {_first_line(exc)}") from exc

    def _check_schema(self, url: str, metadata: Any, partitions: dict[str, pa.Scalar]) -> None:
        import pyarrow as pa

        given = metadata.schema.to_arrow_schema().remove_metadata()
        added = [pa.field(name, value.type) for name, value in partitions.items() if name not in given.names]
        fields = [field.with_nullable(True) for field in _joinable(given)]  # as other files may have it
        schema = pa.schema([*fields, *added])
        self._casts = self._casts or pa.schema(fields) != given
        names = schema.names if self._columns is None else self._columns
        absent = [name for name in names if name not in schema.names]
        if absent:
            raise ValueError(f"{url} has no columns {absent}; it has {schema.names}")
        repeated = [name for name in dict.fromkeys(names) if schema.names.count(name) > 1]
        if repeated:
            raise ValueError(f"{url} has several columns of each of the names {repeated}")
        first = self._schema
        if first is None:
            self._schema = first = schema
        if self._columns is None and schema.names != first.names:
            raise ValueError(f"{url} has the columns {schema.names}, and the first file has {first.names}")
        for name in names:
            if schema.field(name).type != first.field(name).type:
                there, wanted = schema.field(name).type, first.field(name).type
                raise ValueError(f"the column {name!r} of {url} is {there}, and in the first file {wanted}")

    def _metadata(self, name: str) -> Any:
        """Return a file's metadata footer."""
        groups = self._shard(name)
        if groups.metadata is None:
            with self._open_listed(name) as blob:
                tail = _footer(blob)
                if digest_of(tail) != self._index(name).digest:
                    raise errors.stale(blob.url, "the file changed since its rows were counted", "read_records")
                groups.metadata = _parse(blob.url, tail)
        return groups.metadata

    # ---- rows

    def read_available(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The rows with these numbers, in the order given, and `LOST` for those of a row group that is skipped."""
        check_numbers(shard_name, numbers, sum(self._index(shard_name).rows))
        for at in range(0, len(numbers), 1024):
            wanted = np.asarray(numbers[at : at + 1024], np.int64)
            yield from rows_of(*self.take([shard_name], np.zeros_like(wanted), wanted))

    def take(self, names: Sequence[str], shards: Numbers, rows: Numbers) -> tuple[pa.Table, Numbers]:
        """Return rows in order: a table of them, and for each the number in the table; -1 for a row that is skipped.

        Args:
            names: of the shards.
            shards: for each row the number of its shard in `names`.
            rows: the rows' numbers in their files.
        """
        chunks, which, within = self.locate(names, shards, rows)
        decoded = [self.decoded(chunk) for chunk in chunks]
        return assembled(decoded, which, within)

    def locate(self, names: Sequence[str], shards: Numbers, rows: Numbers) -> tuple[list[Chunk], Numbers, Numbers]:
        """Return the chunks that hold rows, in the order of the files, and for each row its chunk and number there."""
        chunks: list[Chunk] = []
        which, within = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for shard, slots in by_shard(shards):
            there, firsts = self._chunks_of(names[shard])
            found = firsts.searchsorted(rows[slots], side="right") - 1
            used, inverse = np.unique(found, return_inverse=True)
            which[slots] = inverse + len(chunks)
            within[slots] = rows[slots] - firsts[found]
            chunks += [there[number] for number in used.tolist()]
        return chunks, which, within

    def decoded(self, chunk: Chunk) -> pa.Table | None:
        """Return the rows of a chunk; None if it is damaged, and damage is skipped."""
        with self._lock:
            if chunk in self._decoded:
                self._decoded.move_to_end(chunk)
                return self._decoded[chunk]
        table = self.decode(chunk)
        if table is not None:
            with self._lock:
                self._decoded[chunk] = table
                kept = sum(one.nbytes for one in self._decoded.values())
                while kept > _DECODED and len(self._decoded) > 1:
                    kept -= self._decoded.popitem(last=False)[1].nbytes
        return table

    def run(self, name: str, first: int, last: int, size: int) -> Iterator[tuple[pa.Table | None, int]]:
        """Yield the rows of a file from one number to another, in tables of up to `size` or a chunk, and their counts.

        None is in the place of rows that are skipped. Row groups are decoded batch by batch, one after the other, which
        takes less memory and time than decoding them whole.
        """
        chunks, firsts = self._chunks_of(name)
        number = int(firsts.searchsorted(first, side="right")) - 1
        while first < last:
            if chunks[number].whole:
                end = number
                while end < len(chunks) and chunks[end].whole and chunks[end].first < last:
                    end += 1
                for table in self._until_damage(name, chunks[number:end], first, last, size):
                    yield table, table.num_rows
                    first += table.num_rows
                number = int(firsts.searchsorted(first, side="right")) - 1
            if first < last:  # a part of a large row group, or one that is damaged
                chunk = chunks[number]
                start, stop = first - chunk.first, min(chunk.rows, last - chunk.first)
                found = self.decode(chunk)
                yield None if found is None else found.slice(start, stop - start), stop - start
                first, number = chunk.first + stop, number + 1

    def _until_damage(self, name: str, chunks: Sequence[Chunk], first: int, last: int, size: int) -> Iterator[pa.Table]:
        """Yield tables of the rows from one number to another; end where the next ones can't be decoded."""
        import pyarrow as pa

        opened = self._opened(name)
        row, groups = chunks[0].first, [chunk.group for chunk in chunks]
        try:
            with contextlib.suppress(CorruptFileError), _decoding(opened.blob.url, None):
                for group in groups:
                    self._ranges(opened.blob, opened.metadata, group)
                for batch in opened.file.iter_batches(
                    size, row_groups=groups, columns=self._stored(name), use_threads=False
                ):
                    start, stop = max(0, first - row), min(batch.num_rows, last - row)
                    row += batch.num_rows
                    if start < stop:
                        yield self._wanted(name, pa.Table.from_batches([batch.slice(start, stop - start)]))
                    if row >= last:
                        break
        finally:
            opened.blob.close()

    def decode(self, chunk: Chunk) -> pa.Table | None:
        """Return the rows of a chunk, which are not kept; None if it is damaged, and damage is skipped."""
        try:
            return self._whole(chunk) if chunk.whole else self._part(chunk)
        except CorruptFileError:
            if self.on_error == "raise":
                raise
            return None

    def _whole(self, chunk: Chunk) -> pa.Table:
        opened = self._opened(chunk.name)
        blob = opened.blob
        try:
            with _decoding(blob.url, chunk.group):
                opened.source.fetch(self._ranges(blob, opened.metadata, chunk.group))
                table = opened.file.read_row_group(chunk.group, columns=self._stored(chunk.name), use_threads=False)
                opened.source.fetch(())
                if table.num_rows != chunk.rows:
                    reason = f"row group {chunk.group} has {table.num_rows} rows, not {chunk.rows}"
                    raise errors.corrupt(blob.url, reason, "read_records")
        except BaseException:
            blob.close()
            raise
        self._shard(chunk.name).idle.append(opened)
        return self._wanted(chunk.name, table)

    def _stored(self, name: str) -> list[str] | None:
        """Return which columns are read from a file; None for all."""
        if self._columns is None:
            return None
        partitions = self._partitions_of(name)
        return [column for column in self._columns if column not in partitions]

    def _wanted(self, name: str, table: pa.Table) -> pa.Table:
        """Return the wanted columns, in their order, with the types of `schema`."""
        import pyarrow as pa

        for column, value in self._partitions_of(name).items():
            if column not in table.column_names:
                table = table.append_column(column, pa.repeat(value, table.num_rows))
        if self._columns is not None:
            table = table.select(self._columns)
        return table.cast(self.schema) if self._casts else table

    def _opened(self, name: str) -> _OpenFile:
        """Return an open file for the caller alone."""
        groups = self._shard(name)
        with self._lock:
            if groups.idle:
                return groups.idle.pop()
        metadata = self._metadata(name)
        blob = self._open_listed(name)
        source = RangeFile(blob)
        with _decoding(blob.url, None):
            return _OpenFile(blob, metadata, source, _parquet_file(source, metadata))

    def _ranges(self, blob: Blob, metadata: Any, group: int) -> list[tuple[int, int]]:
        """Return where the wanted columns of a row group lie."""
        _check_columns(blob, metadata, [group])
        row_group = metadata.row_group(group)
        wanted = None if self._columns is None else set(self._columns)
        ranges = []
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            path = column.path_in_schema
            if wanted is not None and path not in wanted and not any(path.startswith(name + ".") for name in wanted):
                continue
            start = column.data_page_offset
            if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
                start = column.dictionary_page_offset
            end = start + column.total_compressed_size
            if not 4 <= start <= end <= blob.size:
                reason = f"row group {group}: the column {path!r} is said to lie at {start} to {end} of {blob.size}"
                raise errors.corrupt(blob.url, reason, "read_records")
            ranges.append((start, end))
        return sorted(ranges)

    def _part(self, chunk: Chunk) -> pa.Table:
        """Return a part of a row group, which follows the one before it without decoding that again."""
        with self._lock:
            scan, self._scan = self._scan, None
        if scan is None or not scan.reaches(chunk):
            blob = self._open_listed(chunk.name)
            metadata = self._metadata(chunk.name)
            self._ranges(blob, metadata, chunk.group)
            scan = _GroupScan(blob, metadata, chunk, self._stored(chunk.name))
        table = scan.take(chunk)
        with self._lock:
            self._scan = scan
        return self._wanted(chunk.name, table)

    # ---- the rest of the interface

    @property
    def largest_chunk(self) -> int:
        """The decoded bytes of the largest row group or part of one, by the footers, at least 1."""
        largest = max((max(footer.decoded, default=1) for footer in self._indexes.values()), default=1)
        return max(1, min(largest, self._chunk_bytes))

    @property
    def schema(self) -> Any:
        """The pyarrow schema of the columns that are read; None before `create_shards`."""
        import pyarrow as pa

        if self._schema is None or self._columns is None:
            return self._schema
        return pa.schema([self._schema.field(name) for name in self._columns])

    @property
    def metadata(self) -> Metadata:
        """The names and pyarrow types of the columns."""
        schema = self.schema
        return Metadata(self._columns) if schema is None else Metadata(list(schema.names), list(schema.types))

    def set_order(self, shard_names: Iterable[str]) -> None:
        """Hand the files of these shards, in order, to a cache below."""
        super().set_order(dict.fromkeys(shard_names))

    def close(self) -> None:
        """Free what is held in this process."""
        with self._lock:
            self._decoded, self._scan = OrderedDict(), None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_decoded": OrderedDict(), "_scan": None}


class RangeFile(io.RawIOBase):
    """Reads what is asked for: from the fetched ranges, or from the blob. Closing it leaves the blob open."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._starts: list[int] = []
        self._contents: list[memoryview] = []
        self._position = 0

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges (start, end), ascending, in place of those before, and read from them."""
        self._starts = [start for start, _ in ranges]
        if self._blob.max_gap_bytes:  # requests to a store are under way together
            self._contents = [memoryview(one) for one in self._blob.pread_many([(end - at, at) for at, end in ranges])]
        else:
            self._contents = [self._filled(start, end) for start, end in ranges]

    def _filled(self, start: int, end: int) -> memoryview:
        """Return a range, in memory of Arrow's, which is used again and again."""
        import pyarrow as pa

        view = memoryview(pa.allocate_buffer(end - start)).cast("B")
        if (size := self._blob.pread_into(view, start)) != end - start:
            raise errors.corrupt(self._blob.url, f"{size} bytes at offset {start} where {end - start} were expected")
        return view.toreadonly()

    def read(self, size: int = -1, /) -> Any:
        """Return a buffer of up to `size` bytes from the position; of all that is left if it is negative."""
        left = max(0, self._blob.size - self._position)
        size = left if size is None or size < 0 else min(size, left)
        data = self._fetched(size)
        found = data if data is not None else self._filled(self._position, self._position + size)
        self._position += len(found)
        return found

    def _fetched(self, size: int) -> memoryview | None:
        number = bisect_right(self._starts, self._position) - 1
        if number < 0:
            return None
        content, at = self._contents[number], self._position - self._starts[number]
        return None if at + size > len(content) else content[at : at + size]

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer` as far as the file goes; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position."""
        self._position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._blob.size}[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def size(self) -> int:
        """Return the size of the file."""
        return self._blob.size

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True


class _Groups:
    """The row groups of a file, and the file where it is open."""

    def __init__(self, chunks: list[Chunk], firsts: Numbers) -> None:
        self.chunks = chunks
        self.firsts = firsts
        """The number of the first row of each chunk."""
        self.metadata: Any = None
        """The footer, once it was asked for."""
        self.idle: list[_OpenFile] = []
        """The file, open and not in use: several times, where threads have read it at once."""

    def close(self) -> None:
        """Close the file."""
        for one in self.idle:
            one.blob.close()


class _OpenFile(NamedTuple):
    """A file whose row groups are read."""

    blob: Blob
    metadata: Any
    source: RangeFile
    file: Any
    """A `pyarrow.parquet.ParquetFile` of `source`."""


class _GroupScan:
    """The rows of one row group from front to back, decoded in bounded memory."""

    def __init__(self, blob: Blob, metadata: Any, chunk: Chunk, columns: list[str] | None) -> None:
        self._blob = blob
        self._chunk = chunk
        self._row = 0
        self._rest: Any = None
        with _decoding(blob.url, chunk.group):
            file = _parquet_file(RangeFile(blob), metadata, _STREAM)
            self._batches = file.iter_batches(
                min(chunk.rows, 1 << 16) or 1, row_groups=[chunk.group], columns=columns, use_threads=False
            )

    def reaches(self, chunk: Chunk) -> bool:
        """Return whether the chunk is still to come."""
        return self._chunk[:2] == chunk[:2] and self._row <= chunk.start

    def take(self, chunk: Chunk) -> pa.Table:
        """Return the rows of a chunk."""
        import pyarrow as pa

        for _ in self._until(chunk.start):
            pass  # dropped at once: before the last chunk, they are nearly all of the row group
        return pa.Table.from_batches(list(self._until(chunk.start + chunk.rows)))

    def _until(self, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to a number, in batches."""
        with _decoding(self._blob.url, self._chunk.group):
            while self._row < end:
                batch = self._rest if self._rest is not None else next(self._batches, None)
                if batch is None:
                    reason = f"row group {self._chunk.group} ends after {self._row} rows"
                    raise errors.corrupt(self._blob.url, reason, "read_records")
                size = min(batch.num_rows, end - self._row)
                self._rest = batch.slice(size) if size < batch.num_rows else None
                self._row += size
                yield batch.slice(0, size)


def _joinable(kind: Any) -> Any:
    """Return a schema or type of pyarrow as rows of several files can be taken of it.

    Strings and bytes are in place of views, of which `take` can't take any; dictionaries have indices for all that
    those of several files have together: pandas' are of 128 values at most. Inner values may be NULL: another file's
    may.
    """
    import pyarrow as pa

    def plain(field: pa.Field) -> pa.Field:
        return field.with_type(_joinable(field.type)).with_nullable(True)

    if isinstance(kind, pa.Schema):
        return pa.schema([field.with_type(_joinable(field.type)) for field in kind])
    if isinstance(kind, pa.StructType):
        return pa.struct(list(map(plain, kind)))
    if isinstance(kind, pa.MapType):
        return pa.map_(plain(kind.key_field).with_nullable(False), plain(kind.item_field))
    if isinstance(kind, pa.FixedSizeListType):
        return pa.list_(plain(kind.value_field), kind.list_size)
    if isinstance(kind, pa.ListType):
        return pa.list_(plain(kind.value_field))
    if isinstance(kind, pa.LargeListType):
        return pa.large_list(plain(kind.value_field))
    if isinstance(kind, pa.DictionaryType) and kind.index_type.bit_width < 32:
        return pa.dictionary(pa.int32(), kind.value_type, kind.ordered)
    return pa.string() if pa.types.is_string_view(kind) else pa.binary() if pa.types.is_binary_view(kind) else kind


@contextlib.contextmanager
def _decoding(url: str, group: int | None) -> Iterator[None]:
    """Raise what pyarrow raises for damage as a `CorruptFileError`, and errors of the store as they are."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as exc:
        if isinstance(exc, OSError) and exc.filename is not None:
            raise
        where = "" if group is None else f"row group {group}: "
        raise errors.corrupt(url, where + _first_line(exc), "read_records") from exc


def _first_line(exc: BaseException) -> str:
    return (str(exc).splitlines() or [type(exc).__name__])[0][:300]


def _expression(filters: Sequence[Any] | pc.Expression) -> pc.Expression | None:
    """Return filters in pyarrow's form as an expression, None for no conditions; `ValueError` for another form."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if isinstance(filters, pc.Expression):
        return filters
    try:
        conditions = list(filters)
        return pq.filters_to_expression(conditions) if conditions else None
    except (TypeError, ValueError) as exc:
        raise ValueError(f"there is no condition (column, operator, value) in {filters!r}: {exc}") from exc


def _parquet_file(source: RangeFile, metadata: Any, buffer_size: int = 0) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pq.ParquetFile(
        pa.PythonFile(source, "r"),
        metadata=metadata,
        pre_buffer=False,
        buffer_size=buffer_size,
        page_checksum_verification=True,
    )


class _Reached(Exception):
    """Raised where the first byte of a column would be read."""


class _Unread(RangeFile):
    """A file of which nothing is read."""

    def read(self, size: int = -1, /) -> Any:
        """Raise `_Reached`."""
        raise _Reached


def _check_columns(blob: Blob, metadata: Any, groups: Sequence[int]) -> None:
    """Raise `CorruptFileError` if pyarrow can't make the metadata of the columns of row groups.

    Asked for them by `RowGroupMetaData.column` or by filters, it would end the process. Reading raises instead, and
    makes those of all columns before it reads the first byte.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _decoding(blob.url, None), contextlib.suppress(_Reached):
        file = pq.ParquetFile(pa.PythonFile(_Unread(blob), "r"), metadata=metadata, pre_buffer=True)
        file.read_row_groups(groups, use_threads=False)


def _footer(blob: Blob) -> bytes:
    """Return a file's footer with the 8 bytes after it; kept by the file's version."""
    return bytes(derived(_KIND, blob, functools.cache(lambda: [_tail(blob)])))


def _tail(blob: Blob) -> bytes:
    tail = blob.pread(min(_TAIL, blob.size), max(0, blob.size - _TAIL))
    if tail[-4:] == b"PARE":
        raise errors.unsupported("open", blob.url, "its footer is encrypted")
    size = int.from_bytes(tail[-8:-4], "little") + 8
    if tail[-4:] != b"PAR1" or size > blob.size - 4:
        raise errors.corrupt(blob.url, "no Parquet file: it does not end in a footer and PAR1", "create_shards")
    if size > _LARGEST_FOOTER:
        raise errors.corrupt(blob.url, f"a footer of {size} bytes; {_LARGEST_FOOTER} are read", "create_shards")
    if size > len(tail):
        tail = blob.pread(size, blob.size - size)
    return tail[-size:]


def _parse(url: str, tail: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = pq.read_metadata(pa.BufferReader(tail))
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise errors.corrupt(url, f"the footer can't be read: {_first_line(exc)}", "create_shards") from exc
    if len(tail) - 8 - found.serialized_size == _SIGNATURE:  # asked for such a column, pyarrow ends the process
        raise errors.unsupported("open", url, "columns of it are encrypted")
    return found


def assembled(decoded: Sequence[pa.Table | None], which: Numbers, within: Numbers) -> tuple[Any, Numbers]:
    """Return rows of tables as one table, in order, and for each its number there; -1 for one of a missing table.

    Args:
        decoded: the tables.
        which: for each row the number of its table.
        within: for each row its number in the table.
    """
    import pyarrow as pa

    tables = [table for table in decoded if table is not None]
    there = np.array([table is not None for table in decoded], bool)[which]
    if not tables:
        return None, np.full(len(which), -1, np.int64)
    starts = np.cumsum([0, *(0 if table is None else table.num_rows for table in decoded)])
    wanted = (starts[which] + within)[there]
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    if len(wanted) and (np.diff(wanted) == 1).all():
        table = table.slice(int(wanted[0]), len(wanted))
    elif len(tables) > 1 and 2 * len(wanted) < table.num_rows:
        table = _taken(tables, wanted)
    else:
        table = table.take(pa.array(wanted))
    places = np.full(len(which), -1, np.int64)
    places[there] = np.arange(len(wanted))
    return table, places


def _taken(tables: Sequence[pa.Table], wanted: Numbers) -> pa.Table:
    """Return a few rows of tables, which are numbered on from table to table.

    Each gives its own, since pyarrow would join all of their columns first: that takes long, and fails from 2 GiB on.
    """
    import pyarrow as pa

    order = np.argsort(wanted, kind="stable")
    starts = np.cumsum([0, *(table.num_rows for table in tables)])
    cuts = wanted[order].searchsorted(starts)
    parts = [
        table.take(pa.array(wanted[order[first:last]] - start))
        for table, start, first, last in zip(tables, starts, cuts, cuts[1:], strict=False)
        if first < last
    ]
    return pa.concat_tables(parts or tables).take(pa.array(np.argsort(order)))


def rows_of(table: pa.Table | None, places: Numbers) -> Iterator[Any]:
    """Yield the rows at these places of a table as dicts, and `LOST` for -1."""
    rows = iter(table.to_pylist()) if table is not None else iter(())
    for place in places.tolist():
        yield LOST if place < 0 else next(rows)
