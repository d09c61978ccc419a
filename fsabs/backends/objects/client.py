"""The clients of a bucket: how a request is encoded and authorised, what is decided on one that has failed, and the
blocking way to send one, for any thread. `pipeline.py` has the other way, which shares all but the waiting.

A request is sent over a connection that is kept alive; what fails by chance is sent again, as `retry.py` has it, to the
place where the bucket is, and with the credentials of the moment.
"""

from __future__ import annotations

import functools
import re
import time
import urllib.parse
import weakref
from typing import Any, NamedTuple

from ...core import errors, hooks, process
from .connections import WOULD_BLOCK, Connection, ConnectionPool, proxy_header
from .dialect import Access, Dialect, Endpoint
from .failures import Expired, Mismatch, Moved, Transient, Unanswered, broken, error_name, hung_up
from .http1 import Exchange
from .messages import Request, Response
from .retry import DEFAULT_ATTEMPTS, Attempts, RetryPolicy, Throttle

WORTH_RECORDING = 200_000
"""Nanoseconds that the transfer of a body takes at least, to be an event of its own in a trace."""
ASKS_FROM = 4 * 1024 * 1024
"""Bytes of a body that is sent when the store has asked for it: a refusal then costs nothing."""
RENEWED_SECONDS = 0.5
"""Credentials that were read anew and had not changed are kept for so long: a refusal may have other reasons."""
_KEPT = 8 * 1024 * 1024
_WITH_BODY = frozenset({"PUT", "POST"})
_SAFE = "/~"
_is_plain = re.compile("[A-Za-z0-9_.~/-]*").fullmatch  # most keys are, and need no quoting
_breaks = re.compile("[\r\n\0]").search


class _Form(NamedTuple):
    """What all requests of an access have in common."""

    access: Access
    origin: str
    """What a proxy wants before the path."""
    prefix: str
    root: str
    fixed: str
    """The first header lines."""


class Client:
    """Requests of one process to one bucket.

    Args:
        dialect: of the store; that of any FS with the same `same_client()`.
    """

    def __init__(self, dialect: Dialect) -> None:
        # malloc gives the end of its heap back to the system, and takes it again for the next body, page by page, until
        # a large block has been freed once (mallopt(3), M_MMAP_THRESHOLD). Nothing is written to this one.
        bytes(_KEPT)
        self.dialect = dialect
        self.access = dialect.access()
        self.pool = self._new_pool()
        self._form = self._new_form()
        self._lock = process.Lock()
        self._unchanged_since = float("-inf")  # when credentials that were read anew had not changed
        self._asks_first = True  # whether the store answers a request whose large body waits for that
        endpoint = self.endpoint
        self.throttle = Throttle(f"{endpoint.host}:{endpoint.port}")
        attempts = endpoint.max_attempts
        self.policy = RetryPolicy(
            attempts or DEFAULT_ATTEMPTS, attempts is not None, endpoint.read_timeout, self.throttle
        )

    def _new_pool(self) -> ConnectionPool:
        return ConnectionPool(self.endpoint, f"{self.dialect.scheme}.connect", self.url(""))

    def _new_form(self) -> _Form:
        endpoint, origin = self.endpoint, ""
        if _breaks(endpoint.host_header + endpoint.path_prefix):
            raise ValueError(f"a line break in the endpoint {endpoint.host_header!r}")
        fixed = f"Host: {endpoint.host_header}\r\nAccept-Encoding: identity\r\n"
        if endpoint.proxy is not None and not endpoint.tls:
            origin = endpoint.url
            fixed += proxy_header(endpoint.proxy)
        return _Form(self.access, origin, endpoint.path_prefix, endpoint.bucket_path, fixed)

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""
        return self.access.endpoint

    def url(self, key: str) -> str:
        """Return the URL of an object, for errors and traces."""
        return self.dialect.url(key)

    # ---- shared with the pipeline

    def exchange(self, connection: Connection, request: Request, pipelined: bool = False) -> Exchange:
        """Return what sends a request over a connection."""
        asks = self._asks_first and len(request.body) >= ASKS_FROM
        data = self._encode(request, asks)
        return Exchange(self.dialect, connection, request, data, self.policy.read_timeout, pipelined, asks)

    def _encode(self, request: Request, asks: bool) -> bytes:
        """Return the bytes of a request without its body."""
        method, key, query, form = request.method, request.key, request.query, self._form
        if request.path:
            path = request.path
        elif key:
            path = form.prefix + (key if _is_plain(key) else urllib.parse.quote(key, safe=_SAFE))
        else:
            path = form.root
        lines = ""
        if request.range is not None:
            size, offset = request.range
            lines = f"Range: bytes={offset}-{offset + size - 1}\r\n"
        if request.body or method in _WITH_BODY:
            lines += f"Content-Length: {len(request.body)}\r\n"
            if asks:
                lines += "Expect: 100-continue\r\n"
        lines += form.access.authorise(method, path, query, request.headers, request.body)
        target = f"{form.origin}{path}?{query}" if query else form.origin + path
        return f"{method} {target} HTTP/1.1\r\n{form.fixed}{lines}\r\n".encode()

    def outcome(self, exchange: Exchange) -> Response | Exception:
        """Return the response of an exchange, or the failure that it stands for. Raises `Mismatch`."""
        if exchange.asked_in_vain:
            self._asks_first = False
        return exchange.outcome()

    def failure(self, exc: Exception, connection: Connection, exchange: Exchange | None) -> Exception:
        """Return the failure that an exception of an exchange stands for."""
        if isinstance(exc, errors.StaleFileError):  # perhaps it is a response to an earlier request
            return Mismatch(exc) if connection.used else exc
        told: Exception | None = getattr(connection.socket, "error", None)  # by what carries the request in our place
        if told is not None:
            return told
        if isinstance(exc, ConnectionError) and exchange is not None and not exchange.started:
            return hung_up(0)
        return broken(exc)

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
            instrument.record_event("retry", self._operation(request), 1, self.url(request.key))
        return wait

    def _turn(self, used: Access, failure: Moved | Expired) -> bool:
        """Send further requests elsewhere or with newer credentials; return whether there is something to turn to."""
        with self._lock:
            if self.access is not used:
                return True  # another request has found out before
            if isinstance(failure, Moved):
                found = used.moved(failure.place)
            elif time.monotonic() - self._unchanged_since < RENEWED_SECONDS:
                return False
            elif (found := used.renewed()) is None:
                self._unchanged_since = time.monotonic()
            if found is None:
                return False
            before, self.access = used.endpoint, found
            if found.endpoint != before:
                left, self.pool = self.pool, self._new_pool()
                left.close()
            self._form = self._new_form()
            return True

    # ---- what a trace shows

    def record(self, request: Request, begin: int, size: int, failure: Exception | None = None) -> None:
        """Record an attempt that began at `begin`, if that is known."""
        if begin and (instrument := hooks.active) is not None:
            name, error = self._operation(request), error_name(failure) if failure is not None else ""
            instrument.record_span("request", name, begin, size, self.url(request.key), error)

    def _operation(self, request: Request) -> str:
        lists = request.method == "GET" and not request.key
        return f"{self.dialect.scheme}.{'list' if lists else request.method.lower()}"

    def record_wait(self, cause: str, begin: int, size: int = 0) -> None:
        """Record a wait since `begin`, if that is known, under its cause."""
        if begin and (instrument := hooks.active) is not None:
            instrument.record_span("wait", f"{self.dialect.scheme}.{cause}", begin, size, self.url(""))

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
        connection = self.pool.take()
        throttle, count = self.throttle, 1
        while True:
            begin = time.monotonic_ns() if hooks.active is not None else 0
            used, access = False, self.access
            try:
                throttle.sent += 1
                if throttle.limit[0] and (delay := throttle.delay()):
                    self._sleep("throttle", delay)
                    begin = begin and time.monotonic_ns()
                    if connection is not None and not connection.silent():
                        self.pool.drop_aged(connection)
                        connection = None
                if connection is None:
                    connection = self.pool.connect()
                    begin = begin and time.monotonic_ns()
                used = connection.used
                response = self._exchange(connection, request)
                if begin:
                    self.record(request, begin, len(response.body) or len(request.body))
                return response if count == 1 else response._replace(attempts=count)
            except Exception as exc:
                if connection is not None:
                    self.record(request, begin, 0, exc)
                if not isinstance(exc, Transient):
                    raise
                attempts = attempts or Attempts(self.policy)
                if used and connection is not None and _may_be_old(exc):
                    self.pool.drop_aged(connection)  # silently dropped on the way, perhaps: the others are as old
                wait = self.wait_after(exc, attempts, access, used and isinstance(exc, Unanswered | Mismatch), request)
                if wait:
                    self._sleep("backoff", wait)
                connection = None if used else self.pool.take()
                count += 1

    def _sleep(self, cause: str, seconds: float) -> None:
        """Wait before a request, for a cause that a trace shows."""
        begin = time.monotonic_ns()
        time.sleep(seconds)
        self.record_wait(cause, begin)

    def _exchange(self, connection: Connection, request: Request) -> Response:
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
                self.pool.give_back(connection)
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
        until = min(exchange.deadline, now + exchange.patience, exchange.asks_until or exchange.deadline)
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
        connection = self.pool.take() or self.pool.connect()
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
    client.pool.close()
