"""The central directory of an archive, parsed by whole columns: positions, fields, extra fields, names.

`scan` gives it as it is, in its own order, duplicates and refused names included; `index.py` makes of it what paths are
looked up in. Nothing is trusted: each record must follow the one before it up to the directory's end.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import errors
from ...blobs import Blob
from . import ends, names, records
from .ends import Layout
from .entries import NO_TIME, ROW_FIELDS, Entry
from .names import Names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

# Offset and type of what is taken from a record as it stands (APPNOTE 4.3.12).
_FIELDS = {
    "flags": (8, "<u2"),
    "method": (10, "<u2"),
    "dos": (12, "<u4"),
    "crc": (16, "<u4"),
    "compressed": (20, "<u4"),
    "size": (24, "<u4"),
    "length": (28, "<u2"),
    "attributes": (38, "<u4"),
    "offset": (42, "<u4"),
}
_TOO_MUCH = 2**62  # what a number that can't be true is cut to, so that sums of them stay in 64 bits
_MOST_GATHERED = 1 << 24  # bytes of names; each takes 8 to be gathered
_CHUNK = 1 << 16  # records that are parsed at once, which bounds the memory for what is in between


class Scan(NamedTuple):
    """The directory as it is, in its own order."""

    layout: Layout
    rows: NDArray[Any]
    names: Names

    def entry(self, at: int) -> Entry:
        """The entry at a position in the directory."""
        return Entry._make(self.rows[at].item())

    def name(self, at: int) -> bytes:
        """Its name."""
        start = int(self.rows["name"][at])
        return self.names.blob[start : start + int(self.rows["length"][at])]


def scan(blob: Blob, url: str) -> Scan:
    """Read and parse the central directory."""
    import numpy as np

    layout, directory = ends.find(blob, url)
    positions = _positions(directory, layout, url)
    rows = np.zeros(len(positions), list(ROW_FIELDS))
    named: list[bytes] = []
    unicode: dict[int, bytes] = {}
    for at in range(0, len(positions), _CHUNK):
        part = rows[at : at + _CHUNK]
        here = positions[at : at + _CHUNK]
        extras = _parse(part, directory, here, url)
        named.append(_gathered(directory, here + records.CENTRAL.size, part["length"].astype(np.int64)))
        found = _unicode_names(directory, here, part["length"], extras)
        unicode.update((at + row, name) for row, name in found.items())
    np.cumsum(rows["length"][:-1], out=rows["name"][1:])
    together = b"".join(named)
    hashes = names.hashes_of(together, rows["name"], rows["length"].astype(np.int64))
    rows["tag"] = hashes & np.uint64(records.MAX32)
    rows["offset"] += layout.shift
    _set_limits(rows, layout.start)
    return Scan(layout._replace(entries=len(rows)), rows, names.normal(together, rows, unicode))


def _parse(rows: NDArray[Any], directory: bytes, positions: Numbers, url: str) -> _Extra:
    """Fill the rows of the records at `positions`; returns where the fields with unicode paths are."""
    for name, (offset, kind) in _FIELDS.items():
        rows[name] = _view(directory, kind)[positions + offset]
    rows["host"] = _view(directory, "u1")[positions + 5]
    rows["record"] = positions
    starts = positions + records.CENTRAL.size + rows["length"]
    stops = starts + _view(directory, "<u2")[positions + 30]
    rows["header"] = stops - positions - records.CENTRAL.size + records.LOCAL.size
    extras = _extras(directory, starts, stops)
    _apply_zip64(rows, directory, extras[records.EXTRA_ZIP64], url)
    _apply_times(rows, directory, extras[records.EXTRA_TIMES])
    return extras[records.EXTRA_UNICODE_PATH]


def _view(directory: bytes, kind: str) -> NDArray[Any]:
    """The numbers of a kind that start at each byte."""
    import numpy as np

    count = max(0, len(directory) - np.dtype(kind).itemsize + 1)
    return np.ndarray((count,), kind, directory, strides=(1,))


def _gathered(directory: bytes, starts: Numbers, lengths: Numbers) -> bytes:
    """The bytes of all the ranges, one behind another."""
    import numpy as np

    if lengths.sum() > _MOST_GATHERED:
        return b"".join(directory[at : at + size] for at, size in zip(starts.tolist(), lengths.tolist(), strict=True))
    places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    places += np.arange(len(places))
    return bytes(np.frombuffer(directory, np.uint8)[places])


def _positions(directory: bytes, layout: Layout, url: str) -> Numbers:
    """The offsets of the records in the directory: one must follow the other to its end."""
    size = len(directory)
    candidates = _signatures(directory)
    candidates = candidates[candidates + records.CENTRAL.size <= size]
    stops = candidates + _lengths(directory, candidates)
    if size and (not len(stops) or stops[-1] != size or candidates[0] or (candidates[1:] != stops[:-1]).any()):
        candidates = _chain(directory, candidates, stops, layout, url)
    told = layout.entries
    if len(candidates) != told and (layout.zip64 or len(candidates) % (records.MAX16 + 1) != told):
        raise errors.corrupt(url, f"{len(candidates)} entries in a directory of {told}", "open_container")
    return candidates


def _signatures(directory: bytes) -> Numbers:
    """Where the signature of a directory's record stands, be it in a name or in an extra field."""
    import numpy as np

    wanted = int.from_bytes(records.CENTRAL_SIGNATURE, "little")
    found = [
        np.flatnonzero(np.frombuffer(directory, "<u4", (len(directory) - shift) // 4, shift) == wanted) * 4 + shift
        for shift in range(min(4, len(directory) - 3) if len(directory) > 3 else 0)
    ]
    return np.sort(np.concatenate(found)).astype(np.int64) if found else np.zeros(0, np.int64)


def _lengths(directory: bytes, positions: Numbers) -> Numbers:
    """The lengths of the records at `positions`."""
    import numpy as np

    view = _view(directory, "<u2")
    total = np.full(len(positions), records.CENTRAL.size)
    for offset in (28, 30, 32):
        total += view[positions + offset]
    return total


def _chain(directory: bytes, candidates: Numbers, stops: Numbers, layout: Layout, url: str) -> Numbers:
    """The records that follow one another, where some signatures are not a record's."""
    import numpy as np

    following = dict(zip(candidates.tolist(), stops.tolist(), strict=True))
    found = []
    at, size = 0, len(directory)
    while at < size:
        stop = following.get(at, size + 1)
        if stop > size:
            if directory[at : at + 4] == records.DIGITAL_SIGNATURE:  # it ends the directory; nobody writes one
                break
            where = layout.start + at
            found_here = directory[at : at + 4]
            reason = f"no entry of the directory at offset {where}: {found_here!r}, or it reaches beyond the directory"
            raise errors.corrupt(url, reason, "open_container")
        found.append(at)
        at = stop
    return np.array(found, np.int64)


class _Extra(NamedTuple):
    """Where some entries have an extra field of one kind: entries, starts and ends of the content in the directory."""

    entries: Numbers
    starts: Numbers
    stops: Numbers


def _extras(directory: bytes, starts: Numbers, stops: Numbers) -> dict[int, _Extra]:
    """The extra fields of the kinds that are understood: the first of a kind counts, what overruns is left alone.

    One step takes the next field of every entry that has another.
    """
    import numpy as np

    view = _view(directory, "<u2")
    wanted = (records.EXTRA_ZIP64, records.EXTRA_TIMES, records.EXTRA_UNICODE_PATH)
    found: dict[int, list[Numbers]] = {kind: [] for kind in wanted}
    seen = {kind: np.zeros(len(starts), bool) for kind in wanted}
    left = np.flatnonzero(starts + 4 <= stops)
    at, stops = starts[left], stops[left]
    while len(left):
        kinds, content = view[at], at + 4
        following = content + view[at + 2]
        fits = following <= stops
        for kind in wanted:
            hits = np.flatnonzero((kinds == kind) & fits & ~seen[kind][left])
            seen[kind][left[hits]] = True
            if len(hits):
                found[kind].append(np.stack((left[hits], content[hits], following[hits])))
        more = np.flatnonzero(fits & (following + 4 <= stops))
        left, at, stops = left[more], following[more], stops[more]
    empty = np.zeros((3, 0), np.int64)
    return {kind: _Extra(*np.concatenate([empty, *parts], axis=1)) for kind, parts in found.items()}


def _apply_zip64(rows: NDArray[Any], directory: bytes, extra: _Extra, url: str) -> None:
    """Take sizes and offsets that don't fit into 32 bits from the zip64 field, which holds those and no others."""
    import numpy as np

    at = extra.starts.copy()
    for name in ("size", "compressed", "offset"):
        needed = np.flatnonzero(rows[name][extra.entries] == records.MAX32)
        short = needed[at[needed] + 8 > extra.stops[needed]]
        if len(short):
            entry = rows["record"][extra.entries[short[0]]]
            reason = f"the entry at byte {entry} of the directory has no {name} in its zip64 field, and needs it"
            raise errors.corrupt(url, reason, "open_container")
        if len(needed):
            numbers = _view(directory, "<u8")[at[needed]]
            rows[name][extra.entries[needed]] = np.minimum(numbers, np.uint64(_TOO_MUCH))
        at[needed] += 8


def _apply_times(rows: NDArray[Any], directory: bytes, extra: _Extra) -> None:
    """Take the time of writing from the extended timestamps: signed seconds since 1970."""
    import numpy as np

    rows["modified"] = NO_TIME
    has = np.flatnonzero(extra.stops - extra.starts >= 5)
    has = has[(_view(directory, "u1")[extra.starts[has]] & 1).astype(bool)]
    if len(has):
        rows["modified"][extra.entries[has]] = _view(directory, "<i4")[extra.starts[has] + 1]


def _set_limits(rows: NDArray[Any], directory: int) -> None:
    """What each entry may reach to: the next one's start, or the directory's."""
    import numpy as np

    order = np.argsort(rows["offset"], kind="stable")
    offsets = rows["offset"][order]
    limits = np.minimum(np.append(offsets[1:], directory), directory)
    same = np.flatnonzero(offsets[1:] == offsets[:-1])
    limits[same] = 0
    limits[same + 1] = 0
    rows["limit"][order] = limits


def _unicode_names(directory: bytes, positions: Numbers, lengths: Numbers, extra: _Extra) -> dict[int, bytes]:
    """The names in Info-ZIP's unicode path fields that belong to the names that they stand beside."""
    found = {}
    for at, start, stop in zip(extra.entries.tolist(), extra.starts.tolist(), extra.stops.tolist(), strict=True):
        content = directory[start:stop]
        name = int(positions[at]) + records.CENTRAL.size
        crc = zlib.crc32(directory[name : name + int(lengths[at])])
        if len(content) < 5 or content[0] != 1 or int.from_bytes(content[1:5], "little") != crc:
            continue  # not for this name: it was renamed by a tool that doesn't know the field
        try:
            content[5:].decode()
        except UnicodeDecodeError:
            continue
        found[at] = content[5:]
    return found
