"""The blocking client: one request after the other over connections of our own, for any thread.

A request is signed and sent in one piece over a connection that is kept alive; what fails by chance is sent again, as
`retry.py` has it. A redirect, and anything else that only boto3 can go on with, is an `UnsupportedResponse`.
"""

from __future__ import annotations

import errno
import functools
import re
import select
import time
import urllib.parse
import weakref
from collections.abc import Callable
from typing import Any

from ... import errors, hooks, keys, process
from .boto import transport_error
from .connections import Connection, ConnectionPool
from .duplicates import QUERY, DuplicateDetector
from .endpoint import Endpoint, UnsupportedEndpoint, invalidate, resolve
from .failures import Mismatch, RejectedNonce, Transient, Unanswered, UnsupportedResponse, broken, error_name, hung_up
from .http1 import Framing
from .messages import Request, Response
from .options import Options, environment
from .receive import WAITALL, WOULD_BLOCK, Receiver
from .retry import Operation, RetryPolicy
from .signing import Signer
from .throttle import Throttle

CHECKSUM_MODE = "x-amz-checksum-mode:ENABLED"
"""Asks for the checksum of an object, which AWS sends on request only."""
DEFAULT_ATTEMPTS = 5
"""How often a request is sent at most, unless botocore's configuration says."""
_CHECKSUM_HEADERS = (CHECKSUM_MODE,)
_WITH_BODY = frozenset({"PUT", "POST"})
_SAFE = "/~"
_is_plain = re.compile("[A-Za-z0-9_.~/-]*").fullmatch  # most keys are, and need no quoting
_OPERATIONS = {"GET": "s3.get", "HEAD": "s3.head", "PUT": "s3.put", "POST": "s3.post", "DELETE": "s3.delete"}


class Client:
    """Requests of one process to the endpoint of one bucket.

    Args:
        endpoint: of the bucket.
        bucket: its name, for the URLs of errors and traces.
        nonces: False if requests carry no nonce (see `duplicates.py`).
    """

    def __init__(self, endpoint: Endpoint, bucket: str, nonces: bool = True) -> None:
        self.endpoint = endpoint
        self.bucket = bucket
        self._prefix = endpoint.path_prefix
        self._root = endpoint.bucket_path
        self._fixed = f"Host: {endpoint.host_header}\r\nAccept-Encoding: identity\r\n"
        self.signer = Signer(endpoint) if endpoint.signature else None
        self.pool = ConnectionPool(endpoint, endpoint.connect_timeout, endpoint.read_timeout, self.url(""))
        self.detector = DuplicateDetector(nonces and self.signer is not None)
        self.throttle = Throttle(f"{endpoint.host}:{endpoint.port}")
        attempts = endpoint.max_attempts if endpoint.attempts_set else DEFAULT_ATTEMPTS
        self.policy = RetryPolicy(attempts, endpoint.attempts_set, endpoint.read_timeout, self.throttle)

    def url(self, key: str) -> str:
        """Return the URL of an object, for errors and traces."""
        return f"s3://{self.bucket}/{keys.to_url_path(key)}"

    def encode(self, request: Request, nonce: str) -> bytes:
        """Return the signed bytes of a request, without its body."""
        method, key, query, signed, lines = request.method, request.key, request.query, request.headers, ""
        path = (self._prefix + (key if _is_plain(key) else urllib.parse.quote(key, safe=_SAFE))) if key else self._root
        if nonce:
            query = f"{QUERY}{nonce}&{query}" if query else QUERY + nonce
        if request.range is not None:
            size, offset = request.range
            lines = f"Range: bytes={offset}-{offset + size - 1}\r\n"
        elif method == "GET" and key:
            signed = (*signed, CHECKSUM_MODE) if signed else _CHECKSUM_HEADERS
        if request.version and request.strong:
            lines += f'If-Match: "{request.version}"\r\n'
        if request.body or method in _WITH_BODY:
            lines += f"Content-Length: {len(request.body)}\r\n"
        if self.signer is not None:
            lines += self.signer.lines(method, path, query, signed, request.body)
        else:
            lines += "".join(f"{header}\r\n" for header in signed)
        target = f"{path}?{query}" if query else path
        return f"{method} {target} HTTP/1.1\r\n{self._fixed}{lines}\r\n".encode()

    def send(self, request: Request) -> Response:
        """Return the response to `request`, which fits it and has a status below 300.

        Raises `UnsupportedResponse`, `LargeObject`, and the `OSError` that the store's refusal stands for, or that
        remains after the last attempt.
        """
        operation: Operation | None = None
        connection = self.pool.take()
        attempts = 1
        while True:
            begin = time.monotonic_ns() if hooks.active is not None else 0
            used = False
            try:
                if delay := self.throttle.delay():
                    time.sleep(delay)
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
                return response if attempts == 1 else response._replace(attempts=attempts)
            except Exception as exc:
                if begin and connection is not None and (instrument := hooks.active) is not None:
                    name, where = self.operation_name(request), self.url(request.key)
                    instrument.record_span("request", name, begin, 0, where, error_name(exc))
                if not isinstance(exc, Transient):
                    raise
                operation = self._wait_after(request, exc, operation, connection if used else None)
                if (instrument := hooks.active) is not None:
                    instrument.record_event("retry", self.operation_name(request), 1, self.url(request.key))
                connection = None if used else self.pool.take()
                attempts += 1

    def _wait_after(
        self, request: Request, failure: Transient, operation: Operation | None, used: Connection | None
    ) -> Operation | None:
        """Wait before the next attempt; raises the failure's error if there is none.

        `used` is the connection, if it was used before: what an idle one has met, or an earlier response, is then no
        failure of this request, which goes over a new connection at once.
        """
        if used is not None and isinstance(failure, Unanswered | Mismatch):
            self.pool.drop_aged(used)
            return operation
        if isinstance(failure, RejectedNonce):
            self.detector.rejected(request)
            return operation
        if used is not None and isinstance(failure.error, TimeoutError):
            self.pool.drop_aged(used)  # silently dropped on the way, perhaps: the others are as old
        operation = operation or Operation(self.policy)
        time.sleep(operation.wait_after(failure))
        return operation

    def _exchange(self, connection: Connection, request: Request) -> Response:
        """Send a request and return its response, over a connection that then returns to the pool or is closed."""
        nonce = self.detector.nonce(request)
        deadline = time.monotonic() + self.policy.attempt_seconds(request)
        receiver = Receiver(request, nonce, self.detector, 0 if connection.tls else WAITALL, deadline)
        keep = False
        try:
            connection.send(self.encode(request, nonce), request.body, deadline)
            while True:
                try:
                    if receiver.head is None:
                        receiver.receive_head(connection)
                    if receiver.receive_body(connection):
                        break
                except WOULD_BLOCK:
                    if not self._wait(connection, receiver):
                        break
            outcome = receiver.outcome()
            keep = receiver.ended
        except Exception as exc:
            raise self.failure(exc, connection, receiver) from exc
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

    def begin(self, request: Request) -> tuple[Connection, bytes]:
        """Return a connection over which the body of a response comes, and the bytes of it that have come already.

        One attempt, over a plain connection. Raises `Transient`, `UnsupportedResponse`, or an `OSError`: `send` finds
        out whether that remains.
        """
        connection = self.pool.take() or self.pool.connect()
        nonce = self.detector.nonce(request)
        deadline = time.monotonic() + self.policy.attempt_seconds(request)
        receiver = Receiver(request, nonce, self.detector, 0 if connection.tls else WAITALL, deadline)
        try:
            connection.send(self.encode(request, nonce), request.body, deadline)
            head = receiver.receive_head(connection)
            if head.framing is not Framing.FIXED or head.status != (200 if request.range is None else 206):
                raise UnsupportedResponse(f"status {head.status}")
            return connection, receiver.buffered
        except Exception as exc:
            connection.close()
            raise self.failure(exc, connection, receiver) from exc
        except BaseException:
            connection.close()
            raise

    def _wait(self, connection: Connection, receiver: Receiver) -> bool:
        """Wait for more of a response; return False if it is not waited for any longer."""
        if receiver.blocking:
            raise TimeoutError  # the kernel has waited
        try:
            connection.wait(select.POLLIN, min(receiver.deadline, time.monotonic() + self.policy.read_timeout))
        except TimeoutError:
            if receiver.refused:
                return False
            raise
        return True

    def failure(self, exc: Exception, connection: Connection, receiver: Receiver | None) -> Exception:
        """Return the failure that an exception of an exchange stands for."""
        if isinstance(exc, errors.StaleFileError):  # perhaps it is a response to an earlier request
            return Mismatch(exc) if connection.used else exc
        if type(exc).__module__.startswith("botocore"):  # the credentials' provider
            return transport_error(exc)
        if isinstance(exc, ConnectionError) and receiver is not None and not receiver.started:
            return hung_up(0)
        return broken(exc)

    def operation_name(self, request: Request) -> str:
        """Return the name of a request's span."""
        return (
            "s3.list" if request.method == "GET" and not request.key else _OPERATIONS.get(request.method, "s3.request")
        )


class SharedClient:
    """The clients of a bucket, one for each process, shared by all FS with the same options.

    Their connections are closed when the last of these FS is gone.
    """

    def __init__(self, boto: process.PerProcess[Any], bucket: str, options: Options) -> None:
        self._boto = boto
        self._recipe = (boto, bucket, options)
        self._clients = process.PerProcess(functools.partial(_make, boto, bucket, options), _close)
        self._generation = process.generation()
        self.get = self._clients.get
        """Returns this process's client; None where only boto3 can reach the bucket."""

    def redirected(self) -> None:
        """Resolve the endpoint again: boto3 has followed a redirect to another one."""
        invalidate(*self._recipe)
        self._clients.close()

    def __del__(self, inherited: Callable[[int], bool] = process.inherited) -> None:
        if inherited(self._generation):
            return
        boto = self._boto.peek()
        if boto is not None:
            boto._endpoint.http_session.close()  # its idle connections; it can be used again

    def __reduce__(self) -> tuple[Any, ...]:
        return shared, self._recipe


_shared: weakref.WeakValueDictionary[Any, SharedClient] = weakref.WeakValueDictionary()


def shared(boto: process.PerProcess[Any], bucket: str, options: Options) -> SharedClient:
    """Return the clients of a bucket; those that exist already, if there are any."""
    name = (boto, bucket, options, environment())
    found = _shared.get(name)
    if found is None:
        found = _shared[name] = SharedClient(boto, bucket, options)
    return found


def _make(boto: process.PerProcess[Any], bucket: str, options: Options) -> Client | None:
    from botocore.exceptions import BotoCoreError

    try:
        endpoint = resolve(boto, bucket, options)
    except UnsupportedEndpoint:
        return None
    except BotoCoreError as exc:
        raise transport_error(exc) from exc
    if endpoint.proxy is not None:
        return None
    if endpoint.signature is not None and endpoint.credentials is None:
        boto.close()  # the next client looks for them again
        raise PermissionError(
            errno.EACCES, "no credentials in options, environment, ~/.aws or roles; for a public bucket: anonymous=True"
        )
    return Client(endpoint, bucket)


def _close(client: Client | None) -> None:
    if client is not None:
        client.pool.close()
