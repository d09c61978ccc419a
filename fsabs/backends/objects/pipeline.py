"""Many requests in flight from one thread: the connections of a client, and `poll`, which says which of them have data.

A connection whose response is complete sends its next request at once, before the response is looked at. A request that
fails by chance waits its time and is sent again, while the others go on. The bytes in flight are bounded: requests are
held back, and bodies left in the kernel's buffers, while the responses that have not been taken fill `max_bytes`.
"""

from __future__ import annotations

import contextlib
import heapq
import select
import ssl
import time
from collections.abc import Callable, Generator, Iterable

from ...core import hooks, process
from .client import Client
from .connections import JOINED_SIZE, WOULD_BLOCK, Connection, ConnectionPool, Dial
from .dialect import Access
from .failures import Mismatch, Redirected, Transient, Unanswered
from .messages import Body, Request, Response
from .receiver import Receiver
from .retry import Attempts

MAX_BYTES = 64 * 1024 * 1024
"""The bytes of responses in flight, unless said otherwise; one larger response is received alone."""
PAUSE = 1.0
"""Seconds without a call to the pipeline after which the end of a connection is no failure of the store's."""
ASKS_FROM = 4 * 1024 * 1024
"""Bytes of a body that is sent when the store has asked for it: a refusal then costs nothing."""
ASKS_SECONDS = 1.0
"""Seconds after which it is sent anyway (RFC 9110, section 10.1.1), and so are later ones."""
_SEND_WOULD_BLOCK = (*WOULD_BLOCK, ssl.SSLWantWriteError)
_IN, _OUT = select.POLLIN, select.POLLOUT
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


def send_one(client: Client, request: Request) -> Response:
    """Return the response to a request, whatever the size of its body. Raises as `Client.send`."""
    if len(request.body) <= JOINED_SIZE:
        return client.send(request)
    with contextlib.closing(send_many(client, (request,), 1)) as outcomes:
        outcome = next(outcomes)
    if isinstance(outcome, Response):
        return outcome
    try:
        raise outcome
    finally:
        del outcome  # as in `Client._exchange`


class _Slot:
    """One connection of a pipeline, and the request that is in flight on it."""

    __slots__ = (
        "access",
        "awaited",
        "began_body",
        "begin",
        "connection",
        "dial",
        "number",
        "pool",
        "receiver",
        "request",
        "sent",
        "since",
        "step",
        "unsent",
        "waits_until",
    )

    def __init__(self, number: int, request: Request, pool: ConnectionPool, now: float) -> None:
        self.number = number
        self.request = request
        self.pool = pool
        self.connection: Connection | None = None
        self.dial: Dial | None = None
        self.receiver: Receiver | None = None
        self.step: Callable[[_Slot, int], None] | None = None  # None while the slot is free, or its body has to wait
        self.access: Access | None = None  # by which the request was sent
        self.unsent: list[Body] = []
        self.waits_until = 0.0  # for the store to ask for the body
        self.awaited = False  # whether the size of its response is not known yet
        self.begin = self.began_body = 0  # when it was sent, and its head came; for the instrument, in ns
        self.sent = self.since = now  # when the request was sent; when there was a sign of life


class _Slots:
    """All slots of a pipeline."""

    def __init__(self) -> None:
        # A batch is short: epoll takes longer to set up than it saves.
        self.poll = select.poll()
        self.by_descriptor: dict[int, _Slot] = {}
        self._dialling: list[_Slot] = []

    def add(self, slot: _Slot, descriptor: int, events: int) -> None:
        """Watch a descriptor of a slot."""
        self.by_descriptor[descriptor] = slot
        self.poll.register(descriptor, events)

    def remove(self, descriptor: int) -> None:
        """Stop watching a descriptor."""
        if self.by_descriptor.pop(descriptor, None) is not None:
            with contextlib.suppress(KeyError):  # of a slot whose body has to wait
                self.poll.unregister(descriptor)

    def all(self) -> set[_Slot]:
        """Return the slots; one that is being connected may have several descriptors."""
        return set(self.by_descriptor.values())

    def dial(self, slot: _Slot, now: float) -> None:
        """Begin to connect a slot. Raises `OSError` if no address can be tried."""
        slot.dial = slot.pool.dial()
        self._dialling.append(slot)
        self._start(slot, now)

    def dialled(self, slot: _Slot, descriptor: int, now: float) -> bool:
        """Take the end of an attempt to connect; return whether the slot is connected."""
        dial = slot.dial
        assert dial is not None
        self.remove(descriptor)
        connected = dial.finish(descriptor)
        if connected is None:
            self._start(slot, now)
            return False
        self._end_dial(slot)
        slot.connection = slot.pool.prepared(connected)
        self.add(slot, slot.connection.descriptor, _IN)
        return True

    def next_dial(self) -> float:
        """Return when an attempt to connect is due that has not been started."""
        if not self._dialling:
            return float("inf")
        self._dialling = [slot for slot in self._dialling if slot.dial is not None]
        return min((slot.dial.next_start for slot in self._dialling if slot.dial is not None), default=float("inf"))

    def start_due(self, now: float) -> list[tuple[_Slot, OSError]]:
        """Start the attempts to connect that are due; return the slots that have failed."""
        failed = []
        for slot in self._dialling:
            if slot.dial is not None and slot.dial.next_start <= now:
                try:
                    self._start(slot, now)
                except OSError as exc:
                    failed.append((slot, exc))
        return failed

    def _start(self, slot: _Slot, now: float) -> None:
        assert slot.dial is not None
        for descriptor in slot.dial.start(now):
            self.add(slot, descriptor, _OUT)

    def _end_dial(self, slot: _Slot) -> None:
        if slot.dial is not None:
            for descriptor in slot.dial.descriptors:
                self.remove(descriptor)
            slot.dial.close()
            slot.dial = None

    def drop(self, slot: _Slot) -> None:
        """Close what a slot has."""
        self._end_dial(slot)
        if slot.connection is not None:
            self.remove(slot.connection.descriptor)
            slot.connection.close()


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
        self._slots = _Slots()
        self._busy = 0  # slots with a request
        self._free: list[_Slot] = []
        self._paused: list[_Slot] = []
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
            if (idle := pool.take()) is not None:
                slot.connection = idle
                self._slots.add(slot, idle.descriptor, _IN)
        if slot.connection is not None:
            self._send(slot, number, request)
            return
        slot.begin = time.monotonic_ns() if hooks.active is not None else 0
        try:
            self._slots.dial(slot, self._now)
        except OSError as exc:
            self._fail(slot, exc)

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
        if delay := self._client.delay(request):
            self._next_send = self._now + delay
            self._held = self._held or time.monotonic_ns()
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
        seconds, patience = client.policy.limits(request)
        slot.receiver = Receiver(client.dialect, request, connection.dontwait, self._now + seconds, patience)
        try:
            waits = client.asks_first and len(request.body) >= ASKS_FROM
            data: Body = client.encode(request, waits)
            rest: list[Body] = []
            slot.waits_until = 0.0
            if len(request.body) > JOINED_SIZE:
                rest = [request.body]
                slot.waits_until = self._now + min(ASKS_SECONDS, client.endpoint.read_timeout / 4) if waits else 0.0
            elif request.body:
                data = bytes(data) + request.body
            try:
                sent = connection.socket.send(data, connection.dontwait)
            except _SEND_WOULD_BLOCK:
                sent = 0
            slot.step = self._on_readable
            if sent < len(data) or rest:
                slot.unsent = [*([memoryview(data)[sent:]] if sent < len(data) else []), *rest]
                self._on_writable(slot, 0)
        except Exception as exc:
            self._fail(slot, exc)

    def _on_writable(self, slot: _Slot, events: int) -> None:
        """Send what the connection takes, and what the store wants: not after a refusal."""
        connection, receiver = slot.connection, slot.receiver
        assert connection is not None
        assert receiver is not None
        slot.step = self._on_writable
        if events & ~_OUT and receiver.head is None and receiver.refused_early(connection):
            self._end_body(slot)
            return
        while slot.unsent:
            if slot.waits_until and len(slot.unsent) == 1:
                if not receiver.continued and self._now < slot.waits_until:
                    self._slots.poll.modify(connection.descriptor, _IN)
                    return
                self._client.asks_first = self._client.asks_first and receiver.continued
                slot.waits_until = 0.0
            data = slot.unsent[0]
            try:
                sent = connection.socket.send(data, connection.dontwait)
            except _SEND_WOULD_BLOCK:
                self._slots.poll.modify(connection.descriptor, _OUT if receiver.head is not None else _IN | _OUT)
                return
            except ConnectionError:
                if not receiver.refused_early(connection):
                    raise
                self._end_body(slot)
                return
            slot.unsent[:1] = [memoryview(data)[sent:]] if sent < len(data) else []
        self._slots.poll.modify(connection.descriptor, _IN)
        slot.step = self._on_readable
        if events & ~_OUT or receiver.head is not None:
            self._on_readable(slot, events)

    def _end_body(self, slot: _Slot) -> None:
        """Receive a refusal in place of sending the rest."""
        assert slot.connection is not None
        assert slot.receiver is not None
        slot.unsent, slot.receiver.cut = [], True
        self._slots.poll.modify(slot.connection.descriptor, _IN)
        slot.step = self._on_readable
        self._on_readable(slot, _IN)

    def _on_handshake(self, slot: _Slot, _: int) -> None:
        assert slot.connection is not None
        slot.connection.handshake()  # what it sends is small: it only ever waits for reading
        if slot.begin and (instrument := hooks.active) is not None:
            instrument.record_span("connect", self._client.connect_name, slot.begin, 0, self._client.url(""))
        slot.connection.check_fresh()
        self._send(slot, slot.number, slot.request)

    # ---- what comes

    def _advance_all(self) -> None:
        """Wait for something to arrive, or to be due, and take it."""
        self._now = now = time.monotonic()
        self._away = now - self._left > 0.001
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

    def _advance(self, slot: _Slot, descriptor: int, event: int) -> None:
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

    def _on_readable(self, slot: _Slot, _: int) -> None:
        connection, receiver = slot.connection, slot.receiver
        assert connection is not None
        assert receiver is not None
        if receiver.head is None:
            receiver.receive_head(connection)
        if slot.awaited:
            slot.began_body = time.monotonic_ns() if slot.begin else 0
            self._count_size(slot, receiver)
            if slot.step is None:
                return
        if receiver.receive_body(connection):
            self._complete(slot, receiver)
        else:
            raise BlockingIOError

    def _count_size(self, slot: _Slot, receiver: Receiver) -> None:
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
            slot.receiver.deadline = max(slot.receiver.deadline, self._now + self._client.endpoint.read_timeout)
            slot.sent, slot.since = -1.0, self._now  # an end of the connection is the pause's fault
            slot.step = self._on_readable
            self._slots.poll.register(slot.connection.descriptor, _IN)
            self._advance(slot, slot.connection.descriptor, _IN)

    def _complete(self, slot: _Slot, receiver: Receiver) -> None:
        outcome, connection = self._client.outcome(receiver), slot.connection
        assert connection is not None
        if slot.begin:
            if self._away:  # what came while the caller was elsewhere is not the store's time
                slot.begin = min(slot.begin + connection.silent_since(), time.monotonic_ns())
            else:
                self._client.record_transfer(slot.began_body, receiver.size)
            self._record(slot, receiver.size, outcome if isinstance(outcome, Exception) else None)
        used, connection.used = connection.used, True
        self._busy -= 1
        slot.step = slot.receiver = None
        if isinstance(outcome, Exception):
            self._decide(slot, outcome, used and not receiver.ended)
        else:
            self._outcomes[slot.number] = outcome
        if not receiver.ended or not (receiver.silent or connection.silent()):
            self._drop(slot)
            return
        taken = self._take_request()
        if taken is not None and self._client.peer(taken[1]).pool is slot.pool:
            self._busy += 1
            self._send(slot, *taken)
            return
        self._free.append(slot)
        if taken is not None:
            self._start(*taken)

    def _fail(self, slot: _Slot, exc: Exception) -> None:
        """End a slot by what went wrong on it, and decide on its request."""
        connection, receiver = slot.connection, slot.receiver
        used = connection is not None and connection.used
        exc = self._client.failure(exc, connection, receiver) if connection is not None else slot.pool.failure(exc)
        if not isinstance(exc, OSError | Transient):
            raise exc
        self._record(slot, 0, exc, "request" if receiver is not None else "connect")
        self._busy -= 1
        self._drop(slot)
        if used and connection is not None and (receiver is None or not receiver.started):
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
        wait = 0.0
        try:
            if isinstance(exc, Redirected):
                request = client.follow(request, exc, attempts)
            else:
                wait = client.wait_after(exc, attempts, slot.access or client.access, at_rest, request)
        except OSError as error:
            self._outcomes[number] = error
            return
        attempts.since = time.monotonic_ns() if wait else 0
        heapq.heappush(self._later, (self._now + wait, number, request))

    def _record(self, slot: _Slot, size: int, exc: Exception | None, kind: str = "request") -> None:
        if slot.begin and exc is not None:
            self._client.record_failure(slot.begin, slot.request, exc, kind)
        elif slot.begin and (instrument := hooks.active) is not None:
            name, where = self._client.operation_name(slot.request), self._client.url(slot.request.key)
            instrument.record_span(kind, name, slot.begin, size, where)

    def _expire(self) -> None:
        """Give up what has been silent for too long, or has taken too long altogether."""
        for slot in self._slots.all():
            receiver, since = slot.receiver, max(slot.since, self._woke)
            if slot.waits_until and self._now > slot.waits_until:
                self._advance(slot, slot.connection.descriptor if slot.connection is not None else -1, 0)
            elif receiver is None:
                if slot not in self._free and self._now - since > self._client.endpoint.connect_timeout:
                    self._fail(slot, TimeoutError())
            elif self._now > receiver.deadline and receiver.refused:
                self._complete(slot, receiver)
            elif slot not in self._paused and self._now > min(
                receiver.deadline, since + self._client.policy.patience(slot.request)
            ):
                self._fail(slot, TimeoutError())

    def _drop(self, slot: _Slot) -> None:
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
            self._client.give_back(slot.connection)
        for slot in self._slots.all():
            self._drop(slot)
