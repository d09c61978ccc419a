"""All faults of a zip, for `verify()`: every member is read, and what is wrong is reported and not raised. `refused`
looks at the names only. An error of the store is raised, and so is that of an archive without a directory.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator

from ...core import errors
from ...core.blobs import Blob
from ...core.errors import CorruptFileError
from ...core.limits import Limits
from ..base import Problem
from . import directory, index, members, records
from .directory import DirectoryScan
from .records import ZipEntry
from .table import ZipTable

_READ_BYTES = 8 * 1024 * 1024  # of a member, at once


class _VerifiedEntries:
    """The origin of the blobs of entries that are verified. A name leads to the last of its entries only."""

    def __init__(self, url: str) -> None:
        self._archive_url = url
        self.backing = self
        self._shown_as = ""

    def _open_blob(self, key: str, /) -> Blob:
        raise errors.unsupported("open", self._url(key), "an entry that is being verified can't be opened again")

    def _url(self, key: str) -> str:
        return f"{self._archive_url}: entry {key!r}"

    def _resolved_store(self) -> str:
        return ""

    def _is_strong(self, version: str) -> bool:
        return False  # so that nothing of it is cached


def problems(archive: Blob, url: str, limits: Limits) -> Iterator[Problem]:
    """The problems of an archive: its layout's, then its names', then its members' in their order."""
    scan = DirectoryScan(directory.find(archive, url), limits)
    table = index.in_memory(scan)
    layout = table.layout
    if layout.junk:
        yield Problem("", "trailing data", f"{layout.junk} bytes are behind the archive's end")
    names = [_name_as_stored(scan, table, row) for row in range(table.rows)]
    yield from _name_problems(scan, table, names)
    entries = map(table.entry, range(table.rows))
    total = sum(entry.size for entry in entries if not limits.declares_too_much(entry.size, entry.compressed))
    if limits.declares_too_much(total, archive.size):
        what = f"{table.rows} members of {total} bytes in a file of {archive.size}: they were not read"
        yield Problem("", "limit", limits.reason("max_ratio", what))
        return
    for _, row in sorted((table.entry(row).offset, row) for row in range(table.rows)):
        problem = _member_problem(table.entry(row), names[row], archive, url, limits)
        if problem is not None:
            yield problem


def refused(archive: Blob, url: str, limits: Limits) -> Iterator[Problem]:
    """Yield the entries of an archive whose names are refused, and which therefore can't be opened."""
    scan = DirectoryScan(directory.find(archive, url), limits)
    index.in_memory(scan)  # which collects the refused names
    yield from _refused_names(scan)


def _refused_names(scan: DirectoryScan) -> Iterator[Problem]:
    for _, (name, reason) in sorted(scan.refused.items()):
        yield Problem(name, "unsafe name", f"{reason}: it can't be opened")


def _name_as_stored(scan: DirectoryScan, table: ZipTable, row: int) -> str:
    """Return the name of an entry, as the archive has it; one that is refused has no name in the table."""
    return scan.refused[row][0] if row in scan.refused else table.name(row).decode(errors="replace")


def _name_problems(scan: DirectoryScan, table: ZipTable, names: list[str]) -> Iterator[Problem]:
    yield from _refused_names(scan)
    for row, reason in sorted(scan.changed.items()):
        yield Problem(names[row], "odd name", reason)
    visible = set(table.order())
    for row, name in enumerate(names):
        if row not in visible and row not in scan.refused:
            offset = table.entry(row).offset
            yield Problem(name, "duplicate", f"one more entry of this name, at offset {offset}: the last wins")
    files = {names[row] for row in visible if not names[row].endswith("/")}
    above = {name[:end] for name in names for end, char in enumerate(name) if char == "/"}
    for name in sorted(files & above):
        yield Problem(name, "conflict", "it is a file, and a directory with members, at once")


def _member_problem(entry: ZipEntry, name: str, archive: Blob, url: str, limits: Limits) -> Problem | None:
    """Read a member to its end, and return what is wrong with it."""
    origin = _VerifiedEntries(url)
    try:
        with members.open_member(origin, name, entry, archive, limits) as blob:
            if entry.method != records.STORED:
                trailing = members.Streamed(origin, name, entry, archive, limits).check()
                return Problem(name, "trailing data", trailing) if trailing else None
            if not blob.size:  # no read would look at its local header
                members.find(entry, archive, origin, name)
            elif blob.size <= _READ_BYTES:
                blob.read_all()
            else:
                for offset in range(0, blob.size, _READ_BYTES):
                    blob.pread(_READ_BYTES, offset)
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
