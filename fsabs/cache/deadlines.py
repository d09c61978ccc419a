"""HTTP responses that have to arrive in time: a deadline for a whole response, and not for each wait for its bytes.

urllib3's timeouts are for one `recv` each, so that a server that sends a byte now and then is waited for without end.
"""

from __future__ import annotations

import http.client
import io
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    import socket

MIN_RATE = 1024 * 1024
"""Bytes a second that a server has to send, on top of the time that it may take to begin."""
_current = threading.local()


def begin(seconds: float) -> None:
    """Give this thread's next response so many seconds, and one more for each `MIN_RATE` bytes that arrive."""
    _current.end = time.monotonic() + seconds


class _BoundedReader(io.RawIOBase):
    """A socket's bytes, until the deadline of the thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = _current.end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the response did not arrive in time")
        self._sock.settimeout(left)
        count = self._raw.readinto(buffer)
        _current.end += (count or 0) / MIN_RATE
        return count

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _BoundedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_BoundedReader(sock))


class _Plain(HTTPConnection):
    response_class = _BoundedResponse


class _TLS(HTTPSConnection):
    response_class = _BoundedResponse


def _bundle() -> str | None:
    """Return the file or folder of the certificates that are trusted, as boto3 looks for it; None: the platform's."""
    return os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or None


def pool(origin: str, timeout: float, connections: int) -> urllib3.HTTPConnectionPool:
    """Return a pool of connections to `scheme://host:port` whose responses have to arrive in time."""
    trusted: dict[str, Any] = {}
    if origin.startswith("https:") and (bundle := _bundle()):
        trusted = {"ca_cert_dir" if os.path.isdir(bundle) else "ca_certs": bundle}
    limit = urllib3.Timeout(timeout, timeout)
    made = urllib3.connection_from_url(origin, maxsize=connections, timeout=limit, **trusted)
    made.ConnectionCls = _TLS if made.scheme == "https" else _Plain
    return made
