"""The memory's part of `CachedFS`: bytes by name, in one process, by the same policy as the disk's."""

from __future__ import annotations

import random
import time

from ..core import process
from . import policy
from .policy import Passes, ReadOrder

SAMPLE = 16
"""Entries among which the one that goes is chosen."""


class _Item:
    __slots__ = ("at", "data", "key", "last_read", "name")

    def __init__(self, name: bytes, key: int, data: bytes, at: int) -> None:
        self.name = name
        self.key = key
        self.data = data
        self.at = at  # in the list of all
        self.last_read = time.time()


class MemoryCache:
    """At most `limit` bytes, by name; safe in threads.

    A fork may copy it in the middle of a change: a child begins with another one.
    """

    def __init__(self, limit: int, passes: Passes) -> None:
        self._limit = limit
        self._passes = passes
        self._items: dict[bytes, _Item] = {}
        self._all: list[_Item] = []
        self._lock = process.Lock()
        self._changes = False  # while it is set, the list and the size may not fit the items
        self.size: int = 0
        """Bytes of all entries."""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: bytes) -> bool:
        return name in self._items

    def get(self, name: bytes) -> bytes | None:
        """Return the entry of that name, if it is there."""
        item = self._items.get(name)
        if item is None:
            return None
        item.last_read = time.time()
        self._passes.read(hash(name))
        return item.data

    def put(self, name: bytes, url: str, data: bytes, order: ReadOrder) -> bool:
        """Admit an entry, others going as need be; False if it is not admitted."""
        if len(data) > self._limit or name in self._items:
            return False
        key = policy.key_of(url)
        need = order.need(key)
        with self._lock:
            if name in self._items:  # another thread was faster
                return False
            self._begin_change()
            while self.size + len(data) > self._limit:
                victim = max(self._sample(), key=lambda item: self._rank(item, order))
                if not policy.goes_for(self._rank(victim, order), need):
                    self._changes = False
                    return False
                self._unlink(victim)
            self._items[name] = item = _Item(name, key, data, len(self._all))
            self._all.append(item)
            self.size += len(data)
            self._changes = False
        return True

    def remove(self, name: bytes) -> None:
        """Drop an entry, if it is there."""
        with self._lock:
            item = self._items.get(name)
            if item is not None:
                self._begin_change()
                self._unlink(item)
                self._changes = False

    def _begin_change(self) -> None:
        """Begin a change, after one that an exception of a signal handler may have ended in the middle."""
        if self._changes:
            self._all = [*self._items.values()]
            for at, item in enumerate(self._all):
                item.at = at
            self.size = sum(len(item.data) for item in self._all)
        self._changes = True

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._items, self._all, self.size, self._changes = {}, [], 0, False

    def _sample(self) -> list[_Item]:
        return random.sample(self._all, min(SAMPLE, len(self._all)))

    def _rank(self, item: _Item, order: ReadOrder) -> float:
        return policy.rank(item.key, item.last_read, order, self._passes)

    def _unlink(self, item: _Item) -> None:
        del self._items[item.name]
        last = self._all.pop()
        if last is not item:
            self._all[item.at] = last
            last.at = item.at
        self.size -= len(item.data)
