"""Manifests as Parquet files: the columns `name`, `size`, `version` and `digest`, sorted by `name`.

The row groups are small, and their statistics have the first and last name of each: a name is looked for in one group.
"""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from ..core import errors, process
from ..core.blobs import Blob
from ..core.files import buffered
from .entries import ManifestEntry, ManifestTable

_ROWS = 8192  # of a group
_KEPT = 64  # groups in memory


def _pyarrow() -> Any:
    import pyarrow
    import pyarrow.parquet

    return pyarrow


def write(file: BinaryIO, entries: Iterable[ManifestEntry]) -> tuple[int, int]:
    """Write entries, which come in order; return how many they are, and the sum of their sizes."""
    arrow = _pyarrow()
    fields = ManifestEntry._fields
    schema = arrow.schema([(name, arrow.int64() if name == "size" else arrow.string()) for name in fields])
    count = total = 0
    writer = arrow.parquet.ParquetWriter(
        file, schema, compression="zstd", use_dictionary=False, write_statistics=["name"]
    )
    with writer:
        source = iter(entries)
        while batch := list(itertools.islice(source, _ROWS)):
            try:
                columns = [
                    arrow.array(column, field.type)
                    for column, field in zip(zip(*batch, strict=True), schema, strict=True)
                ]
            except UnicodeEncodeError:
                name = next(entry.name for entry in batch if not entry.name.isprintable())
                raise ValueError(f"Parquet has no name that is not UTF-8: {name!r}; JSON lines has") from None
            writer.write_table(arrow.table(columns, schema=schema), row_group_size=_ROWS)
            count, total = count + len(batch), total + sum(entry.size for entry in batch)
        writer.add_key_value_metadata({"manifest": "fsabs", "entries": str(count), "bytes": str(total)})
    return count, total


class ParquetTable(ManifestTable):
    """The entries of a Parquet file."""

    def __init__(self, blob: Blob) -> None:
        super().__init__(blob)
        self._lock = process.Lock()
        self._group = functools.lru_cache(_KEPT)(self._read)
        arrow = _pyarrow()
        try:
            self._file = arrow.parquet.ParquetFile(buffered(blob), pre_buffer=False)
            found = self._file.metadata.metadata or {}
            self.entries, self.bytes = int(found[b"entries"]), int(found[b"bytes"])
        except (arrow.ArrowException, KeyError, ValueError) as exc:
            raise errors.corrupt(blob.url, f"no manifest in Parquet: {exc}", "open") from None
        self._last = [self._last_name(number) for number in range(self._file.num_row_groups)]
        if self._file.metadata.num_rows != self.entries:
            raise errors.corrupt(blob.url, f"{self._file.metadata.num_rows} rows, not {self.entries}", "open")

    def _last_name(self, number: int) -> str:
        group = self._file.metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == "name" and column.statistics is not None and column.statistics.has_min_max:
                return str(column.statistics.max)
        return str(self._group(number)[0][-1])  # a name that is too long for statistics

    def scan(self, name: str = "") -> Iterator[ManifestEntry]:
        """Yield the entries from the first whose name is `name` or comes after it."""
        first = bisect.bisect_left(self._last, name)
        for number in range(first, len(self._last)):
            columns = self._group(number)
            names = columns[0]
            start = _row_of(names, name) if number == first else 0
            for at in range(start, len(names)):
                yield self._entry(number, [column[at].as_py() for column in columns])

    def _entry(self, number: int, values: list[Any]) -> ManifestEntry:
        try:
            return ManifestEntry(*values).checked()
        except ValueError as exc:
            raise errors.corrupt(self._blob.url, f"row group {number}: {exc}") from None

    def _read(self, number: int) -> list[Any]:
        """Return the columns of a row group, in the order of an entry's fields."""
        arrow = _pyarrow()
        try:
            with self._lock:
                table = self._file.read_row_group(number, list(ManifestEntry._fields), use_threads=False)
            return [table.column(name).combine_chunks() for name in ManifestEntry._fields]
        except (arrow.ArrowException, KeyError, ValueError) as exc:
            raise errors.corrupt(self._blob.url, f"row group {number}: {exc}") from None


def _row_of(names: Any, name: str) -> int:
    """Return the number of the first of a column's names that is `name` or comes after it."""
    return bisect.bisect_left(range(len(names)), name, key=lambda at: names[at].as_py())
