"""Memory over disk: where `CachedFS` looks for bytes and keeps them, each thing being fetched by one thread at a time.

Names are those of `identity.name_of`, and what follows them for a part of a file. A disk that fails is a miss.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .. import hooks, process
from .memory import MemoryCache
from .policy import Order, Passes

if TYPE_CHECKING:
    from .disk import DiskCache

CLAIM_TIMEOUT = 60.0
"""Seconds that a thread waits for another's fetch before fetching itself; for another process it waits one at most."""
LONGEST_WAIT = 1.0
"""Seconds, at most, that one process waits for another one's fetch: it may be stopped."""
_LONGEST_NAP = 0.02


class Part(NamedTuple):
    """One thing that is kept: a file, or a block of one."""

    name: bytes
    url: str


class Flight:
    """A fetch under way: `data` is there once it is `done`, if it came to a good end."""

    __slots__ = ("data", "done")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.data: bytes | None = None


class Counts:
    """What happened in this process."""

    __slots__ = ("hits", "memory_hits", "misses")

    def __init__(self) -> None:
        self.hits = self.memory_hits = self.misses = 0


class Tiers:
    """Memory over disk. `order` is what is known of the future; replace it when more is.

    A forked child begins with an empty memory: what its parent's threads were fetching nobody brings it, and what they
    were changing may be half changed.
    """

    def __init__(self, memory_bytes: int, disk: DiskCache | None, claim_timeout: float = CLAIM_TIMEOUT) -> None:
        self.disk = disk
        self.order = Order()
        self._claim_timeout = claim_timeout
        self._memory_bytes = memory_bytes
        self._begin()

    def _begin(self) -> None:
        self.memory = MemoryCache(self._memory_bytes, self.disk.passes if self.disk is not None else Passes())
        self.counts = Counts()
        self._flights: dict[bytes, Flight] = {}
        self._generation = process.generation()

    def get(self, part: Part) -> bytes | None:
        """What is kept; None for a miss."""
        if self._generation != process.generation():
            self._begin()
        data = self.memory.get(part.name)
        if data is not None:
            self.counts.memory_hits += 1
        elif self.disk is not None and (data := self.disk.get(part.name, part.url)) is not None:
            self.memory.put(part.name, part.url, data, self.order)
        if data is not None:
            self.counts.hits += 1
            if self.disk is not None:
                self.disk.count(1, 0)
            if (instrument := hooks.active) is not None:
                instrument.record_event("hit", "cache", len(data), part.url)
        return data

    def has(self, part: Part) -> bool:
        """Whether something seems to be kept."""
        return part.name in self.memory or (self.disk is not None and self.disk.has(part.name, part.url))

    def put(self, part: Part, data: bytes) -> None:
        """Keep what was fetched."""
        if self._generation != process.generation():
            self._begin()
        self.memory.put(part.name, part.url, data, self.order)
        if self.disk is not None:
            self.disk.put(part.name, part.url, data, self.order)

    def fill(
        self, parts: Sequence[Part], fetch: Callable[[Sequence[int]], Iterable[bytes]], keep: bool = True
    ) -> list[bytes]:
        """The contents of `parts`, which are not kept: what nobody else is fetching, by one `fetch(numbers)`, in order.

        What another thread or process is fetching is waited for, at most the claim's timeout. What `fetch` raises is
        raised, here; others fetch for themselves then. With `keep` false nothing is kept.
        """
        if self._generation != process.generation():
            self._begin()
        self.counts.misses += len(parts)
        if self.disk is not None:
            self.disk.count(0, len(parts))
        if (instrument := hooks.active) is not None:
            for part in parts:
                instrument.record_event("miss", "cache", where=part.url)
        if not keep:
            return list(fetch(range(len(parts))))
        mine: dict[int, Flight] = {}
        theirs: dict[int, Flight] = {}
        found: dict[int, bytes] = {}
        flights = self._flights
        try:
            for number, part in enumerate(parts):
                flight = mine[number] = Flight()
                first = flights.setdefault(part.name, flight)
                if first is not flight:
                    theirs[number] = first
                    del mine[number]
            self._fill_mine(parts, mine, found, fetch)
        finally:
            for number, flight in mine.items():
                flight.data = found.get(number)
                if flights.get(parts[number].name) is flight:
                    del flights[parts[number].name]
                flight.done.set()
        for number, flight in theirs.items():
            flight.done.wait(self._claim_timeout)
            [found[number]] = [flight.data] if flight.data is not None else fetch([number])
        return [found[number] for number in range(len(parts))]

    def _fill_mine(
        self,
        parts: Sequence[Part],
        mine: Iterable[int],
        found: dict[int, bytes],
        fetch: Callable[[Sequence[int]], Iterable[bytes]],
    ) -> None:
        """Fetch what is claimed; then wait for what other processes have claimed."""
        claimed = {number for number in mine if self._claim(parts[number].name)}
        try:
            for number in claimed:  # another may have been there between our miss and our claim
                if (data := self.get(parts[number])) is not None:
                    found[number] = data
            wanted = sorted(claimed - found.keys())
            for number, data in zip(wanted, fetch(wanted) if wanted else (), strict=True):
                found[number] = data
                self.put(parts[number], data)
        finally:
            for number in claimed:
                self._release(parts[number].name)
        for number in mine:
            if number not in claimed:
                found[number] = self._wait(parts[number]) or next(iter(fetch([number])))

    def _wait(self, part: Part) -> bytes | None:
        """What another process is fetching, once it has; None if it doesn't."""
        end = time.monotonic() + min(self._claim_timeout, LONGEST_WAIT)
        nap = 0.0005
        while time.monotonic() < end:
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)
            free = self._claim(part.name)
            if free:
                self._release(part.name)
            if (data := self.get(part)) is not None or free:
                return data
        return None

    def _claim(self, name: bytes) -> bool:
        return self.disk is None or self.disk.claim(name)

    def _release(self, name: bytes) -> None:
        if self.disk is not None:
            self.disk.release(name)
