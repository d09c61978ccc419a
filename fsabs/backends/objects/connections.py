"""Connections to the endpoint of a bucket, through a proxy if there is one, and the pool of the idle ones.

The pool trusts nothing. A connection returns to it only when its response ended exactly, and leaves it only if it is
silent: one with bytes to read has a response that answers no request. When a connection turns out dead, those that have
been idle for as long are dropped with it. Connecting tries all addresses of the host (happy eyeballs, RFC 8305).
"""

from __future__ import annotations

import base64
import contextlib
import errno
import functools
import itertools
import os
import select
import selectors
import socket
import ssl
import struct
import sys
import time
import urllib.parse
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ...core import hooks, process, tls
from .failures import error_name, mismatched, not_connected

if TYPE_CHECKING:
    from .access import Endpoint

T = TypeVar("T")
MAX_IDLE = 64
MAX_IDLE_OF_PROCESS = 256
"""Of all pools of a process: as many buckets as it has opened would keep one each."""
MAX_IDLE_SECONDS = 60.0
"""A connection that was idle for longer is closed: a NAT or the store may have forgotten it."""
ADDRESSES_SECONDS = 30.0
"""The addresses of a host are resolved again after that."""
ATTEMPT_DELAY = 0.25
"""Seconds after which the next address is tried beside those under way (RFC 8305, section 5)."""
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
_MAX_TUNNEL_HEAD = 16 * 1024
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)
_USER_TIMEOUT = getattr(socket, "TCP_USER_TIMEOUT", None)
_DONTWAIT = int(socket.MSG_DONTWAIT)
_TCP = int(socket.IPPROTO_TCP)
_Address = tuple[int, Any]
"""Family, and the argument of `connect`."""


class Connection:
    """An open connection. Plain ones block, with the kernel's time limit; those with TLS don't block."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.descriptor = connected.fileno()
        self.tls = isinstance(connected, ssl.SSLSocket)
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

    def wait(self, events: int, deadline: float) -> None:
        """Wait until the connection can be read (`select.POLLIN`) or written; raises `TimeoutError`."""
        self.acknowledge()
        self._poll.modify(self.descriptor, events)
        ready = self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
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
        self._context = _tls_context(endpoint) if endpoint.tls and endpoint.transport is None else None
        self._proxy = urllib.parse.urlsplit(endpoint.proxy) if endpoint.proxy else None
        self._session: ssl.SSLSession | None = None
        self._closed = False
        self._addresses: tuple[float, list[_Address]] = (0.0, [])
        with _lock:
            _pools.get().add(self)

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
        """Keep a connection of this pool whose response has ended exactly."""
        if self._session is None and isinstance(connection.socket, ssl.SSLSocket):
            self._session = connection.socket.session
        connection.used = True
        connection.idle_since = time.monotonic()
        self._idle.append(connection)
        if self._closed:
            _close_all(self._idle)
        elif len(self._idle) > MAX_IDLE:
            self.close_oldest()

    def idle_times(self) -> list[float]:
        """Return since when each connection has been idle, the oldest first."""
        return [connection.idle_since for connection in list(self._idle)]

    def close_oldest(self) -> None:
        """Close the connection that has been idle for the longest time."""
        with contextlib.suppress(IndexError):  # it was taken meanwhile
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
        """Close the connections, those in use when they are given back."""
        self._closed = True
        _close_all(self._idle)

    # ---- connecting

    def connect(self) -> Connection:
        """Return a new connection; raises `Transient`, or the `OSError` of a certificate that is not accepted."""
        begin = time.monotonic_ns()
        deadline = time.monotonic() + self.endpoint.connect_timeout
        try:
            with contextlib.closing(Opening(self)) as opening:
                while (connection := opening.advance()) is None:
                    opening.wait(deadline)
        except OSError as exc:
            raise self._not_made(begin, exc) from exc
        self.record(begin)
        return connection

    def _not_made(self, begin: int, exc: OSError) -> Exception:
        failure = self.failure(exc)
        self.record(begin, failure)
        return failure

    def failure(self, exc: Exception) -> Exception:
        """Return the failure to connect that an exception stands for; its text names the endpoint."""
        return not_connected(exc, self.endpoint.url)

    def record(self, begin: int, failure: Exception | None = None) -> None:
        """Record that a connection was made since `begin`, or was not."""
        if begin and (instrument := hooks.active) is not None:
            error = error_name(failure) if failure is not None else ""
            instrument.record_span("connect", self._name, begin, 0, self._url, error)

    def addresses(self) -> list[_Address]:
        """Return the addresses of the host to connect to. Raises `OSError` if it has none."""
        resolved, addresses = self._addresses
        now = time.monotonic()
        if not addresses or now - resolved > ADDRESSES_SECONDS:
            host, port = self.endpoint.host, self.endpoint.port
            if self._proxy is not None:
                host, port = self._proxy.hostname or "", self._proxy.port or 80
            with process.forks_deferred:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            addresses = _interleaved([(family, address) for family, _, _, _, address in found])
            self._addresses = (now, addresses)
        return addresses

    def prefer(self, address: _Address) -> None:
        """Try `address`, to which a connection was made, first the next time."""
        resolved, addresses = self._addresses
        if addresses and addresses[0] != address and address in addresses:
            self._addresses = (resolved, [address, *(other for other in addresses if other != address)])

    def tunnel(self) -> bytes:
        """Return the request for a tunnel through the proxy (RFC 9110, section 9.3.6); empty if there is none."""
        if self._proxy is None or self._context is None:
            return b""
        host = f"[{self.endpoint.host}]" if ":" in self.endpoint.host else self.endpoint.host
        there = f"{host}:{self.endpoint.port}"
        return f"CONNECT {there} HTTP/1.1\r\nHost: {there}\r\n{proxy_header(self.endpoint.proxy or '')}\r\n".encode()

    def secured(self, connected: socket.socket) -> socket.socket:
        """Return a socket on which TLS, if it is wanted, is still to be agreed upon."""
        if self._context is None:
            connected.setblocking(True)
            # The kernel's own time limit: with MSG_WAITALL it then fills a buffer in one call.
            limit = struct.pack("ll", int(self.endpoint.read_timeout), int(self.endpoint.read_timeout % 1 * 1e6))
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
            return connected
        return self._context.wrap_socket(
            connected, server_hostname=self.endpoint.host, do_handshake_on_connect=False, session=self._session
        )


_pools: process.PerProcess[weakref.WeakSet[ConnectionPool]] = process.PerProcess(weakref.WeakSet)
_lock = process.Lock()


def close_idle(most: int) -> None:
    """Close the connections of this process that have been idle for the longest time, but for `most`."""
    with _lock:
        pools = list(_pools.get())
    idle = [(since, number) for number, pool in enumerate(pools) for since in pool.idle_times()]
    for _, number in sorted(idle)[: max(0, len(idle) - most)]:
        pools[number].close_oldest()


def with_descriptor(make: Callable[[], T]) -> T:
    """Return what `make` returns, which takes a descriptor; where there is none left, idle connections are closed."""
    try:
        return make()
    except OSError as exc:
        if exc.errno not in (errno.EMFILE, errno.ENFILE):
            raise
    close_idle(0)
    return make()


class Opening:
    """A connection that is being made, without waiting: addresses are tried, each before the last one fails; then a
    proxy opens a tunnel, and TLS is agreed upon.

    `descriptor` can be read when `advance` has something to do; it has, too, when the next address is `due`.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool
        close_idle(MAX_IDLE_OF_PROCESS - 1)
        self._selector = with_descriptor(selectors.DefaultSelector)
        self.descriptor: int = self._selector.fileno()
        self.due = 0.0
        """When the next attempt is due, on the monotonic clock."""
        self._waiting: deque[_Address] | None = None  # until the host's name is resolved
        self._errno = errno.ETIMEDOUT  # of the last address that has failed
        self._connected: socket.socket | None = None
        self._tunnel = pool.tunnel()
        self._heard: bytes | None = None  # of the proxy's response, once it was asked
        self._secured = False

    def advance(self) -> Connection | None:
        """Go on; return the connection once it is open. Raises `OSError`."""
        if self._connected is None:
            self._connected = self._attempt()
            if self._connected is None:
                return None
        try:
            if self._tunnel:
                self._open_tunnel(self._connected)
            if not self._secured:
                self._connected, self._secured = self._pool.secured(self._connected), True
            if isinstance(self._connected, ssl.SSLSocket):
                self._connected.do_handshake()  # what it sends is small: it only ever waits for reading
        except WOULD_BLOCK:
            return None
        connection = Connection(self._connected)
        if not connection.silent():
            raise mismatched("the store sent something over a new connection, before a request")
        self._connected = None  # it is the caller's
        return connection

    def _attempt(self) -> socket.socket | None:
        """Return the socket of an attempt that has succeeded; begin the next one if it is due."""
        endpoint = self._pool.endpoint
        if endpoint.transport is not None:
            return endpoint.transport.connect()
        if self._waiting is None:
            self._waiting = deque(self._pool.addresses())
        for key, _ in self._selector.select(0):
            assert isinstance(key.fileobj, socket.socket)
            self._selector.unregister(key.fileobj)
            code = key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if not code:
                return self._chosen(key.fileobj, key.data)
            key.fileobj.close()
            self._errno, self.due = code, 0.0
        while self._waiting and time.monotonic() >= self.due:
            self._begin(*self._waiting.popleft())
        if not self._selector.get_map() and not self._waiting:
            raise OSError(self._errno, os.strerror(self._errno))
        return None

    def _begin(self, family: int, address: Any) -> None:
        try:
            made = with_descriptor(functools.partial(socket.socket, family, socket.SOCK_STREAM))
        except OSError as exc:
            self._errno = exc.errno or self._errno
            return
        made.setblocking(False)
        code = made.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            made.close()
            self._errno = code
            return
        self._selector.register(made, selectors.EVENT_WRITE, (family, address))
        self.due = time.monotonic() + ATTEMPT_DELAY if self._waiting else float("inf")

    def _chosen(self, connected: socket.socket, address: _Address) -> socket.socket:
        """End the other attempts, and watch the one that has succeeded."""
        self._end_attempts()
        self.due = float("inf")
        self._pool.prefer(address)
        self._selector.register(connected.fileno(), selectors.EVENT_READ)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if _USER_TIMEOUT is not None:  # for bytes that are not acknowledged: the other side is gone, or reads none
            milliseconds = max(1, int(self._pool.endpoint.read_timeout * 1000))
            connected.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, milliseconds)
        return connected

    def _end_attempts(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()

    def _open_tunnel(self, connected: socket.socket) -> None:
        if self._heard is None:
            connected.sendall(self._tunnel)  # a few hundred bytes over a new connection
            self._heard = b""
        while b"\r\n\r\n" not in self._heard:
            more = connected.recv(_MAX_TUNNEL_HEAD)
            if not more or len(self._heard) > _MAX_TUNNEL_HEAD:
                raise ConnectionResetError(errno.ECONNRESET, "the proxy opened no tunnel")
            self._heard += more
        status = self._heard[9:12]
        if status != b"200":
            line = self._heard.partition(b"\r\n")[0].decode("latin-1")
            reason = f"the proxy opened no tunnel: {line[:100]}"
            if status.startswith(b"5"):  # it can't reach the host, for now
                raise ConnectionAbortedError(errno.ECONNABORTED, reason)
            raise PermissionError(errno.EACCES, reason)
        self._tunnel = b""

    def wait(self, deadline: float) -> None:
        """Wait until there is something to do; raises `TimeoutError` after the deadline."""
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError
        self._selector.select(max(0.0, min(self.due, deadline) - now))

    def close(self) -> None:
        """End what is under way; a connection that was returned stays open."""
        self._end_attempts()
        self._selector.close()
        if self._connected is not None:
            self._connected.close()


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


def _interleaved(addresses: list[_Address]) -> list[_Address]:
    """Return addresses so that the families alternate, beginning with the first one's."""
    first = [address for address in addresses if address[0] == addresses[0][0]]
    others = [address for address in addresses if address[0] != addresses[0][0]]
    pairs = itertools.zip_longest(first, others)
    return [address for pair in pairs for address in pair if address is not None]


def _tls_context(endpoint: Endpoint) -> ssl.SSLContext:
    """Return the verification of an endpoint's certificates, and the certificate of the client."""
    verify, certificate = endpoint.verify, endpoint.client_certificate
    loaded: object = verify
    try:
        context = tls.client_context(verify if isinstance(verify, str) else None)
        if certificate is not None:
            loaded = certificate
            with process.forks_deferred:
                context.load_cert_chain(*((certificate,) if isinstance(certificate, str) else certificate))
    except OSError as exc:  # a missing file would be taken for a missing object
        raise OSError(errno.EINVAL, f"the certificates {loaded} can't be loaded: {exc}") from exc
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
