"""The source of a sharded data set, and its records in chunks for a thread that reads ahead."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ...fs import FS
from ...readers.data import AbstractDataReader, ArchiveDataReader, MDSDataReader, RecordIODataReader
from ...readers.data.base import OnError, adopt
from ...readers.data.files import Files, Location
from ...readers.data.mds import INDEX

_ARCHIVES = (".tar", ".zip", ".tar.gz", ".tgz")
_CHUNK = 256  # records that are handed from the thread that reads ahead at once


def reader_of(source: AbstractDataReader | Location, on_error: OnError) -> AbstractDataReader:
    """Return the data reader of a location, or the one that is given."""
    if not isinstance(source, FS | str | os.PathLike):
        return adopt(source)
    files = Files(source, suffixes=_ARCHIVES)
    try:
        names = [stat.filename.lower() for stat in files.list()]
    finally:
        if files.fs is not source:
            files.close()
    if INDEX in names and any(".mds" in name for name in names):
        return MDSDataReader(source)
    if any(name.endswith(_ARCHIVES) for name in names):
        return ArchiveDataReader(source)
    return RecordIODataReader(source, on_error=on_error)


def in_chunks(records: Iterator[Any]) -> Iterator[list[Any]]:
    """Yield records in lists that are worth handing to another thread."""
    chunk: list[Any] = []
    size = 0
    for record in records:
        chunk.append(record)
        size += _size(record)
        if len(chunk) >= _CHUNK or size >= 1 << 20:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def weigh(chunk: list[Any]) -> int:
    """Return the size of records in memory, in bytes, about."""
    return sum(map(_size, chunk))


def _size(record: Any) -> int:
    if isinstance(record, bytes):
        return len(record)
    if isinstance(record, Mapping):
        return sum(map(_size, record.values()))
    if isinstance(record, tuple | list):
        return sum(map(_size, record))
    return int(getattr(record, "nbytes", 0)) or sys.getsizeof(record)
