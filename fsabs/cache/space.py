"""Keys and space: the table that finds a key, what is in the file in order of its coming, and giving space back.

Data is only ever appended; what is removed leaves a hole, whose blocks go back to the disk. So the order of the
offsets is the order of the puts, which is what an eviction wants to know, and a reader that comes late finds zeros
or another check, never another value.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import layout
from .cachefile import CacheFile, State

_BLOCK = 8  # entries that are read at once
_PIECE = 32 * 1024  # bytes of the table that are read at once; a multiple of PAGE
_TOGETHER = 64  # pieces that are looked at together
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # linux/falloc.h


class Entry(NamedTuple):
    """One entry of the table."""

    offset: int
    length: int
    hash: int
    check: int
    tail: int
    kind: int
    visited: int

    @property
    def there(self) -> bool:
        """Whether it is a value's."""
        return self.kind not in (layout.EMPTY, layout.GONE)


class Space(CacheFile):
    """The table of keys, and removing."""

    def probe(self, hash_: int) -> Iterator[tuple[int, Entry]]:
        """The entries where a key with that hash may be, with their places in the file; ends after an empty one."""
        at = self.layout.table_start + (hash_ % self.layout.slots) * layout.ENTRY_SIZE if self.layout.slots else 0
        for _ in range(layout.WINDOW // _BLOCK if at else 0):
            block = os.pread(self.fd, _BLOCK * layout.ENTRY_SIZE, at)
            for start in range(0, len(block) - layout.ENTRY_SIZE + 1, layout.ENTRY_SIZE):
                entry = Entry._make(layout.ENTRY.unpack_from(block, start))
                yield at + start, entry
                if entry.kind == layout.EMPTY:
                    return
            at += len(block)
            if len(block) < _BLOCK * layout.ENTRY_SIZE:  # a file that was cut off
                return

    def entry_at(self, at: int) -> Entry:
        """The entry at that place; an empty one where the file was cut off."""
        data = os.pread(self.fd, layout.ENTRY_SIZE, at)
        return Entry._make(layout.ENTRY.unpack(data.ljust(layout.ENTRY_SIZE, b"\0")))

    def key_of(self, entry: Entry) -> bytes:
        """The key that is stored with a value; not checked."""
        return self.read_at(entry.tail, entry.offset + entry.length)

    def entries(self) -> Any:
        """All entries of the table, oldest first: a structured array with the fields of `Entry` and `at`, its place.

        Takes no lock; an entry may be gone by the time it is used, see `discard`. Without those of `rubbish()`.
        """
        import numpy as np

        found = self._table()
        found = found[self._can_be(found)]
        return found[np.argsort(found["offset"], kind="stable")]

    def rubbish(self) -> list[tuple[int, int]]:
        """The entries (at, offset) of places where no value can be, as damage leaves them."""
        found = self._table()
        found = found[~self._can_be(found)]
        return list(zip(found["at"].tolist(), found["offset"].tolist(), strict=True))

    def _can_be(self, found: Any) -> Any:
        far = layout.FARTHEST
        return (found["offset"] >= self.layout.data_start) & (found["offset"] <= far) & (found["length"] <= far)

    def _table(self) -> Any:
        """The entries as they stand: what was never written isn't read, and what is read isn't held."""
        import numpy as np

        fields = [("offset", "u8"), ("length", "u8"), ("hash", "u8"), ("check", "u4"), ("tail", "u2")]
        fields += [("kind", "u1"), ("visited", "u1")]
        kept = [np.empty(0, [*fields, ("at", "u8")])]
        pieces = self._written()
        while batch := list(itertools.islice(pieces, _TOGETHER)):
            starts = np.array([start for start, _ in batch])
            every = np.frombuffer(b"".join(raw for _, raw in batch), fields)
            (places,) = np.nonzero((every["kind"] != layout.EMPTY) & (every["kind"] != layout.GONE))
            found = np.empty(len(places), [*fields, ("at", "u8")])
            for name, _ in fields:
                found[name] = every[name][places]
            piece, entry = np.divmod(places, _PIECE // layout.ENTRY_SIZE)
            found["at"] = starts[piece] + entry * layout.ENTRY_SIZE
            kept.append(found)
        return np.concatenate(kept)

    def _written(self) -> Iterator[tuple[int, bytes]]:
        """What is no hole of the table: pieces of _PIECE bytes, filled up with zeros, each with its place."""
        at = self.layout.table_start
        end = at + (self.layout.slots + layout.WINDOW) * layout.ENTRY_SIZE if self.layout.slots else at
        while at < end:
            try:
                found = os.lseek(self.fd, at, os.SEEK_DATA)  # where the file's offset stands is nobody's concern
            except OSError as exc:
                if exc.errno == errno.ENXIO:  # a hole up to the end of the file
                    return
                raise
            at = max(at, found // layout.PAGE * layout.PAGE)
            if at < end:
                yield at, self.read_at(min(_PIECE, end - at), at).ljust(_PIECE, b"\0")
            at += _PIECE

    def discard(self, places: Iterable[tuple[int, int]]) -> int:
        """Remove the entries (at, offset) that are still the same; how many bytes became free."""
        freed = 0
        with self.lock:
            for at, offset in places if not self.state().sealed else ():
                entry = self.entry_at(at)
                if entry.there and entry.offset == offset:
                    freed += self.erase(at, entry)
        return freed

    def forget(self, places: Iterable[int]) -> None:
        """Set `visited` back in the entries at these places."""
        for at in places:
            os.pwrite(self.fd, b"\0", at + layout.VISITED_AT)

    def erase(self, at: int, entry: Entry) -> int:
        """Under the lock: remove one entry; the bytes that became free.

        Of an entry that is rubbish nothing becomes free: where it points to, another's value may be.
        """
        room = self.layout.room(entry.length + entry.tail)
        state = self.state()
        if not self.layout.data_start <= entry.offset <= entry.offset + room <= max(state.cursor, state.sealed):
            room = 0
        in_table = at >= self.layout.table_start
        if in_table and self._ends_at(at + layout.ENTRY_SIZE):
            self._empty_back_from(at)
        else:
            kind = layout.GONE if in_table else layout.EMPTY
            os.pwrite(self.fd, layout.ENTRY.pack(0, 0, 0, 0, 0, kind, 0), at)
        self._set_space(state.cursor, state.used - room, state.entries - 1)
        if self.layout.align % layout.PAGE == 0:
            punch(self.fd, entry.offset, room)
        return room

    def _ends_at(self, at: int) -> bool:
        end = self.layout.table_start + (self.layout.slots + layout.WINDOW) * layout.ENTRY_SIZE
        return at >= end or self.entry_at(at).kind == layout.EMPTY

    def _empty_back_from(self, at: int) -> None:
        """The last of a chain leaves no mark, and takes the marks before it along."""
        empty = bytes(layout.ENTRY_SIZE)
        os.pwrite(self.fd, empty, at)
        while (at := at - layout.ENTRY_SIZE) >= self.layout.table_start and self.entry_at(at).kind == layout.GONE:
            os.pwrite(self.fd, empty, at)

    @property
    def hand(self) -> int:
        """A place in the data that an eviction keeps for the next one, in any process."""
        return self.state().hand

    @hand.setter
    def hand(self, offset: int) -> None:
        os.pwrite(self.fd, layout.WORD.pack(offset), layout.HAND_AT)

    def clear(self) -> None:
        """Remove all that is there."""
        with self.lock:
            self._clear()

    def _clear(self) -> State:
        table, data = self.layout.table_start, self.layout.data_start
        cursor = self.state().cursor
        self._write_at(bytes(self.layout.length * layout.ENTRY_SIZE), layout.ITEMS_START)  # mapped: never a hole
        if not punch(self.fd, table, data - table):
            self._write_at(bytes(data - table), table)
        os.ftruncate(self.fd, data)
        self._set_space(cursor if cursor < layout.FARTHEST else data, 0, 0)
        self.hand = 0
        return self.state()

    def repair(self) -> int:
        """Count again what there is, and free what killed processes left in no entry; the bytes that became free.

        For a file without items, whose `align` is a multiple of PAGE. Takes as long as reading the table.
        """
        for at, offset in self.rubbish():
            self.discard([(at, offset)])
        with self.lock:
            before, found = self.state(), self.entries()
            cursor = max(before.cursor, self.layout.room(os.fstat(self.fd).st_size), self.layout.data_start)
            at, used = self.layout.data_start, 0
            for offset, length, tail in zip(
                found["offset"].tolist(), found["length"].tolist(), found["tail"].tolist(), strict=True
            ):
                if offset > at:
                    punch(self.fd, at, offset - at)
                room = self.layout.room(length + tail)
                at, used = max(at, offset + room), used + room
            if cursor > at:
                punch(self.fd, at, cursor - at)
            self._set_space(max(cursor, at), used, len(found))
            return max(0, before.used - used)


@functools.cache
def _fallocate() -> Any:
    function = ctypes.CDLL(None, use_errno=True).fallocate
    function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


def punch(fd: int, offset: int, size: int) -> bool:
    """Give the blocks of a range back to the disk; it reads as zeros then. False where the filesystem can't."""
    return size <= 0 or _fallocate()(fd, _KEEP_SIZE | _PUNCH_HOLE, offset, size) == 0
