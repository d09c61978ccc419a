"""What is wrong with an archive, all of it: every member is read, and every problem is told and none raised."""

from __future__ import annotations

import io
from collections.abc import Iterator

from ... import errors
from ...blobs import Blob
from ...errors import CorruptFileError
from ..problems import Problem
from . import directory, index, members
from .directory import Scan

_PART = 8 * 1024 * 1024


class _Anonymous:
    """The origin of an entry's blob that no path leads to."""

    def __init__(self, url: str) -> None:
        self._archive_url = url

    def _open_blob(self, key: str) -> Blob:
        raise errors.unsupported("open", self._url(key), "an entry that is being verified can't be opened again")

    def _url(self, key: str) -> str:
        return f"{self._archive_url}: entry {key!r}"


def problems(archive: Blob, url: str, max_ratio: float | None) -> Iterator[Problem]:
    """The problems of an archive: its layout's, then its names', then its members' in their order."""
    found = directory.scan(archive, url)
    layout = found.layout
    if layout.junk:
        yield Problem("", "trailing data", f"{layout.junk} bytes are behind the archive's end")
    names = [found.name(at).decode(errors="replace") for at in range(len(found.rows))]
    yield from _of_names(found, names)
    offsets = found.rows["offset"].argsort(kind="stable").tolist()
    for at in offsets:
        problem = _of_member(found, at, names[at], archive, url, max_ratio)
        if problem is not None:
            yield problem


def _of_names(found: Scan, names: list[str]) -> Iterator[Problem]:
    for _, (name, reason) in sorted(found.names.refused.items()):
        yield Problem(name, "unsafe name", f"{reason}: it can't be opened")
    for at, reason in sorted(found.names.changed.items()):
        yield Problem(names[at], "odd name", reason)
    counted = set(index.by_hash(found)[1].tolist())
    for at, name in enumerate(names):
        if at not in counted and at not in found.names.refused:
            offset = found.entry(at).offset
            yield Problem(name, "duplicate", f"one more entry of this name, at offset {offset}: the last wins")
    files = {names[at] for at in counted if not names[at].endswith("/")}
    above = {name[:end] for name in names for end, char in enumerate(name) if char == "/"}
    for name in sorted(files & above):
        yield Problem(name, "conflict", "it is a file, and a directory with members, at once")


def _of_member(found: Scan, at: int, name: str, archive: Blob, url: str, max_ratio: float | None) -> Problem | None:
    """Read a member to its end."""
    entry = found.entry(at)
    try:
        with members.open_member(_Anonymous(url), name, entry, archive, max_ratio) as blob:
            if blob.size <= _PART:
                blob.read_all()
            for offset in range(0, blob.size, _PART) if blob.size > _PART else ():
                blob.pread(_PART, offset)
            if not blob.size:
                members.find(entry, archive, blob.url)
    except io.UnsupportedOperation as exc:
        return Problem(name, "unreadable", _reason(exc))
    except CorruptFileError as exc:
        return Problem(name, "damaged", _reason(exc))
    return None


def _reason(exc: OSError) -> str:
    return str(exc.strerror).removesuffix(f" [{getattr(exc, 'operation', '')}]")
