"""Many requests in flight from one thread: the connections of a client, and `poll`, which says which of them have data.

A connection whose response is complete sends its next request at once, before the response is looked at. A request that
fails by chance waits its time and is sent again, while the others go on. The bytes in flight are bounded: requests are
held back, and bodies left in the kernel's buffers, while the responses that have not been taken fill `max_bytes`.
"""

from __future__ import annotations

import heapq
import select
import time
from collections.abc import Generator, Iterable

from ...core import hooks, process
from .access import Access
from .client import Client
from .connections import ATTEMPT_DELAY, WOULD_BLOCK, Connection, ConnectionPool, Opening
from .failures import Attempts, Mismatch, Transient, Unanswered
from .http1 import Exchange
from .messages import Request, Response

MAX_BYTES = 64 * 1024 * 1024
"""The bytes of responses in flight, unless said otherwise; one larger response is received alone."""
PAUSE = 1.0
"""Seconds without a call to the pipeline after which the end of a connection is no failure of the store's."""
_IN = select.POLLIN
Outcome = Response | OSError
"""A response that fits its request, or the error of a request."""


def send_many(
    client: Client,
    requests: Iterable[Request],
    concurrency: int,
    *,
    ahead: int | None = None,
    max_bytes: int = MAX_BYTES,
) -> Generator[Outcome, None, None]:
    """Yield the outcomes of requests, in their order, with up to `concurrency` of them under way.

    For one thread, in the process that called it. To be closed, or used up.

    Args:
        client: of the bucket.
        requests: taken one by one, when they can be sent.
        concurrency: connections that are used at most.
        ahead: how many requests may be under way or complete before the outcome of the first one is taken.
        max_bytes: the bytes of responses under way or complete.
    """
    return _Pipeline(client, requests, concurrency, ahead or 2 * concurrency, max_bytes).run()


class _Slot:
    """One connection of a pipeline: being opened, with an exchange in flight, or free."""

    def __init__(self, number: int, request: Request, pool: ConnectionPool, now: float) -> None:
        self.number = number
        self.request = request
        self.pool = pool
        self.opening: Opening | None = None
        self.connection: Connection | None = None
        self.exchange: Exchange | None = None
        self.descriptor = -1  # that is watched, for these events
        self.events = _IN
        self.access: Access | None = None  # by which the request was sent
        self.awaited = False  # whether the size of its response is not known yet
        self.begin = self.began_body = 0  # when it was sent, and its head came; for the instrument, in ns
        self.sent = self.since = now  # when the request was sent; when there was a sign of life


class _Pipeline:
    def __init__(self, client: Client, requests: Iterable[Request], width: int, ahead: int, max_bytes: int) -> None:
        self._generation = process.generation()
        self._client = client
        self._requests = enumerate(requests)
        self._upcoming: tuple[int, Request] | None = None
        self._exhausted = False
        self._width = width
        self._ahead = ahead
        self._max_bytes = max_bytes
        self._bytes = 0  # of the responses that are received or complete
        self._sizes: dict[int, int] = {}  # of each of them
        self._awaited = 0  # responses whose size is not known yet
        self._mean = 0.0  # bytes of a response
        # A batch is short: epoll takes longer to set up than it saves.
        self._poll = select.poll()
        self._slots: dict[int, _Slot] = {}  # by what is watched
        self._opening = 0  # connections that are being opened
        self._busy = 0  # slots with a request
        self._free: list[_Slot] = []
        self._paused: list[_Slot] = []  # whose bodies have to wait
        self._outcomes: dict[int, Outcome] = {}
        self._first = 0  # the number of the outcome that is yielded next
        self._later: list[tuple[float, int, Request]] = []  # when to send it again
        self._failed: dict[int, Attempts] = {}
        self._now = self._left = self._checked = time.monotonic()
        self._woke = 0.0  # the end of the last pause
        self._next_send = 0.0  # by the throttle
        self._held = 0  # when the throttle began to hold a request back, in ns; for the instrument
        self._away = False  # whether the caller did something else for some time before the last poll
        self._granularity = min(PAUSE, client.endpoint.read_timeout / 4, client.endpoint.connect_timeout / 4)

    def run(self) -> Generator[Outcome, None, None]:
        """Yield the outcomes."""
        try:
            while True:
                while self._first not in self._outcomes:
                    self._fill()
                    if self._exhausted and not self._busy and not self._later and not self._outcomes:
                        return
                    if self._first not in self._outcomes:
                        self._advance_all()
                yield self._outcomes.pop(self._first)
                self._bytes -= self._sizes.pop(self._first, 0)
                if self._failed:
                    self._failed.pop(self._first, None)
                self._first += 1
                if self._paused:
                    self._resume()
        finally:
            self._end()

    # ---- what is sent

    def _fill(self) -> None:
        """Send requests while there is room."""
        while self._busy < self._width and (taken := self._take_request()) is not None:
            self._start(*taken)

    def _start(self, number: int, request: Request) -> None:
        """Send a request over a free connection to its host, or a new one."""
        self._busy += 1
        pool = self._client.peer(request).pool
        slot = next((slot for slot in self._free if slot.pool is pool), None)
        if slot is not None:
            self._free.remove(slot)
            assert slot.connection is not None
            if not slot.connection.silent():  # closed, or a late response
                self._drop(slot)
                slot = None
        if slot is None:
            slot = _Slot(number, request, pool, self._now)
            slot.connection = pool.take()
            if slot.connection is not None:
                self._watch(slot, slot.connection.descriptor)
        if slot.connection is not None:
            self._send(slot, number, request)
            return
        slot.begin = time.monotonic_ns() if hooks.active is not None else 0
        slot.opening = Opening(pool)
        self._opening += 1
        self._watch(slot, slot.opening.descriptor)
        self._advance(slot)

    def _watch(self, slot: _Slot, descriptor: int, events: int = _IN) -> None:
        slot.descriptor, slot.events = descriptor, events
        self._slots[descriptor] = slot
        self._poll.register(descriptor, events)

    def _leave(self, slot: _Slot) -> None:
        """Watch a slot no longer."""
        if self._slots.pop(slot.descriptor, None) is not None and slot not in self._paused:
            self._poll.unregister(slot.descriptor)

    def _take_request(self) -> tuple[int, Request] | None:
        """Return the request to be sent next, if there is one."""
        later = bool(self._later) and self._later[0][0] <= self._now
        if self._next_send > self._now and not (later and self._later[0][2].location):
            return None
        if later:
            number, request = self._later[0][1:]
        else:
            upcoming = self._upcoming
            if upcoming is None:
                upcoming = self._upcoming = next(self._requests, None)
                if upcoming is None:
                    self._exhausted = True
                    return None
            number, request = upcoming
            if number - self._first >= self._ahead:
                return None
            if self._bytes + self._mean * self._awaited >= self._max_bytes and number != self._first:
                return None  # it is not likely that the response fits
        if not self._held and (delay := self._client.delay(request)):
            self._next_send = self._now + delay
            self._held = time.monotonic_ns()
            return None
        if self._held and not request.location:
            self._client.record_wait("throttle", self._held)
            self._held = 0
        if later:
            heapq.heappop(self._later)
            if (attempts := self._failed.get(number)) is not None:
                self._client.record_wait("backoff", attempts.since)
        else:
            self._upcoming = None
        return number, request

    def _send(self, slot: _Slot, number: int, request: Request) -> None:
        client, connection = self._client, slot.connection
        assert connection is not None
        slot.number, slot.request, slot.sent, slot.since = number, request, self._now, self._now
        slot.begin = time.monotonic_ns() if hooks.active is not None else 0
        slot.awaited = True
        self._awaited += 1
        slot.access = client.access
        try:
            slot.exchange = client.exchange(connection, request, pipelined=True)
            slot.exchange.send()
        except WOULD_BLOCK:
            self._wait_for(slot)
        except Exception as exc:
            self._fail(slot, exc)

    # ---- what comes

    def _advance_all(self) -> None:
        """Wait for something to arrive, or to be due, and take it."""
        self._now = now = time.monotonic()
        self._away = now - self._left > 0.001
        if now - self._left > PAUSE:
            self._wake(now - self._left)
        due = now + (min(self._granularity, ATTEMPT_DELAY) if self._opening else self._granularity)
        if self._later:
            due = min(due, self._later[0][0])
        if self._next_send > now:
            due = min(due, self._next_send)
        events = self._poll.poll(max(0.0, due - now) * 1000)
        self._now = time.monotonic()
        for descriptor, _ in events:
            slot = self._slots.get(descriptor)
            if slot is not None:
                self._advance(slot)
        if not events or self._now - self._checked > PAUSE:
            self._checked = self._now
            self._expire()
        self._left = time.monotonic()

    def _wake(self, pause: float) -> None:
        """Go on after a pause: the time in which the caller did not call is no failure of the store's."""
        self._woke = self._now
        for slot in self._slots.values():
            if slot.exchange is not None:
                slot.exchange.deadline += pause

    def _advance(self, slot: _Slot, alive: bool = True) -> None:
        """Go on with a slot; `alive` if there was a sign of it."""
        if alive:
            slot.since = self._now
        try:
            if slot.opening is not None:
                self._open(slot, slot.opening)
            elif slot.exchange is not None:
                self._receive(slot, slot.exchange)
            else:  # closed by the store, or a response that answers no request
                self._free.remove(slot)
                self._drop(slot)
        except WOULD_BLOCK:
            self._wait_for(slot)
        except Exception as exc:
            if slot.opening is None and slot.exchange is None:  # of the next request, which could not be begun
                raise
            self._fail(slot, exc)

    def _open(self, slot: _Slot, opening: Opening) -> None:
        connection = opening.advance()
        if connection is None:
            return
        slot.connection = connection
        self._end_opening(slot)
        slot.pool.record(slot.begin)
        self._watch(slot, connection.descriptor)
        self._send(slot, slot.number, slot.request)

    def _end_opening(self, slot: _Slot) -> None:
        assert slot.opening is not None
        self._leave(slot)
        slot.opening.close()
        slot.opening = None
        self._opening -= 1

    def _wait_for(self, slot: _Slot) -> None:
        """Watch a slot for what its exchange waits for."""
        assert slot.exchange is not None
        assert slot.connection is not None
        if slot.events != slot.exchange.events:
            slot.events = slot.exchange.events
            self._poll.modify(slot.descriptor, slot.events)
        slot.connection.acknowledge()  # the store may wait for it before it sends the rest

    def _receive(self, slot: _Slot, exchange: Exchange) -> None:
        if exchange.sending:
            exchange.send()
        if exchange.head is None:
            exchange.receive_head()
        if slot.awaited:
            slot.began_body = time.monotonic_ns() if slot.begin else 0
            self._count_size(slot, exchange)
            if slot in self._paused:
                return
        exchange.receive_body()
        self._complete(slot, exchange)

    def _count_size(self, slot: _Slot, exchange: Exchange) -> None:
        """Count the bytes of a response whose size is now known; where there is no room for them, they wait."""
        self._awaited -= 1
        slot.awaited = False
        size = exchange.size if slot.request.into is None else 0
        self._mean = 0.8 * self._mean + 0.2 * size if self._mean else float(size)
        if self._bytes and self._bytes + size > self._max_bytes and slot.number != self._first:
            self._poll.unregister(slot.descriptor)
            self._paused.append(slot)
        else:
            self._sizes[slot.number] = size
            self._bytes += size

    def _resume(self) -> None:
        """Receive the bodies for which there is room now, in their order."""
        self._now = time.monotonic()
        self._paused.sort(key=lambda slot: -slot.number)
        while self._paused:
            slot = self._paused[-1]
            exchange = slot.exchange
            assert exchange is not None
            if self._bytes and self._bytes + exchange.size > self._max_bytes and slot.number != self._first:
                return
            self._paused.pop()
            self._sizes[slot.number] = exchange.size
            self._bytes += exchange.size
            exchange.deadline = max(exchange.deadline, self._now + exchange.silence_limit)
            slot.sent = -1.0  # an end of the connection is the pause's fault
            self._watch(slot, slot.descriptor, slot.events)
            self._advance(slot)

    def _complete(self, slot: _Slot, exchange: Exchange) -> None:
        client, connection = self._client, exchange.connection
        outcome = client.outcome(exchange)
        if slot.begin:
            if self._away:  # what came while the caller was elsewhere is not the store's time
                slot.begin = min(slot.begin + connection.silent_since(), time.monotonic_ns())
            else:
                client.record_transfer(slot.began_body, exchange.size)
            client.record(slot.request, slot.begin, exchange.size, outcome if isinstance(outcome, Exception) else None)
        used, connection.used = connection.used, True
        self._busy -= 1
        slot.exchange = None
        if isinstance(outcome, Exception):
            self._decide(slot, outcome, used and not exchange.ended)
        else:
            self._outcomes[slot.number] = outcome
        if not exchange.ended or not (exchange.silent or connection.silent()):
            self._drop(slot)
            return
        taken = self._take_request()
        if taken is not None and client.peer(taken[1]).pool is slot.pool:
            self._busy += 1
            self._send(slot, *taken)
            return
        self._free.append(slot)
        if taken is not None:
            self._start(*taken)

    # ---- what goes wrong

    def _fail(self, slot: _Slot, exc: Exception) -> None:
        """End a slot by what went wrong on it, and decide on its request."""
        client, connection, exchange = self._client, slot.connection, slot.exchange
        used = connection is not None and connection.used
        exc = client.failure(exc, connection, exchange) if connection is not None else slot.pool.failure(exc)
        if not isinstance(exc, OSError | Transient):
            raise exc
        if slot.opening is not None:
            slot.pool.record(slot.begin, exc)
        else:
            client.record(slot.request, slot.begin, 0, exc)
        self._busy -= 1
        self._drop(slot)
        if used and connection is not None and (exchange is None or not exchange.started):
            slot.pool.drop_aged(connection)
        self._decide(slot, exc, used)

    def _decide(self, slot: _Slot, exc: Exception, used: bool) -> None:
        """Decide on a request that has failed: it is sent again, or the failure is its outcome."""
        number, request, client = slot.number, slot.request, self._client
        self._bytes -= self._sizes.pop(number, 0)
        attempts = self._failed.get(number)
        if attempts is None:
            attempts = self._failed[number] = Attempts(client.policy)
        at_rest = slot.sent <= self._woke or (used and isinstance(exc, Unanswered | Mismatch))
        try:
            request, wait = client.decide(exc, attempts, slot.access or client.access, at_rest, request)
        except OSError as error:
            self._outcomes[number] = error.with_traceback(None)  # which holds this frame, and it the failure
            return
        attempts.since = time.monotonic_ns() if wait else 0
        heapq.heappush(self._later, (self._now + wait, number, request))

    def _expire(self) -> None:
        """Give up what has been silent for too long, or has taken too long altogether; try what is due."""
        for slot in list(self._slots.values()):
            exchange, silent = slot.exchange, self._now - max(slot.since, self._woke)
            if slot.opening is not None:
                if silent > self._client.endpoint.connect_timeout:
                    self._fail(slot, TimeoutError())
                else:
                    self._advance(slot, alive=False)
            elif exchange is None or slot in self._paused:
                continue
            elif exchange.asks_until and self._now > exchange.asks_until:
                self._advance(slot)
            elif self._now > exchange.deadline and exchange.refused:
                self._complete(slot, exchange)
            elif self._now > exchange.deadline or silent > exchange.silence_limit:
                self._fail(slot, TimeoutError())

    def _drop(self, slot: _Slot) -> None:
        """Close what a slot has."""
        self._awaited -= slot.awaited
        slot.awaited = False
        if slot.opening is not None:
            self._end_opening(slot)
        elif slot.connection is not None:
            self._leave(slot)
            slot.connection.close()
        if slot in self._paused:
            self._paused.remove(slot)

    def _end(self) -> None:
        if process.inherited(self._generation):
            process.abandon(self)
            return
        self._outcomes.clear()  # of errors, whose tracebacks hold this
        for slot in self._free:
            assert slot.connection is not None
            self._leave(slot)
            slot.pool.give_back(slot.connection)
        for slot in list(self._slots.values()):
            self._drop(slot)
