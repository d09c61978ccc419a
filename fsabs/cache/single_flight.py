"""Single flight: one fetch of a missing value for all threads and processes that want it.

Threads wait for each other's fetch, processes for what another one has claimed (see `claims`). A process whose fetches
make no progress is waited for once; then what it had claimed is fetched a second time.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

from ..core import process
from ..core.threads import Flag
from .claims import Claims
from .frames import key_hash

FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.02
"""Seconds between two looks at what another process is fetching."""
PROCESS_TIMEOUT = 1.0
"""Seconds without progress after which a process fetches what another one has claimed."""


class Missing:
    """The type of MISSING: what a lookup returns where there is nothing, since None may be a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = Missing()


def no_claims() -> None:
    """Claim nothing: values are this process's alone."""


class _Flight:
    """A fetch under way in this process."""

    __slots__ = ("done", "thread", "value")

    def __init__(self) -> None:
        self.done = Flag()
        self.thread = threading.get_ident()
        self.value: Any = MISSING


class _Request(NamedTuple):
    """The arguments of `SingleFlight.fetch`."""

    keys: Sequence[int | bytes]
    lookup: Callable[[int], Any]
    fetch: Callable[[Sequence[int]], Iterable[Any]]


class SingleFlight:
    """The fetches under way.

    Args:
        claims: returns this process's claims against other processes, or None.
        timeout: seconds that a thread waits for another one's fetch, before it fetches itself.
        process_timeout: seconds without progress for which it waits for another process.
    """

    def __init__(
        self, claims: Callable[[], Claims | None], timeout: float, process_timeout: float = PROCESS_TIMEOUT
    ) -> None:
        self._claims = claims
        self._timeout = timeout
        self._process_timeout = min(timeout, process_timeout)
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
        return self._fetch(_Request(keys, lookup, fetch), time.monotonic() + self._timeout)

    def _fetch(self, request: _Request, end: float) -> list[Any]:
        if self._generation != process.generation():  # what was under way is the parent's
            self._flights, self._generation = {}, process.generation()
        values: dict[int, Any] = {}
        own: dict[int, _Flight] = {}
        others: dict[int, _Flight] = {}
        flights, keys = self._flights, request.keys
        try:
            for number, key in enumerate(keys):
                flight = own[number] = _Flight()
                first = flights.setdefault(key, flight)
                if first is not flight:
                    others[number] = first
                    del own[number]
            fetches = _Fetches(request, own, values, self._claims())
            fetches.run([*own])
            fetches.wait(self._process_timeout)
        finally:
            for number, flight in own.items():
                if flights.get(keys[number]) is flight:
                    del flights[keys[number]]
                flight.done.set()
        for number, flight in others.items():
            values[number] = self._wait(request, number, flight, end)
        return [values[number] for number in range(len(keys))]

    def _wait(self, request: _Request, number: int, flight: _Flight, end: float) -> Any:
        """Return what another thread is fetching."""
        key, lookup, fetch = request.keys[number], request.lookup, request.fetch
        if not flight.done.is_set() and flight.thread == threading.get_ident():  # a fetch asks for its own value
            [value] = fetch([number])
            return value
        in_time = flight.done.wait(max(0.0, end - time.monotonic()))
        value = lookup(number)
        if value is MISSING:
            value = flight.value  # it could not be stored
        if value is MISSING and in_time:  # it failed: one of those that waited is the next
            [value] = self._fetch(_Request([key], lambda _: lookup(number), lambda _: fetch([number])), end)
        elif value is MISSING:
            [value] = fetch([number])
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return SingleFlight, (self._claims, self._timeout, self._process_timeout)  # what is under way stays here


class _Fetches:
    """The fetches of one call, against other processes; a disk that fails gives every claim."""

    def __init__(
        self, request: _Request, own: dict[int, _Flight], values: dict[int, Any], claims: Claims | None
    ) -> None:
        self._request = request
        self._own = own
        self._values = values
        self._claims = claims
        self._tokens = {number: token_of(request.keys[number]) for number in own} if claims is not None else {}
        self._waiting: list[int] = []

    def run(self, wanted: Sequence[int], in_any_case: bool = False) -> None:
        """Fetch what no other process has claimed, or all; the rest is waited for."""
        claimed: dict[int, None] = {}
        try:
            for number in wanted:
                if self._claim(number) or in_any_case:
                    claimed[number] = None
                else:
                    self._waiting.append(number)
            missing = [number for number in claimed if not self._found(number)]
            for number, value in zip(missing, self._request.fetch(missing) if missing else (), strict=True):
                self._set(number, value)
                del claimed[number]
                self._release(number)
        finally:
            for number in claimed:
                self._release(number)

    def wait(self, timeout: float) -> None:
        """Wait for what other processes have claimed, and fetch what they don't store."""
        end, pause = time.monotonic() + timeout, FIRST_PAUSE
        while self._waiting:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            free = [number for number in self._waiting if not self._is_held(number)]
            given_up = not free and time.monotonic() > end
            if given_up:
                free = self._waiting
                for number in free:
                    self._give_up(number)
            if free:
                self._waiting = [number for number in self._waiting if number not in free]
                self.run([number for number in free if not self._found(number)], in_any_case=given_up)
                end, pause = time.monotonic() + timeout, FIRST_PAUSE

    def _found(self, number: int) -> bool:
        """Look for a value that another process may have stored since the caller looked."""
        if (value := self._request.lookup(number)) is not MISSING:
            self._set(number, value)
        return value is not MISSING

    def _set(self, number: int, value: Any) -> None:
        self._own[number].value = self._values[number] = value

    def _claim(self, number: int) -> bool:
        try:
            return self._claims is None or self._claims.claim(self._tokens[number])
        except OSError:
            return True

    def _is_held(self, number: int) -> bool:
        try:
            return self._claims is not None and self._claims.is_held(self._tokens[number])
        except OSError:
            return False

    def _give_up(self, number: int) -> None:
        if self._claims is not None:
            with contextlib.suppress(OSError):
                self._claims.give_up(self._tokens[number])

    def _release(self, number: int) -> None:
        if self._claims is not None:
            with contextlib.suppress(OSError):
                self._claims.release(self._tokens[number])


def token_of(key: int | bytes) -> int:
    """Return the number that processes claim a key by."""
    return key_hash(key if isinstance(key, bytes) else b"%d" % key)
