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

from ... import hooks, process
from .client import Client
from .failures import Mismatch, RejectedNonce, Transient, Unanswered, UnsupportedResponse, error_name
from .messages import Request, Response
from .receive import SEND_WOULD_BLOCK, WOULD_BLOCK, Receiver
from .retry import Operation
from .slots import FailedRequest, Slot, Slots

MAX_BYTES = 64 * 1024 * 1024
"""The bytes of responses in flight, unless said otherwise; one larger response is received alone."""
PAUSE = 1.0
"""Seconds without a call to the pipeline after which the end of a connection is no failure of the store's."""
MAX_EXCUSES = 3
"""How often a request may fail for such a reason without an attempt being counted."""
Outcome = Response | OSError | UnsupportedResponse
"""A response that fits its request, the error of a request, or the reason why only boto3 can send it."""


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


class _Pipeline:
    def __init__(self, client: Client, requests: Iterable[Request], width: int, ahead: int, max_bytes: int) -> None:
        self._generation = process.generation()
        self._client = client
        self._pool = client.pool
        self._throttle = client.throttle
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
        self._slots = Slots(client.pool)
        self._busy = 0  # slots with a request
        self._free: list[Slot] = []
        self._paused: list[Slot] = []
        self._outcomes: dict[int, Outcome] = {}
        self._first = 0  # the number of the outcome that is yielded next
        self._later: list[tuple[float, int, Request]] = []  # when to send it again
        self._failed: dict[int, FailedRequest] = {}
        self._now = self._left = self._checked = time.monotonic()
        self._woke = 0.0  # the end of the last pause
        self._next_send = 0.0  # by the throttle
        self._granularity = min(PAUSE, client.pool.read_timeout / 4, client.pool.connect_timeout / 4)

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

    def _fill(self) -> None:
        """Send requests while there is room."""
        while self._busy < self._width and (taken := self._take_request()) is not None:
            self._busy += 1
            slot = self._free.pop() if self._free else Slot(*taken, self._now)
            if slot.connection is not None and not slot.connection.silent():  # closed, or a late response
                self._drop(slot)
                slot = Slot(*taken, self._now)
            if slot.connection is None and (idle := self._pool.take()) is not None:
                slot.connection = idle
                self._slots.add(slot, idle.descriptor, select.POLLIN)
            if slot.connection is not None:
                self._send(slot, *taken)
                continue
            slot.begin = time.monotonic_ns() if hooks.active is not None else 0
            try:
                self._slots.dial(slot, self._now)
            except OSError as exc:
                self._fail(slot, exc)

    def _take_request(self) -> tuple[int, Request] | None:
        """Return the request to be sent next, if there is one."""
        if self._next_send > self._now:
            return None
        later = bool(self._later) and self._later[0][0] <= self._now
        upcoming = self._upcoming
        if not later:
            if upcoming is None:
                upcoming = self._upcoming = next(self._requests, None)
                if upcoming is None:
                    self._exhausted = True
                    return None
            number = upcoming[0]
            if number - self._first >= self._ahead:
                return None
            if self._bytes + self._mean * self._awaited >= self._max_bytes and number != self._first:
                return None  # it is not likely that the response fits
        if delay := self._throttle.delay():
            self._next_send = self._now + delay
            return None
        if later:
            return heapq.heappop(self._later)[1:]
        self._upcoming = None
        return upcoming

    def _send(self, slot: Slot, number: int, request: Request) -> None:
        client, connection = self._client, slot.connection
        assert connection is not None
        slot.number, slot.request, slot.sent, slot.since = number, request, self._now, self._now
        slot.begin = time.monotonic_ns() if hooks.active is not None else 0
        slot.awaited = True
        self._awaited += 1
        nonce = client.detector.nonce(request)
        deadline = self._now + client.policy.attempt_seconds(request)
        slot.receiver = Receiver(request, nonce, client.detector, connection.dontwait, deadline)
        try:
            head = client.encode(request, nonce)
            sent = 0
            if not request.body:
                try:
                    sent = connection.socket.send(head, connection.dontwait)
                except SEND_WOULD_BLOCK:
                    sent = 0
            slot.step = self._on_readable
            if sent < len(head):
                slot.unsent = [head[sent:], request.body] if len(request.body) else [head[sent:]]
                slot.step = None
                self._on_writable(slot, 0)
        except Exception as exc:
            self._fail(slot, exc)

    def _on_writable(self, slot: Slot, events: int) -> None:
        """Send what the connection takes."""
        connection = slot.connection
        assert connection is not None
        if events & select.POLLIN:  # a response to a part of a request is a refusal
            slot.unsent = []
        while slot.unsent:
            data = slot.unsent[0]
            try:
                sent = connection.socket.send(data, connection.dontwait)
            except SEND_WOULD_BLOCK:
                if slot.step is None or not events:
                    self._slots.poll.modify(connection.descriptor, select.POLLIN | select.POLLOUT)
                slot.step = self._on_writable
                return
            slot.unsent[:1] = [memoryview(data)[sent:]] if sent < len(data) else []
        if events:
            self._slots.poll.modify(connection.descriptor, select.POLLIN)
        slot.step = self._on_readable
        if events & select.POLLIN:
            self._on_readable(slot, events)

    def _on_handshake(self, slot: Slot, _: int) -> None:
        assert slot.connection is not None
        slot.connection.handshake()  # what it sends is small: it only ever waits for reading
        if slot.begin and (instrument := hooks.active) is not None:
            instrument.record_span("connect", "s3.connect", slot.begin, 0, self._client.url(""))
        slot.connection.check_fresh()
        self._send(slot, slot.number, slot.request)

    # ---- what comes

    def _advance_all(self) -> None:
        """Wait for something to arrive, or to be due, and take it."""
        self._now = now = time.monotonic()
        if now - self._left > PAUSE:
            self._wake(now - self._left)
        due = min(now + self._granularity, self._slots.next_dial())
        if self._later:
            due = min(due, self._later[0][0])
        if self._next_send > now:
            due = min(due, self._next_send)
        events = self._slots.poll.poll(max(0.0, due - now) * 1000)
        self._now = time.monotonic()
        for descriptor, event in events:
            slot = self._slots.by_descriptor.get(descriptor)
            if slot is not None:
                self._advance(slot, descriptor, event)
        for slot, exc in self._slots.start_due(self._now):
            self._fail(slot, exc)
        if not events or self._now - self._checked > PAUSE:
            self._checked = self._now
            self._expire()
        self._left = time.monotonic()

    def _wake(self, pause: float) -> None:
        """Go on after a pause: the time in which the caller did not call is no failure of the store's."""
        self._woke = self._now
        for slot in self._slots.all():
            if slot.receiver is not None:
                slot.receiver.deadline += pause

    def _advance(self, slot: Slot, descriptor: int, event: int) -> None:
        slot.since = self._now
        try:
            if slot.dial is not None:
                if self._slots.dialled(slot, descriptor, self._now):
                    slot.step = self._on_handshake
                    self._on_handshake(slot, 0)
            elif slot.step is not None:
                slot.step(slot, event)
            elif slot in self._free:  # closed by the store, or a response that answers no request
                self._free.remove(slot)
                self._slots.drop(slot)
        except WOULD_BLOCK:
            if slot.connection is not None and slot.receiver is not None:
                slot.connection.acknowledge()  # the store may wait for it before it sends the rest
        except Exception as exc:
            self._fail(slot, exc)

    def _on_readable(self, slot: Slot, _: int) -> None:
        connection, receiver = slot.connection, slot.receiver
        assert connection is not None
        assert receiver is not None
        if receiver.head is None:
            receiver.receive_head(connection)
            self._count_size(slot, receiver)
            if slot.step is None:
                return
        if receiver.receive_body(connection):
            self._complete(slot, receiver)
        else:
            raise BlockingIOError

    def _count_size(self, slot: Slot, receiver: Receiver) -> None:
        """Count the bytes of a response whose size is now known; where there is no room for them, they wait."""
        self._awaited -= 1
        slot.awaited = False
        size = receiver.size if slot.request.into is None else 0
        self._mean = 0.8 * self._mean + 0.2 * size if self._mean else float(size)
        if self._bytes and self._bytes + size > self._max_bytes and slot.number != self._first:
            assert slot.connection is not None
            self._slots.poll.unregister(slot.connection.descriptor)
            slot.step = None
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
            assert slot.receiver is not None
            assert slot.connection is not None
            if self._bytes and self._bytes + slot.receiver.size > self._max_bytes and slot.number != self._first:
                return
            self._paused.pop()
            self._sizes[slot.number] = slot.receiver.size
            self._bytes += slot.receiver.size
            slot.receiver.deadline = max(slot.receiver.deadline, self._now + self._pool.read_timeout)
            slot.sent, slot.since = -1.0, self._now  # an end of the connection is the pause's fault
            slot.step = self._on_readable
            self._slots.poll.register(slot.connection.descriptor, select.POLLIN)
            self._advance(slot, slot.connection.descriptor, select.POLLIN)

    def _complete(self, slot: Slot, receiver: Receiver) -> None:
        outcome, connection = receiver.outcome(), slot.connection
        assert connection is not None
        if slot.begin:
            self._record(slot, receiver.size, outcome if isinstance(outcome, Exception) else None)
        number, request, used = slot.number, slot.request, connection.used
        connection.used = True
        self._busy -= 1
        slot.step = slot.receiver = None
        if isinstance(outcome, Exception):
            self._decide(number, request, outcome, used and not receiver.ended, slot.sent)
        else:
            self._outcomes[number] = outcome
        if not receiver.ended or not (receiver.silent or connection.silent()):
            self._drop(slot)
        elif (taken := self._take_request()) is not None:
            self._busy += 1
            self._send(slot, *taken)
        else:
            self._free.append(slot)

    def _fail(self, slot: Slot, exc: Exception) -> None:
        """End a slot by what went wrong on it, and decide on its request."""
        connection, receiver = slot.connection, slot.receiver
        used = connection is not None and connection.used
        exc = self._client.failure(exc, connection, receiver) if connection is not None else self._pool.failure(exc)
        if not isinstance(exc, OSError | Transient | UnsupportedResponse):
            raise exc
        self._record(slot, 0, exc, "request" if receiver is not None else "connect")
        self._busy -= 1
        self._drop(slot)
        if used and connection is not None and (receiver is None or not receiver.started):
            self._pool.drop_aged(connection)
        self._decide(slot.number, slot.request, exc, used, slot.sent)

    def _decide(self, number: int, request: Request, exc: Exception, used: bool, sent: float) -> None:
        """Decide on a request that has failed: it is sent again, or the failure is its outcome."""
        self._bytes -= self._sizes.pop(number, 0)
        if not isinstance(exc, Transient):
            assert isinstance(exc, OSError | UnsupportedResponse)
            self._outcomes[number] = exc
            return
        wait, failed = 0.0, self._failed.get(number)
        if failed is None:
            failed = self._failed[number] = FailedRequest(Operation(self._client.policy))
        at_rest = sent <= self._woke or (used and isinstance(exc, Unanswered | Mismatch))
        if isinstance(exc, RejectedNonce):
            self._client.detector.rejected(request)
        elif at_rest and failed.excuses < MAX_EXCUSES:
            failed.excuses += 1
        else:
            try:
                wait = failed.operation.wait_after(exc)
            except OSError as error:
                self._outcomes[number] = error
                return
        if (instrument := hooks.active) is not None:
            name = self._client.operation_name(request)
            instrument.record_event("retry", name, 1, self._client.url(request.key))
        heapq.heappush(self._later, (self._now + wait, number, request))

    def _record(self, slot: Slot, size: int, exc: Exception | None, kind: str = "request") -> None:
        if slot.begin and (instrument := hooks.active) is not None:
            client, connecting = self._client, kind == "connect"
            name = "s3.connect" if connecting else client.operation_name(slot.request)
            where = client.url("" if connecting else slot.request.key)
            instrument.record_span(kind, name, slot.begin, size, where, error_name(exc) if exc is not None else "")

    def _expire(self) -> None:
        """Give up what has been silent for too long, or has taken too long altogether."""
        for slot in self._slots.all():
            receiver, since = slot.receiver, max(slot.since, self._woke)
            if receiver is None:
                if slot not in self._free and self._now - since > self._pool.connect_timeout:
                    self._fail(slot, TimeoutError())
            elif self._now > receiver.deadline and receiver.refused:
                self._complete(slot, receiver)
            elif slot not in self._paused and self._now > min(receiver.deadline, since + self._pool.read_timeout):
                self._fail(slot, TimeoutError())

    def _drop(self, slot: Slot) -> None:
        self._awaited -= slot.awaited
        slot.awaited = False
        if slot in self._paused:
            self._paused.remove(slot)
        self._slots.drop(slot)

    def _end(self) -> None:
        if process.inherited(self._generation):
            process.abandon(self)
            return
        for slot in self._free:
            assert slot.connection is not None
            self._slots.remove(slot.connection.descriptor)
            self._pool.give_back(slot.connection)
        for slot in self._slots.all():
            self._drop(slot)
