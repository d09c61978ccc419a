"""The end of a zip file: its end records are found here, and checked, and with them the central directory's bytes.

One read of the file's tail finds the end records, and for a small archive holds the whole directory; what is missing
of it is read from front to back. A file may start with something else (a self-extractor's program); the offsets in the
directory then count from the prefix's end or from the file's start, and both are understood.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ...core import errors
from ...core.blobs import Blob
from ...core.readahead import ReadAhead
from . import records

TAIL = 128 * 1024
"""Bytes of the first read. The longest comment and the zip64 records need about half of them."""
_REACH = records.END.size + records.MAX16  # how far from the end an end record can start
PIECE = 1024 * 1024
"""Bytes that a large directory is read, and parsed, by."""
_MOST_CANDIDATES = 8


class ArchiveLayout(NamedTuple):
    """The offsets and sizes of an archive's parts in its file, in bytes."""

    start: int
    """The offset of the central directory."""
    size: int
    """The directory's size."""
    entries: int
    """The number of entries; as in the end record, until the directory has been read."""
    zip64: bool
    """Whether there is a zip64 end record."""
    shift: int
    """What has to be added to the offsets in the directory: the prefix's size, where they don't count it."""
    comment: bytes
    junk: int
    """Bytes behind the archive's end that belong to nothing."""


class _UnfitError(Exception):
    """Raised for a false end record; the argument is the error to raise if there is no true one."""


class Tail:
    """The file with its last bytes in memory; `layout` is set by `find`."""

    layout: ArchiveLayout

    def __init__(self, blob: Blob, url: str) -> None:
        self.blob = blob
        self.url = url
        self.start = max(0, blob.size - TAIL)
        self.data = blob.pread(blob.size - self.start, self.start)

    def read(self, size: int, offset: int) -> bytes:
        """Bytes of the file, from memory as far as they are there."""
        if offset >= self.start:
            return self.data[offset - self.start : offset - self.start + size]
        size = min(size, self.blob.size - offset)
        missing = min(size, self.start - offset)
        return self.blob.pread(missing, offset) + self.data[: size - missing] if size else b""

    def pieces(self) -> Iterator[bytes]:
        """The directory, from memory as far as it is there; from a store that can do so as a stream."""
        at, stop = self.layout.start, self.layout.start + self.layout.size
        if at < self.start:
            yield from self._outside(at, min(stop, self.start))
            at = self.start
        for place in range(at, stop, PIECE):
            yield self.data[place - self.start : min(place + PIECE, stop) - self.start]

    def _outside(self, at: int, stop: int) -> Iterator[bytes]:
        source = ReadAhead(self.blob)
        try:
            for place in range(at, stop, PIECE):
                yield source.pread(min(PIECE, stop - place), place)
        finally:
            source.close()

    def corrupt(self, reason: str) -> _UnfitError:
        return _UnfitError(errors.corrupt(self.url, reason, "open_container"))


def find(blob: Blob, url: str) -> Tail:
    """The end of the archive in `blob`, with its layout; `CorruptFileError` if it is no zip."""
    tail = Tail(blob, url)
    exact, others = _candidates(tail)
    failure: OSError | None = None
    found: list[ArchiveLayout] = []
    for at in exact:
        try:
            layout = _layout(tail, at)
            if len(exact) > 1 or layout.start >= tail.start:  # if there is but one, reading the directory will tell
                _check_start(tail, layout)
            found.append(layout)
        except _UnfitError as exc:
            failure = failure or exc.args[0]
    if len(found) > 1 or len(exact) > _MOST_CANDIDATES:
        raise errors.corrupt(
            url, "not one end of the archive but several, one in the comment of another", "open_container"
        )
    for at in [] if found else others:
        try:
            layout = _layout(tail, at)
            _check_start(tail, layout)
            found.append(layout)
            break
        except _UnfitError as exc:
            failure = failure or exc.args[0]
    if not found:
        raise failure or errors.corrupt(url, _no_end(blob), "open_container")
    tail.layout = found[0]
    return tail


def nothing() -> Tail:
    """The end of an archive with nothing in it, and no file."""
    tail = object.__new__(Tail)
    tail.url, tail.start, tail.data, tail.layout = "", 0, b"", ArchiveLayout(0, 0, 0, False, 0, b"", 0)
    return tail


def _no_end(blob: Blob) -> str:
    start = blob.pread(4, 0)
    if not start:
        return "the file is empty, which a zip file is not"
    if start == records.LOCAL_SIGNATURE:
        return f"the zip file was cut: no end record (PK\\5\\6) in the last bytes of {blob.size}"
    return (
        f"not a zip file: it starts with {start!r}, and has no end record (PK\\5\\6) in the last bytes of {blob.size}"
    )


def _candidates(tail: Tail) -> tuple[list[int], list[int]]:
    """Offsets of what looks like an end record, last first: those that end the file, and a few others."""
    exact: list[int] = []
    others: list[int] = []
    data, size = tail.data, tail.blob.size
    at = data.rfind(records.END_SIGNATURE)
    while at >= 0 and at + tail.start >= size - _REACH and len(exact) <= _MOST_CANDIDATES:
        if at + records.END.size <= len(data):
            comment = int.from_bytes(data[at + 20 : at + 22], "little")
            ends_file = at + records.END.size + comment == len(data)
            (exact if ends_file else others).append(tail.start + at)
        at = data.rfind(records.END_SIGNATURE, 0, at)
    return exact, others[:_MOST_CANDIDATES]


def _layout(tail: Tail, at: int) -> ArchiveLayout:
    """The layout of the end record at `at`, if it can be true."""
    inside = at - tail.start  # where it was found
    end = records.END.unpack_from(tail.data, inside)
    _, disk, directory_disk, here, count, size, offset, length = end
    inside += records.END.size
    comment = tail.data[inside : inside + length]
    if len(comment) < length:
        raise tail.corrupt(f"the zip file was cut: {len(comment)} bytes of a comment of {length} at its end")
    stop, zip64 = at, _zip64(tail, at)
    if zip64 is not None:
        _check_agreement(tail, end, zip64)
        stop, disk, directory_disk, here, count, size, offset = zip64
    elif records.MAX32 in (size, offset):
        raise tail.corrupt(f"the end record at offset {at} needs a zip64 end record, and there is none before it")
    if disk or directory_disk or here != count:
        reason = f"one part of a split archive (disk {disk}, the directory on disk {directory_disk})"
        raise _UnfitError(errors.unsupported("open_container", tail.url, reason))
    start = stop - size
    if start < offset:
        raise tail.corrupt(
            f"no room for a directory of {size} bytes at offset {offset} before its end record at {stop}"
        )
    if start > offset:
        _check_prefix(tail, start - offset)
    junk = tail.blob.size - at - records.END.size - length
    return ArchiveLayout(start, size, count, zip64 is not None, start - offset, comment, junk)


def _check_start(tail: Tail, layout: ArchiveLayout) -> None:
    signature = tail.read(4, layout.start)
    if layout.size and signature != records.CENTRAL_SIGNATURE:
        raise tail.corrupt(f"no directory at offset {layout.start}: {signature!r} where PK\\1\\2 was expected")


def _zip64(tail: Tail, at: int) -> tuple[int, int, int, int, int, int, int] | None:
    """Of the zip64 end record before the end record at `at`: its offset, disks, counts, directory's size and offset."""
    where = at - records.LOCATOR.size
    if where < 0:
        return None
    signature, _, offset, disks = records.LOCATOR.unpack(tail.read(records.LOCATOR.size, where))
    if signature != records.LOCATOR_SIGNATURE:
        return None
    if disks > 1:
        raise _UnfitError(errors.unsupported("open_container", tail.url, f"one part of a split archive of {disks}"))
    # The offset doesn't count a prefix; but then the record, without optional data, lies just before its locator.
    for place in (offset, where - records.END64.size):
        if not 0 <= place <= where - records.END64.size:
            continue
        found = records.END64.unpack(tail.read(records.END64.size, place))
        if found[0] == records.END64_SIGNATURE and place + 12 + found[1] == where:
            return (place, *found[4:])
    raise tail.corrupt(f"no zip64 end record at offset {offset}, where the locator at {where} says that it is")


def _check_agreement(tail: Tail, end: tuple[int, ...], zip64: tuple[int, ...]) -> None:
    """Check that each field of the end record equals that of the zip64 one, or has the value for "too large for this
    field".
    """
    limits = (records.MAX16,) * 4 + (records.MAX32,) * 2
    for small, big, limit in zip(end[1:7], zip64[1:7], limits, strict=True):
        if small not in (limit, big):
            raise tail.corrupt(f"the end records disagree: {small}, and {big} in the zip64 one")


def _check_prefix(tail: Tail, shift: int) -> None:
    """Refuse what is no archive behind a prefix, but an archive cut at the end of another that is stored in it."""
    before = tail.read(min(shift, _REACH), max(0, shift - _REACH))
    starts = [tail.read(4, 0)]
    at = before.rfind(records.LOCAL_SIGNATURE)
    while at >= 0:
        if at + records.LOCAL.size <= len(before):
            name, extra = struct.unpack_from("<2H", before, at + 26)
            if at + records.LOCAL.size + name + extra == len(before):
                starts.append(records.LOCAL_SIGNATURE)
        at = before.rfind(records.LOCAL_SIGNATURE, 0, at)
    if records.LOCAL_SIGNATURE in starts:
        raise tail.corrupt(
            f"the zip file was cut, or two were put together: what its end belongs to starts at offset {shift}, in the "
            "middle of another"
        )
