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
from .failures import Expired, Mismatch, Moved, Transient, Unanswered, broken, error_name, hung_up
from .messages import Request, Response
from .receiver import WAITALL, Receiver
from .retry import DEFAULT_ATTEMPTS, Attempts, RetryPolicy
from .throttle import Throttle

_WITH_BODY = frozenset({"PUT", "POST"})
_SAFE = "/~"
_is_plain = re.compile("[A-Za-z0-9_.~/-]*").fullmatch  # most keys are, and need no quoting
WORTH_RECORDING = 200_000
"""Nanoseconds that the transfer of a body takes at least, to be an event of its own in a trace."""
_breaks = re.compile("[\r\n\0]").search
_OPERATIONS = {"GET": "get", "HEAD": "head", "PUT": "put", "POST": "post", "DELETE": "delete"}


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
        keep_freed_memory()
        self.dialect = dialect
        self._lock = process.Lock()
        self.access = dialect.access()
        self.connect_name, self._list_name = f"{dialect.scheme}.connect", f"{dialect.scheme}.list"
        self._names = {method: f"{dialect.scheme}.{name}" for method, name in _OPERATIONS.items()}
        self._other_name = f"{dialect.scheme}.request"
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
        endpoint = access.endpoint
        fixed = f"Host: {endpoint.host_header}\r\nAccept-Encoding: identity\r\n"
        origin = ""
        if endpoint.proxy is not None and not endpoint.tls:
            origin = endpoint.url
            fixed += proxy_header(endpoint.proxy)
        if _breaks(endpoint.host_header + endpoint.path_prefix):
            raise ValueError(f"a line break in the endpoint {endpoint.host_header!r}")
        self.access = access
        self._form = _Form(access, origin, endpoint.path_prefix, endpoint.bucket_path, fixed)
        before: ConnectionPool | None = getattr(self, "pool", None)
        if before is None or before.endpoint != endpoint:
            self.pool = ConnectionPool(endpoint, self.connect_name, self.url(""))
            if before is not None:
                before.close()

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""
        return self.access.endpoint

    def url(self, key: str) -> str:
        """Return the URL of an object, for errors and traces."""
        return self.dialect.url(key)

    def encode(self, request: Request, waits: bool = False) -> bytes:
        """Return the bytes of a request without its body, which `waits` until the store asks for it."""
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
            if waits:
                lines += "Expect: 100-continue\r\n"
        lines += form.access.authorise(method, path, query, request.headers, request.body)
        target = f"{form.origin}{path}?{query}" if query else form.origin + path
        return f"{method} {target} HTTP/1.1\r\n{form.fixed}{lines}\r\n".encode()

    def send(self, request: Request) -> Response:
        """Return the response to `request`, which fits it and has a status below 300; its body is small.

        Raises `LargeObject`, and the `OSError` that the store's refusal stands for, or that remains after the last
        attempt.
        """
        attempts: Attempts | None = None
        connection = self.pool.take()
        count = 1
        while True:
            begin = time.monotonic_ns() if hooks.active is not None else 0
            used, access = False, self.access
            try:
                if delay := self.throttle.delay():
                    self.sleep("throttle", delay)
                    begin = begin and time.monotonic_ns()
                    if connection is not None and not connection.silent():
                        self.pool.drop_aged(connection)
                        connection = None
                if connection is None:
                    connection = self.pool.connect()
                    begin = begin and time.monotonic_ns()
                used = connection.used
                response = self._exchange(connection, request)
                if begin and (instrument := hooks.active) is not None:
                    size = len(response.body) or len(request.body)
                    instrument.record_span("request", self.operation_name(request), begin, size, self.url(request.key))
                return response if count == 1 else response._replace(attempts=count)
            except Exception as exc:
                if begin and connection is not None and (instrument := hooks.active) is not None:
                    name, where = self.operation_name(request), self.url(request.key)
                    instrument.record_span("request", name, begin, 0, where, error_name(exc))
                if not isinstance(exc, Transient):
                    raise
                attempts = attempts or Attempts(self.policy)
                if used and connection is not None and _may_be_old(exc):
                    self.pool.drop_aged(connection)  # silently dropped on the way, perhaps: the others are as old
                wait = self.wait_after(exc, attempts, access, used and isinstance(exc, Unanswered | Mismatch), request)
                if wait:
                    self.sleep("backoff", wait)
                connection = None if used else self.pool.take()
                count += 1

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
            outcome = receiver.outcome()
            keep = receiver.ended
        except Exception as exc:
            # Without the frames below, whose locals have the bytes of a signed request.
            raise self.failure(exc.with_traceback(None), connection, receiver) from exc
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

    def record_wait(self, cause: str, begin: int, size: int = 0) -> None:
        """Record a wait since `begin`, if that is known, under its cause."""
        if begin and (instrument := hooks.active) is not None:
            instrument.record_span("wait", f"{self.dialect.scheme}.{cause}", begin, size, self.url(""))

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
        connection = self.pool.take() or self.pool.connect()
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
        if request.method == "GET" and not request.key:
            return self._list_name
        return self._names.get(request.method, self._other_name)


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
