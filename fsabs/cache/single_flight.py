"""Single flight: one fetch of a missing value for all threads that want it, and for processes that leave claims.

Threads wait for each other's fetch. A process that has claimed a value and makes no progress (it may be stopped) is
waited for about as long as a fetch takes; then its claims are given up.
"""

from __future__ import annotations

import enum
import hashlib
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from ..core import process
from ..core.threads import Flag

TIMEOUT = 60.0
"""Seconds that a thread waits for another's fetch, and that a claim counts."""
MIN_WAIT = 1.0
"""Seconds without progress for which a process waits for another one, at least."""
FIRST_SLEEP, LONGEST_SLEEP = 0.0005, 0.02
"""Seconds between two looks at what another process is fetching."""


class Missing(enum.Enum):
    """The type of MISSING: what a lookup returns where there is nothing, since None may be a value."""

    MISSING = enum.auto()


MISSING = Missing.MISSING


class Claims(Protocol):
    """What processes are fetching: hints, on which nothing rests but the number of fetches. It raises no `OSError`."""

    def claim(self, token: int) -> bool:
        """Claim a token, a hash of 64 bits; False if another process has claimed it."""

    def release(self, token: int) -> None:
        """Give a claim back."""

    def give_up(self, token: int) -> None:
        """Ignore the claim of a process that was waited for in vain."""


def no_claims() -> None:
    """Return no claims: values are this process's alone."""


class _Flight:
    """A fetch under way in this process."""

    __slots__ = ("done", "thread", "values")

    def __init__(self) -> None:
        self.done = Flag()
        self.thread = threading.get_ident()
        self.values: dict[Hashable, Any] = {}


class _Request(NamedTuple):
    """The arguments of `SingleFlight.fetch`."""

    keys: Sequence[int | bytes]
    lookup: Callable[[int], Any]
    fetch: Callable[[Sequence[int]], Iterable[Any]]


class SingleFlight:
    """The fetches under way.

    Args:
        claims: returns this process's claims against other processes; None where they have nothing of each other.
        min_wait: seconds without progress for which another process is waited for, at least: three times as long as a
            value has taken lately, if that is more.
        max_wait: the same, at most.
    """

    def __init__(
        self, claims: Callable[[], Claims | None], min_wait: float = MIN_WAIT, max_wait: float = TIMEOUT
    ) -> None:
        self._claims = claims
        self._min_wait = min_wait
        self._max_wait = max_wait
        self._slowest = 0.0  # seconds that a value of the last fetches took
        self._generation = process.generation()
        self._flights: dict[Hashable, _Flight] = {}

    def fetch(
        self,
        keys: Sequence[int | bytes],
        lookup: Callable[[int], Any],
        fetch: Callable[[Sequence[int]], Iterable[Any]],
    ) -> list[Any]:
        """Return the values of `keys`: those that no other thread or process is fetching come by one `fetch`.

        Args:
            keys: names of the values; what is equal is one value, in all processes that share the claims.
            lookup: returns the stored value of `keys[number]`, or MISSING.
            fetch: yields the values of `keys[number]` for the numbers that it is given, in order, and stores them. Its
                errors are raised here; other threads fetch for themselves then.
        """
        if self._generation != process.generation():  # what was under way is the parent's
            self._flights, self._generation = {}, process.generation()
        flights, request = self._flights, _Request(keys, lookup, fetch)
        flight, own, others = _Flight(), dict[Hashable, int](), dict[int, _Flight]()
        try:
            for number, key in enumerate(keys):
                first = flights.setdefault(key, flight)
                if first is not flight or own.setdefault(key, number) != number:
                    others[number] = first
            self._fetch_own(request, own, flight.values)
        finally:
            for key in keys:
                if flights.get(key) is flight:
                    del flights[key]
            flight.done.set()
        if not others:
            return [flight.values[key] for key in keys]
        end = time.monotonic() + TIMEOUT
        values = {number: flight.values[key] for key, number in own.items()}
        values |= {number: self._of_other(request, number, other, end) for number, other in others.items()}
        return [values[number] for number in range(len(keys))]

    def _fetch_own(self, request: _Request, own: dict[Hashable, int], values: dict[Hashable, Any]) -> None:
        """Fetch what no other thread is fetching, as soon as no other process is, either."""
        claims = self._claims()
        if claims is None:
            self._fetch_claimed(request, values, dict.fromkeys(own.values(), 0), None)
            return
        waiting = {number: token_of(request.keys[number]) for number in own.values()}
        end, sleep = math.inf, FIRST_SLEEP
        while waiting:
            claimed = {number: token for number, token in waiting.items() if claims.claim(token)}
            if claimed or end == math.inf:
                waiting = {number: token for number, token in waiting.items() if number not in claimed}
                self._fetch_claimed(request, values, claimed, claims)
                end, sleep = time.monotonic() + min(self._max_wait, max(self._min_wait, 3 * self._slowest)), FIRST_SLEEP
            elif time.monotonic() > end:
                for token in waiting.values():
                    claims.give_up(token)
                continue  # before that process claims anything anew
            if waiting:
                time.sleep(sleep)
                sleep = min(2 * sleep, LONGEST_SLEEP)

    def _fetch_claimed(
        self, request: _Request, values: dict[Hashable, Any], claimed: dict[int, int], claims: Claims | None
    ) -> None:
        keys, slowest, began, missing = request.keys, self._slowest / 2, time.monotonic(), list[int]()
        try:
            for number in claimed:  # another one may have stored it since the caller looked
                value = request.lookup(number)
                if value is MISSING:
                    missing.append(number)
                else:
                    values[keys[number]] = value
            for number, value in zip(missing, request.fetch(missing) if missing else (), strict=True):
                values[keys[number]] = value
                if claims is not None:
                    claims.release(claimed.pop(number))
                    slowest, began = max(slowest, time.monotonic() - began), time.monotonic()
            self._slowest = slowest
        finally:
            if claims is not None:
                for token in claimed.values():
                    claims.release(token)

    def _of_other(self, request: _Request, number: int, flight: _Flight, end: float) -> Any:
        """Return what another thread is fetching."""
        keys, lookup, fetch = request
        if flight.done.is_set() or flight.thread != threading.get_ident():  # else a fetch asks for its own value
            in_time = flight.done.wait(max(0.0, end - time.monotonic()))
            if (value := lookup(number)) is not MISSING:
                return value
            if keys[number] in flight.values:  # it could not be stored
                return flight.values[keys[number]]
            if in_time:  # it failed: one of those that waited is the next
                return self.fetch([keys[number]], lambda _: lookup(number), lambda _: fetch([number]))[0]
        [value] = fetch([number])
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return SingleFlight, (self._claims, self._min_wait, self._max_wait)  # what is under way stays here


def token_of(key: int | bytes) -> int:
    """Return the number, of 64 bits, that processes claim a key by."""
    data = key if isinstance(key, bytes) else b"%d" % key
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
