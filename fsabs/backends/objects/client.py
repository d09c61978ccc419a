"""The blocking client: one request after the other over connections of our own, for any thread.

A request is authorised and sent in one piece over a connection that is kept alive; what fails by chance is sent again,
as `retry.py` has it, to the place where the bucket is, and with the credentials of the moment. Requests with large
bodies go by `pipeline.send_one`, which looks for a refusal while it sends.
"""

from __future__ import annotations

import functools
import re
import select
import time
import urllib.parse
import weakref
from typing import Any, NamedTuple

from ...core import errors, hooks, process
from ...core.buffers import keep_freed_memory
from .connections import WOULD_BLOCK, Connection, ConnectionPool, proxy_header
from .dialect import Access, Dialect, Endpoint
from .failures import Expired, Mismatch, Moved, Redirected, Transient, Unanswered, broken, error_name, hung_up
from .messages import Request, Response
from .receiver import WAITALL, Receiver
from .retry import DEFAULT_ATTEMPTS, Attempts, RetryPolicy
from .throttle import Throttle

_WITH_BODY = frozenset({"PUT", "POST"})
WORTH_RECORDING = 200_000
"""Nanoseconds that the transfer of a body takes at least, to be an event of its own in a trace."""
_breaks = re.compile("[\r\n\0]").search
_QUOTED = "!#$%&'()*+,/:;=?@[]~"
"""What stays as it is in a URL that a redirect leads to."""
_is_quoted_url = re.compile(rf"https?://[a-z0-9.-]+(:[0-9]+)?/[A-Za-z0-9_.{re.escape(_QUOTED)}-]*").fullmatch
MAX_HOSTS = 32
"""Hosts that redirects have led to, whose connections are kept."""
_OPERATIONS = {"GET": "get", "HEAD": "head", "PUT": "put", "POST": "post", "DELETE": "delete"}


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
    query: str
    """What each query ends with."""


class Client:
    """Requests of one process to one bucket.

    Args:
        dialect: of the store; that of any FS with the same `same_client()`.
    """

    def __init__(self, dialect: Dialect) -> None:
        keep_freed_memory()
        self.dialect = dialect
        self._lock = process.Lock()
        self._redirected_to: dict[str, Peer] = {}  # by scheme and host
        self.access = dialect.access()
        self.connect_name, self._list_name = f"{dialect.name}.connect", f"{dialect.name}.list"
        self._names = {method: f"{dialect.name}.{name}" for method, name in _OPERATIONS.items()}
        self._other_name, self._redirect_name = f"{dialect.name}.request", f"{dialect.name}.redirect"
        self._is_plain = re.compile(f"[A-Za-z0-9_.{re.escape(dialect.safe)}-]*").fullmatch  # most keys are
        self._enter(self.access)
        endpoint = self.endpoint
        self.throttle = Throttle(f"{endpoint.host}:{endpoint.port}")
        attempts = endpoint.max_attempts
        self.policy = RetryPolicy(
            attempts or DEFAULT_ATTEMPTS, attempts is not None, endpoint.read_timeout, self.throttle
        )
        self.asks_first = True
        """Whether the store answers a request whose large body waits for that (`Expect: 100-continue`)."""

    def _enter(self, access: Access) -> None:
        """Send requests by another access."""
        before: ConnectionPool | None = getattr(self, "pool", None)
        moved = before is None or before.endpoint != access.endpoint
        pool = before if before is not None and not moved else self._pool(access.endpoint)
        self._peer = self._peer_of(pool, access)
        self._url = origin_of(access.endpoint.url)
        self.access, self.pool = access, pool
        if moved and before is not None:
            before.close()

    def _pool(self, endpoint: Endpoint) -> ConnectionPool:
        return ConnectionPool(endpoint, self.connect_name, self.url(""))

    def _peer_of(self, pool: ConnectionPool, access: Access | None) -> Peer:
        endpoint, agent = pool.endpoint, self.dialect.user_agent
        fixed = f"Host: {endpoint.host_header}\r\nAccept-Encoding: {self.dialect.accept_encoding}\r\n"
        if agent:
            fixed += f"User-Agent: {agent}\r\n"
        origin = ""
        if endpoint.proxy is not None and not endpoint.tls:
            origin = endpoint.url
            fixed += proxy_header(endpoint.proxy)
        if _breaks(endpoint.host_header + endpoint.path_prefix + agent):
            raise ValueError(f"a line break in the endpoint {endpoint.host_header!r}")
        query = access.query if access is not None else ""
        return Peer(pool, access, origin, endpoint.path_prefix, endpoint.bucket_path, fixed, query)

    def peer(self, request: Request) -> Peer:
        """Return the host that a request goes to."""
        location = request.location
        if not location:
            return self._peer
        origin = location[: location.index("/", 8)]
        if origin == self._url:
            return self._peer
        return self._redirected_to.get(origin) or self._redirected_peer(origin)

    def _redirected_peer(self, origin: str) -> Peer:
        with self._lock:
            if (found := self._redirected_to.get(origin)) is not None:  # of another thread
                return found
            if len(self._redirected_to) >= MAX_HOSTS:
                for peer in self._redirected_to.values():
                    peer.pool.close()
                self._redirected_to = {}
            pool = self._pool(self.access.elsewhere(origin))
            made = self._redirected_to[origin] = self._peer_of(pool, None)
            return made

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose response has ended exactly; close it if requests go elsewhere now."""
        endpoint = connection.endpoint
        if endpoint is self.pool.endpoint:
            self.pool.give_back(connection)
        elif (peer := self._redirected_to.get(origin_of(endpoint.url))) is not None:
            peer.pool.give_back(connection)
        else:
            connection.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""
        return self.access.endpoint

    def url(self, key: str) -> str:
        """Return the URL of an object, for errors and traces."""
        return self.dialect.url(key)

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

    def encode(self, request: Request, waits: bool = False) -> bytes:
        """Return the bytes of a request without its body, which `waits` until the store asks for it."""
        method, headers, peer = request.method, request.headers, self.peer(request)
        path, query = self._target(request, peer)
        lines = ""
        if request.range is not None:
            size, offset = request.range
            field = f"range:bytes={offset}-{offset + size - 1}"
            if peer.access is not None and peer.access.authorises_ranges:
                headers = (*headers, field)
            else:
                lines = f"{field}\r\n"
        if request.body or method in _WITH_BODY:
            lines += f"Content-Length: {len(request.body)}\r\n"
            if waits:
                lines += "Expect: 100-continue\r\n"
        if peer.access is not None:
            lines += peer.access.authorise(method, path, query, headers, request.body)
        target = f"{peer.origin}{path}?{query}" if query else peer.origin + path
        return f"{method} {target} HTTP/1.1\r\n{peer.fixed}{lines}\r\n".encode()

    def follow(self, request: Request, failure: Redirected, attempts: Attempts) -> Request:
        """Return the request that a redirect stands for; raise its error if it leads nowhere, or in circles."""
        if not attempts.may_redirect():
            raise failure.error from failure
        if not failure.location:
            return request._replace(location="", **failure.known)
        if not request.location:
            path, query = self._target(request, self._peer)
            here = f"{self.endpoint.url}{path}{query and '?' + query}"
        else:
            here = request.location
        there = absolute(here, failure.location)
        if there is None or (here.startswith("https:") and not there.startswith("https:")):
            raise failure.error from failure
        return request._replace(location=there, **failure.known)

    def send(self, request: Request) -> Response:
        """Return the response to `request`, which fits it and has a status below 300; its body is small.

        Raises `LargeObject`, and the `OSError` that the store's refusal stands for, or that remains after the last
        attempt.
        """
        attempts: Attempts | None = None
        pool = self.peer(request).pool
        connection = pool.take()
        count = 1
        while True:
            begin = time.monotonic_ns() if hooks.active is not None else 0
            used, access = False, self.access
            try:
                if delay := self.delay(request):
                    while delay:
                        self.sleep("throttle", delay)
                        delay = self.access.quotas.delay(request) if self.access.quotas is not None else 0.0
                    begin = begin and time.monotonic_ns()
                    if connection is not None and not connection.silent():
                        pool.drop_aged(connection)
                        connection = None
                if connection is None:
                    connection = pool.connect()
                    begin = begin and time.monotonic_ns()
                used = connection.used
                response = self._exchange(connection, request)
                if begin and (instrument := hooks.active) is not None:
                    size = len(response.body) or len(request.body)
                    instrument.record_span("request", self.operation_name(request), begin, size, self.url(request.key))
                return response if count == 1 else response._replace(attempts=count)
            except Exception as exc:
                if begin and connection is not None:
                    self.record_failure(begin, request, exc)
                if not isinstance(exc, Transient):
                    raise
                attempts = attempts or Attempts(self.policy)
                if isinstance(exc, Redirected):
                    request = self.follow(request, exc, attempts)
                    pool = self.peer(request).pool
                    connection = pool.take()
                    continue
                if used and connection is not None and _may_be_old(exc):
                    pool.drop_aged(connection)  # silently dropped on the way, perhaps: the others are as old
                wait = self.wait_after(exc, attempts, access, used and isinstance(exc, Unanswered | Mismatch), request)
                if wait:
                    self.sleep("backoff", wait)
                pool = self.peer(request).pool  # the bucket may have moved
                connection = None if used else pool.take()
                count += 1

    def delay(self, request: Request) -> float:
        """Return how many seconds a request has to wait for the rate of its store, or for its quota."""
        if request.location:
            return 0.0
        delay, quotas = self.throttle.delay(), self.access.quotas
        return delay if delay or quotas is None else quotas.delay(request)

    def outcome(self, receiver: Receiver) -> Response | Exception:
        """Return the response that has been received, or the failure that it stands for. Raises `Mismatch`."""
        quotas, head = self.access.quotas, receiver.head
        if quotas is not None and head is not None:
            quotas.learn(receiver.request, head)
        return receiver.outcome()

    def close(self) -> None:
        """Close the idle connections."""
        for peer in (self._peer, *self._redirected_to.values()):
            peer.pool.close()

    def sleep(self, cause: str, seconds: float) -> None:
        """Wait before a request, for a cause that a trace shows."""
        begin = time.monotonic_ns()
        time.sleep(seconds)
        self.record_wait(cause, begin)

    def wait_after(
        self, failure: Exception, attempts: Attempts, access: Access, excused: bool, request: Request
    ) -> float:
        """Decide on a request that has failed: return the seconds after which it is sent again, or raise its error.

        Args:
            failure: what it ended by.
            attempts: those of the request.
            access: by which it was sent.
            excused: whether what happened on the connection before may be the reason.
            request: the one that failed.
        """
        if not isinstance(failure, Transient):
            raise failure
        wait = 0.0
        if isinstance(failure, Moved | Expired):
            if not (attempts.may_turn() and self._turn(access, failure)):
                raise failure.error from failure
        elif not (excused and attempts.may_excuse()):
            wait = attempts.wait_after(failure)
        if (instrument := hooks.active) is not None:
            instrument.record_event("retry", self.operation_name(request), 1, self.url(request.key))
        return wait

    def _turn(self, used: Access, failure: Moved | Expired) -> bool:
        """Send further requests elsewhere or with newer credentials; return whether there is something to turn to."""
        with self._lock:
            if self.access is not used:
                return True  # another request has found out before
            found = used.moved(failure.place) if isinstance(failure, Moved) else used.renewed()
            if found is not None:
                self._enter(found)
            return found is not None

    def _exchange(self, connection: Connection, request: Request) -> Response:
        """Send a request and return its response, over a connection that then returns to the pool or is closed."""
        receiver = self._receiver(connection, request)
        keep, begin = False, 0
        try:
            try:
                connection.send(self.encode(request), request.body, receiver.deadline)
            except ConnectionError:
                if not receiver.refused_early(connection):
                    raise
                receiver.cut = True
            while True:
                try:
                    if receiver.head is None:
                        receiver.receive_head(connection)
                        begin = time.monotonic_ns() if hooks.active is not None else 0
                    if receiver.receive_body(connection):
                        self.record_transfer(begin, receiver.size)
                        break
                except WOULD_BLOCK:
                    if not self._wait(connection, receiver):
                        break
            outcome = self.outcome(receiver)
            keep = receiver.ended
        except Exception as exc:
            # Without the frames below, whose locals have the bytes of a signed request.
            raise self.failure(exc.with_traceback(None), connection, receiver) from exc
        finally:
            if keep:
                self.give_back(connection)
            else:
                connection.close()
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                del outcome  # else it would refer to itself by its traceback, and keep all of this until a collection
        return outcome

    def record_wait(self, cause: str, begin: int, size: int = 0) -> None:
        """Record a wait since `begin`, if that is known, under its cause."""
        if begin and (instrument := hooks.active) is not None:
            instrument.record_span("wait", f"{self.dialect.name}.{cause}", begin, size, self.url(""))

    def record_failure(self, begin: int, request: Request, exc: Exception, kind: str = "request") -> None:
        """Record a request that has failed, or that was redirected; `kind` is `connect` for one that was not sent."""
        if (instrument := hooks.active) is None:
            return
        where = self.url(request.key)
        if isinstance(exc, Redirected):
            instrument.record_span(kind, self._redirect_name, begin, 0, where)
        elif kind == "connect":
            instrument.record_span(kind, self.connect_name, begin, 0, self.url(""), error_name(exc))
        else:
            instrument.record_span(kind, self.operation_name(request), begin, 0, where, error_name(exc))

    def record_transfer(self, begin: int, size: int) -> None:
        """Record the time since a response's head came, if its body took time."""
        if begin and time.monotonic_ns() - begin > WORTH_RECORDING:
            self.record_wait("transfer", begin, size)

    def _receiver(self, connection: Connection, request: Request) -> Receiver:
        seconds, patience = self.policy.limits(request)
        flags = 0 if connection.tls else WAITALL
        return Receiver(self.dialect, request, flags, time.monotonic() + seconds, patience)

    def begin(self, request: Request) -> tuple[Connection, bytes]:
        """Return a connection over which the body of a response comes, and the bytes of it that have come already.

        One attempt, over a plain connection, of a GET whose body has the size of its range. Raises `Transient` or an
        `OSError`: `send` finds out whether that remains.
        """
        pool = self.peer(request).pool
        connection = pool.take() or pool.connect()
        receiver = self._receiver(connection, request)
        try:
            connection.send(self.encode(request), b"", receiver.deadline)
            head = receiver.receive_head(connection)
            if head.status != (200 if request.range is None else 206) or not head.length:
                raise Transient(OSError(f"status {head.status}"))
            return connection, receiver.buffered
        except Exception as exc:
            connection.close()
            raise self.failure(exc, connection, receiver) from exc
        except BaseException:
            connection.close()
            raise

    def _wait(self, connection: Connection, receiver: Receiver) -> bool:
        """Wait for more of a response; return False if it is not waited for any longer."""
        now, limit = time.monotonic(), self.policy.patience(receiver.request)
        if receiver.blocking:  # the kernel has waited
            if receiver.request.slow and now < receiver.deadline:
                return True
            raise TimeoutError
        try:
            connection.wait(select.POLLIN, min(receiver.deadline, now + limit))
        except TimeoutError:
            if receiver.refused:
                return False
            raise
        return True

    def failure(self, exc: Exception, connection: Connection, receiver: Receiver | None) -> Exception:
        """Return the failure that an exception of an exchange stands for."""
        if isinstance(exc, errors.StaleFileError):  # perhaps it is a response to an earlier request
            return Mismatch(exc) if connection.used else exc
        told: Exception | None = getattr(connection.socket, "error", None)  # by what carries the request in our place
        if told is not None:
            return told
        if isinstance(exc, ConnectionError) and receiver is not None and not receiver.started:
            return hung_up(0)
        return broken(exc)

    def operation_name(self, request: Request) -> str:
        """Return the name of a request's span."""
        if request.about:
            return self._names["HEAD"]
        if request.method == "GET" and not request.key:
            return self._list_name
        return self._names.get(request.method, self._other_name)


def absolute(here: str, location: str) -> str | None:
    """Return the URL that a redirect from the URL `here` leads to, quoted; None if it is none of HTTP's."""
    if _is_quoted_url(location):  # most are
        path = location.index("/", 8)
        return origin_of(location[:path]) + location[path:]
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(here, location))
        origin = origin_of(f"{parts.scheme}://{parts.netloc}")
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        return None
    rest = urllib.parse.quote(parts.path or "/", safe=_QUOTED) + (parts.query and "?" + parts.query)
    return origin + urllib.parse.quote(rest, safe=_QUOTED)


def origin_of(url: str) -> str:
    """Return scheme and host of a URL without a path, as they are compared: in small letters, without a usual port."""
    scheme, _, host = url.lower().partition("://")
    usual = ":443" if scheme == "https" else ":80"
    return f"{scheme}://{host.removesuffix(usual)}"


def _may_be_old(failure: Transient) -> bool:
    return isinstance(failure, Unanswered | Mismatch) or isinstance(failure.error, TimeoutError)


class SharedClient:
    """The clients of a bucket, one for each process, shared by all FS with the same options.

    Their connections are closed when the last of these FS is gone.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._clients = process.PerProcess(functools.partial(Client, dialect), _close)
        self.get = self._clients.get
        """Returns this process's client."""


_shared: weakref.WeakValueDictionary[Any, SharedClient] = weakref.WeakValueDictionary()


def shared(dialect: Dialect) -> SharedClient:
    """Return the clients of a bucket; those that exist already, if there are any."""
    name = (type(dialect), dialect.same_client())
    found = _shared.get(name)
    if found is None:
        found = _shared[name] = SharedClient(dialect)
    return found


def _close(client: Client) -> None:
    client.close()
