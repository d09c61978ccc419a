"""The clients of a bucket: how a request is encoded and authorised, what is decided on one that has failed, and the
blocking way to send one, for any thread. `pipeline.py` has the other way, which shares all but the waiting.

A request is sent over a connection that is kept alive; what fails by chance is sent again, as `failures.py` has it, to
the place where the bucket is, and with the credentials of the moment.
"""

from __future__ import annotations

import contextlib
import functools
import re
import time
import urllib.parse
import weakref
from typing import Any, NamedTuple

from ...core import errors, hooks, process
from ...core.buffers import keep_freed_memory
from .access import Access, Endpoint
from .connections import WOULD_BLOCK, Connection, ConnectionPool, proxy_header
from .dialect import Dialect
from .failures import (
    DEFAULT_ATTEMPTS,
    Attempts,
    Expired,
    Mismatch,
    Moved,
    Redirected,
    RetryPolicy,
    Throttle,
    Throttled,
    Transient,
    Unanswered,
    broken,
    error_name,
    hung_up,
)
from .http1 import Exchange
from .messages import Request, Response, has_breaks

WORTH_RECORDING = 200_000
"""Nanoseconds that the transfer of a body takes at least, to be an event of its own in a trace."""
ASKS_FROM = 4 * 1024 * 1024
"""Bytes of a body that is sent when the store has asked for it: a refusal then costs nothing."""
_WITH_BODY = frozenset({"PUT", "POST"})
_QUOTED = "!#$%&'()*+,/:;=?@[]~"
"""What stays as it is in a URL that a redirect leads to."""
_is_quoted_url = re.compile(rf"https?://[a-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9_.{re.escape(_QUOTED)}-]*").fullmatch
ENCODINGS = "gzip, deflate, br, zstd"
"""The encodings that edges decode for clients which don't accept them."""
MAX_HOSTS = 32
"""Hosts that redirects have led to, whose connections are kept."""


class Peer(NamedTuple):
    """A host that requests go to: the connections to it, and what all requests there have in common."""

    pool: ConnectionPool
    access: Access | None
    """None where requests carry no credentials, nor any header field that is not about ranges."""
    origin: str
    """What a proxy wants before the path."""
    prefix: str
    root: str
    fixed: str
    """The first header lines."""
    query: str = ""
    """What each query ends with."""

    def __repr__(self) -> str:  # header lines and query may be secret
        return f"Peer({self.pool.endpoint.url!r})"


class Client:
    """Requests of one process to one bucket.

    Args:
        dialect: of the store; that of any FS with the same `same_client()`.
    """

    def __init__(self, dialect: Dialect) -> None:
        keep_freed_memory()
        self.dialect = dialect
        self._is_plain = re.compile(f"[A-Za-z0-9_.{re.escape(dialect.safe)}-]*").fullmatch  # most keys need no quoting
        try:
            self.access = dialect.access()
        except OSError as exc:
            raise errors.of_client(exc) from exc
        self._peer = self._new_peer(self.endpoint, self.access)
        self._redirected_to: dict[str, Peer] = {}  # by scheme and host
        self._lock = process.Lock()
        self._asks_first = True  # whether the store answers a request whose large body waits for that
        endpoint = self.endpoint
        self.throttle = Throttle(f"{endpoint.host}:{endpoint.port}")
        attempts = endpoint.max_attempts
        self.policy = RetryPolicy(
            attempts or DEFAULT_ATTEMPTS, attempts is not None, endpoint.read_timeout, self.throttle
        )

    def _new_peer(self, endpoint: Endpoint, access: Access | None, pool: ConnectionPool | None = None) -> Peer:
        agent, origin = self.dialect.user_agent, ""
        if has_breaks(endpoint.host_header + endpoint.path_prefix + agent):
            raise ValueError(f"a line break in the endpoint {endpoint.host_header!r}")
        fixed = f"Host: {endpoint.host_header}\r\nAccept-Encoding: {self.dialect.accept_encoding}\r\n"
        if agent:
            fixed += f"User-Agent: {agent}\r\n"
        if endpoint.proxy is not None and not endpoint.tls:
            origin = endpoint.url
            fixed += proxy_header(endpoint.proxy)
        pool = pool or ConnectionPool(endpoint, f"{self.dialect.name}.connect", self.dialect.url(""))
        query = access.query if access is not None else ""
        return Peer(pool, access, origin, endpoint.path_prefix, endpoint.bucket_path, fixed, query)

    def close(self) -> None:
        """Close the connections."""
        for peer in (self._peer, *self._redirected_to.values()):
            peer.pool.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""
        return self.access.endpoint

    # ---- shared with the pipeline

    def peer(self, request: Request) -> Peer:
        """Return the host that a request goes to."""
        if not request.location:
            return self._peer
        location = request.location
        origin = location[: location.index("/", 8)]
        if (found := self._redirected_to.get(origin)) is not None:
            return found
        if origin == _origin(self.endpoint.url):
            return self._peer
        with self._lock:
            found = self._redirected_to.get(origin)
            if found is None:
                if len(self._redirected_to) >= MAX_HOSTS:
                    for peer in self._redirected_to.values():
                        peer.pool.close()
                    self._redirected_to = {}
                found = self._redirected_to[origin] = self._new_peer(self.access.elsewhere(origin), None)
            return found

    def delay(self, request: Request) -> float:
        """Return how many seconds a request has to wait for the rate of its store; its turn is then taken."""
        if request.location:
            return 0.0
        self.throttle.sent += 1
        return self.throttle.delay() if self.throttle.limit[0] else 0.0

    def exchange(self, connection: Connection, request: Request, pipelined: bool = False) -> Exchange:
        """Return what sends a request over a connection."""
        asks = self._asks_first and len(request.body) >= ASKS_FROM
        data = self.encode(request, asks)
        return Exchange(self.dialect, connection, request, data, self.policy.read_timeout, pipelined, asks)

    def encode(self, request: Request, asks: bool = False) -> bytes:
        """Return the bytes of a request without its body, before which it `asks`."""
        method, headers, lines = request.method, request.headers, ""
        peer = self.peer(request) if request.location else self._peer
        path, query = self._target(request, peer)
        if request.range is not None or request.from_start:
            size, offset = request.range or (0, 0)
            field = f"range:bytes={offset}-{offset + size - 1 if size else ''}"
            if peer.access is not None and peer.access.authorises_ranges:
                headers = (*headers, field)
            else:
                lines = f"{field}\r\n"
        if request.body or method in _WITH_BODY:
            lines += f"Content-Length: {len(request.body)}\r\n"
            if asks:
                lines += "Expect: 100-continue\r\n"
        if peer.access is not None:
            lines += peer.access.authorise(method, path, query, headers, request.body)
        target = f"{peer.origin}{path}?{query}" if query else peer.origin + path
        fixed = peer.fixed if not request.as_stored else _accepting_all(peer.fixed)
        return f"{method} {target} HTTP/1.1\r\n{fixed}{lines}\r\n".encode()

    def _target(self, request: Request, peer: Peer) -> tuple[str, str]:
        """Return the path and the query of a request."""
        key, query = request.key, request.query
        if request.location:
            path, _, query = request.location[request.location.index("/", 8) :].partition("?")
            return path, query
        if peer.query:
            query = f"{query}&{peer.query}" if query else peer.query
        if request.path:
            return request.path, query
        if not key:
            return peer.root, query
        quoted = key if self._is_plain(key) else urllib.parse.quote(key, safe=self.dialect.safe)
        return peer.prefix + quoted, query

    def outcome(self, exchange: Exchange) -> Response | Exception:
        """Return the response of an exchange, or the failure that it stands for. Raises `Mismatch`."""
        outcome = exchange.outcome()
        if exchange.asked_in_vain:
            self._asks_first = False
        return outcome

    def failure(self, exc: Exception, connection: Connection, exchange: Exchange | None) -> Exception:
        """Return the failure that an exception of an exchange stands for."""
        if isinstance(exc, errors.StaleFileError):  # perhaps it is a response to an earlier request
            return Mismatch(exc) if connection.used else exc
        carried: Exception | None = getattr(connection.socket, "error", None)  # of what sends requests in our place
        if carried is not None:
            return carried
        if isinstance(exc, ConnectionError) and exchange is not None and not exchange.started:
            return hung_up(0)
        return broken(exc)

    def decide(
        self, failure: Exception, attempts: Attempts, access: Access, excused: bool, request: Request
    ) -> tuple[Request, float]:
        """Decide on a request that has failed: return the one that is sent in its place, after so many seconds.

        Args:
            failure: what it ended by.
            attempts: those of the request.
            access: by which it was sent.
            excused: whether what happened on the connection before may be the reason; never of what the store asks for.
            request: the one that failed.

        Raises its error if none is.
        """
        try:
            if not isinstance(failure, Transient):
                raise failure
            if isinstance(failure, Redirected):
                return self._followed(request, failure, attempts), 0.0
            if isinstance(failure, Mismatch) and failure.instead:
                return request._replace(**failure.instead), 0.0
            wait: float | None = 0.0
            if isinstance(failure, Moved | Expired):
                if not (attempts.may_turn() and self._turn(access, failure)):
                    wait = None
            elif isinstance(failure, Throttled) or not (excused and attempts.may_excuse()):
                wait = attempts.wait_after(failure)
            if wait is None:
                raise failure.final_error() from failure
        finally:
            del failure  # the error's traceback holds this frame: a cycle that only the garbage collector frees
        if (instrument := hooks.active) is not None:
            instrument.record_event("retry", self._operation(request), 1, self.dialect.url(request.key))
        return request, wait

    def _followed(self, request: Request, failure: Redirected, attempts: Attempts) -> Request:
        """Return the request that a redirect stands for; raise its error if it leads nowhere, or in circles."""
        if not attempts.may_redirect():
            raise failure.final_error() from failure
        if not failure.location:
            return request._replace(location="", **failure.known)
        here = request.location
        if not here:
            path, query = self._target(request, self._peer)
            here = f"{self.endpoint.url}{path}{query and '?' + query}"
        there = absolute(here, failure.location)
        if there is None:
            raise failure.final_error() from failure
        return request._replace(location=there, **failure.known)

    def _turn(self, used: Access, failure: Moved | Expired) -> bool:
        """Send further requests elsewhere or with newer credentials; return whether there is something to turn to."""
        with self._lock:
            if self.access is not used:
                return True  # another request has found out before
            try:
                found = used.moved(failure.place) if isinstance(failure, Moved) else used.renewed()
            except OSError as exc:
                raise errors.of_client(exc) from exc
            if found is None:
                return False
            pool = self._peer.pool
            same = found.endpoint == used.endpoint
            self._peer = self._new_peer(found.endpoint, found, pool if same else None)
            self.access = found
            if not same:
                pool.close()
            return True

    # ---- what a trace shows

    def record(self, request: Request, begin: int, size: int, failure: Exception | None = None) -> None:
        """Record an attempt that began at `begin`, if that is known."""
        if begin and (instrument := hooks.active) is not None:
            name, error = self._operation(request), ""
            if isinstance(failure, Redirected):
                name = f"{self.dialect.name}.redirect"
            elif failure is not None:
                error = error_name(failure)
            instrument.record_span("request", name, begin, size, self.dialect.url(request.key), error)

    def _operation(self, request: Request) -> str:
        name = request.method.lower()
        if name == "get" and not request.wants_content:
            name = "head" if request.about else "list"
        return f"{self.dialect.name}.{name}"

    def record_wait(self, cause: str, begin: int, size: int = 0) -> None:
        """Record a wait since `begin`, if that is known, under its cause."""
        if begin and (instrument := hooks.active) is not None:
            instrument.record_span("wait", f"{self.dialect.name}.{cause}", begin, size, self.dialect.url(""))

    def record_transfer(self, begin: int, size: int) -> None:
        """Record the time since a response's head came, if its body took time."""
        if begin and time.monotonic_ns() - begin > WORTH_RECORDING:
            self.record_wait("transfer", begin, size)

    # ---- one request after the other

    def send(self, request: Request) -> Response:
        """Return the response to `request`, which fits it and has a status below 300.

        Raises `LargeObject`, and the `OSError` that the store's refusal stands for, or that remains after the last
        attempt.
        """
        attempts: Attempts | None = None
        pool = (self.peer(request) if request.location else self._peer).pool
        connection = pool.take()
        while True:
            begin = time.monotonic_ns() if hooks.active is not None else 0
            used, access = False, self.access
            try:
                if waited := (delay := self.delay(request)) > 0:
                    self._sleep("throttle", delay)
                if waited and connection is not None and not connection.silent():
                    pool.drop_aged(connection)
                    connection = None
                if connection is None:
                    connection = pool.connect()
                    waited = True
                if waited:
                    begin = begin and time.monotonic_ns()
                used = connection.used
                response = self._exchange(pool, connection, request)
                if begin:
                    self.record(request, begin, len(response.body) or len(request.body))
                return response
            except Exception as exc:
                if connection is not None:
                    self.record(request, begin, 0, exc)
                if not isinstance(exc, Transient):
                    raise
                attempts = attempts or Attempts(self.policy)
                excused = used and isinstance(exc, Unanswered | Mismatch)
                if used and connection is not None and (excused or isinstance(exc.error, TimeoutError)):
                    pool.drop_aged(connection)  # silently dropped on the way, perhaps: the others are as old
                request, wait = self.decide(exc, attempts, access, excused, request)
                if wait:
                    self._sleep("backoff", wait)
                pool = self.peer(request).pool  # the bucket may have moved
                connection = None if used and not isinstance(exc, Redirected) else pool.take()

    def _sleep(self, cause: str, seconds: float) -> None:
        """Wait before a request, for a cause that a trace shows."""
        begin = time.monotonic_ns()
        time.sleep(seconds)
        self.record_wait(cause, begin)

    def _exchange(self, pool: ConnectionPool, connection: Connection, request: Request) -> Response:
        """Send a request and return its response, over a connection that then returns to the pool or is closed."""
        exchange, keep, began = None, False, 0
        try:
            exchange = self.exchange(connection, request)
            while True:
                try:
                    if exchange.sending:
                        exchange.send()
                    if exchange.head is None:
                        exchange.receive_head()
                        began = time.monotonic_ns() if hooks.active is not None else 0
                    exchange.receive_body()
                    if began:
                        self.record_transfer(began, exchange.size)
                    break
                except WOULD_BLOCK:
                    if not self._wait(exchange):
                        break
            outcome = self.outcome(exchange)
            keep = exchange.ended
        except Exception as exc:
            # Without the frames below, whose locals have the bytes of a signed request.
            raise self.failure(exc.with_traceback(None), connection, exchange) from exc
        finally:
            if keep:
                pool.give_back(connection)
            else:
                connection.close()
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                del outcome  # else it would refer to itself by its traceback, and keep all of this until a collection
        return outcome

    def _wait(self, exchange: Exchange) -> bool:
        """Wait until an exchange can go on; return False if no more of its response is waited for."""
        now = time.monotonic()
        if exchange.blocks:  # the kernel has waited
            if exchange.request.slow and now < exchange.deadline:
                return True
            raise TimeoutError
        until = min(exchange.deadline, now + exchange.silence_limit, exchange.asks_until or exchange.deadline)
        try:
            exchange.connection.wait(exchange.events, until)
        except TimeoutError:
            if exchange.refused:
                return False
            if not exchange.asks_until:
                raise
        return True

    def begin(self, request: Request) -> Exchange:
        """Return an exchange of which the head has come, and whose body is the bytes of a range.

        One attempt, over a plain connection. Raises `Transient` or an `OSError`: `send` finds out whether that remains.
        """
        pool = self.peer(request).pool
        connection = pool.take() or pool.connect()
        exchange = self.exchange(connection, request)
        try:
            exchange.send()
            exchange.receive_head()
            head = exchange.head
            assert head is not None
            if head.status != (200 if request.range is None else 206) or not head.length:
                raise Transient(OSError(f"status {head.status}"))
            return exchange
        except Exception as exc:
            connection.close()
            raise self.failure(exc, connection, exchange) from exc
        except BaseException:
            connection.close()
            raise


def _accepting_all(lines: str) -> str:
    return re.sub(r"Accept-Encoding: [^\r]*", f"Accept-Encoding: {ENCODINGS}", lines)


def absolute(here: str, location: str) -> str | None:
    """Return the URL that a redirect from the URL `here` leads to, quoted; None where it is not followed.

    That is what is no URL of HTTP's, has a user in it, or leads from https to http. A fragment is not for the server.
    `location` is the value of a header field, whose characters are bytes.
    """
    location = location.partition("#")[0]
    with contextlib.suppress(UnicodeError):  # most are of UTF-8
        location = location.encode("latin-1").decode()
    try:
        if _is_quoted_url(location):  # most are
            path = location.index("/", 8)
            origin, rest = location[:path], location[path:]
        else:
            found = urllib.parse.urlsplit(urllib.parse.urljoin(here, location))
            origin = f"{found.scheme}://{found.netloc}"
            rest = urllib.parse.quote(found.path or "/", safe=_QUOTED) + (found.query and "?" + found.query)
            rest = urllib.parse.quote(rest, safe=_QUOTED)
        parts = urllib.parse.urlsplit(origin)
        usual = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    if not usual or "@" in parts.netloc or " " in parts.netloc or not parts.netloc.isprintable():
        return None
    if here[:6].lower() == "https:" and parts.scheme != "https":
        return None
    return _origin(origin) + rest


def _origin(url: str) -> str:
    """Return scheme and host of a URL without a path, as they are compared: in small letters, without a usual port."""
    scheme, _, host = url.lower().partition("://")
    usual = ":443" if scheme == "https" else ":80"
    return f"{scheme}://{host.removesuffix(usual)}"


class SharedClient:
    """The clients of a bucket, one for each process, shared by all FS with the same options.

    Their connections are closed when the last of these FS is gone.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._clients = process.PerProcess(functools.partial(Client, dialect), Client.close)
        self.get = self._clients.get
        """Returns this process's client."""
        self.store = ""
        """The text that names the store, once it has been resolved."""
        self.lists_in_order = True
        """Whether no listing was out of order."""


_shared: weakref.WeakValueDictionary[Any, SharedClient] = weakref.WeakValueDictionary()


def shared(dialect: Dialect) -> SharedClient:
    """Return the clients of a bucket; those that exist already, if there are any."""
    name = (type(dialect), dialect.same_client())
    found = _shared.get(name)
    if found is None:
        found = _shared[name] = SharedClient(dialect)
    return found
