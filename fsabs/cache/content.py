"""ContentCache: from identities to bytes, in memory over disk, each fetched once for all that want it.

It knows no FS. A disk that fails is a miss. There is one for each process.
"""

from __future__ import annotations

import mmap
import os
import random
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ..core import hooks, process
from . import eviction, policy
from .disk import DiskCache, EntryKey
from .eviction import Candidate, Victims
from .policy import ReadOrder, ReuseTimes
from .single_flight import MISSING, SingleFlight, no_claims

T = TypeVar("T")
STALL, LONGEST_STALL = 5.0, 10.0
"""Seconds without a block, at least and at most, after which a process fetches what another one has claimed."""
GROUP, GROUP_BYTES = 32, 1 << 18
"""The limits of a group of contents that are stored together: their number, and their bytes."""
_PROCESSES = 128
_ITEM_BYTES = 320  # of the objects that a content in memory is kept in, beside its bytes and those of its name
DISK_HITS, MEMORY_HITS, MISSES = range(3)
"""The numbers of `Counts`."""


class Counts:
    """The lookups of this process and of those that are forked from it, in memory that they share."""

    def __init__(self) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 32 * _PROCESSES)).cast("Q")

    def own(self) -> memoryview:
        """Return the numbers that this process adds to, in the order of the constants."""
        at = os.getpid() % _PROCESSES * 4
        return self._numbers[at : at + 4]

    def total(self, which: int) -> int:
        """Return the sum over all processes; those whose pids share a place may lose a few."""
        return sum(self._numbers[which::4])

    def __reduce__(self) -> tuple[type[Counts], tuple[()]]:
        return Counts, ()


class AbsentFiles:
    """Keys of files that were looked for in a full cache in vain, in memory that forked processes share.

    Each has a place in a table, which another one may take: what is forgotten is looked for again.
    """

    PLACES = 1 << 20

    def __init__(self) -> None:
        self._table = memoryview(mmap.mmap(-1, 4 * self.PLACES + 4)).cast("I")  # the last number: whether it was used

    def __contains__(self, key: str) -> bool:
        hashed = hash(key)
        return self._table[hashed % self.PLACES] == (hashed >> 32 & 0x7FFFFFFF) + 1

    def add(self, keys: Iterable[str]) -> None:
        """Remember files."""
        self._table[-1] = 1
        for key in keys:
            hashed = hash(key)
            self._table[hashed % self.PLACES] = (hashed >> 32 & 0x7FFFFFFF) + 1

    def discard(self, keys: Iterable[str]) -> None:
        """Forget files, which are going to be in the cache."""
        if self._table[-1]:
            for key in keys:
                if key in self:
                    self._table[hash(key) % self.PLACES] = 0

    def __reduce__(self) -> tuple[type[AbsentFiles], tuple[()]]:
        return AbsentFiles, ()


class _Item:
    __slots__ = ("data", "key", "last_read")

    def __init__(self, key: int, data: bytes) -> None:
        self.key = key
        self.data = data
        self.last_read = time.time()


def _size_of(name: bytes, data: bytes) -> int:
    return len(name) + len(data) + _ITEM_BYTES


class MemoryCache:
    """At most `limit` bytes, by name, by the same policy as the disk's; safe in threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: dict[bytes, _Item] = {}
        self._reuse = ReuseTimes()
        self._victims = Victims(self._reuse)
        self._lock = process.Lock()
        self.size: int = 0
        """Bytes of all entries, with what they are kept in."""

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: bytes) -> bool:
        return name in self._items

    def get(self, name: bytes) -> bytes | None:
        """Return the entry of that name, if it is there."""
        item = self._items.get(name)
        if item is None:
            return None
        item.last_read = self._reuse.add(item.last_read)
        return item.data

    def put(self, name: bytes, url: str, data: bytes, order: ReadOrder) -> bool:
        """Admit an entry, others going as need be; False if it is not admitted, or is there."""
        size = _size_of(name, data)
        if size > self._limit or name in self._items:
            return False
        key = policy.key_of(url)
        need = order.need(key)
        if not order and random.randrange(policy.ONE_IN) == 0:
            need = policy.NOW
        with self._lock:
            if name in self._items:  # another thread was faster
                return False
            while self.size + size > self._limit:
                victim = self._victims.next(self._sample, need, order)
                if victim is None:
                    return False
                item = self._items.get(victim.name)
                if item is not None and item.last_read == victim.last_read:
                    del self._items[victim.name]
                    self.size -= _size_of(victim.name, item.data)
            self._items[name] = _Item(key, data)
            self.size += size
        return True

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            self._items, self.size = {}, 0

    def _sample(self) -> list[Candidate]:
        items = [*self._items.items()]
        # Exact again after a signal handler's exception.
        self.size = sum(_size_of(name, item.data) for name, item in items)
        chosen = random.sample(items, min(eviction.CANDIDATES, len(items)))
        return [Candidate(item.key, item.last_read, name) for name, item in chosen]


_memories: weakref.WeakValueDictionary[tuple[DiskCache | None, int, int], MemoryCache] = weakref.WeakValueDictionary()
_opening = process.Lock()


def open_memory(disk: DiskCache | None, limit: int) -> MemoryCache:
    """Return this process's memory above a cache on disk: one for all FSs that share that, and its limit."""
    key = disk, limit, process.generation()
    with _opening:
        memory = _memories.get(key)
        if memory is None:
            _memories[key] = memory = MemoryCache(limit)
        return memory


class ContentCache:
    """See the module. `order` is what is known of the future; replace it when more is."""

    def __init__(self, disk: DiskCache | None, memory_bytes: int, counts: Counts | None = None) -> None:
        self.disk = disk
        self.order: ReadOrder = ReadOrder()
        self.counts: Counts = counts or Counts()
        self.memory: MemoryCache = open_memory(disk, memory_bytes)
        self._counted = self.counts.own()
        self._fetches = SingleFlight(no_claims)
        self._large = self._fetches if disk is None else SingleFlight(disk.partials, STALL, LONGEST_STALL)

    def lookup(self, entry: EntryKey) -> bytes | None:
        """Return the content of an entry; None for a miss, which `fetch` counts."""
        data = self.memory.get(entry.name)
        if data is not None:
            self._counted[MEMORY_HITS] += 1
        elif (data := self._from_disk(entry)) is not None:
            self._counted[DISK_HITS] += 1
        else:
            return None
        if (instrument := hooks.active) is not None:
            instrument.record_event("hit", "cache", len(data), entry.url)
        return data

    def _from_disk(self, entry: EntryKey) -> bytes | None:
        data = self.disk.get(entry) if self.disk is not None else None
        if data is not None:
            self.memory.put(entry.name, entry.url, data, self.order)
        return data

    def contains(self, entry: EntryKey) -> bool:
        """Return if there is an entry; it may turn out to be damaged."""
        return entry.name in self.memory or (self.disk is not None and self.disk.has(entry))

    def refuses(self) -> bool:
        """Return whether what is missing is read past the disk, which is full of what is used; chosen by chance."""
        return self.is_full() and random.randrange(policy.ONE_IN) > 0

    def is_full(self) -> bool:
        """Return whether the disk is full of what is used."""
        return self.disk is not None and self.disk.is_full(self.order)

    def admit(self, contents: Sequence[tuple[EntryKey, bytes]], chosen: bool = False) -> list[bool]:
        """Store contents, a group of `in_groups`, if they are `chosen` or the policy admits them; return which are."""
        order = self.order
        stored = [self.memory.put(entry.name, entry.url, data, order) for entry, data in contents]
        if self.disk is not None:
            stored = [
                one or other
                for one, other in zip(self.disk.put_many(contents, order, chosen=chosen), stored, strict=True)
            ]
        return stored

    def fetch(
        self,
        entries: Sequence[EntryKey],
        fetch: Callable[[Sequence[int]], Iterable[bytes]],
        admit: bool = True,
        large: bool = False,
    ) -> list[bytes]:
        """Return the contents of `entries`, which were missed, and admit them.

        What no other thread is fetching, and of a `large` file no other process, comes by one `fetch(numbers)`, in
        order. What `fetch` raises is raised here; others fetch for themselves then. Without `admit` nothing is stored.
        """
        if not admit:
            self.count_misses([entry.url for entry in entries])
            return list(fetch(range(len(entries))))

        chosen = self.is_full()  # else these would have been refused

        def lookup(number: int) -> Any:  # most are missing still, which is seen without an error
            entry = entries[number]
            data = self.memory.get(entry.name)
            if data is None and self.disk is not None and self.disk.has(entry):
                data = self._from_disk(entry)
            return MISSING if data is None else data

        def fetch_and_admit(numbers: Sequence[int]) -> Iterable[bytes]:
            self.count_misses([entries[number].url for number in numbers])
            for group in in_groups(zip(numbers, fetch(numbers), strict=True), lambda one: len(one[1])):
                self.admit([(entries[number], data) for number, data in group], chosen)
                yield from (data for _, data in group)

        fetches = self._large if large else self._fetches
        return fetches.fetch([entry.name for entry in entries], lookup, fetch_and_admit)

    def count_misses(self, urls: Sequence[str]) -> None:
        """Count misses of files."""
        self._counted[MISSES] += len(urls)
        if (instrument := hooks.active) is not None:
            for url in urls:
                instrument.record_event("miss", "cache", where=url)

    def pin(self, entry: EntryKey, data: bytes | None = None) -> bool:
        """Exempt an entry from eviction from the disk, `data` being stored if it isn't there; return if it is there."""
        if self.disk is None:
            return False
        return self.disk.pin(entry) or (data is not None and self.disk.put(entry, data, self.order, pinned=True))

    def clear(self) -> None:
        """Remove everything: on disk for all processes, and in this process's memory."""
        self.memory.clear()
        if self.disk is not None:
            self.disk.clear()

    def status(self) -> dict[str, Any]:
        """Return what there is and may be, in bytes, and what became of the lookups of this run: of this process and of
        those that are forked from it. What another one fetched meanwhile is neither a hit nor a miss.
        """
        return {
            "disk": self.disk.status() if self.disk is not None else None,
            "memory": {"items": len(self.memory), "bytes": self.memory.size},
            "hits": self.counts.total(DISK_HITS) + self.counts.total(MEMORY_HITS),
            "memory_hits": self.counts.total(MEMORY_HITS),
            "misses": self.counts.total(MISSES),
        }


def in_groups(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items in groups that are stored together; an error of `items` is raised after those before it."""
    group: list[T] = []
    room = GROUP_BYTES
    try:
        for item in items:
            group.append(item)
            room -= size_of(item)
            if len(group) == GROUP or room <= 0:
                yield group
                group, room = [], GROUP_BYTES
    except Exception:  # of the store or a layer below, which may raise anything; it is raised after the group
        if group:
            yield group
        raise
    if group:
        yield group
