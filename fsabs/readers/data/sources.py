"""reader_of: the data reader of a location, by the names of its files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ...core.fs import FS
from .archives import ArchiveDataReader
from .base import AbstractDataReader, OnError, adopt
from .files import Files, Location
from .jsonl import SUFFIXES as JSON_LINES
from .jsonl import JsonLinesDataReader, is_json_lines
from .mds import INDEX, MDSDataReader
from .parquet import SUFFIXES as PARQUET
from .parquet import ParquetDataReader, is_parquet
from .recordio import RecordIODataReader

_ARCHIVES = (".tar", ".zip", ".tar.gz", ".tgz")


def reader_of(
    source: AbstractDataReader | Location,
    on_error: OnError,
    columns: Sequence[str] | None = None,
    filters: Sequence[Any] | None = None,
) -> AbstractDataReader:
    """Return the data reader of a location, or the one that is given; `columns` and `filters` are of Parquet files."""
    reader = _reader_of(source, on_error, columns, filters)
    if (columns is not None or filters is not None) and not isinstance(reader, ParquetDataReader):
        raise TypeError(f"columns and filters are of Parquet files, and not for {type(reader).__name__}")
    return reader


def _reader_of(
    source: AbstractDataReader | Location,
    on_error: OnError,
    columns: Sequence[str] | None,
    filters: Sequence[Any] | None,
) -> AbstractDataReader:
    if not isinstance(source, FS | str | os.PathLike):
        if columns is not None or filters is not None:
            raise TypeError("columns and filters are given to the data reader")
        return adopt(source)
    if is_parquet(source):
        return ParquetDataReader(source, columns=columns, filters=filters, on_error=on_error)
    if is_json_lines(source):
        return JsonLinesDataReader(source, on_error=on_error)
    files = Files(source, suffixes=_ARCHIVES)
    try:
        names = [stat.filename.lower() for stat in files.list()]
    finally:
        if files.fs is not source:
            files.close()
    if INDEX in names and any(".mds" in name for name in names):
        return MDSDataReader(source)
    if any(name.endswith(PARQUET) for name in names):
        return ParquetDataReader(source, columns=columns, filters=filters, on_error=on_error)
    if any(name.endswith(JSON_LINES) for name in names):
        return JsonLinesDataReader(source, on_error=on_error)
    if any(name.endswith(_ARCHIVES) for name in names):
        return ArchiveDataReader(source)
    return RecordIODataReader(source, on_error=on_error)
