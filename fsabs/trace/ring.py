"""The ring: a mapped file of fixed records that outlives its process, and how to read what a process left behind.

All numbers are little-endian. The file has four areas after a page that describes it:

    0      magic `FSABSRNG`, version, capacity in records, sizes of the areas, length of the JSON header; the header
    names  what kinds, names and errors there are, in the order of their numbers: length (2 bytes), UTF-8
    texts  two halves of URLs: number of the first, bytes used; then length (2 bytes), UTF-8. When one half is full, the
           other is begun anew, so that the last ones are always there
    tally  two copies of the recorder's counters as JSON, with number, length and CRC-32, written in turns
    records  `RECORD`, 64 bytes each; the first is number 1, record `n` is in slot `n % capacity`, and the last
             field, written last, is n * 64

A process may be killed between any two bytes: what is torn has a number that doesn't fit, and is left out.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import zlib
from typing import Any, NamedTuple

MAGIC = b"FSABSRNG"
VERSION = 1
_HEAD = struct.Struct("<8s6I")  # magic, version, capacity, names, texts, tally, length of the header
_HALF = struct.Struct("<QI")  # number of the first text, bytes used
_COPY = struct.Struct("<QII")  # number of the copy, length, CRC-32
_LENGTH = struct.Struct("<H")
_USED = struct.Struct("<I")
PAGE = 4096
NAMES_SIZE = 128 * 1024
TEXTS_SIZE = 2 * 1024 * 1024
TALLY_SIZE = 512 * 1024

RECORD = struct.Struct("<qqqqIIHH12xQ")
"""begin, duration, size, offset, number of the URL, thread, number of the name, number of the error, n * 64.

The size is a power of two, so that one counter in steps of 64 is both a record's place and its number.
"""

CAPACITY = 65536
"""Records of a ring, a power of two."""
LONGEST = 1024
"""Bytes of the longest text that is kept whole."""

Record = tuple[int, int, int, int, int, int, int, int, int]
"""As `RECORD`, but the last one is n."""


class _Layout(NamedTuple):
    """The offsets of the ring file's areas."""

    names: int
    texts: int
    tally: int
    records: int
    end: int


def _layout(capacity: int, names: int, texts: int, tally: int) -> _Layout:
    at_texts = PAGE + names
    at_tally = at_texts + 2 * texts
    at_records = at_tally + 2 * tally
    return _Layout(PAGE, at_texts, at_tally, at_records, at_records + capacity * RECORD.size)


class Ring:
    """The writing side: made by the process that is traced, and written by it alone."""

    def __init__(self, path: str, header: dict[str, Any], capacity: int) -> None:
        """Make the file; its room on the disk is taken now, since a mapped page that has none would kill the process.

        Raises `OSError`.
        """
        self.path = path
        self.capacity = capacity
        texts = TEXTS_SIZE if capacity else 0
        self._layout = _layout(capacity, NAMES_SIZE, texts, TALLY_SIZE)
        self._names_used = 0
        self._half, self._half_used, self._half_size = 0, 0, texts
        self._copies = 0
        described = json.dumps(header).encode()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, self._layout.end)
            self.buffer = mmap.mmap(descriptor, self._layout.end)
            self.buffer.madvise(mmap.MADV_RANDOM)  # else the first touch of a page makes its neighbours, too: 3 ms
        except BaseException:
            os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        self.buffer[_HEAD.size : _HEAD.size + len(described)] = described
        _HEAD.pack_into(
            self.buffer, 0, MAGIC, VERSION, capacity, NAMES_SIZE, texts, TALLY_SIZE, len(described)
        )  # fmt: skip

    @property
    def records(self) -> memoryview:
        """The area of the records."""
        return memoryview(self.buffer)[self._layout.records : self._layout.end]

    def add_name(self, text: str) -> bool:
        """Write the next name; False where there is no more room."""
        data = _cut(text)
        at, self._names_used = self._names_used, self._names_used + _LENGTH.size + len(data)
        if _USED.size + self._names_used > NAMES_SIZE:
            self._names_used = at
            return False
        at += self._layout.names + _USED.size
        self.buffer[at : at + _LENGTH.size + len(data)] = _LENGTH.pack(len(data)) + data
        _USED.pack_into(self.buffer, self._layout.names, self._names_used)
        return True

    def add_text(self, text: str, number: int) -> bool:
        """Write the text of `number`, which follows the one before; True if that began another half."""
        data = text.encode("utf-8", "backslashreplace")[:LONGEST]
        need = _LENGTH.size + len(data)
        turned = _HALF.size + self._half_used + need > self._half_size
        if turned:
            self._half, self._half_used = 1 - self._half, 0
        start = self._layout.texts + self._half * self._half_size
        at, self._half_used = self._half_used, self._half_used + need
        if not at:
            _USED.pack_into(self.buffer, start + 8, 0)  # first: else old texts would have new numbers
            _HALF.pack_into(self.buffer, start, number, 0)
        at += start + _HALF.size
        self.buffer[at : at + need] = _LENGTH.pack(len(data)) + data
        _USED.pack_into(self.buffer, start + 8, self._half_used)
        return turned

    def save_tally(self, data: bytes) -> None:
        """Keep the counters; where they are too long, the last copy stays."""
        if len(data) > TALLY_SIZE - _COPY.size:
            return
        self._copies += 1
        start = self._layout.tally + (self._copies % 2) * TALLY_SIZE
        _COPY.pack_into(self.buffer, start, 0, 0, 0)
        self.buffer[start + _COPY.size : start + _COPY.size + len(data)] = data
        _COPY.pack_into(self.buffer, start, self._copies, len(data), zlib.crc32(data))

    def remove(self) -> None:
        """Remove the file; the mapping stays, for a thread that is still writing to it."""
        try:
            os.unlink(self.path)
        except OSError:  # someone cleared the folder, or made it read-only: what is left is read as of one that died
            pass


def _cut(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")[:LONGEST]


class Left(NamedTuple):
    """The records that a ring holds."""

    header: dict[str, Any]
    names: list[str]
    texts: dict[int, str]
    tally: dict[str, Any] | None
    """The recorder's counters, at most a second old."""
    records: list[Record]
    """The newest ones, in their order; one may be missing where a thread was in the middle of it."""
    recorded: int
    """How many records there were in all."""


def read(path: str) -> Left:
    """Read a ring, of a process that has died or is alive. Raises `ValueError` for what isn't one, and `OSError`."""
    with open(path, "rb") as file:
        data = file.read()
        if len(data) < PAGE or data[:8] != MAGIC:
            raise ValueError(f"not a ring of a trace: {path}")
        _, version, capacity, names, texts, tally, length = _HEAD.unpack_from(data)
        if version > VERSION:
            raise ValueError(f"{path} is of version {version}, and this reads {VERSION}")
        layout = _layout(capacity, names, texts, tally)
        if len(data) < layout.end:
            raise ValueError(f"{path} has {len(data)} bytes in place of {layout.end}")
        file.seek(layout.records)
        again = file.read()  # a live process may have written in between: what differs is left out
    header = json.loads(data[_HEAD.size : _HEAD.size + length])
    found = _records(data[layout.records : layout.end], again, capacity)
    used = _USED.unpack_from(data, layout.names)[0]
    begin = layout.names + _USED.size
    return Left(
        header,
        _strings(data[begin : begin + used]),
        {**_half(data, layout.texts, texts), **_half(data, layout.texts + texts, texts)},
        _tally(data, layout.tally, tally),
        found,
        found[-1][-1] if found else 0,
    )


def _records(first: bytes, second: bytes, capacity: int) -> list[Record]:
    found: list[Record] = []
    for slot, (record, again) in enumerate(zip(RECORD.iter_unpack(first), RECORD.iter_unpack(second), strict=True)):
        number = record[-1] // RECORD.size
        if number and record == again and number % capacity == slot:
            found.append((*record[:-1], number))
    found.sort(key=lambda record: record[-1])
    newest = found[-1][-1] if found else 0
    # The slot after the newest one may be half overwritten, its number being written last.
    return [record for record in found if newest - capacity + 1 < record[-1]]


def _half(data: bytes, start: int, size: int) -> dict[int, str]:
    if not size:
        return {}
    first, used = _HALF.unpack_from(data, start)
    begin = start + _HALF.size
    return dict(enumerate(_strings(data[begin : begin + used]), first))


def _strings(data: bytes) -> list[str]:
    found, at = [], 0
    while at + _LENGTH.size <= len(data):
        length = _LENGTH.unpack_from(data, at)[0]
        at += _LENGTH.size
        found.append(data[at : at + length].decode("utf-8", "replace"))
        at += length
    return found


def _tally(data: bytes, start: int, size: int) -> dict[str, Any] | None:
    best: tuple[int, dict[str, Any]] | None = None
    for at in (start, start + size):
        number, length, crc = _COPY.unpack_from(data, at)
        text = data[at + _COPY.size : at + _COPY.size + length]
        if number and zlib.crc32(text) == crc and (best is None or number > best[0]):
            best = (number, json.loads(text))
    return best[1] if best else None
