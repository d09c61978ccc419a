"""Files and directories as commands show them: names in order, lines of `ls -l`, JSON objects, sizes and times."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from .output import size_text

if TYPE_CHECKING:
    from ..core.fs import FS
    from ..core.stats import FileStat
    from .paths import ResolvedPath

T = TypeVar("T")

SORTED = 10_000
"""Entries that are sorted where a store gives them in no order; of more, the first ones would have to wait."""


def names(fs: FS, path: str, recursive: bool = False) -> Iterator[str]:
    """Yield the names in a directory, in order, a directory's with a `/` at its end."""
    return _in_order(fs, fs.list(path, recursive), str)


def stats(fs: FS, path: str, recursive: bool = False) -> Iterator[FileStat]:
    """Yield the stats in a directory, in the order of their names."""
    return _in_order(fs, fs.list(path, recursive, detail=True), lambda stat: stat.filename)


def _in_order(fs: FS, items: Iterator[T], key: Callable[[T], str]) -> Iterator[T]:
    if fs.capabilities.ordered:
        return items
    first = list(itertools.islice(items, SORTED + 1))
    if len(first) <= SORTED:
        first.sort(key=key)
    return itertools.chain(first, items)


def size_column(stat: FileStat, human: bool) -> str:
    """Return a file's size for people or in bytes; `-` for a directory."""
    if stat.directory:
        return "-"
    return size_text(stat.size) if human else str(stat.size)


def time_column(when: float | None) -> str:
    """Return a time in the local zone; `-` if there is none."""
    return "-" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))


def iso(when: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    return None if when is None else datetime.fromtimestamp(when, UTC).isoformat().replace("+00:00", "Z")


def values(stat: FileStat, name: str, url: str) -> dict[str, Any]:
    """Return a file or directory as an object of `--json`."""
    return {
        "name": name,
        "url": url,
        "type": "directory" if stat.directory else "file",
        "size": None if stat.directory else stat.size,
        "modified": iso(stat.last_modified),
        "version": stat.version,
    }


def is_listed(found: ResolvedPath) -> bool:
    """Return whether a path names a directory or the members of a container; `FileNotFoundError` if nothing is there.

    A file that is written with a `/` at its end is a `NotADirectoryError`, when it is listed.
    """
    return found.contents or found.stat().directory
