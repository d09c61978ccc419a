"""The slots of a request pipeline: its connections, each with the request that is in flight on it, and the `poll`
object that watches them. New connections are made without waiting, to all addresses of the host (happy eyeballs).
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable

from .connections import Connection, ConnectionPool, Dial
from .messages import Body, Request
from .receive import Receiver
from .retry import Operation


class Slot:
    """One connection of a pipeline, and the request that is in flight on it."""

    __slots__ = (
        "awaited",
        "begin",
        "connection",
        "dial",
        "number",
        "receiver",
        "request",
        "sent",
        "since",
        "step",
        "unsent",
    )

    def __init__(self, number: int, request: Request, now: float) -> None:
        self.number = number
        self.request = request
        self.connection: Connection | None = None
        self.dial: Dial | None = None
        self.receiver: Receiver | None = None
        self.step: Callable[[Slot, int], None] | None = None  # None while the slot is free, or its body has to wait
        self.unsent: list[Body] = []
        self.awaited = False  # whether the size of its response is not known yet
        self.begin = 0  # for the instrument, in ns
        self.sent = self.since = now  # when the request was sent; when there was a sign of life


class FailedRequest:
    """A request that has failed at least once."""

    __slots__ = ("excuses", "operation")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.excuses = 0  # failures that are not the store's


class Slots:
    """All slots of a pipeline."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        # A batch is short: epoll takes longer to set up than it saves.
        self.poll = select.poll()
        self.by_descriptor: dict[int, Slot] = {}
        self._dialling: list[Slot] = []

    def add(self, slot: Slot, descriptor: int, events: int) -> None:
        """Watch a descriptor of a slot."""
        self.by_descriptor[descriptor] = slot
        self.poll.register(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        if self.by_descriptor.pop(descriptor, None) is not None:
            with contextlib.suppress(KeyError):  # of a slot whose body has to wait
                self.poll.unregister(descriptor)

    def all(self) -> set[Slot]:
        """Return the slots; one that is being connected may have several descriptors."""
        return set(self.by_descriptor.values())

    def dial(self, slot: Slot, now: float) -> None:
        """Begin to connect a slot. Raises `OSError` if no address can be tried."""
        slot.dial = self._pool.dial()
        self._dialling.append(slot)
        self._start(slot, now)

    def dialled(self, slot: Slot, descriptor: int, now: float) -> bool:
        """Take the end of an attempt to connect; return whether the slot is connected."""
        dial = slot.dial
        assert dial is not None
        self.remove(descriptor)
        connected = dial.finish(descriptor)
        if connected is None:
            self._start(slot, now)
            return False
        self._end_dial(slot)
        slot.connection = self._pool.prepared(connected)
        self.add(slot, slot.connection.descriptor, select.POLLIN)
        return True

    def next_dial(self) -> float:
        """Return when an attempt to connect is due that has not been started."""
        if not self._dialling:
            return float("inf")
        self._dialling = [slot for slot in self._dialling if slot.dial is not None]
        return min((slot.dial.next_start for slot in self._dialling if slot.dial is not None), default=float("inf"))

    def start_due(self, now: float) -> list[tuple[Slot, OSError]]:
        """Start the attempts to connect that are due; return the slots that have failed."""
        failed = []
        for slot in self._dialling:
            if slot.dial is not None and slot.dial.next_start <= now:
                try:
                    self._start(slot, now)
                except OSError as exc:
                    failed.append((slot, exc))
        return failed

    def _start(self, slot: Slot, now: float) -> None:
        assert slot.dial is not None
        for descriptor in slot.dial.start(now):
            self.add(slot, descriptor, select.POLLOUT)

    def _end_dial(self, slot: Slot) -> None:
        if slot.dial is not None:
            for descriptor in slot.dial.descriptors:
                self.remove(descriptor)
            slot.dial.close()
            slot.dial = None

    def drop(self, slot: Slot) -> None:
        """Close what a slot has."""
        self._end_dial(slot)
        if slot.connection is not None:
            self.remove(slot.connection.descriptor)
            slot.connection.close()
