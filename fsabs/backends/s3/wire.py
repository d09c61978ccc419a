"""GETs and HEADs over sockets of our own: the fast case of reading, in a fraction of the time that boto3 takes.

A request is signed, sent in one piece over a connection that is kept alive, and its body received without a copy: the
head is peeked at, so that the body's bytes are alone in the last receive. What breaks, comes late, is cut short or says
503 is tried again, within `max_attempts`; a missing object or another version is an error. Whatever is neither (a
redirect, a refusal, an encoded body) is nobody's business here: `PlainAnswerMissing` tells the caller to ask boto3.
Sockets belong to the process.
"""

from __future__ import annotations

import errno
import functools
import re
import socket
import ssl
import struct
import time
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ... import errors, hooks, keys, process
from .answers import (
    CHECKSUM_MODE,
    Ask,
    Large,
    PlainAnswerMissing,
    Transient,
    Unanswered,
    backoff,
    broken,
    cut,
    field,
    hung_up,
    refused,
    understood,
)
from .boto import Options
from .checksums import mismatch
from .endpoint import UnsupportedEndpoint, resolve
from .signing import Signer

PEEK = 2048
"""What is looked at for the head of an answer."""
HEAD_SIZE = 64 * 1024
"""What a head, or the body of a refusal, has at most."""
LARGE = 32 * 1024 * 1024
"""An object of more bytes is read by parallel ranges."""
TLS_RECORD = 16 * 1024
"""What TLS has in one piece."""
MAX_IDLE = 64
_SAFE = "/~"
_is_plain = re.compile("[A-Za-z0-9_.~/-]*").fullmatch  # most are, and need no quoting


class Fetched(NamedTuple):
    """A plain answer."""

    head: bytes
    body: bytes


class Wire:
    """The connections of one process to the endpoint of one bucket, and how requests to it are signed."""

    def __init__(self, client: process.PerProcess[Any], bucket: str, options: Options) -> None:
        self._idle: deque[socket.socket] = deque()
        self.bucket = bucket
        self.options = options
        self.endpoint = resolve(client, bucket, options)
        if self.endpoint.proxy is not None:
            raise UnsupportedEndpoint("a proxy is configured")
        if self.endpoint.client_certificate is not None:
            raise UnsupportedEndpoint("a client certificate is configured")
        self._signer = Signer(self.endpoint) if self.endpoint.credentials is not None else None
        self._context = _tls_context(self.endpoint.verify) if self.endpoint.tls else None
        self._session: ssl.SSLSession | None = None

    def url(self, key: str) -> str:
        """The object's URL, for those who look on."""
        return f"s3://{self.bucket}/{keys.to_url_path(key)}"

    # ---- connections

    def connect(self) -> socket.socket:
        """A new connection; `Transient`, `PlainAnswerMissing`."""
        instrument = hooks.active
        begin = time.monotonic_ns() if instrument is not None else 0
        try:
            made = self._connect()
        except OSError as exc:
            if instrument is not None:
                instrument.record_span("connect", "s3.connect", begin, 0, self.url(""), type(exc).__name__)
            raise broken(exc) from exc
        if instrument is not None:
            instrument.record_span("connect", "s3.connect", begin, 0, self.url(""))
        return made

    def _connect(self) -> socket.socket:
        target = self.endpoint
        made = socket.create_connection((target.host, target.port), timeout=self.options.connect_timeout)
        try:
            self.configure(made)
            if self._context is not None:
                made = self.secured(made)
                made.do_handshake()
            self.settle(made)
            return made
        except BaseException:
            made.close()
            raise

    def configure(self, connection: socket.socket) -> None:
        """Set the options that every connection has."""
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            # Blocking, with the kernel's own time limit: MSG_WAITALL then fills a buffer in one call.
            timeout = self.options.read_timeout
            seconds = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)

    def secured(self, connection: socket.socket) -> ssl.SSLSocket:
        """The connection with TLS, before its handshake; an earlier connection's session makes that shorter."""
        assert self._context is not None
        return self._context.wrap_socket(
            connection, server_hostname=self.endpoint.host, do_handshake_on_connect=False, session=self._session
        )

    def settle(self, connection: socket.socket) -> None:
        """Make a connection block, as those do that lie idle."""
        connection.settimeout(self.options.read_timeout if self.endpoint.tls else None)

    def take(self) -> socket.socket | None:
        """An idle connection, if there is one; it may have been closed by the store."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def give_back(self, connection: socket.socket) -> None:
        """Keep a connection whose answer was read to its end."""
        if self._context is not None and self._session is None and isinstance(connection, ssl.SSLSocket):
            self._session = connection.session
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close what is idle."""
        while (connection := self.take()) is not None:
            connection.close()

    def __del__(self) -> None:
        # In the process that it belongs to: an inherited one is never freed.
        if hasattr(self, "_idle"):
            self.close()

    # ---- requests

    def request(self, ask: Ask) -> bytes:
        """The bytes of a signed GET."""
        # A whole object's checksum, if the store has one, comes when it is asked for.
        return self._signed("GET", ask.key, ask.lines(), CHECKSUM_MODE if ask.part is None else "")

    def _signed(self, method: str, key: str, lines: str, extra: str) -> bytes:
        path = self.endpoint.path_prefix + (key if _is_plain(key) else urllib.parse.quote(key, safe=_SAFE))
        signature = (
            self._signer.lines(method, path, headers=(extra,) if extra else ())
            if self._signer
            else f"{extra}\r\n"
            if extra
            else ""
        )
        host = f"Host: {self.endpoint.host_header}\r\nAccept-Encoding: identity\r\n"
        return f"{method} {path} HTTP/1.1\r\n{host}{lines}{signature}\r\n".encode()

    def fetch(self, ask: Ask) -> Fetched:
        """The plain answer to a GET.

        Raises `PlainAnswerMissing`; `Large` for an object of unknown size that was asked for as a whole; and the
        `OSError` of what is no matter of chance, or remained after `max_attempts`.
        """
        return self._persistent("s3.get", ask, self._get)

    def begin(self, ask: Ask) -> tuple[socket.socket, bytes]:
        """One attempt at a GET as far as its head: a connection that the body comes over, and what came of it already.

        Raises `PlainAnswerMissing`, `Transient`, `OSError`: for whom it matters, `fetch` finds out what is wrong.
        """
        connection = self.take() or self.connect()
        try:
            _send(connection, self.request(ask))
            head, rest = self._receive_head(connection)
            if head[9:12] not in GOOD:
                raise PlainAnswerMissing(f"the answer {head[:40]!r}")
            understood(head, ask)
            return connection, rest
        except BaseException:
            connection.close()
            raise

    def head(self, key: str) -> bytes:
        """The head of the answer to a HEAD; errors as of `fetch`."""
        return self._persistent("s3.head", Ask(key), self._head).head

    def _persistent(self, name: str, ask: Ask, exchange: _Exchange) -> Fetched:
        """Attempts of a request."""
        attempt = 1
        while True:
            try:
                return self._watched(name, ask, exchange)
            except Transient as exc:
                if attempt >= self.options.max_attempts:
                    raise exc.error from exc
            if (instrument := hooks.active) is not None:
                instrument.record_event("retry", name, 1, self.url(ask.key))
            time.sleep(backoff(attempt))
            attempt += 1

    def _watched(self, name: str, ask: Ask, exchange: _Exchange) -> Fetched:
        instrument = hooks.active
        if instrument is None:
            return self._attempt(ask, exchange)
        begin = time.monotonic_ns()
        try:
            found = self._attempt(ask, exchange)
        except Exception as exc:
            instrument.record_span("request", name, begin, 0, self.url(ask.key), error_name(exc))
            raise
        instrument.record_span("request", name, begin, len(found.body), self.url(ask.key))
        return found

    def _attempt(self, ask: Ask, exchange: _Exchange) -> Fetched:
        if (connection := self.take()) is not None:
            try:
                return self._over(connection, ask, exchange)
            except Unanswered:
                pass  # what the store has closed while it was idle is no failure: a new connection decides
        return self._over(self.connect(), ask, exchange)

    def _over(self, connection: socket.socket, ask: Ask, exchange: _Exchange) -> Fetched:
        keep = False
        try:
            outcome, keep = exchange(connection, ask)
        except (errors.StaleFileError, errors.CorruptFileError):  # of ours
            raise
        except OSError as exc:
            raise broken(exc) from exc
        finally:
            if keep:
                self.give_back(connection)
            else:
                connection.close()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _get(self, connection: socket.socket, ask: Ask) -> tuple[Fetched | Exception, bool]:
        _send(connection, self.request(ask))
        head, rest = self._receive_head(connection)
        if head[9:12] not in GOOD:
            body, keep = refusal_body(connection, head, rest)
            return refused(head, body), keep
        answer = understood(head, ask)
        if answer.length > LARGE and ask.part is None and ask.total is None:
            raise Large(head, answer.length)
        body = self._receive_rest(connection, rest, answer.length)
        if answer.checksums and ask.part is None and (wrong := mismatch(head, [body])):
            return Transient(errors.CorruptFileError(errno.EBADMSG, wrong)), answer.keep
        return Fetched(head, body), answer.keep

    def _head(self, connection: socket.socket, ask: Ask) -> tuple[Fetched | Exception, bool]:
        _send(connection, self._signed("HEAD", ask.key, "", ""))
        head, rest = self._receive_head(connection)
        keep = not rest and b"\r\nconnection: close" not in head.lower()
        if head[9:12] not in GOOD:
            return refused(head, b""), keep
        return Fetched(head, b""), understood(head, ask).keep and keep

    def _receive_head(self, connection: socket.socket) -> tuple[bytes, bytes]:
        """The head, and what came with it of the body."""
        received = b""
        if self._context is None:
            # Looked at first, the head is taken alone, so that the body needs no putting together.
            end = connection.recv(PEEK, socket.MSG_PEEK).find(b"\r\n\r\n")
            if end >= 0:
                return connection.recv(end + 4)[:end], b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            more = connection.recv(HEAD_SIZE)
            if not more:
                raise hung_up(len(received))
            if len(received) > HEAD_SIZE:
                raise PlainAnswerMissing("a head without an end")
            received = received + more if received else more
        return received[:end], received[end + 4 :]

    def _receive_rest(self, connection: socket.socket, rest: bytes, length: int) -> bytes:
        if len(rest) > length:
            raise PlainAnswerMissing("a body that is longer than announced")
        parts, missing = [rest] if rest else [], length - len(rest)
        plain = self._context is None
        while missing:
            part = connection.recv(missing, socket.MSG_WAITALL) if plain else connection.recv(min(missing, TLS_RECORD))
            if not part:
                raise cut(length - missing, length)
            parts.append(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


_Exchange = Callable[[socket.socket, Ask], tuple[Fetched | Exception, bool]]
GOOD = frozenset({b"200", b"206"})


def error_name(exc: BaseException) -> str:
    """The name of what the user would see."""
    return type(exc.error if isinstance(exc, Transient) else exc).__name__


def _send(connection: socket.socket, request: bytes) -> None:
    try:
        connection.sendall(request)
    except ConnectionError as exc:
        raise hung_up(0) from exc


def refusal_body(connection: socket.socket, head: bytes, rest: bytes) -> tuple[bytes, bool]:
    """The body of an answer that is an error, and whether the connection may be used again; it has to block."""
    lower, body = head.lower(), rest
    chunked = b"\r\ntransfer-encoding: chunked" in lower
    announced = field(head, b"content-length") or b""
    length = int(announced) if announced.isdigit() else HEAD_SIZE
    while len(body) < min(length, HEAD_SIZE) and not (chunked and body.endswith(b"0\r\n\r\n")):
        more = connection.recv(HEAD_SIZE)
        if not more:
            return body, False
        body += more
    whole = chunked or len(body) == length
    return _dechunked(body) if chunked else body, whole and b"\r\nconnection: close" not in lower


def _dechunked(body: bytes) -> bytes:
    """The content of a chunked body, as far as it is one (RFC 9112, section 7.1)."""
    found, rest = b"", body
    while rest:
        line, _, rest = rest.partition(b"\r\n")
        digits = line.partition(b";")[0].strip()
        try:
            size = int(digits, 16)
        except ValueError:
            break
        found, rest = found + rest[:size], rest[size + 2 :]
    return found


@functools.lru_cache(maxsize=16)
def shared_wire(client: process.PerProcess[Any], bucket: str, options: Options) -> process.PerProcess[Wire | None]:
    """The holder of this process's connections to a bucket; None where only boto3 knows the way there."""
    return process.PerProcess(functools.partial(_open_wire, client, bucket, options))


def _open_wire(client: process.PerProcess[Any], bucket: str, options: Options) -> Wire | None:
    from botocore.exceptions import BotoCoreError

    try:
        return Wire(client, bucket, options)
    except (UnsupportedEndpoint, BotoCoreError):  # boto3 will say what is wrong, in its own time
        return None


def _tls_context(verify: bool | str) -> ssl.SSLContext:
    """Return the context for the certificates that boto3 trusts."""
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
