"""Connections to the endpoint of a bucket, through a proxy if there is one, and the pool of the idle ones.

The pool trusts nothing. A connection returns to it only when its response ended exactly, and leaves it only if it is
silent: one with bytes to read has a response that answers no request. When a connection turns out dead, those that have
been idle for as long are dropped with it. Connecting tries all addresses of the host (happy eyeballs, RFC 8305).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import itertools
import os
import select
import socket
import ssl
import struct
import sys
import time
import urllib.parse
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ...core import hooks
from .dialect import Endpoint
from .failures import error_name, mismatched, not_connected
from .messages import Body

MAX_IDLE = 64
MAX_IDLE_SECONDS = 60.0
"""A connection that was idle for longer is closed: a NAT or the store may have forgotten it."""
ADDRESSES_SECONDS = 30.0
"""The addresses of a host are resolved again after that."""
ATTEMPT_DELAY = 0.25
"""Seconds after which the next address is tried beside those under way (RFC 8305, section 5)."""
JOINED_SIZE = 128 * 1024
"""A body of at most so many bytes is sent in one piece with its head."""
_MAX_TUNNEL_HEAD = 16 * 1024
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)
_DONTWAIT = int(socket.MSG_DONTWAIT)
_TCP = int(socket.IPPROTO_TCP)
Address = tuple[int, Any]
"""Family, and the argument of `connect`, or a function that gives a connected socket."""
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError)


class Connection:
    """A connection. Plain ones block, with the kernel's time limit; those with TLS don't block."""

    __slots__ = (
        "_heard",
        "_poll",
        "_secure",
        "_tunnel",
        "descriptor",
        "dontwait",
        "endpoint",
        "head_size",
        "idle_since",
        "quickack",
        "socket",
        "tls",
        "used",
    )

    def __init__(
        self,
        connected: socket.socket,
        endpoint: Endpoint,
        secure: Callable[[socket.socket], ssl.SSLSocket] | None = None,
        tunnel: bytes = b"",
    ) -> None:
        self.socket = connected
        self.descriptor = connected.fileno()
        self.endpoint = endpoint
        self.tls = secure is not None
        self._secure = secure
        self._tunnel = tunnel
        """The request for a tunnel through a proxy, until there is one."""
        self._heard: bytes | None = None  # of the proxy's response, once it was asked
        self.quickack = _QUICKACK if connected.family != socket.AF_UNIX else None
        self.dontwait = 0 if self.tls else _DONTWAIT
        """The flags of a send or receive that doesn't wait."""
        self.head_size = 0
        """The bytes that the next response's head probably has, with the empty line; 0: not known."""
        self.used = False
        """Whether a response has come over it: a failure may be due to what happened before."""
        self.idle_since = 0.0
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def acknowledge(self) -> None:
        """Acknowledge the next segments at once; the kernel forgets it after each exchange.

        A server that sends the head and the body of a response separately waits for the acknowledgement between them
        (Nagle's algorithm, `tcp_nopush`), and a delayed one comes after 40 ms.
        """
        if self.quickack is not None:
            self.socket.setsockopt(_TCP, self.quickack, 1)

    def send(self, head: bytes, body: Body, deadline: float) -> None:
        """Send a request with a small body, waiting where the connection does not take it at once."""
        if self.tls:
            self._send_all(head + body, deadline)
        elif body:
            sent = self.socket.sendmsg((head, body))
            if sent < len(head) + len(body):
                self.socket.sendall((head + body)[sent:])
        else:
            self.socket.sendall(head)
        if self.quickack is not None:
            self.socket.setsockopt(_TCP, self.quickack, 1)

    def _send_all(self, data: Body, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.socket.send(view) :]
            except ssl.SSLWantWriteError:
                self.wait(select.POLLOUT, deadline)
            except ssl.SSLWantReadError:
                self.wait(select.POLLIN, deadline)

    def handshake(self) -> None:
        """Go on with what comes before a request: a tunnel, the handshake of TLS. Raises what `WOULD_BLOCK` has where
        it has to wait."""
        if self._tunnel:
            self._open_tunnel()
        if self._secure is not None:
            self.socket, self._secure = self._secure(self.socket), None
        if isinstance(self.socket, ssl.SSLSocket):
            self.socket.do_handshake()

    def _open_tunnel(self) -> None:
        """Go on with a CONNECT (RFC 9110, section 9.3.6)."""
        if self._heard is None:
            self.socket.sendall(self._tunnel)  # a few hundred bytes over a new connection
            self._heard = b""
        while b"\r\n\r\n" not in self._heard:
            more = self.socket.recv(_MAX_TUNNEL_HEAD)
            if not more or len(self._heard) > _MAX_TUNNEL_HEAD:
                raise ConnectionResetError(errno.ECONNRESET, "the proxy opened no tunnel")
            self._heard += more
        status = self._heard.split(b" ", 2)[1:2]
        if status != [b"200"]:
            line = self._heard.partition(b"\r\n")[0].decode("latin-1")
            raise PermissionError(errno.EACCES, f"the proxy opened no tunnel: {line[:100]}")
        self._tunnel = b""

    def silent_since(self) -> int:
        """Return how long ago the last byte came, in nanoseconds; 0 where the system doesn't say (only Linux does)."""
        try:
            info = self.socket.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_INFO", -1), 56)
        except OSError:
            return 0
        return 1_000_000 * int.from_bytes(info[52:56], sys.byteorder)  # tcpi_last_data_recv, of linux/tcp.h

    def silent(self) -> bool:
        """Return whether the connection is open, and nothing has come that has not been read."""
        quiet = not self._poll.poll(0)
        if not isinstance(self.socket, ssl.SSLSocket):
            return quiet
        if quiet and not self.socket.pending():
            return True
        try:
            self.socket.recv(1)  # not by poll alone: a session ticket may have come, which is no response
        except ssl.SSLWantReadError:
            return True
        except OSError:
            return False
        return False

    def check_fresh(self) -> None:
        """Raise `Mismatch` if something has come over a new connection before a request: it answers none."""
        if not self.silent():
            raise mismatched("the store sent something over a new connection, before a request")

    def wait(self, events: int, deadline: float) -> None:
        """Wait until the connection can be read (`select.POLLIN`) or written; raises `TimeoutError`."""
        if events != select.POLLIN:
            self._poll.modify(self.descriptor, events)
        ready = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if events != select.POLLIN:
            self._poll.modify(self.descriptor, select.POLLIN)
        if not ready:
            raise TimeoutError

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class ConnectionPool:
    """The idle connections of one process to an endpoint."""

    def __init__(self, endpoint: Endpoint, name: str, url: str) -> None:
        self._idle: deque[Connection] = deque()
        # Not `__del__`: in a cycle of references, sockets would be finalized before it, and warn that they are open.
        # It runs in the process that the pool belongs to: an inherited pool is never freed.
        weakref.finalize(self, _close_all, self._idle).atexit = False
        self.endpoint = endpoint
        self._name = name
        self._url = url
        self._context = tls_context(endpoint) if endpoint.tls and endpoint.transport is None else None
        self._proxy = urllib.parse.urlsplit(endpoint.proxy) if endpoint.proxy else None
        self._session: ssl.SSLSession | None = None
        self._addresses: tuple[float, list[Address]] = (0.0, [])

    def take(self) -> Connection | None:
        """Return an idle connection that is open and silent; None if there is none."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return None
        if time.monotonic() - connection.idle_since < MAX_IDLE_SECONDS and connection.silent():
            return connection
        self.drop_aged(connection)
        return None

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose response has ended exactly; one to another endpoint is closed."""
        if connection.endpoint is not self.endpoint:
            connection.close()
            return
        if self._session is None and isinstance(connection.socket, ssl.SSLSocket):
            self._session = connection.socket.session
        connection.used = True
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) > MAX_IDLE:
            with contextlib.suppress(IndexError):
                self._idle.popleft().close()

    def drop_aged(self, dead: Connection) -> None:
        """Close a connection that is dead, and those that have been idle for as long as it had been."""
        dead.close()
        while True:
            try:
                oldest = self._idle.popleft()
            except IndexError:
                return
            if oldest.idle_since > dead.idle_since:
                self._idle.appendleft(oldest)
                return
            oldest.close()

    def close(self) -> None:
        """Close the idle connections."""
        _close_all(self._idle)

    # ---- connecting

    def connect(self) -> Connection:
        """Return a new connection; raises `Transient`, or the `OSError` of a certificate that is not accepted."""
        instrument = hooks.active
        begin = time.monotonic_ns() if instrument is not None else 0
        try:
            connection = self._connect()
        except OSError as exc:
            failure = self.failure(exc)
            if instrument is not None:
                instrument.record_span("connect", self._name, begin, 0, self._url, error_name(failure))
            raise failure from exc
        if instrument is not None:
            instrument.record_span("connect", self._name, begin, 0, self._url)
        return connection

    def failure(self, exc: Exception) -> Exception:
        """Return the failure to connect that an exception stands for; its text names the endpoint."""
        return not_connected(exc, self.endpoint.url)

    def _connect(self) -> Connection:
        deadline = time.monotonic() + self.endpoint.connect_timeout
        dial = self.dial()
        poll = select.poll()
        try:
            while True:
                now = time.monotonic()
                if now > deadline:
                    raise TimeoutError
                for descriptor in dial.start(now):
                    poll.register(descriptor, select.POLLOUT)
                for descriptor, _ in poll.poll(max(0.0, min(dial.next_start, deadline) - now) * 1000):
                    poll.unregister(descriptor)
                    if (connected := dial.finish(descriptor)) is not None:
                        return self._handshake(connected, deadline)
        finally:
            dial.close()

    def _handshake(self, connected: socket.socket, deadline: float) -> Connection:
        connection = self.prepared(connected)
        try:
            while True:
                try:
                    connection.handshake()
                    connection.check_fresh()
                    return connection
                except WOULD_BLOCK:
                    connection.wait(select.POLLIN, deadline)
                except ssl.SSLWantWriteError:
                    connection.wait(select.POLLOUT, deadline)
        except BaseException:
            connection.close()
            raise

    def dial(self) -> Dial:
        """Return the attempts to connect to the host, none of which is begun. Raises `OSError` without an address."""
        if self.endpoint.transport is not None:
            return Dial(self, [(socket.AF_UNIX, self.endpoint.transport.connect)])
        resolved, addresses = self._addresses
        now = time.monotonic()
        if not addresses or now - resolved > ADDRESSES_SECONDS:
            found = socket.getaddrinfo(*self._peer(), type=socket.SOCK_STREAM)
            addresses = _interleaved([(family, address) for family, _, _, _, address in found])
            self._addresses = (now, addresses)
        return Dial(self, addresses)

    def _peer(self) -> tuple[str, int]:
        """Return host and port to connect to."""
        if self._proxy is not None:
            return self._proxy.hostname or "", self._proxy.port or 80
        return self.endpoint.host, self.endpoint.port

    def _tunnel(self) -> bytes:
        """Return the request for a tunnel through the proxy; empty if there is none."""
        if self._proxy is None:
            return b""
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        there = f"{host}:{self.endpoint.port}"
        return f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{proxy_header(self.endpoint.proxy or '')}\r\n".encode()

    def prefer(self, address: Address) -> None:
        """Try `address`, to which a connection was made, first the next time."""
        resolved, addresses = self._addresses
        if addresses and addresses[0] != address and address in addresses:
            self._addresses = (resolved, [address, *(other for other in addresses if other != address)])

    def prepared(self, connected: socket.socket) -> Connection:
        """Return the connection on a socket that has just been connected; with TLS, its handshake is still to come."""
        endpoint = self.endpoint
        if connected.family != socket.AF_UNIX:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if _USER_TIMEOUT is not None:  # for bytes that are not acknowledged: the other side is gone, or reads none
                connected.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, max(1, int(endpoint.read_timeout * 1000)))
        if self._context is not None:
            return Connection(connected, endpoint, self._secured, self._tunnel())
        connected.setblocking(True)
        # The kernel's own time limit: with MSG_WAITALL it then fills a buffer in one call.
        limit = struct.pack("ll", int(self.endpoint.read_timeout), int(self.endpoint.read_timeout % 1 * 1e6))
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        return Connection(connected, endpoint)

    def _secured(self, connected: socket.socket) -> ssl.SSLSocket:
        assert self._context is not None
        return self._context.wrap_socket(
            connected, server_hostname=self.endpoint.host, do_handshake_on_connect=False, session=self._session
        )


class Dial:
    """Attempts to connect to the addresses of a host, one after the other, each started before the last one fails.

    Without waiting: `start` begins those that are due and returns their descriptors; `finish`, called for one that can
    be written, returns its socket if it is connected. The first one wins; `close` ends the others.
    """

    def __init__(self, pool: ConnectionPool, addresses: list[Address]) -> None:
        self._pool = pool
        self._waiting = deque(addresses)
        self._under_way: dict[int, tuple[socket.socket, Address]] = {}
        self._error: OSError | None = None
        self.next_start = 0.0
        """When the next attempt is due, on the monotonic clock."""

    def start(self, now: float) -> list[int]:
        """Start the attempts that are due; raises the last attempt's `OSError` if all have failed."""
        started = []
        while self._waiting and now >= self.next_start:
            family, address = self._waiting.popleft()
            try:
                made, code = _begun(family, address)
            except OSError as exc:
                self._error = exc
                continue
            if code not in (0, errno.EINPROGRESS):
                made.close()
                self._error = OSError(code, os.strerror(code))
                continue
            self._under_way[made.fileno()] = (made, (family, address))
            started.append(made.fileno())
            self.next_start = now + ATTEMPT_DELAY if self._waiting else float("inf")
        if not self._under_way and not self._waiting:
            raise self._error or TimeoutError()
        return started

    def finish(self, descriptor: int) -> socket.socket | None:
        """Return the socket of an attempt that succeeded, None for one that failed: the next one is then due."""
        made, address = self._under_way.pop(descriptor)
        code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            made.close()
            self._error = OSError(code, os.strerror(code))
            self.next_start = 0.0
            return None
        self._pool.prefer(address)
        return made

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of the attempts under way."""
        return list(self._under_way)

    def close(self) -> None:
        """End the attempts under way."""
        for made, _ in self._under_way.values():
            made.close()
        self._under_way.clear()


def _begun(family: int, address: Any) -> tuple[socket.socket, int]:
    """Return a socket that is being connected, and the code of that; an address may be a function that connects."""
    if callable(address):
        return address(), 0
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    return made, made.connect_ex(address)


def proxy_header(proxy: str) -> str:
    """Return the header line that a proxy with a user wants; empty for one without."""
    parts = urllib.parse.urlsplit(proxy)
    if parts.username is None:
        return ""
    user = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
    return f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n"


def _close_all(connections: deque[Connection]) -> None:
    while True:
        try:
            connections.pop().close()
        except IndexError:
            return


def _interleaved(addresses: list[Address]) -> list[Address]:
    """Return addresses so that the families alternate, beginning with the first one's."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    pairs = itertools.zip_longest(first, others)
    return [address for pair in pairs for address in pair if address is not None]


def tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the verification of an endpoint's certificates."""
    verify = endpoint.verify
    try:
        context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    except OSError as exc:  # a missing file would be taken for a missing object
        raise OSError(errno.EINVAL, f"the certificates {verify} can't be loaded: {exc}") from exc
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if endpoint.client_certificate is not None:
        certificate = endpoint.client_certificate
        context.load_cert_chain(*((certificate,) if isinstance(certificate, str) else certificate))
    return context
