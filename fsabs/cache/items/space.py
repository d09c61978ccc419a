"""Keys and space of a file of items: the table that finds a string key, and dropping entries that are damaged.

Data is only ever appended, so that a reader that comes late finds its bytes, or another check, never another value.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from . import layout
from .cachefile import CacheFile

_BLOCK = 8  # entries that are read at once


class SlotEntry(NamedTuple):
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
        """True if it belongs to a value."""
        return self.kind not in (layout.EMPTY, layout.GONE)


class Space(CacheFile):
    """The table of keys, and removing."""

    def probe(self, hash_: int) -> Iterator[tuple[int, SlotEntry]]:
        """The entries where a key with that hash may be, with their places in the file; ends after an empty one."""
        at = self.layout.table_start + (hash_ % self.layout.slots) * layout.ENTRY_SIZE if self.layout.slots else 0
        for _ in range(layout.WINDOW // _BLOCK if at else 0):
            block = os.pread(self.fd, _BLOCK * layout.ENTRY_SIZE, at)
            for start in range(0, len(block) - layout.ENTRY_SIZE + 1, layout.ENTRY_SIZE):
                entry = SlotEntry._make(layout.ENTRY.unpack_from(block, start))
                yield at + start, entry
                if entry.kind == layout.EMPTY:
                    return
            at += len(block)
            if len(block) < _BLOCK * layout.ENTRY_SIZE:  # a file that was cut off
                return

    def entry_at(self, at: int) -> SlotEntry:
        """The entry at that place; an empty one where the file was cut off."""
        data = os.pread(self.fd, layout.ENTRY_SIZE, at)
        return SlotEntry._make(layout.ENTRY.unpack(data.ljust(layout.ENTRY_SIZE, b"\0")))

    def key_of(self, entry: SlotEntry) -> bytes:
        """The key that is stored with a value; not checked."""
        return self.read_at(entry.tail, entry.offset + entry.length)

    def erase(self, at: int, entry: SlotEntry) -> int:
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
