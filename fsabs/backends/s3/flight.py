"""Many GETs in flight from one thread: the connections of `wire.py`, and `poll`, which says whose turn it is.

A connection whose answer is in sends its next request at once, before anybody looks at what came. What fails by chance
waits its time and goes again, while the others go on.
"""

from __future__ import annotations

import errno
import heapq
import io
import os
import select
import socket
import ssl
import time
from collections.abc import Callable, Generator
from typing import Any

from ... import errors, hooks, process
from .answers import Ask, PlainAnswerMissing, Transient, Unanswered, backoff, broken, cut, hung_up, refused, understood
from .checksums import mismatch
from .wire import GOOD, HEAD_SIZE, PEEK, TLS_RECORD, Wire, error_name, refusal_body

CHUNK = 256 * 1024
"""What one receive takes at most where there is no place: what is in the processor's cache is quickly put together."""
IN_PLACE = 4 * 1024 * 1024
"""A whole object of more bytes is received into its final place; anything else comes in chunks."""
PAUSE = 1.0
"""Seconds that nobody asked for anything, after which a connection's end is the pause's fault, not the store's."""
EXCUSES = 3
"""How often a request may fail for such a reason without an attempt being counted."""
REFUSAL_TIMEOUT = 2.0

Address = tuple[int, Any]
"""Family, and what `connect` takes."""
Outcome = list[bytes] | OSError | None
"""The body in pieces (none where it had a place of its own); an error; or None for what boto3 has to ask for."""


class Flight:
    """The outcomes of the GETs `ask(0)` to `ask(count - 1)`, in order, with up to `width` of them under way.

    No more than `ahead` are begun or wait to be taken, counted from the one whose turn it is. For one thread, in the
    process that made it.
    """

    def __init__(self, wire: Wire, ask: Callable[[int], Ask], count: int, width: int, ahead: int) -> None:
        self._generation = process.generation()
        self._wire = wire
        self._ask = ask
        self._count = count
        self._width = width
        self._ahead = ahead
        self._plain = not wire.endpoint.tls
        self._chunk = CHUNK if self._plain else TLS_RECORD
        # Connections that block, as idle ones do, need no preparation; TLS, which may have to write, can't do so.
        self._flags = socket.MSG_DONTWAIT if self._plain else 0
        self._poll = select.poll()  # a batch is short: epoll takes longer to be told of the connections than they take
        self._lanes: dict[int, _Lane] = {}  # by their descriptors
        self._free: list[_Lane] = []
        self._done: dict[int, Outcome] = {}
        self._first = self._next = 0  # whose turn it is; the first that was never begun
        self._later: list[tuple[float, int]] = []  # when to try again, and what
        self._failures: dict[int, int] = {}
        self._excuses: dict[int, int] = {}
        self._addresses: list[Address] | None = None
        self._now = self._checked = self._left = time.monotonic()
        self._woke = 0.0  # the end of the last pause

    def run(self) -> Generator[Outcome, None, None]:
        """The outcomes. To be closed, or used up."""
        try:
            for number in range(self._count):
                self._first = number
                while number not in self._done:
                    self._fill()
                    self._advance_all()
                yield self._done.pop(number)
        finally:
            self._end()

    # ---- what is sent, and when

    def _fill(self) -> None:
        """Start requests while there is room."""
        while self._free or len(self._lanes) < self._width:
            number = self._take_number()
            if number is None:
                return
            if self._free:
                self._send(self._free.pop(), number)
            else:
                self._open_lane(number)

    def _take_number(self) -> int | None:
        """The request to be sent next, if there is one."""
        if self._later and self._later[0][0] <= self._now:
            return heapq.heappop(self._later)[1]
        if self._next < self._count and self._next - self._first < self._ahead:
            self._next += 1
            return self._next - 1
        return None

    def _open_lane(self, number: int) -> None:
        connection = self._wire.take()
        if connection is None:
            self._begin_connecting(number)
            return
        if not self._plain:
            connection.setblocking(False)
        lane = _Lane(connection, number, used=True)
        self._add(lane, select.POLLIN)
        self._send(lane, number)

    def _add(self, lane: _Lane, events: int) -> None:
        self._lanes[lane.descriptor] = lane
        self._poll.register(lane.descriptor, events)

    def _send(self, lane: _Lane, number: int) -> None:
        lane.number, lane.sent, lane.since, lane.step = number, self._now, self._now, self._on_head
        lane.ask = self._ask(number)
        lane.begin = time.monotonic_ns() if hooks.active is not None else 0
        try:
            # A request is much smaller than the kernel's buffer, which is empty.
            lane.connection.sendall(self._wire.request(lane.ask), self._flags)
        except OSError:
            self._fail(lane, hung_up(0))

    # ---- connecting

    def _begin_connecting(self, number: int) -> None:
        target = self._wire.endpoint
        if self._addresses is None:
            try:
                found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
            except OSError:  # boto3 says it in its own words
                self._done[number] = None
                return
            self._addresses = [(family, address) for family, _, _, _, address in found]
        self._connect(number, self._addresses)

    def _connect(self, number: int, addresses: list[Address]) -> None:
        """Begin a connection to the first of the addresses."""
        family, address = addresses[0]
        lane = _Lane(socket.socket(family, socket.SOCK_STREAM), number, used=False)
        lane.addresses = addresses[1:]
        lane.connecting, lane.step, lane.sent, lane.since = True, self._on_connected, self._now, self._now
        lane.begin = time.monotonic_ns() if hooks.active is not None else 0
        lane.connection.setblocking(False)
        self._wire.configure(lane.connection)
        code = lane.connection.connect_ex(address)
        self._add(lane, select.POLLOUT)
        if code not in (0, errno.EINPROGRESS):
            self._not_connected(lane, code)

    def _not_connected(self, lane: _Lane, code: int) -> None:
        if lane.addresses:
            self._drop(lane)
            self._connect(lane.number, lane.addresses)
        else:
            self._fail(lane, broken(OSError(code, os.strerror(code))))

    def _on_connected(self, lane: _Lane) -> None:
        if code := lane.connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._not_connected(lane, code)
            return
        self._poll.modify(lane.descriptor, select.POLLIN)
        if self._plain:
            self._wire.settle(lane.connection)
            self._connected(lane)
            return
        lane.connection = self._wire.secured(lane.connection)
        lane.step = self._on_handshake
        self._on_handshake(lane)

    def _on_handshake(self, lane: _Lane) -> None:
        assert isinstance(lane.connection, ssl.SSLSocket)
        lane.connection.do_handshake()  # what it sends is small: it only ever waits for reading
        self._connected(lane)

    def _connected(self, lane: _Lane) -> None:
        if lane.begin and (instrument := hooks.active) is not None:
            instrument.record_span("connect", "s3.connect", lane.begin, 0, self._wire.url(""))
        lane.connecting = False
        self._send(lane, lane.number)

    # ---- what comes

    def _advance_all(self) -> None:
        """Wait for something to arrive, or to be due, and take it."""
        self._now = time.monotonic()
        if self._now - self._left > PAUSE:
            self._woke = self._now
        wait = min(PAUSE, self._wire.options.read_timeout, self._wire.options.connect_timeout)
        if self._later:
            wait = min(wait, max(0.0, self._later[0][0] - self._now))
        events = self._poll.poll(wait * 1000)
        self._now = time.monotonic()
        for descriptor, _ in events:
            self._advance(self._lanes[descriptor])
        if not events or self._now - self._checked > PAUSE:
            self._checked = self._now
            self._expire()
        self._left = time.monotonic()

    def _advance(self, lane: _Lane) -> None:
        lane.since = self._now
        try:
            lane.step(lane)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except (Transient, PlainAnswerMissing, errors.StaleFileError) as exc:
            self._fail(lane, exc)
        except OSError as exc:
            self._fail(lane, broken(exc))

    def _on_idle(self, lane: _Lane) -> None:
        """Closed by the store, that is: nothing was asked for."""
        self._free.remove(lane)
        self._drop(lane)

    def _on_head(self, lane: _Lane) -> None:
        if self._plain and not lane.head:
            # Looked at first, the head is taken alone, so that the body needs no putting together.
            seen = lane.connection.recv(PEEK, socket.MSG_PEEK | self._flags)
            end = seen.find(b"\r\n\r\n")
            if end >= 0:
                lane.connection.recv(end + 4)
                self._begin_body(lane, seen[:end], b"")
                return
        more = lane.connection.recv(HEAD_SIZE, self._flags)
        if not more:
            raise hung_up(len(lane.head))
        if len(lane.head) > HEAD_SIZE:
            raise PlainAnswerMissing("a head without an end")
        lane.head += more
        end = lane.head.find(b"\r\n\r\n")
        if end >= 0:
            self._begin_body(lane, lane.head[:end], lane.head[end + 4 :])

    def _begin_body(self, lane: _Lane, head: bytes, rest: bytes) -> None:
        lane.head = head
        ask = lane.ask
        if head[9:12] not in GOOD:
            self._fail(lane, self._refusal(lane, rest))
            return
        lane.length, lane.keep, lane.checksums = understood(head, ask)
        if len(rest) > lane.length:
            raise PlainAnswerMissing("a body that is longer than announced")
        lane.view = ask.into
        if lane.view is None and ask.part is None and lane.length > IN_PLACE:
            lane.make_place()
        if rest:
            lane.take(rest)
        lane.step = self._on_body
        self._on_body(lane)

    def _refusal(self, lane: _Lane, rest: bytes) -> Exception:
        """What an answer that is an error means; the rest of it, which is short, is waited for."""
        lane.connection.settimeout(REFUSAL_TIMEOUT)
        return refused(lane.head, refusal_body(lane.connection, lane.head, rest)[0])

    def _on_body(self, lane: _Lane) -> None:
        while missing := lane.length - lane.filled:
            if lane.view is not None:
                wanted = missing
                got = lane.connection.recv_into(lane.view[lane.filled :], missing, self._flags)
                lane.filled += got
            else:
                wanted = min(missing, self._chunk)
                chunk = lane.connection.recv(wanted, self._flags)
                got = len(chunk)
                if got:
                    lane.take(chunk)
            if not got:
                raise cut(lane.filled, lane.length)
            if self._plain and got < wanted:
                return  # there is no more for now; TLS may hold more than poll knows of
        self._complete(lane)

    def _complete(self, lane: _Lane) -> None:
        found = lane.result()
        if lane.checksums and lane.ask.part is None and (wrong := mismatch(lane.head, found)):
            raise Transient(errors.CorruptFileError(errno.EBADMSG, wrong))
        self._done[lane.number] = found
        if lane.begin and (instrument := hooks.active) is not None:
            instrument.record_span("request", "s3.get", lane.begin, lane.length, self._url(lane))
        if not lane.keep:
            self._drop(lane)
            return
        lane.used = True
        lane.clear()
        number = self._take_number()
        if number is not None:
            self._send(lane, number)
        else:
            lane.step = self._on_idle
            self._free.append(lane)

    # ---- what fails

    def _fail(self, lane: _Lane, exc: Exception) -> None:
        """End a lane by what went wrong on it, and decide on its request: again, given up, or boto3's."""
        number = lane.number
        if lane.begin and (instrument := hooks.active) is not None:
            what = ("connect", "s3.connect") if lane.connecting else ("request", "s3.get")
            instrument.record_span(*what, lane.begin, 0, self._url(lane), error_name(exc))
        self._drop(lane)
        if not isinstance(exc, Transient):
            self._done[number] = exc if isinstance(exc, OSError) else None
            return
        if isinstance(exc, Unanswered) and lane.used:
            self._wire.close()  # what else lies idle is as old
        at_rest = lane.sent <= self._woke or (isinstance(exc, Unanswered) and lane.used)
        if at_rest and self._excuses.get(number, 0) < EXCUSES:
            self._excuses[number] = self._excuses.get(number, 0) + 1
            heapq.heappush(self._later, (self._now, number))
            return
        self._failures[number] = failures = self._failures.get(number, 0) + 1
        if failures >= self._wire.options.max_attempts:
            self._done[number] = exc.error
            return
        if (instrument := hooks.active) is not None:
            instrument.record_event("retry", "s3.get", 1, self._url(lane))
        heapq.heappush(self._later, (self._now + backoff(failures), number))

    def _expire(self) -> None:
        """Give up what has been silent for too long."""
        options = self._wire.options
        for lane in [lane for lane in self._lanes.values() if lane.step != self._on_idle]:
            limit = options.connect_timeout if lane.connecting else options.read_timeout
            if self._now - max(lane.since, self._woke) > limit:
                self._fail(lane, broken(TimeoutError()))

    def _drop(self, lane: _Lane) -> None:
        del self._lanes[lane.descriptor]
        self._poll.unregister(lane.descriptor)
        lane.connection.close()
        lane.clear()

    def _end(self) -> None:
        if process.inherited(self._generation):
            process.abandon(self)
            return
        for lane in self._free:
            del self._lanes[lane.descriptor]
            if not self._plain:
                self._wire.settle(lane.connection)
            self._wire.give_back(lane.connection)
        for lane in list(self._lanes.values()):
            self._drop(lane)

    def _url(self, lane: _Lane) -> str:
        return self._wire.url("" if lane.connecting else lane.ask.key)


class _Lane:
    """One connection, and the request that is under way on it."""

    __slots__ = (
        "addresses",
        "ask",
        "begin",
        "body",
        "checksums",
        "chunks",
        "connecting",
        "connection",
        "descriptor",
        "filled",
        "head",
        "keep",
        "length",
        "number",
        "sent",
        "since",
        "step",
        "used",
        "view",
    )

    def __init__(self, connection: socket.socket, number: int, used: bool) -> None:
        self.connection = connection
        self.descriptor = connection.fileno()
        self.number = number
        self.ask: Ask
        self.used = used  # whether the store has answered on it before
        self.connecting = False
        self.addresses: list[Address] = []  # to be tried if this one refuses
        self.step: Callable[[_Lane], None]
        self.begin = 0  # for the instrument, in ns
        self.sent = self.since = 0.0  # when the request went out; when there was a sign of life
        self.body: io.BytesIO | None = None
        self.view: memoryview | None = None
        self.keep = self.checksums = False
        self.length = 0
        self.clear()

    def clear(self) -> None:
        """Forget the answer."""
        self.head = b""
        self.filled = 0
        self.chunks: list[bytes] = []
        self.view = None  # where the body has to be, if it has a place
        self.body = None  # what `view` is of, if that is the lane's own

    def make_place(self) -> None:
        """Have a place for the whole body."""
        self.body = io.BytesIO(bytes(self.length))
        self.view = self.body.getbuffer()

    def take(self, data: bytes) -> None:
        """Put away a piece of the body."""
        if self.view is None:
            self.chunks.append(data)
        else:
            self.view[self.filled : self.filled + len(data)] = data
        self.filled += len(data)

    def result(self) -> list[bytes]:
        """The whole body."""
        if self.body is None or self.view is None:
            return self.chunks
        self.view.release()
        return [self.body.getvalue()]  # the very bytes that were filled, since nobody else has them
