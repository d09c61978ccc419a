"""The table that the index of an archive is: one flat buffer, looked up with no object kept for an entry.

`directory.py` writes it part by part; `index.py` looks up in it. It lies in memory or in the cache directory, from
where every process maps it. A row is an entry of the archive, numbered in the order of the directory. Each part begins
at a multiple of 8 bytes, in the byte order of the machine:

    part        bytes per item   items           an item is
    directory   1                                (the central directory as it stands in the archive, APPNOTE 4.3.12)
    positions   4, or 8 if huge  rows            where the row's record starts in `directory`
    limits      8                rows            the offset in the archive that the row's member may reach to
    keys        8                names           CRC-32 of a name << 32 | its row; in order
    buckets     4                2**bits + 1     the number of the first key whose CRC-32 begins with these bits
    fresh       8                2 x renamed     rows whose name is not the directory's (another encoding, `./a`, say);
                                                 then the ends of their names in `names`
    names       1                                those names as UTF-8, one behind the other
    meta        1                                JSON: the layout of the archive, and the names that are refused
    tail        8                8               the sizes of the parts (`TAIL`)

A name is found by its CRC-32, in three steps that need no Python code for each entry:

    name -> CRC-32 --first bits--> buckets[b] .. buckets[b + 1] --bisect--> keys[k] --lower half--> row
    row  -> positions[row] -> the record in `directory`: its name is compared, its fields are the entry's
    row  -> limits[row]

Of several entries of a name the last counts: it has the largest of the keys with that CRC-32. A mapped table is checked
by blocks, as far as it is used: what is found is right. A name is reported as missing only after the whole table has
been checked.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from mmap import mmap
from typing import Any, cast
from zlib import crc32

from ...core.limits import parse_json
from ...disk.indexes import BLOCK_BITS, CachedIndex
from . import records
from .records import READABLE, SLACK, UNREADABLE, ArchiveLayout, SmallRead, ZipEntry

KIND = "zip-1"
"""Of the cached index; another number is another layout of the parts."""
_RECORD = struct.Struct("<8x2H4L3H4x2L")
"""Flags, method, time, CRC-32, compressed, size, lengths of name, extra and comment, attributes, offset."""
_unpack = _RECORD.unpack_from
_unpack_some = struct.Struct("<8x2H4x3L2H10xL").unpack_from
"""The same without time, length of the comment and attributes."""
_LEAD = records.LOCAL_SIGNATURE
TAIL = struct.Struct("=8Q")
"""Directory's size, rows, bytes of a position, keys, first bits, fresh names, their size, size of meta."""
_LENGTH = struct.Struct("<H")
_FIELD = struct.Struct("<2H")
_BIG = records.MAX32
"""In a record: the number is in the zip64 field. Of a key: the bits of its row."""
_FEW = 10_000  # entries that are put into order without NumPy, which takes longer to be loaded
_WIDE = 1 << 28  # bytes of names, each as wide as the longest
_CHUNK = 1 << 16
TOO_MUCH = 2**62
"""What a number that can't be true is cut to, so that sums of them stay in 64 bits."""


# Half the time of `ZipEntry(...)`.
_entry = cast("Callable[[type[ZipEntry], tuple[Any, ...]], ZipEntry]", tuple.__new__)


class DamagedTableError(Exception):
    """A table that was kept is not what it was when it was written."""


class ZipTable:
    """The entries of an archive: rows in the directory's order, found by name."""

    def __init__(self, raw: bytes | mmap, start: int, size: int, kept: CachedIndex | None = None) -> None:
        """`size` bytes of `raw` from `start`, the payload of `kept` if given; `ValueError` if they are no table."""
        view = memoryview(raw).toreadonly()[start : start + size]
        if size < TAIL.size or not (kept is None or kept.check(size - TAIL.size)):
            raise ValueError("no table")
        directory, rows, width, keys, bits, fresh, names, meta = TAIL.unpack_from(view, size - TAIL.size)
        lengths = (directory, rows * width, rows * 8, keys * 8, 4 * ((1 << bits) + 1), fresh * 16, names, meta)
        starts = [0, *itertools.accumulate([-(-length // 8) * 8 for length in lengths])]
        if starts[-1] + TAIL.size != size or not (kept is None or kept.check(starts[-2])):
            raise ValueError("no table")
        parts = [view[at : at + length] for at, length in zip(starts, lengths, strict=False)]
        meta = parse_json(bytes(parts[7]))
        start_at, total, count, zip64, shift, comment, junk = meta["layout"]
        self.layout = ArchiveLayout(start_at, total, count, zip64, shift, bytes.fromhex(comment), junk)
        self.refused: dict[str, str] = meta["refused"]
        """Names that can't be opened, and why."""
        self.rows: int = rows
        self._displaced = shift
        self.kept = kept
        self.view = view
        self._raw = raw
        self._start = start
        self._positions = parts[1].cast("I" if width == 4 else "Q")
        self._limits = parts[2].cast("Q")
        self._part_starts = starts
        self._keys = parts[3].cast("Q")
        self._bucket_shift = 32 - bits
        self._buckets = parts[4].cast("I")
        self._fresh = parts[5].cast("Q")
        self._names = parts[6]
        self._good = kept.good if kept is not None and not all(kept.good) else None  # None: nothing is left to check
        self.sound = self._good is None
        """Whether all of it is known to be as it was written."""

    def check(self) -> None:
        """Look at all that hasn't been looked at; `DamagedTableError`."""
        if self.kept is not None and not self.kept.check():
            raise DamagedTableError
        self._good, self.sound = None, True

    # ---- rows

    def lookup(self, name: bytes) -> ZipEntry | None:
        """The entry of this name; None if there is none, which means nothing while the table isn't `sound`."""
        value = crc32(name)
        bucket = value >> self._bucket_shift
        keys, buckets = self._keys, self._buckets
        value <<= 32
        at = bisect_right(keys, value | _BIG, buckets[bucket], buckets[bucket + 1])
        while at and (key := keys[at - 1]) >= value:
            entry = self.entry(key & _BIG)
            if self._good is not None:
                self._check_key(bucket, at)
            if (self.name(key & _BIG) if self._fresh else entry.name) == name:
                return entry
            at -= 1
        return None

    def small_read(self, name: bytes) -> SmallRead | None:
        """Return how the small member of this name is read: the part of `lookup` that a read needs.

        None where that isn't found at the first look, or the member is large, or anything is odd about it.
        """
        value = crc32(name)
        bucket = value >> self._bucket_shift
        keys, buckets = self._keys, self._buckets
        at = bisect_right(keys, value << 32 | _BIG, buckets[bucket], buckets[bucket + 1])
        if not at:
            return None
        row = keys[at - 1] & _BIG
        record = self._positions[row]
        raw, start = self._raw, self._start + record
        flags, method, crc, compressed, size, length, extra, offset = _unpack_some(raw, start)
        if self._good is not None:
            self._check_row(row, record, record + 46 + length + extra)
            self._check_key(bucket, at)
        stop = start + 46 + length
        if raw[start + 46 : stop] != name or (self._fresh and self._fresh_name(row) is not None):
            return None
        if offset == _BIG:
            compressed, size, offset = self._zip64(stop, extra, compressed, size, offset)
        offset += self._displaced
        room, header = self._limits[row] - offset - compressed, 30 + length + extra + SLACK
        if (
            room < 30
            or flags & UNREADABLE
            or size > records.SMALL
            or (compressed != size if not method else method not in READABLE or compressed > records.SMALL)
        ):
            return None
        if room < header:  # the next member starts there
            header = room
        return (
            offset, header + compressed, _LEAD + raw[start + 6 : start + 30], name, header,
            compressed, size, crc, method, flags,
        )  # fmt: skip

    def name(self, row: int) -> bytes:
        """The name of an entry, as UTF-8; a directory's ends in `/`."""
        if self._fresh and (name := self._fresh_name(row)) is not None:
            return name
        start = self._start + self._positions[row]
        (length,) = _LENGTH.unpack_from(self._raw, start + 28)
        return self._raw[start + 46 : start + 46 + length]

    def names(self, rows: Iterable[int]) -> Iterator[bytes]:
        """Yield the names of these entries; as `name`, in less time."""
        if self._fresh:
            yield from map(self.name, rows)
            return
        raw, positions, start = self._raw, self._positions, self._start + 46
        for row in rows:
            at = start + positions[row]
            yield raw[at : at + raw[at - 18] + (raw[at - 17] << 8)]

    def row(self, entry: ZipEntry) -> int:
        """Return the row of an entry."""
        return bisect_left(self._positions, entry.record)

    def entry(self, row: int) -> ZipEntry:
        """The entry of a row; `DamagedTableError`."""
        record = self._positions[row]
        raw, start = self._raw, self._start + record
        flags, method, dos, crc, compressed, size, length, extra, _, attributes, offset = _unpack(raw, start)
        if self._good is not None:
            self._check_row(row, record, record + 46 + length + extra)
        if compressed == _BIG or size == _BIG or offset == _BIG:
            compressed, size, offset = self._zip64(start + 46 + length, extra, compressed, size, offset)
        name = start + 46
        fields, limit = raw[start + 6 : start + 30], self._limits[row]
        return _entry(
            ZipEntry,
            (offset + self._displaced, limit, compressed, size, crc, method, flags, 30 + length + extra, fields,
             raw[name : name + length], record, dos, attributes),
        )  # fmt: skip

    def modified(self, entry: ZipEntry) -> int | None:
        """The extended timestamp of an entry, in seconds since 1970."""
        size = entry.header - 30 - len(entry.name)
        content = self._field(self._start + entry.record + 46 + len(entry.name), size, records.EXTRA_TIMES)
        if len(content) < 5 or not content[0] & 1:
            return None
        return int.from_bytes(content[1:5], "little", signed=True)

    def _zip64(self, start: int, size: int, compressed: int, content: int, offset: int) -> tuple[int, int, int]:
        """Sizes and offset, those that don't fit into 32 bits taken from the zip64 field, which holds no others."""
        field = self._field(start, size, records.EXTRA_ZIP64)
        if not field:
            return compressed, content, offset
        at, found = 0, []
        for number in (content, compressed, offset):  # in the field's order
            if number == _BIG:
                number = min(int.from_bytes(field[at : at + 8], "little"), TOO_MUCH)
                at += 8
            found.append(number)
        return found[1], found[0], found[2]

    def _field(self, start: int, size: int, kind: int) -> bytes:
        """The content of the first extra field of a kind; empty if there is none. What overruns is left alone."""
        at, stop = start, start + size
        while at + 4 <= stop:
            found, length = _FIELD.unpack_from(self._raw, at)
            if at + 4 + length > stop:
                break
            if found == kind:
                return self._raw[at + 4 : at + 4 + length]
            at += 4 + length
        return b""

    def _fresh_name(self, row: int) -> bytes | None:
        fresh, count = self._fresh, len(self._fresh) // 2
        at = bisect_left(fresh, row, 0, count)
        if at == count or fresh[at] != row:
            return None
        return bytes(self._names[fresh[count + at - 1] if at else 0 : fresh[count + at]])

    def _check_row(self, row: int, start: int, stop: int) -> None:
        """Check the bytes that an entry comes from, as far as it wasn't done before."""
        self._check_bytes(start, stop)
        limit = self._part_starts[2] + 8 * row
        self._check_bytes(limit, limit + 8)

    def _check_key(self, bucket: int, at: int) -> None:
        """Check that the key before `at` is the one to be found, and nothing behind it."""
        buckets, keys = self._part_starts[4] + 4 * bucket, self._part_starts[3] + 8 * at
        self._check_bytes(buckets, buckets + 8)
        self._check_bytes(keys - 8, keys + 8)

    def _check_bytes(self, start: int, stop: int) -> None:
        good = self._good
        if good is None or (good[start >> BLOCK_BITS] and good[stop - 1 >> BLOCK_BITS]):
            return
        assert self.kept is not None
        if not self.kept.check(start, stop):
            raise DamagedTableError
        if 0 not in good:  # that was the last block
            self._good, self.sound = None, True

    # ---- order

    def order(self) -> memoryview:
        """The rows that count, in the order of their names."""
        if len(self._keys) > _FEW and not self._fresh:
            found = self._order_at_once()
            if found is not None:
                return found
        rows = sorted(key & _BIG for key in self._keys)
        last = {self.name(row): row for row in rows}
        return memoryview(array("I", [last[name] for name in sorted(last)]))

    def _order_at_once(self) -> memoryview | None:
        """The same by columns; None where the longest name makes that too wide."""
        import numpy as np

        buffer = np.frombuffer(self._raw, np.uint8)[self._start :]
        rows = np.sort(np.frombuffer(self._keys, np.uint64).astype(np.uint32))
        starts = np.asarray(self._positions)[rows].astype(np.int64)
        lengths = np.ndarray((len(buffer) - 1,), "<u2", buffer, strides=(1,))[starts + 28]
        widest = int(lengths.max())
        if widest * len(rows) > _WIDE:
            return None
        wide = np.ndarray((len(buffer) - widest + 1,), f"V{widest}", buffer, strides=(1,))
        names = np.zeros(len(rows), f"S{widest}")
        for at in range(0, len(rows), _CHUNK):  # which bounds the memory for what is in between
            part = wide[starts[at : at + _CHUNK] + 46].view(np.uint8).reshape(-1, widest)
            part[np.arange(widest) >= lengths[at : at + _CHUNK, None]] = 0
            names[at : at + _CHUNK] = part.view(f"S{widest}")[:, 0]
        order = np.argsort(names, kind="stable")
        names = names[order]
        counts = np.append(names[1:] != names[:-1], True)
        return memoryview(rows[order[counts]])
