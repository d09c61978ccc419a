"""Columns that the directories of files stand for, as Hive names them: `year=2024/month=07/part-0.parquet`."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...core import keys

if TYPE_CHECKING:
    import pyarrow as pa

_NULL = "__HIVE_DEFAULT_PARTITION__"


def values_of(path: str) -> dict[str, str | None]:
    """Return the columns that a file's path stands for, and their values; None for NULL."""
    pairs = (segment.partition("=") for segment in keys.parent(path).split("/"))
    return {
        urllib.parse.unquote(name): None if value == _NULL else urllib.parse.unquote(value)
        for name, equals, value in pairs
        if name and equals
    }


def fields_of(paths: Iterable[str]) -> dict[str, type[int] | type[str]]:
    """Return the columns that the paths of files stand for: of integers where all values are, else of text."""
    found: dict[str, type[int] | type[str]] = {}
    for path in paths:
        for name, value in values_of(path).items():
            is_number = value is None or (value.removeprefix("-").isdecimal() and abs(int(value)) < 1 << 63)
            found[name] = int if is_number and found.get(name, int) is int else str
    return found


def scalars_of(path: str, fields: dict[str, type[int] | type[str]]) -> dict[str, pa.Scalar]:
    """Return the value of each column for a file; NULL for one that its path does not name."""
    import pyarrow as pa

    values = values_of(path)
    return {
        name: pa.scalar(
            None if values.get(name) is None else kind(values[name] or ""), pa.int64() if kind is int else pa.string()
        )
        for name, kind in fields.items()
    }
