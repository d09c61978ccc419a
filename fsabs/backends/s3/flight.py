"""Many GETs in flight from one thread: the connections of `wire.py`, and a selector that says whose turn it is."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from .wire import ATTEMPTS, HEAD_SIZE, BrokenConnection, PlainAnswerMissing, Wire, parse

AHEAD = 2
"""How many times as many bodies as connections may wait for an earlier one."""


class _Get:
    """One request under way."""

    __slots__ = ("body", "connection", "filled", "head", "keep", "number", "reused", "since")

    def __init__(self, number: int, connection: socket.socket, reused: bool) -> None:
        self.number = number
        self.connection = connection
        self.reused = reused
        self.head = b""
        self.body: bytearray | None = None
        self.filled = 0
        self.keep = False
        self.since = time.monotonic()


class Flight:
    """The bodies of `keys`, in order, with up to `width` requests under way; None for one that boto3 has to get."""

    def __init__(self, wire: Wire, keys: Sequence[str], width: int, timeout: float) -> None:
        self._wire = wire
        self._keys = keys
        self._width = width
        self._timeout = timeout
        self._selector = selectors.DefaultSelector()
        self._done: dict[int, bytes | None] = {}
        self._next = 0
        self._waiting: deque[int] = deque()  # whose connection broke: to be sent over a new one
        self._failed: dict[int, int] = {}  # how often that happened

    def run(self) -> Iterator[bytes | None]:
        """The bodies."""
        try:
            for number in range(len(self._keys)):
                while number not in self._done:
                    self._fill(number)
                    self._receive()
                yield self._done.pop(number)
        finally:
            for key in list(self._selector.get_map().values()):
                key.data.connection.close()
            self._selector.close()

    def _fill(self, first: int) -> None:
        """Start requests while there is room."""
        while len(self._selector.get_map()) < self._width:
            if self._waiting:
                self._start(self._waiting.popleft(), None)
            elif self._next < len(self._keys) and self._next - first < self._width * AHEAD:
                self._next += 1
                self._start(self._next - 1, self._wire.take())
            else:
                return

    def _start(self, number: int, connection: socket.socket | None) -> None:
        reused = connection is not None
        try:
            connection = connection or self._wire.connect()
        except OSError:
            self._done[number] = None
            return
        try:
            connection.sendall(self._wire.request(self._keys[number], ""))
            connection.setblocking(False)
        except OSError:
            connection.close()
            self._again(number, reused)
            return
        self._selector.register(connection, selectors.EVENT_READ, _Get(number, connection, reused))

    def _again(self, number: int, reused: bool) -> None:
        """What becomes of a request whose connection broke: sent over a new one, or in the end boto3's."""
        # What the store has closed while it was idle is no failure.
        self._failed[number] = self._failed.get(number, 0) + (0 if reused else 1)
        if self._failed[number] < ATTEMPTS:
            self._waiting.append(number)
        else:
            self._done[number] = None

    def _receive(self) -> None:
        """Take what has arrived."""
        if not self._selector.get_map():
            return
        for key, _ in self._selector.select(min(1.0, self._timeout)):
            get: _Get = key.data
            try:
                finished = self._advance(get)
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
            except (OSError, BrokenConnection):
                self._end(get, False)
                self._again(get.number, get.reused and not get.head)
                continue
            except PlainAnswerMissing:
                self._end(get, False)
                self._done[get.number] = None
                continue
            if finished:
                self._end(get, get.keep)
                assert get.body is not None
                self._done[get.number] = bytes(get.body)
        self._expire()

    def _expire(self) -> None:
        """Give up what has been silent for too long."""
        now = time.monotonic()
        for key in list(self._selector.get_map().values()):
            if now - key.data.since > self._timeout:
                self._end(key.data, False)
                self._done[key.data.number] = None

    def _advance(self, get: _Get) -> bool:
        """Receive until there is no more for now; whether the body is whole."""
        while get.body is None:
            more = get.connection.recv(HEAD_SIZE)
            if not more:
                raise BrokenConnection("a head that breaks off")
            if len(get.head) > HEAD_SIZE:
                raise PlainAnswerMissing("a head without an end")
            get.head += more
            self._begin_body(get)
        with memoryview(get.body) as view:
            while get.filled < len(view):
                count = get.connection.recv_into(view[get.filled :])
                if not count:
                    raise BrokenConnection("a body that breaks off")
                get.filled += count
                get.since = time.monotonic()
        return True

    def _begin_body(self, get: _Get) -> None:
        end = get.head.find(b"\r\n\r\n")
        if end < 0:
            return
        answer = parse(get.head[:end], b"200")
        start = get.head[end + 4 :]
        if len(start) > answer.length:
            raise PlainAnswerMissing("a body that is longer than announced")
        get.keep, get.filled, get.body = answer.keep, len(start), bytearray(answer.length)
        get.body[: len(start)] = start
        get.since = time.monotonic()

    def _end(self, get: _Get, keep: bool) -> None:
        self._selector.unregister(get.connection)
        if not keep:
            get.connection.close()
            return
        _restore(get.connection, self._timeout)
        self._wire.give_back(get.connection)


def _restore(connection: socket.socket, timeout: float) -> None:
    connection.settimeout(timeout if isinstance(connection, ssl.SSLSocket) else None)


def read(
    wire: Wire, keys: Sequence[str], width: int, timeout: float, otherwise: Callable[[str], bytes]
) -> Iterator[bytes]:
    """The contents of `keys`, in order; those that `Flight` doesn't get are got by `otherwise`."""
    for key, body in zip(keys, Flight(wire, keys, width, timeout).run(), strict=True):
        yield otherwise(key) if body is None else body
