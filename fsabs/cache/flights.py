"""One fill of a missing entry for all that want it: threads wait for each other, processes for each other's claims.

A claim is the kernel's, so that a killed process frees it at once; who waits for longer than the timeout stops
waiting and fills the entry on its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from .. import process


class Missing:
    """The type of MISSING: what `find` returns where there is nothing, since None may be a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Claims(Protocol):
    """What claims an entry against other processes."""

    def claim(self, token: int) -> bool:
        """Whether it was free, and is claimed now."""

    def release(self, token: int) -> None:
        """Give it back."""


class _Flight:
    """A fill under way in this process."""

    __slots__ = ("done", "thread", "value")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.thread = threading.get_ident()
        self.value: Any = MISSING


class Flights:
    """The fills under way.

    Args:
        claims: an `Engine`; None where there are no other processes to wait for.
        timeout: seconds that a thread waits for another's fill.
    """

    def __init__(self, claims: Claims | None, timeout: float) -> None:
        self._claims = claims
        self._timeout = timeout
        self._lock = process.Lock()
        self._generation = process.generation()
        self._under_way: dict[Hashable, _Flight] = {}

    def once(self, key: Hashable, token: int, find: Callable[[], Any], make: Callable[[], Any]) -> Any:
        """The entry: found, or made (and stored) here, or made by another thread or process in the meantime.

        Args:
            key: which entry, in this process.
            token: which entry, for other processes: equal for equal keys.
            find: looks it up; MISSING where it isn't there.
            make: makes it, stores it, returns it. Its errors are raised here; whoever waits tries on its own then.
        """
        end = time.monotonic() + self._timeout
        while True:
            mine, flight = self._join(key)
            if mine:
                try:
                    flight.value = self._across_processes(token, find, make, end)
                    return flight.value
                finally:
                    self._leave(key, flight)
            if flight.thread == threading.get_ident():  # `make` asks for what it is making
                return make()
            in_time = flight.done.wait(max(0.0, end - time.monotonic()))
            value = find()
            if value is MISSING:
                value = flight.value  # it was not stored: the cache is full, say
            if value is not MISSING:
                return value
            if not in_time:
                return make()

    def _join(self, key: Hashable) -> tuple[bool, _Flight]:
        with self._lock:
            if self._generation != process.generation():  # those that were under way are the parent's
                self._under_way, self._generation = {}, process.generation()
            flight = self._under_way.get(key)
            if flight is not None:
                return False, flight
            flight = self._under_way[key] = _Flight()
            return True, flight

    def _leave(self, key: Hashable, flight: _Flight) -> None:
        with self._lock:
            if self._under_way.get(key) is flight:
                del self._under_way[key]
        flight.done.set()

    def _across_processes(self, token: int, find: Callable[[], Any], make: Callable[[], Any], end: float) -> Any:
        if self._claims is None:
            return make()
        pause = 0.001
        while not self._claims.claim(token):
            if time.monotonic() > end:
                return make()
            time.sleep(pause)
            pause = min(2 * pause, 0.02)
            value = find()
            if value is not MISSING:
                return value
        try:
            value = find()  # it may have come since the caller looked
            return make() if value is MISSING else value
        finally:
            self._claims.release(token)

    def __reduce__(self) -> tuple[Any, ...]:
        return Flights, (self._claims, self._timeout)
