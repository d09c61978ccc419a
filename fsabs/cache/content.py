"""ContentCache: from identities to bytes, in memory over disk, each fetched once for all that want it.

It knows no FS. Names are what `Identity.encode` gives, and what follows it for a block of a file. A disk that fails is
a miss.
"""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from ..core import hooks, process
from .disk import DiskCache
from .memory import MemoryCache
from .policy import Passes, ReadOrder
from .single_flight import MISSING, SingleFlight

T = TypeVar("T")
GROUP, GROUP_BYTES = 32, 1 << 18
"""The limits of a group of contents that are stored together: their number, and their bytes."""
CLAIM_TIMEOUT = 60.0
"""Seconds that a thread waits for another's fetch before it fetches itself."""
_PROCESSES = 128
DISK_HITS, MEMORY_HITS, MISSES = range(3)
"""The numbers of `Counts`."""


class EntryKey(NamedTuple):
    """The name of one entry, and the URL of the file that it is of: a whole file, or a block of one."""

    name: bytes
    url: str


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


class ContentCache:
    """See the module. `order` is what is known of the future; replace it when more is.

    A forked child begins with an empty memory: what its parent's threads were changing may be half changed.
    """

    def __init__(
        self,
        disk: DiskCache | None,
        memory_bytes: int,
        timeout: float = CLAIM_TIMEOUT,
        counts: Counts | None = None,
    ) -> None:
        self.disk = disk
        self.order: ReadOrder = ReadOrder()
        self.counts: Counts = counts or Counts()
        self._memory_bytes = memory_bytes
        self._fetches = SingleFlight(lambda: None if disk is None else disk.claims, timeout)
        self._begin()

    def _begin(self) -> None:
        passes = Passes() if self.disk is None else self.disk.passes
        self.memory: MemoryCache = MemoryCache(self._memory_bytes, passes)
        self._counted = self.counts.own()
        self._generation = process.generation()

    def lookup(self, entry: EntryKey) -> bytes | None:
        """Return the content of an entry; None for a miss, which `fetch` counts."""
        data = self.memory.get(entry.name) if self._generation == process.generation() else None
        if data is not None:
            self._counted[MEMORY_HITS] += 1
        elif (data := self._stored(entry)) is not None:
            self._counted[DISK_HITS] += 1
        else:
            return None
        if (instrument := hooks.active) is not None:
            instrument.record_event("hit", "cache", len(data), entry.url)
        return data

    def _stored(self, entry: EntryKey) -> bytes | None:
        """As `lookup`, uncounted."""
        if self._generation != process.generation():
            self._begin()
        data = self.memory.get(entry.name)
        if data is None and self.disk is not None and (data := self.disk.get(entry.name, entry.url)) is not None:
            self.memory.put(entry.name, entry.url, data, self.order)
        return data

    def contains(self, entry: EntryKey) -> bool:
        """Return if there is an entry; it may turn out to be damaged."""
        return entry.name in self.memory or (self.disk is not None and self.disk.has(entry.name, entry.url))

    def admit(self, entry: EntryKey, data: bytes) -> bool:
        """Store content, if the eviction policy admits it; returns if it is stored."""
        return self.admit_many([(entry, data)])[0]

    def admit_many(self, contents: Sequence[tuple[EntryKey, bytes]]) -> list[bool]:
        """As `admit`, for several contents: a group of `in_groups`."""
        if self._generation != process.generation():
            self._begin()
        order = self.order
        in_memory = [self.memory.put(*entry, data, order) for entry, data in contents]
        if self.disk is None:
            return in_memory
        on_disk = self.disk.put_many([(*entry, data) for entry, data in contents], order)
        return [one or other for one, other in zip(on_disk, in_memory, strict=True)]

    def fetch(
        self, entries: Sequence[EntryKey], fetch: Callable[[Sequence[int]], Iterable[bytes]], admit: bool = True
    ) -> list[bytes]:
        """Return the contents of `entries`, which were missed, and admit them.

        What no other thread or process is fetching comes by one `fetch(numbers)`, in order. What `fetch` raises is
        raised here; others fetch for themselves then. Without `admit` nothing is stored.
        """
        if not admit:
            self.count_misses(entries)
            return list(fetch(range(len(entries))))

        def lookup(number: int) -> Any:
            data = self._stored(entries[number])
            return MISSING if data is None else data

        def fetch_and_admit(numbers: Sequence[int]) -> Iterable[bytes]:
            self.count_misses([entries[number] for number in numbers])
            for group in in_groups(zip(numbers, fetch(numbers), strict=True), lambda one: len(one[1])):
                self.admit_many([(entries[number], data) for number, data in group])
                yield from (data for _, data in group)

        return self._fetches.fetch([entry.name for entry in entries], lookup, fetch_and_admit)

    def count_misses(self, entries: Sequence[EntryKey]) -> None:
        """Count misses."""
        if self._generation != process.generation():
            self._begin()
        self._counted[MISSES] += len(entries)
        if (instrument := hooks.active) is not None:
            for entry in entries:
                instrument.record_event("miss", "cache", where=entry.url)

    def pin(self, entry: EntryKey, data: bytes | None = None) -> bool:
        """Exempt an entry from eviction from the disk, `data` being stored if it isn't there; return if it is there."""
        if self.disk is None:
            return False
        return self.disk.pin(*entry) or (data is not None and self.disk.put(*entry, data, self.order, pinned=True))

    def unpin(self, urls: Iterable[str]) -> None:
        """Take `pin` back for all that is there of files, of whichever version."""
        if self.disk is not None:
            self.disk.unpin(urls)

    def verify(self) -> list[str]:
        """Read all that is on disk; returns what was damaged, and has been removed, by URL and version."""
        return self.disk.verify() if self.disk is not None else []

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
    rest, failure = iter(items), None
    while failure is None:
        group: list[T] = []
        room = GROUP_BYTES
        try:
            for item in itertools.islice(rest, GROUP):
                group.append(item)
                room -= size_of(item)
                if room <= 0:
                    break
        except Exception as exc:
            failure = exc
        if group:
            yield group
        elif failure is None:
            return
    raise failure
