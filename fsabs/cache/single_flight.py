"""Single flight: one fetch of a missing value for all threads and processes that want it.

Threads wait for each other's fetch, processes for each other's leases. A lease is the kernel's, so that a killed
process frees it at once; a process that was stopped is waited for until a time limit, and the value is fetched twice.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from .. import process
from ..threads import Flag
from .checksums import key_hash

LONGEST_PAUSE = 0.02
"""Seconds between two looks at what another process is fetching."""


class Missing:
    """The type of MISSING: what a lookup returns where there is nothing, since None may be a value."""

    def __repr__(self) -> str:
        return "MISSING"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Leases(Protocol):
    """Leases of tokens against other processes."""

    def lease(self, token: int) -> bool: ...

    def release(self, token: int) -> None: ...


class _Flight:
    """A fetch under way in this process."""

    __slots__ = ("done", "thread", "value")

    def __init__(self) -> None:
        self.done = Flag()
        self.thread = threading.get_ident()
        self.value: Any = MISSING


class SingleFlight:
    """The fetches under way.

    Args:
        leases: against other processes; None if values are this process's alone.
        timeout: seconds that a thread waits for another one's fetch, before it fetches itself.
        process_timeout: seconds that a process waits for another one's; `timeout` if it is None.
    """

    def __init__(self, leases: Leases | None, timeout: float, process_timeout: float | None = None) -> None:
        self._leases = leases
        self._timeout = timeout
        self._process_timeout = timeout if process_timeout is None else min(timeout, process_timeout)
        self._generation = process.generation()
        self._flights: dict[Hashable, _Flight] = {}

    def fetch(
        self,
        keys: Sequence[int | str | bytes],
        lookup: Callable[[int], Any],
        fetch: Callable[[Sequence[int]], Iterable[Any]],
    ) -> list[Any]:
        """Return the values of `keys`: those that no other thread or process is fetching come by one `fetch`.

        Args:
            keys: names of the values; what is equal is one value, in all processes that share the leases.
            lookup: returns the stored value of `keys[number]`, or MISSING.
            fetch: yields the values of `keys[number]` for the numbers that it is given, in order, and stores them. Its
                errors are raised here; other threads fetch for themselves then.
        """
        return self._fetch(keys, lookup, fetch, time.monotonic() + self._timeout)

    def _fetch(
        self,
        keys: Sequence[int | str | bytes],
        lookup: Callable[[int], Any],
        fetch: Callable[[Sequence[int]], Iterable[Any]],
        end: float,
    ) -> list[Any]:
        if self._generation != process.generation():  # what was under way is the parent's
            self._flights, self._generation = {}, process.generation()
        values: dict[int, Any] = {}
        own: dict[int, _Flight] = {}
        others: dict[int, _Flight] = {}
        flights = self._flights
        try:
            for number, key in enumerate(keys):
                flight = own[number] = _Flight()
                first = flights.setdefault(key, flight)
                if first is not flight:
                    others[number] = first
                    del own[number]
            self._fetch_own(keys, own, values, lookup, fetch)
        finally:
            for number, flight in own.items():
                if flights.get(keys[number]) is flight:
                    del flights[keys[number]]
                flight.done.set()
        for number, flight in others.items():
            values[number] = self._wait(keys[number], number, flight, lookup, fetch, end)
        return [values[number] for number in range(len(keys))]

    def _fetch_own(
        self,
        keys: Sequence[int | str | bytes],
        own: dict[int, _Flight],
        values: dict[int, Any],
        lookup: Callable[[int], Any],
        fetch: Callable[[Sequence[int]], Iterable[Any]],
    ) -> None:
        """Fetch what this process gets the leases of; then wait for what other processes are fetching."""
        leased: dict[int, int] = {}
        try:
            for number in own:
                if self._leases is None or self._leases.lease(token_of(keys[number])):
                    leased[number] = token_of(keys[number]) if self._leases is not None else 0
            for number in leased:  # another one may have stored it since the caller looked
                if (value := lookup(number)) is not MISSING:
                    own[number].value = values[number] = value
            wanted = [number for number in leased if number not in values]
            for number, value in zip(wanted, fetch(wanted) if wanted else (), strict=True):
                own[number].value = values[number] = value
        finally:
            for token in leased.values():
                if self._leases is not None:
                    self._leases.release(token)
        end, missing = time.monotonic() + self._process_timeout, []
        for number in own.keys() - leased.keys():
            value = self._wait_for_process(keys[number], number, lookup, end)
            if value is MISSING:
                missing.append(number)
            else:
                own[number].value = values[number] = value
        for number, value in zip(missing, fetch(missing) if missing else (), strict=True):
            own[number].value = values[number] = value

    def _wait(
        self,
        key: int | str | bytes,
        number: int,
        flight: _Flight,
        lookup: Callable[[int], Any],
        fetch: Callable[[Sequence[int]], Iterable[Any]],
        end: float,
    ) -> Any:
        """Return what another thread is fetching."""
        if not flight.done.is_set() and flight.thread == threading.get_ident():  # a fetch asks for its own value
            [value] = fetch([number])
            return value
        in_time = flight.done.wait(max(0.0, end - time.monotonic()))
        value = lookup(number)
        if value is MISSING:
            value = flight.value  # it could not be stored
        if value is MISSING and in_time:  # it failed: one of those that waited is the next
            [value] = self._fetch([key], lambda _: lookup(number), lambda _: fetch([number]), end)
        elif value is MISSING:
            [value] = fetch([number])
        return value

    def _wait_for_process(self, key: int | str | bytes, number: int, lookup: Callable[[int], Any], end: float) -> Any:
        """Return what another process is fetching, once it has; MISSING if it stops, or takes too long."""
        assert self._leases is not None
        token, pause = token_of(key), 0.0005
        while time.monotonic() < end:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            with contextlib.ExitStack() as stack:
                free = self._leases.lease(token)
                if free:
                    stack.callback(self._leases.release, token)
                if (value := lookup(number)) is not MISSING or free:
                    return value
        return MISSING

    def __reduce__(self) -> tuple[Any, ...]:
        return SingleFlight, (self._leases, self._timeout, self._process_timeout)


def token_of(key: int | str | bytes) -> int:
    """Return the number that processes lease a key by."""
    if isinstance(key, int):
        return key
    return key_hash(key) if isinstance(key, bytes) else key_hash(key.encode("utf-8", "surrogatepass")) | 1 << 59
