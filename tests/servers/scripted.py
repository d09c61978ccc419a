"""A store of objects whose responses a test writes itself, byte by byte: for faults that no HTTP server makes."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import NamedTuple, Self


class Asked(NamedTuple):
    """A request."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    number: int
    """Of the request on its connection, from 0."""
    body: bytes = b""

    @property
    def range(self) -> tuple[int, int] | None:
        """First and last byte that are requested."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return (int(found[1]), int(found[2])) if found else None


Script = Callable[["ScriptedStore", Asked, socket.socket], bool | None]
"""Sends the response; returns True if the connection is to be closed."""


class ScriptedStore:
    """`objects` at `/bucket/KEY`, each response sent by `script`, which may use `respond`.

    Args:
        objects: contents by key.
        script: sends a response; `honest` by default.
        early: called when the head of a request has come, before its body is received; returns True if the connection
            is to be closed.
        certificate: a file with key and certificate, for TLS.
        greet: bytes that are sent when a connection is accepted.
    """

    def __init__(
        self,
        objects: Mapping[str, bytes],
        script: Script | None = None,
        *,
        early: Script | None = None,
        certificate: str | None = None,
        greet: bytes = b"",
    ) -> None:
        self.objects = dict(objects)
        self.script = script or honest
        self.early = early
        self.greet = greet
        self.requests: list[Asked] = []
        self.connections = 0
        self.connected: set[socket.socket] = set()
        """The connections that are open."""
        self._context: ssl.SSLContext | None = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate)
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._socket.getsockname()[1]
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in list(self.connected):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._socket.accept()[0]
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            self.connected.add(connection)
            if self.greet:
                connection.sendall(self.greet)
            self._converse(connection)
        self.connected.discard(connection)
        connection.close()

    def _converse(self, connection: socket.socket) -> None:
        received, number = b"", 0
        while True:
            while b"\r\n\r\n" not in received:
                more = connection.recv(65536)
                if not more:
                    return
                received += more
            head, _, received = received.partition(b"\r\n\r\n")
            asked = parse(head, number)
            if self.early is not None and self.early(self, asked, connection):
                return
            if "expect" in asked.headers:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            length = int(asked.headers.get("content-length", 0))
            while len(received) < length:
                more = connection.recv(65536)
                if not more:
                    return
                received += more
            asked, received = asked._replace(body=received[:length]), received[length:]
            self.requests.append(asked)
            if self.script(self, asked, connection):
                return
            number += 1

    def respond(self, asked: Asked, **changes: object) -> bytes:
        """Return the bytes of the right response, with `status`, `headers` or `body` changed."""
        data = self.objects.get(asked.key)
        if data is None:
            text = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>" if asked.method == "GET" else b""
            return message(404, {"Content-Length": str(len(text))}, text)
        headers = {"ETag": f'"{hashlib.md5(data).hexdigest()}"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        status, body = 200, data
        if asked.range is not None:
            first, last = asked.range
            status, body = 206, data[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
        headers["Content-Length"] = str(len(body))
        headers = {**headers, **changes.get("headers", {})}  # type: ignore[dict-item]
        shown = {name: value for name, value in headers.items() if value is not None}
        content = b"" if asked.method == "HEAD" else body
        return message(int(changes.get("status", status)), shown, changes.get("body", content))  # type: ignore[call-overload, arg-type]


def parse(head: bytes, number: int) -> Asked:
    """Return the request of a head."""
    lines = head.decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ")
    parts = urllib.parse.urlsplit(target)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    key = urllib.parse.unquote(parts.path).partition("/bucket/")[2]
    return Asked(method, key, dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True)), headers, number)


def message(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return the bytes of a response."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Reason\r\n{lines}\r\n".encode("latin-1") + body


def refusal(status: int, code: str) -> bytes:
    """Return the bytes of a response with an error of S3."""
    body = f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode()
    return message(status, {"Content-Length": str(len(body))}, body)


def honest(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
    """Send the right response."""
    connection.sendall(store.respond(asked))


def duplicating(every: int) -> Script:
    """Send each `every`th response of a connection twice, at once."""

    def script(store: ScriptedStore, asked: Asked, connection: socket.socket) -> None:
        again = asked.number % every == every - 1 and asked.method == "GET"
        connection.sendall(store.respond(asked) * (2 if again else 1))

    return script
