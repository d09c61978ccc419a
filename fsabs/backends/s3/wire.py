"""Plain GETs over sockets of our own: the fast case of reading, in a fraction of the time that boto3 takes.

A request is signed (Signature Version 4, docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv.html), sent in one
piece over a connection that is kept alive, and its body received into its final place. Whatever is not a plain `200` or
`206` with a Content-Length (a redirect, an error, a chunked body, a reset, a time-out) is nobody's business here: the
caller asks boto3 for that request, so that retries and errors have one home. Sockets belong to the process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import socket
import ssl
import struct
import time
import urllib.parse
import urllib.request
from collections import deque
from typing import Any, NamedTuple

from ... import process
from .client import Options

HEAD_SIZE = 64 * 1024
"""What a first receive takes: the head of an answer, and as much of the body as is there."""
RECEIVE_BUFFER = 1024 * 1024
MAX_IDLE = 64
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_SAFE = "/~"


ATTEMPTS = 3
"""How often a request whose connection breaks is sent over a new one, before it is boto3's."""


class PlainAnswerMissing(Exception):
    """The answer was not a plain one, or there was none: a request for boto3."""


class BrokenConnection(PlainAnswerMissing):
    """The connection ended before the answer did."""


class Target(NamedTuple):
    """Where the objects of a bucket are asked for."""

    host: str
    port: int
    header: str
    """The Host header's value."""
    tls: bool
    prefix: str
    """What goes before a key in the request's path: `/`, or `/bucket/`."""
    region: str


class Wire:
    """The connections of one process to the endpoint of one bucket, and how requests to it are signed."""

    def __init__(self, client: Any, bucket: str, options: Options) -> None:
        self._idle: deque[socket.socket] = deque()
        self._options = options
        self.target = _target(client, bucket)
        self._credentials = client._request_signer._credentials if not options.anonymous else None
        self._context = _tls_context(client) if self.target.tls else None
        self._day_key: tuple[tuple[str, str], bytes] | None = None

    # ---- connections

    def connect(self) -> socket.socket:
        """A new connection; `OSError`."""
        options, target = self._options, self.target
        made = socket.create_connection((target.host, target.port), timeout=options.connect_timeout)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
            if self._context is not None:
                made = self._context.wrap_socket(made, server_hostname=target.host)
                made.settimeout(options.read_timeout)
            else:
                # Blocking, with the kernel's own time limit: MSG_WAITALL then fills a buffer in one call.
                made.settimeout(None)
                seconds = struct.pack("ll", int(options.read_timeout), int(options.read_timeout % 1 * 1e6))
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, seconds)
            return made
        except BaseException:
            made.close()
            raise

    def take(self) -> socket.socket | None:
        """An idle connection, if there is one; it may have been closed by the store."""
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def give_back(self, connection: socket.socket) -> None:
        """Keep a connection whose answer was read to its end."""
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
        self.close()

    # ---- requests

    def request(self, key: str, extra: str, method: str = "GET") -> bytes:
        """The bytes of a signed request for `key`; `extra` are header lines, each with its line end."""
        target = self.target
        path = target.prefix + urllib.parse.quote(key, safe=_SAFE)
        head = f"{method} {path} HTTP/1.1\r\nHost: {target.header}\r\nAccept-Encoding: identity\r\n{extra}"
        if self._credentials is None:
            return f"{head}\r\n".encode()
        return f"{head}{self._signature(method, path)}\r\n".encode()

    def _signature(self, method: str, path: str) -> str:
        """The header lines that sign a request for `path` with the credentials of this moment."""
        assert self._credentials is not None
        frozen = self._credentials.get_frozen_credentials()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        token_line = f"x-amz-security-token:{frozen.token}\n" if frozen.token else ""
        signed = "host;x-amz-content-sha256;x-amz-date" + (";x-amz-security-token" if frozen.token else "")
        canonical = (
            f"{method}\n{path}\n\nhost:{self.target.header}\nx-amz-content-sha256:{_EMPTY_SHA256}\nx-amz-date:{stamp}\n"
            f"{token_line}\n{signed}\n{_EMPTY_SHA256}"
        )
        scope = f"{stamp[:8]}/{self.target.region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
        signature = hmac.digest(self._key(frozen.secret_key, stamp[:8]), text.encode(), "sha256").hex()
        lines = f"x-amz-content-sha256: {_EMPTY_SHA256}\r\nx-amz-date: {stamp}\r\n"
        if frozen.token:
            lines += f"x-amz-security-token: {frozen.token}\r\n"
        credential = f"{frozen.access_key}/{scope}"
        return (
            f"{lines}Authorization: AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, "
            f"Signature={signature}\r\n"
        )

    def _key(self, secret: str, day: str) -> bytes:
        """The day's signing key."""
        cached = self._day_key
        if cached is not None and cached[0] == (secret, day):
            return cached[1]
        key = ("AWS4" + secret).encode()
        for part in (day, self.target.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._day_key = ((secret, day), key)
        return key

    def get(self, key: str, extra: str, status: bytes) -> bytes:
        """The body of a GET whose answer has the status `status`; `PlainAnswerMissing` for any other outcome."""
        return self._send(self.request(key, extra), status, True)[1]

    def head(self, key: str) -> bytes:
        """The head of the answer to a HEAD, if that is a plain 200; `PlainAnswerMissing`."""
        return self._send(self.request(key, "", "HEAD"), b"200", False)[0]

    def _send(self, request: bytes, status: bytes, has_body: bool) -> tuple[bytes, bytes]:
        """Head and body of the answer."""
        if (connection := self.take()) is not None:
            # What the store has closed while it was idle is no failure: a new connection decides.
            with contextlib.suppress(BrokenConnection):
                return self._exchange(connection, request, status, has_body)
        for attempt in range(ATTEMPTS):
            try:
                return self._exchange(self.connect(), request, status, has_body)
            except BrokenConnection:
                if attempt + 1 == ATTEMPTS:
                    raise
            except OSError as exc:
                raise PlainAnswerMissing(f"no connection: {exc}") from exc
        raise AssertionError("the last attempt returns or raises")

    def _exchange(
        self, connection: socket.socket, request: bytes, status: bytes, has_body: bool
    ) -> tuple[bytes, bytes]:
        try:
            connection.sendall(request)
            head, body = self._receive_head(connection)
            answer = parse(head, status)
            body = self._receive_rest(connection, body, answer.length if has_body else 0)
        except OSError as exc:
            connection.close()
            kind = BrokenConnection if isinstance(exc, ConnectionError) else PlainAnswerMissing
            raise kind(str(exc)) from exc
        except BaseException:
            connection.close()
            raise
        if answer.keep:
            self.give_back(connection)
        else:
            connection.close()
        return head, body

    def _receive_head(self, connection: socket.socket) -> tuple[bytes, bytes]:
        received = b""
        while (end := received.find(b"\r\n\r\n")) < 0:
            more = connection.recv(HEAD_SIZE)
            if not more:
                raise BrokenConnection("a head that breaks off")
            if len(received) > HEAD_SIZE:
                raise PlainAnswerMissing("a head without an end")
            received = received + more if received else more
        return received[:end], received[end + 4 :]

    def _receive_rest(self, connection: socket.socket, body: bytes, length: int) -> bytes:
        if len(body) == length:
            return body
        if len(body) > length:
            raise PlainAnswerMissing("a body that is longer than announced")
        parts, missing = [body], length - len(body)
        flags = 0 if self.target.tls else socket.MSG_WAITALL
        while missing:
            part = connection.recv(missing, flags)
            if not part:
                raise BrokenConnection("a body that breaks off")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


@functools.lru_cache(maxsize=16)
def shared_wire(client: process.PerProcess[Any], bucket: str, options: Options) -> process.PerProcess[Wire | None]:
    """The holder of this process's connections to a bucket; None where only boto3 knows the way there."""
    return process.PerProcess(functools.partial(_open_wire, client, bucket, options))


def _open_wire(client: process.PerProcess[Any], bucket: str, options: Options) -> Wire | None:
    from botocore.exceptions import BotoCoreError

    try:
        return Wire(client.get(), bucket, options)
    except (PlainAnswerMissing, BotoCoreError):  # boto3 will say what is wrong, in its own time
        return None


class Answer(NamedTuple):
    """What a plain answer's head says."""

    length: int
    keep: bool
    """Whether the connection may be used again."""


def parse(head: bytes, status: bytes) -> Answer:
    """Read an answer's head; `PlainAnswerMissing` if it isn't a plain one with the status that was expected."""
    if head[:9] != b"HTTP/1.1 " or head[9:12] != status:
        raise PlainAnswerMissing(f"the answer {head[:40]!r}")
    lower = head.lower()
    if b"\r\ntransfer-encoding:" in lower or b"\r\ncontent-encoding:" in lower:
        raise PlainAnswerMissing("an encoded body")
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        raise PlainAnswerMissing("a body of unknown length")
    end = lower.find(b"\r\n", at + 2)
    digits = lower[at + 17 : end if end >= 0 else len(lower)].strip()
    if not digits.isdigit():
        raise PlainAnswerMissing("a Content-Length that is no number")
    return Answer(int(digits), b"\r\nconnection: close" not in lower)


def _target(client: Any, bucket: str) -> Target:
    """Where boto3 itself would send a GET; `PlainAnswerMissing` where only it knows how."""
    if ":" in bucket or "/" in bucket:
        raise PlainAnswerMissing("an access point has endpoints of its own")
    url = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    proxies = client.meta.config.proxies or urllib.request.getproxies()
    if proxies.get(parts.scheme) and not urllib.request.proxy_bypass(host):
        raise PlainAnswerMissing("a proxy is configured")
    if client.meta.config.client_cert is not None:
        raise PlainAnswerMissing("a client certificate is configured")
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    return Target(host, port, parts.netloc, tls, parts.path[:-1], client.meta.region_name)


def _tls_context(client: Any) -> ssl.SSLContext:
    """The platform's verification, with the certificates that boto3 is told of."""
    verify = client._endpoint.http_session._verify
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
