"""The lanes of a request pipeline: its connections, each with the request that is under way on it, and the `poll`
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


class Lane:
    """One connection of a pipeline, and the request that is under way on it."""

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
        self.step: Callable[[Lane, int], None] | None = None  # None while the lane is free, or its body has to wait
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


class Lanes:
    """All lanes of a pipeline."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        # A batch is short: epoll takes longer to set up than it saves.
        self.poll = select.poll()
        self.by_descriptor: dict[int, Lane] = {}
        self._dialling: list[Lane] = []

    def add(self, lane: Lane, descriptor: int, events: int) -> None:
        """Watch a descriptor of a lane."""
        self.by_descriptor[descriptor] = lane
        self.poll.register(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        if self.by_descriptor.pop(descriptor, None) is not None:
            with contextlib.suppress(KeyError):  # of a lane whose body has to wait
                self.poll.unregister(descriptor)

    def all(self) -> set[Lane]:
        """Return the lanes; one that is being connected may have several descriptors."""
        return set(self.by_descriptor.values())

    def dial(self, lane: Lane, now: float) -> None:
        """Begin to connect a lane. Raises `OSError` if no address can be tried."""
        lane.dial = self._pool.dial()
        self._dialling.append(lane)
        self._start(lane, now)

    def dialled(self, lane: Lane, descriptor: int, now: float) -> bool:
        """Take the end of an attempt to connect; return whether the lane is connected."""
        dial = lane.dial
        assert dial is not None
        self.remove(descriptor)
        connected = dial.finish(descriptor)
        if connected is None:
            self._start(lane, now)
            return False
        self._end_dial(lane)
        lane.connection = self._pool.prepared(connected)
        self.add(lane, lane.connection.descriptor, select.POLLIN)
        return True

    def next_dial(self) -> float:
        """Return when an attempt to connect is due that has not been started."""
        if not self._dialling:
            return float("inf")
        self._dialling = [lane for lane in self._dialling if lane.dial is not None]
        return min((lane.dial.next_start for lane in self._dialling if lane.dial is not None), default=float("inf"))

    def start_due(self, now: float) -> list[tuple[Lane, OSError]]:
        """Start the attempts to connect that are due; return the lanes that have failed."""
        failed = []
        for lane in self._dialling:
            if lane.dial is not None and lane.dial.next_start <= now:
                try:
                    self._start(lane, now)
                except OSError as exc:
                    failed.append((lane, exc))
        return failed

    def _start(self, lane: Lane, now: float) -> None:
        assert lane.dial is not None
        for descriptor in lane.dial.start(now):
            self.add(lane, descriptor, select.POLLOUT)

    def _end_dial(self, lane: Lane) -> None:
        if lane.dial is not None:
            for descriptor in lane.dial.descriptors:
                self.remove(descriptor)
            lane.dial.close()
            lane.dial = None

    def drop(self, lane: Lane) -> None:
        """Close what a lane has."""
        self._end_dial(lane)
        if lane.connection is not None:
            self.remove(lane.connection.descriptor)
            lane.connection.close()
