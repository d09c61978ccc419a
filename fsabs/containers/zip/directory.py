"""The central directory of an archive: found at the end of the file (`find`), and parsed by columns (`DirectoryScan`).

One read of the file's tail finds the end records, and for a small archive holds the whole directory; what is missing
of it is read from front to back. A file may start with something else (a self-extractor's program); the offsets in the
directory then count from the prefix's end or from the file's start, and both are understood.

`DirectoryScan.parts()` yields the parts of a table (`table.py`) as the directory is read, so that no more than a piece
of it has to be in memory. Nothing is trusted: each record must follow the one before it up to the directory's end.
"""

from __future__ import annotations

import io
import itertools
import json
import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core import errors, keys
from ...core.blobs import Blob
from ...core.limits import Limits
from ...core.readahead import ReadAhead
from . import records, table
from .records import ArchiveLayout, decoded, judge

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

TAIL = 128 * 1024
"""Bytes of the first read. The longest comment and the zip64 records need about half of them."""
_REACH = records.END.size + records.MAX16  # how far from the end an end record can start
PIECE = 1024 * 1024
"""Bytes that a large directory is read, and parsed, by."""
_MOST_CANDIDATES = 8


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
    for at in exact + others:
        if found and at in others:
            break
        try:
            layout = _layout(tail, at)
            if at in others or len(exact) > 1 or layout.start >= tail.start:  # else reading the directory will tell
                _check_start(tail, layout)
            found.append(layout)
        except _UnfitError as exc:
            failure = failure or exc.args[0]
    if len(found) > 1 or len(exact) > _MOST_CANDIDATES:
        reason = "not one end of the archive but several, one in the comment of another"
        raise errors.corrupt(url, reason, "open_container")
    if not found:
        raise failure or errors.corrupt(url, _no_end(blob), "open_container")
    tail.layout = found[0]
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
        """Return the parts behind the directory, each padded, when all of that was taken."""
        self._check_end()
        bits, columns = self._columns()
        refused = {}
        for name, reason in self.refused.values():
            try:
                refused[keys.normalize(name)] = f"{name!r}: {reason}"
            except (PermissionError, ValueError):  # no path leads to it, as it stands
                pass
        layout, fresh = self.layout._replace(entries=self._rows), self._fresh
        names = [fresh[row] for row in sorted(fresh)]
        ends = itertools.accumulate(map(len, names))
        description = {"layout": [*layout[:-2], layout.comment.hex(), layout.junk], "refused": refused}
        numbers = memoryview(array("Q", [*sorted(fresh), *ends]))
        last = [numbers, memoryview(b"".join(names)), memoryview(json.dumps(description).encode())]
        found: list[bytes | memoryview] = [bytes(-layout.size % 8)]
        sizes = []
        for part in [*(column.data for column in columns), *last]:
            size = part.nbytes
            sizes.append(size)
            found += [part.cast("B") if size else b"", bytes(-size % 8)]
        positions, _, ordered, _, _, size, meta = sizes
        rows = positions // self._width
        found.append(table.TAIL.pack(layout.size, rows, self._width, ordered // 8, bits, len(fresh), size, meta))
        return found

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
            normal, refusal = judge(name, piece.columns["host"][at] in records.HOSTS_WITH_BACKSLASH)
            if refusal is not None:
                self.refused[piece.first + at] = (name, refusal)
                dropped.append(at)
            elif normal != name:
                self.changed[piece.first + at] = f"it is not normal: {name!r} is read as {normal!r}"
                fresh[at] = normal.encode()
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
