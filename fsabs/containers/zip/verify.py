"""All faults of an archive, for `verify()` of a zip: every member is read, and every problem reported, none raised."""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator

from ...core import errors
from ...core.blobs import Blob
from ...core.errors import CorruptFileError
from ...core.limits import Limits
from ..base import Problem
from . import directory, index, members
from .directory import DirectoryScan
from .records import ZipEntry
from .table import ZipTable

_PART = 8 * 1024 * 1024


class _Anonymous:
    """The origin of an entry's blob that no path leads to."""

    def __init__(self, url: str) -> None:
        self._archive_url = url

    def _open_blob(self, key: str) -> Blob:
        raise errors.unsupported("open", self._url(key), "an entry that is being verified can't be opened again")

    def _url(self, key: str) -> str:
        return f"{self._archive_url}: entry {key!r}"

    def _resolved_store(self) -> str:
        return ""

    def _is_settled(self, version: str) -> bool:
        return False  # nothing is kept of it


def problems(archive: Blob, url: str, limits: Limits) -> Iterator[Problem]:
    """The problems of an archive: its layout's, then its names', then its members' in their order."""
    scan = DirectoryScan(directory.find(archive, url), limits)
    table = index.in_memory(scan)
    layout = table.layout
    if layout.junk:
        yield Problem("", "trailing data", f"{layout.junk} bytes are behind the archive's end")
    names = [_described(scan, table, row) for row in range(table.rows)]
    yield from _of_names(scan, table, names)
    entries = map(table.entry, range(table.rows))
    total = sum(entry.size for entry in entries if not limits.declares_too_much(entry.size, entry.compressed))
    if limits.declares_too_much(total, archive.size):
        what = f"{table.rows} members of {total} bytes in a file of {archive.size}: they were not read"
        yield Problem("", "limit", limits.reason("max_ratio", what))
        return
    for _, row in sorted((table.entry(row).offset, row) for row in range(table.rows)):
        problem = _of_member(table.entry(row), names[row], archive, url, limits)
        if problem is not None:
            yield problem


def refused(archive: Blob, url: str, limits: Limits) -> Iterator[Problem]:
    """Yield the entries of an archive whose names are refused."""
    scan = DirectoryScan(directory.find(archive, url), limits)
    index.in_memory(scan)
    for _, (name, reason) in sorted(scan.refused.items()):
        yield Problem(name, "unsafe name", f"{reason}: it can't be opened")


def _described(scan: DirectoryScan, table: ZipTable, row: int) -> str:
    """The name of an entry: as it stands in the archive, where that is refused."""
    return scan.refused[row][0] if row in scan.refused else table.name(row).decode(errors="replace")


def _of_names(scan: DirectoryScan, table: ZipTable, names: list[str]) -> Iterator[Problem]:
    for _, (name, reason) in sorted(scan.refused.items()):
        yield Problem(name, "unsafe name", f"{reason}: it can't be opened")
    for row, reason in sorted(scan.changed.items()):
        yield Problem(names[row], "odd name", reason)
    counted = set(table.order())
    for row, name in enumerate(names):
        if row not in counted and row not in scan.refused:
            offset = table.entry(row).offset
            yield Problem(name, "duplicate", f"one more entry of this name, at offset {offset}: the last wins")
    files = {names[row] for row in counted if not names[row].endswith("/")}
    above = {name[:end] for name in names for end, char in enumerate(name) if char == "/"}
    for name in sorted(files & above):
        yield Problem(name, "conflict", "it is a file, and a directory with members, at once")


def _of_member(entry: ZipEntry, name: str, archive: Blob, url: str, limits: Limits) -> Problem | None:
    """Read a member to its end."""
    origin = _Anonymous(url)
    try:
        with members.open_member(origin, name, entry, archive, limits) as blob:
            if blob.size <= _PART:
                blob.read_all()
            for offset in range(0, blob.size, _PART) if blob.size > _PART else ():
                blob.pread(_PART, offset)
            if not blob.size:  # no read has looked at its local header
                members.find(entry, archive, origin, name)
    except io.UnsupportedOperation as exc:
        return Problem(name, "unreadable", _reason(exc))
    except CorruptFileError as exc:
        return Problem(name, "damaged", _reason(exc))
    except OSError as exc:
        if exc.errno != errno.EFBIG:
            raise
        return Problem(name, "limit", _reason(exc))
    return None


def _reason(exc: OSError) -> str:
    return str(exc.strerror).removesuffix(f" [{getattr(exc, 'operation', '')}]")
