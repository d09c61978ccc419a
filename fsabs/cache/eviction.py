"""What a cache does without when it is full: SIEVE (Zhang et al., NSDI 2024), and the known order of an epoch.

SIEVE keeps items in the order in which they came, and a hand that goes from the oldest to the newest, round and round:
what was used since the hand last passed is spared once, the first that was not goes. Where the order of an epoch is
known, what is still needed in it is passed over as long as there is something that is not; else what is needed last
goes, and what is needed later than all that is there is not taken in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from .. import process

SAMPLE = 32
"""How many items that are still needed are looked at for the one that is needed last."""


class Order:
    """In what order files will be read: positions by URL, and how far reading has come in this process."""

    __slots__ = ("_positions", "cursor")

    def __init__(self, urls: Iterable[str] = ()) -> None:
        self._positions: dict[str, int] = {}
        for position, url in enumerate(urls):
            self._positions.setdefault(url, position)
        self.cursor = -1

    def __bool__(self) -> bool:
        return bool(self._positions)

    def reached(self, url: str) -> None:
        """A file is being read: what comes before it is not needed any more."""
        position = self._positions.get(url)
        if position is not None and position > self.cursor:
            self.cursor = position

    def need(self, url: str) -> float:
        """When a file is needed after the one that is read now: a position; infinity where it is not, or not known."""
        position = self._positions.get(url)
        return math.inf if position is None or position <= self.cursor else position


class Item:
    """One item of `Sieve`."""

    __slots__ = ("data", "name", "newer", "older", "url", "visited")

    def __init__(self, name: bytes, url: str, data: bytes) -> None:
        self.name = name
        self.url = url
        self.data = data
        self.visited = False
        self.older: Item | None = None
        self.newer: Item | None = None


class Sieve:
    """Bytes in the memory of one process, at most `limit` of them, by name; safe in threads.

    A fork may copy it in the middle of a change: hold it in a `PerProcess`.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: dict[bytes, Item] = {}
        self._oldest: Item | None = None
        self._newest: Item | None = None
        self._hand: Item | None = None
        self._lock = process.Lock()
        self.size = 0
        """Bytes of all items."""

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[bytes]:
        return iter(list(self._items))

    def get(self, name: bytes) -> bytes | None:
        """The item of that name, if it is there."""
        item = self._items.get(name)
        if item is None:
            return None
        item.visited = True
        return item.data

    def put(self, name: bytes, url: str, data: bytes, order: Order) -> bool:
        """Take an item in, others going as need be; False where it has to stay outside."""
        if len(data) > self._limit or name in self._items:
            return False
        with self._lock:
            if name in self._items:  # another thread was faster
                return False
            while self.size + len(data) > self._limit:
                victim = self._victim(order, order.need(url))
                if victim is None:
                    return False
                self._unlink(victim)
            self._link(Item(name, url, data))
        return True

    def remove(self, name: bytes) -> None:
        """Drop an item, if it is there."""
        with self._lock:
            item = self._items.get(name)
            if item is not None:
                self._unlink(item)

    def clear(self) -> None:
        """Drop all items."""
        with self._lock:
            self._items = {}
            self._oldest = self._newest = self._hand = None
            self.size = 0

    def _victim(self, order: Order, newcomer: float) -> Item | None:
        """Who goes for a newcomer that is needed at that position; None if that is later than all others."""
        last: Item | None = None
        latest, passed = -1.0, 0
        item = self._hand
        for _ in range(2 * len(self._items) + 1):
            item = item if item is not None else self._oldest
            assert item is not None
            need = order.need(item.url) if order else math.inf
            if need < math.inf:
                passed += 1
                if need > latest:
                    last, latest = item, need
                if passed >= min(SAMPLE, len(self._items)):
                    break
            elif item.visited:
                item.visited = False
            else:
                self._hand = item.newer
                return item
            item = item.newer
        self._hand = item
        return last if latest > newcomer else None

    def _link(self, item: Item) -> None:
        item.older = self._newest
        if self._newest is not None:
            self._newest.newer = item
        else:
            self._oldest = item
        self._newest = item
        self._items[item.name] = item
        self.size += len(item.data)

    def _unlink(self, item: Item) -> None:
        if self._hand is item:
            self._hand = item.newer
        if item.older is not None:
            item.older.newer = item.newer
        else:
            self._oldest = item.newer
        if item.newer is not None:
            item.newer.older = item.older
        else:
            self._newest = item.older
        del self._items[item.name]
        self.size -= len(item.data)
