"""The central directory of an archive, parsed piece by piece and by whole columns: records, names, zip64 fields.

`DirectoryScan.parts()` yields the parts of a table (`table.py`) as the directory is read, so that no more than a piece
of it has to be in memory. Nothing is trusted: each record must follow the one before it up to the directory's end.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import errors, keys
from ...core.limits import Limits
from . import records, table
from .ends import Tail
from .records import decoded, judge

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

# What is taken from a record by columns (APPNOTE 4.3.12): name, offset, type.
_FIELDS = (
    ("host", 5, "u1"),
    ("flags", 8, "<u2"),
    ("compressed", 20, "<u4"),
    ("size", 24, "<u4"),
    ("length", 28, "<u2"),
    ("extra", 30, "<u2"),
    ("comment", 32, "<u2"),
    ("offset", 42, "<u4"),
)
_LONGEST = records.CENTRAL.size + 3 * records.MAX16
_PADDING = bytes(8)  # behind each piece, so that words can be taken of names


class _Piece(NamedTuple):
    """Records that lie in one buffer."""

    data: bytes
    starts: Numbers
    columns: NDArray[Any]
    first: int
    """The row of the first."""


class DirectoryScan:
    """One pass over the directory of an archive; `CorruptFileError` where it is damaged, EFBIG where a limit is hit."""

    def __init__(self, tail: Tail, limits: Limits) -> None:
        self.layout = tail.layout
        self.url = tail.url
        self._limits = limits
        if limits.beyond("max_index_bytes", tail.layout.size):
            what = f"the directory has {tail.layout.size} bytes"
            raise limits.error("max_index_bytes", what, "open_container", self.url)
        self.refused: dict[int, tuple[str, str]] = {}
        """Entries that can't be read by name: the name, and why."""
        self.changed: dict[int, str] = {}
        """Entries whose name was not as it should be, and how."""
        self._tail = tail
        self._width = 4 if tail.layout.size <= records.MAX32 else 8  # bytes of a position
        self._rows = 0
        self._read = 0  # bytes of the directory
        self._rest = b""
        self._ended = False
        self._fresh: dict[int, bytes] = {}
        self._positions: list[NDArray[Any]] = []
        self._offsets: list[NDArray[Any]] = []
        self._keys: list[NDArray[Any]] = []

    def parts(self) -> Iterator[bytes | memoryview]:
        """Yield the parts of the table, in their order."""
        for piece in self._tail.pieces():
            self._take(piece)
            yield piece
        yield from self._parts_behind()

    def table(self) -> bytes:
        """Return the whole table."""
        buffer = io.BytesIO()  # whose content is its buffer, and not a copy
        for piece in self._tail.pieces():
            self._take(piece)
            buffer.write(piece)
        buffer.writelines(self._parts_behind())
        return buffer.getvalue()

    def _parts_behind(self) -> list[bytes | memoryview]:
        """Return the parts behind the directory, when all of that was taken."""
        self._check_end()
        bits, columns = self._columns()
        refused = {}
        for name, reason in self.refused.values():
            try:
                refused[keys.normalize(name)] = f"{name!r}: {reason}"
            except (PermissionError, ValueError):  # no path leads to it, as it stands
                pass
        layout = self.layout._replace(entries=self._rows)
        return table.parts_behind(layout, refused, [column.data for column in columns], self._fresh, bits, self._width)

    # ---- records

    def _take(self, data: bytes) -> None:
        """Parse the records that end in `data`, which follows what was taken before."""
        if self._ended:
            return
        size = len(self._rest) + len(data)
        data = b"".join((self._rest, data, _PADDING))
        starts, stop = self._records(data, size)
        self._rest = data[stop:size]
        if len(starts):
            self._parse(data, starts)
        self._read += stop
        if len(self._rest) >= _LONGEST and not self._ended:
            raise self._corrupt_at(0)

    def _records(self, data: bytes, size: int) -> tuple[Numbers, int]:
        """Return the starts of consecutive whole records, and the end of the last one."""
        found = _signatures(data)
        found = found[found + records.CENTRAL.size <= size]
        stops = found + _lengths(data, found)
        if len(stops) and found[0] == 0 and (found[1:] == stops[:-1]).all():
            whole = len(stops) - int(stops[-1] > size)
            return found[:whole], int(stops[whole - 1]) if whole else 0
        return self._chain(data, size, dict(zip(found.tolist(), stops.tolist(), strict=True)))

    def _chain(self, data: bytes, size: int, following: dict[int, int]) -> tuple[Numbers, int]:
        """The same where some signatures are not a record's; `following` tells where what has one would stop."""
        import numpy as np

        found = []
        at = 0
        while at in following and following[at] <= size:
            found.append(at)
            at = following[at]
        if data[at : at + 4] == records.DIGITAL_SIGNATURE:  # it ends the directory; no known writer makes one
            self._ended = True
        elif at not in following and size - at >= records.CENTRAL.size:
            raise self._corrupt_at(at, data[at : at + 4])
        return np.array(found, np.int64), at

    def _check_end(self) -> None:
        rest, declared = self._rest, self.layout.entries
        if rest and not self._ended and rest[:4] != records.DIGITAL_SIGNATURE:
            raise self._corrupt_at(0, rest[:4])
        if self._rows != declared and (self.layout.zip64 or self._rows % (records.MAX16 + 1) != declared):
            raise errors.corrupt(self.url, f"{self._rows} entries in a directory of {declared}", "open_container")

    def _corrupt_at(self, at: int, found: bytes = b"") -> OSError:
        where = self.layout.start + self._read + at
        reason = f"no entry of the directory at offset {where}: {found!r}, or it reaches beyond the directory"
        return errors.corrupt(self.url, reason, "open_container")

    # ---- columns

    def _parse(self, data: bytes, starts: Numbers) -> None:
        import numpy as np

        kind = np.dtype({"names": [f[0] for f in _FIELDS], "formats": [f[2] for f in _FIELDS],
                         "offsets": [f[1] for f in _FIELDS], "itemsize": records.CENTRAL.size})  # fmt: skip
        columns = np.ndarray((len(data) - kind.itemsize + 1,), "V46", data, strides=(1,))[starts].view(kind)
        piece = _Piece(data, starts, columns, self._rows)
        self._rows += len(starts)
        offsets = columns["offset"].astype(np.int64)
        _apply_zip64(piece, offsets, self)
        offsets += self.layout.shift
        lengths = columns["length"].astype(np.int64)
        self._check_depths(piece, lengths)
        begins = starts + records.CENTRAL.size
        names = [data[at:end] for at, end in zip(begins.tolist(), (begins + lengths).tolist(), strict=True)]
        values = np.fromiter(map(zlib.crc32, names), np.uint64, len(names))
        suspects, wide = _suspects(piece, lengths), []
        together = b"".join(names)
        if b"\0" in together or not together.isascii():
            suspects |= {at for at, name in enumerate(names) if b"\0" in name}
            wide = [at for at, name in enumerate(names) if not name.isascii()]
        dropped = self._look_closer(piece, suspects, wide, values)
        values <<= np.uint64(32)
        values |= np.arange(piece.first, self._rows, dtype=np.uint64)
        self._keys.append(np.delete(values, dropped) if dropped else values)
        self._positions.append((starts + self._read).astype(np.uint32 if self._width == 4 else np.uint64))
        self._offsets.append(offsets)

    def _check_depths(self, piece: _Piece, lengths: Numbers) -> None:
        """Refuse an archive with a name that has too many directories in it."""
        import numpy as np

        deepest = self._limits.max_depth
        if deepest is None:
            return
        for at in np.flatnonzero(lengths > 2 * deepest).tolist():  # each directory takes a letter and a slash
            self._check_depth(_name(piece, at))

    def _check_depth(self, name: bytes) -> None:
        depth = name.count(b"/")
        if self._limits.beyond("max_depth", depth):
            what = f"an entry lies below {depth} directories"
            raise self._limits.error("max_depth", what, "open_container", self.url)

    def _look_closer(self, piece: _Piece, suspects: set[int], wide: list[int], values: NDArray[Any]) -> list[int]:
        """Settle the names that need it; returns what is refused of the piece's records."""
        unicode = _unicode_names(piece)
        fresh = dict(unicode)
        for at in wide:
            if at not in unicode:
                flags, host = int(piece.columns["flags"][at]), int(piece.columns["host"][at])
                name, complaint = decoded(_name(piece, at), flags, host)
                fresh[at] = name.encode()
                if complaint:
                    self.changed[piece.first + at] = complaint
        dropped = []
        for at in sorted(suspects | set(unicode)):
            name = fresh.get(at, _name(piece, at)).decode()
            settled, refusal = judge(name, piece.columns["host"][at] in records.HOSTS_WITH_BACKSLASH)
            if refusal is not None:
                self.refused[piece.first + at] = (name, refusal)
                dropped.append(at)
            elif settled != name:
                self.changed[piece.first + at] = f"it is not normal: {name!r} is read as {settled!r}"
                fresh[at] = settled.encode()
        for at, raw in fresh.items():
            self._check_depth(raw)
            if raw != _name(piece, at):
                self._fresh[piece.first + at] = raw
                values[at] = zlib.crc32(raw)
        return dropped

    def _columns(self) -> tuple[int, list[NDArray[Any]]]:
        """Return the number of bits that select a bucket, and the columns: positions, limits, keys, buckets."""
        import numpy as np

        empty = [np.zeros(0, np.uint32 if self._width == 4 else np.uint64)]
        positions = np.concatenate(self._positions or empty)
        self._positions.clear()
        limits = _limits(np.concatenate(self._offsets or [np.zeros(0, np.int64)]), self.layout.start)
        self._offsets.clear()
        ordered = np.concatenate(self._keys or [np.zeros(0, np.uint64)])
        self._keys.clear()
        ordered.sort()
        bits = min(24, max(0, (len(ordered) // 4).bit_length()))
        firsts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.zeros(1, np.uint64)
        buckets = np.append(np.searchsorted(ordered, firsts), len(ordered)).astype(np.uint32)
        return bits, [positions, limits, ordered, buckets]


def _signatures(data: bytes) -> Numbers:
    """Return the positions of the signature of a directory's record, also of those in names and extra fields."""
    import numpy as np

    wanted = int.from_bytes(records.CENTRAL_SIGNATURE, "little")
    return np.flatnonzero(np.ndarray((len(data) - 3,), "<u4", data, strides=(1,)) == wanted)


def _lengths(data: bytes, starts: Numbers) -> Numbers:
    """The lengths of the records that start there."""
    import numpy as np

    wide = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))[starts + 28]
    return sum(
        ((wide >> np.uint64(shift) & np.uint64(records.MAX16)).astype(np.int64) for shift in (0, 16, 32)),
        start=np.full(len(starts), records.CENTRAL.size, np.int64),
    )


def _limits(offsets: Numbers, directory: int) -> Numbers:
    """Return the largest end of each entry: the start of the next one, or of the directory."""
    import numpy as np

    order = None if (offsets[1:] > offsets[:-1]).all() else np.argsort(offsets, kind="stable")
    if order is not None:
        offsets = offsets[order]
    limits = np.minimum(np.append(offsets[1:], directory), directory) if len(offsets) else offsets
    if order is None:
        return limits
    same = np.flatnonzero(offsets[1:] == offsets[:-1])
    limits[same] = 0
    limits[same + 1] = 0
    found = np.empty_like(limits)
    found[order] = limits
    return found


def _name(piece: _Piece, at: int) -> bytes:
    start = int(piece.starts[at]) + records.CENTRAL.size
    return piece.data[start : start + int(piece.columns["length"][at])]


def _suspects(piece: _Piece, lengths: Numbers) -> set[int]:
    """The records whose names need a closer look (and a few more), found without looking at each."""
    import numpy as np

    buffer = np.frombuffer(piece.data, np.uint8)
    first, second = buffer[piece.starts + 46], buffer[piece.starts + 47]
    odd = (first == ord("/")) | (first == ord(".")) | (second == ord(":")) | (lengths == 0)
    found = set(np.flatnonzero(odd).tolist())
    slashes = np.flatnonzero(buffer[:-1] == ord("/"))
    following = buffer[slashes + 1]
    slashes = slashes[(following == ord("/")) | (following == ord("."))]
    places = np.concatenate((slashes, np.flatnonzero(buffer == ord("\\"))))
    at, inside = _owners(piece, places)
    return found | set(at[inside < lengths[at]].tolist())


def _owners(piece: _Piece, places: Numbers) -> tuple[Numbers, Numbers]:
    """The records that the bytes at `places` belong to, and how far behind the name's start they are, if they are."""
    import numpy as np

    at = np.searchsorted(piece.starts, places, "right") - 1
    inside = places - piece.starts[at] - records.CENTRAL.size
    behind = inside >= 0
    return at[behind], inside[behind]


# ---- extra fields


class _Extra(NamedTuple):
    """The extra fields of one kind: the numbers of their records, starts and ends of their contents."""

    entries: Numbers
    starts: Numbers
    stops: Numbers


def _extra(piece: _Piece, among: Numbers, kind: int) -> _Extra:
    """The first extra field of a kind of some records; what overruns is left alone.

    One step takes the next field of every record that has another.
    """
    import numpy as np

    view = np.ndarray((len(piece.data) - 1,), "<u2", piece.data, strides=(1,))
    at = piece.starts[among] + records.CENTRAL.size + piece.columns["length"][among]
    stops = at + piece.columns["extra"][among]
    found = [np.zeros((3, 0), np.int64)]
    left = among
    while len(left):
        more = at + 4 <= stops
        left, at, stops = left[more], at[more], stops[more]
        following = at + 4 + view[at + 2]
        fits = following <= stops
        hits = fits & (view[at] == kind)
        found.append(np.stack((left[hits], at[hits] + 4, following[hits])))
        more = fits & ~hits
        left, at, stops = left[more], following[more], stops[more]
    return _Extra(*np.concatenate(found, axis=1))


def _apply_zip64(piece: _Piece, offsets: Numbers, scan: DirectoryScan) -> None:
    """Take offsets that don't fit into 32 bits from the zip64 field, and see that sizes that don't are there, too.

    In a record with no such field the numbers stand as they are.
    """
    import numpy as np

    columns = piece.columns
    big = np.zeros(len(offsets), bool)
    for name in ("size", "compressed", "offset"):
        big |= columns[name] == records.MAX32
    among = np.flatnonzero(big)
    if not len(among):
        return
    extra = _extra(piece, among, records.EXTRA_ZIP64)
    at = extra.starts.copy()
    for name in ("size", "compressed", "offset"):
        needed = np.flatnonzero(columns[name][extra.entries] == records.MAX32)
        short = needed[at[needed] + 8 > extra.stops[needed]]
        if len(short):
            where = scan._read + int(piece.starts[extra.entries[short[0]]])
            reason = f"the entry at byte {where} of the directory has no {name} in its zip64 field, and needs it"
            raise errors.corrupt(scan.url, reason, "open_container")
        if name == "offset":
            numbers = np.ndarray((len(piece.data) - 7,), "<u8", piece.data, strides=(1,))[at[needed]]
            offsets[extra.entries[needed]] = np.minimum(numbers, np.uint64(table.TOO_MUCH)).astype(np.int64)
        at[needed] += 8


def _unicode_names(piece: _Piece) -> dict[int, bytes]:
    """The names in Info-ZIP's unicode path fields that belong to the names that they stand beside."""
    import numpy as np

    lengths, extras = piece.columns["length"], piece.columns["extra"]
    if not extras.any():
        return {}
    buffer = np.frombuffer(piece.data, np.uint8)
    at, inside = _owners(piece, np.flatnonzero((buffer[:-1] == 0x75) & (buffer[1:] == 0x70)))
    among = np.unique(at[(inside >= lengths[at]) & (inside < lengths[at].astype(np.int64) + extras[at])])
    extra = _extra(piece, among, records.EXTRA_UNICODE_PATH)
    found = {}
    for row, start, stop in zip(extra.entries.tolist(), extra.starts.tolist(), extra.stops.tolist(), strict=True):
        content = piece.data[start:stop]
        crc = zlib.crc32(_name(piece, row))
        if len(content) < 5 or content[0] != 1 or int.from_bytes(content[1:5], "little") != crc:
            continue  # not for this name: it was renamed by a tool that doesn't know the field
        try:
            content[5:].decode()
        except UnicodeDecodeError:
            continue
        found[row] = content[5:]
    return found
