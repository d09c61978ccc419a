"""`Manifest`: a manifest opened for lookups, whatever its format; the format is that of the name's suffix."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from ..core import errors
from ..core.blobs import Blob
from ..core.writing import ClosesOnExit
from ..urls import locations, opening
from . import jsonlines, parquet
from .entries import ManifestEntry, ManifestTable

SUFFIXES = {".jsonl": "JSON lines", ".parquet": "Parquet"}


def suffix_of(url: str | os.PathLike[str]) -> str:
    """Return the suffix of a manifest's name, which stands for its format; `ValueError` for any other."""
    path = locations.parse(url).path
    for suffix in SUFFIXES:
        if path.endswith(suffix):
            return suffix
    known = ", ".join(f"{suffix} ({name})" for suffix, name in SUFFIXES.items())
    raise ValueError(f"a manifest's name ends in {known}, not as {locations.parse(url).text}")


def write(file: BinaryIO, suffix: str, entries: Iterable[ManifestEntry]) -> tuple[int, int]:
    """Write entries, which come in order, in the format of `suffix`; return their number and their sizes."""
    if suffix == ".parquet":
        return parquet.write(file, entries)
    return jsonlines.write(file, entries)


class Manifest(ClosesOnExit):
    """A manifest that is open for lookups; a context manager.

    Works in threads and after forks, and is the same manifest after pickling, or raises `StaleFileError`. It takes a
    bounded amount of memory, whatever its length.

    Args:
        url: where it is; the suffix is that of the format: `.jsonl` or `.parquet`.
        options: of `open_url`.
    """

    def __init__(self, url: str | os.PathLike[str], **options: Any) -> None:
        suffix = suffix_of(url)
        given = os.fspath(url)
        self._arguments = given if "://" in given else os.path.abspath(given), options
        with contextlib.ExitStack() as stack:
            blob = stack.enter_context(opening.open_url(url, "rb", **options)).raw.blob
            self.url: str = blob.url
            """The manifest's own URL."""
            self._version = blob.size, blob.version
            self._table = _table(blob, suffix, locations.parse(url).scheme != "file")
            self._open = stack.pop_all()

    def __len__(self) -> int:
        """Return the number of entries: of files and of empty directories."""
        return self._table.entries

    @property
    def bytes(self) -> int:
        """The sizes of all files, added up."""
        return self._table.bytes

    def __iter__(self) -> Iterator[ManifestEntry]:
        """Yield all entries, by the order of their names."""
        yield from self._table.all()  # and keep the manifest open for that long

    def find(self, name: str) -> ManifestEntry | None:
        """Return the entry of that name (that of an empty directory ends in `/`), or None."""
        return self._table.find(name)

    def scan(self, name: str = "") -> Iterator[ManifestEntry]:
        """Yield the entries from the first whose name is `name` or comes after it."""
        yield from self._table.scan(name)

    def close(self) -> None:
        """Close the manifest's file."""
        self._open.close()

    def __repr__(self) -> str:
        return f"Manifest({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (*self._arguments, self._version)


def _table(blob: Blob, suffix: str, remote: bool) -> ManifestTable:
    if suffix == ".parquet":
        return parquet.ParquetTable(blob)
    return jsonlines.JsonLinesTable(blob, remote)


def _reopen(url: str, options: dict[str, Any], version: Any) -> Manifest:
    """Return the manifest of a pickle, if it is still the same."""
    manifest = Manifest(url, **options)
    if manifest._version != version:
        manifest.close()
        raise errors.stale(manifest.url, "the manifest changed since it was pickled", "open")
    return manifest
