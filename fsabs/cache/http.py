"""HTTPConnector: GET and PUT of items on a web server that several machines share.

Any server that stores the body of a PUT and returns it for a GET will do: nginx with its DAV module, for example. Every
failure is a miss and one warning. After a failure no requests are sent for a while, so that a dead server costs one
timeout and not one for each item.
"""

from __future__ import annotations

import functools
import http.client
import io
import math
import os
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

from ..core import (
    hooks,
    keys,
    process,
    redaction,
    tls,
)
from . import frames
from .backoff import Backoff
from .frames import checksum

if TYPE_CHECKING:
    import socket

_Reader = Callable[[urllib3.BaseHTTPResponse], bytes | None]

TOKEN_PATH_VARIABLE = "PFIO_HTTP_BEARER_TOKEN_PATH"
"""Names a file with a bearer token, where none is given; PFIO's."""
TIMEOUT = 3.0
MAX_TIMEOUT = 1_000_000  # seconds, which a socket takes
CONNECTIONS = 64
_TOKEN_AGE = 1.0
_STORED = (200, 201, 204)
_MISSING = (404, 410)
_TOO_LARGE = 413
_TOO_MUCH = 0  # in place of the 200 of a response whose body is too large
_MOST_OF_A_REFUSAL = 1 << 16
_PIECE, _PIECE_SENT = 1 << 20, 1 << 16
MAX_ITEM_BYTES = 1 << 30
"""Bytes of the largest item that is accepted, if nothing else is said."""


class HTTPAnswer(NamedTuple):
    """The response to one request."""

    status: int
    body: bytes


class Token:
    """A bearer token: a text, or a file that is read again when it may have changed."""

    def __init__(self, text: str | None, path: str | os.PathLike[str] | None) -> None:
        if text is not None and path is not None:
            raise ValueError("a bearer token is given as text or as a file, not both")
        if text is None and path is None:
            path = os.environ.get(TOKEN_PATH_VARIABLE) or None
        self._path = path
        self._text = text
        self._read_at = -math.inf
        self.refresh()

    def headers(self) -> dict[str, str]:
        """Return the headers to send; a file is read again at most once a second."""
        if self._path is not None and time.monotonic() - self._read_at > _TOKEN_AGE:
            try:
                self.refresh()
            except OSError:  # between being removed and being written: the last one may still be good
                self._read_at = time.monotonic()
        return {} if self._text is None else {"Authorization": f"Bearer {self._text}"}

    def refresh(self) -> bool:
        """Read the file now and return whether the token has changed; raises `OSError`."""
        if self._path is None:
            return False
        with open(self._path, encoding="utf-8") as file:
            before, self._text = self._text, file.read().strip()
        self._read_at = time.monotonic()
        return self._text != before

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what a file has, which the other process reads for itself."""
        return {"_path": self._path, "_text": self._text if self._path is None else None, "_read_at": -math.inf}


class HTTPConnector:
    """GET and PUT below a URL, over connections that are kept; safe in threads, after a fork and pickled.

    Args:
        url: `http://` or `https://`, with no query; without a scheme it is http. Items lie at `url/suffix`.
        bearer_token_path: a file with a token, read again as it changes; `$PFIO_HTTP_BEARER_TOKEN_PATH` if there is
            none. `OSError` if it can't be read now.
        timeout: seconds to connect, and seconds for a whole response to arrive, plus one for each MiB of it.
        bearer_token: the token itself, in place of a file.
        retries: how often a request is sent again, at once, whose connection broke.

    Raises `ValueError` for another URL, or one with a user and a password, and for numbers that can't be.
    """

    def __init__(
        self,
        url: str,
        bearer_token_path: str | os.PathLike[str] | None = None,
        timeout: float = TIMEOUT,
        *,
        bearer_token: str | None = None,
        retries: int = 1,
    ) -> None:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError(
                f"an HTTP cache is at http://host/path or https://host/path, not at {redaction.without_secrets(url)!r}"
            )
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError(
                f"the URL of an HTTP cache has no query, fragment or password: {parts.hostname}{parts.path}"
            )
        if retries < 0 or not 0 < timeout <= MAX_TIMEOUT:
            allowed = f"retries is at least 0, and timeout above 0 and at most {MAX_TIMEOUT:,}"
            raise ValueError(f"{allowed}, not {retries} and {timeout}")
        self.url: str = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/"
        self._path = parts.path.rstrip("/") + "/"
        self._retries = retries
        self._timeout = timeout
        self._token = Token(bearer_token, bearer_token_path)
        self._gets = Backoff()
        self._puts = Backoff()
        self._refused_size: int | None = None
        self._warned: set[str] = set()
        make = functools.partial(_pool, f"{parts.scheme}://{parts.netloc}", timeout)
        self._pool: process.PerProcess[urllib3.HTTPConnectionPool] = process.PerProcess(make, _close)

    @property
    def alive(self) -> bool:
        """True if requests are sent to the server; False for a while after it failed."""
        return self._gets.over

    def item_path(self, suffix: str) -> str:
        """Return the path of an item on the server, quoted; `ValueError` for a suffix that is no path."""
        if not keys.is_key(suffix):
            raise ValueError(f"an item's path has no empty, '.' or '..' segments: {suffix!r}")
        return self._path + keys.to_url_path(suffix)

    def get(self, suffix: str, limit: int = MAX_ITEM_BYTES) -> bytes | None:
        """Return what is at `suffix`; None if there is nothing, if it has more than `limit` bytes, or on failure."""
        return self._get(suffix, lambda response: _read(response, limit))

    def get_framed(self, suffix: str, name: bytes, limit: int = MAX_ITEM_BYTES) -> bytes | None:
        """Return the content in the frame at `suffix`, whole and right and of this name; None if it isn't there.

        Anything else than a frame is refused after its first bytes, and the server is left alone for a while.
        """
        began = time.monotonic()
        frame = self._get(suffix, lambda response: _read_frame(response, limit + frames.HEAD_SIZE + len(name)))
        if frame is None:
            return None
        content = frames.unpack(frame, name)
        if content is None:
            self._gets.failed(began)
            self.warn("has something else than the item")
        return content

    def put_framed(self, suffix: str, name: bytes, content: bytes) -> bool:
        """Keep `content` in a frame at `suffix`; returns whether the server took it."""
        return self.put(suffix, (frames.pack(name, len(content), checksum(content)), content))

    def _get(self, suffix: str, read: _Reader) -> bytes | None:
        if not self._gets.begin():
            return None
        began = time.monotonic()
        answer = self._ask("GET", suffix, (), 0, read)
        if answer is None:
            self._gets.failed(began)
            self._puts.failed(began)
        elif answer.status in (200, _TOO_MUCH, *_MISSING):
            self._gets.worked()
        else:
            self._gets.failed(began)
        return answer.body if answer is not None and answer.status == 200 else None

    def put(self, suffix: str, data: bytes | Iterable[bytes]) -> bool:
        """Keep `data`, given whole or in parts, at `suffix`; whether the server took it."""
        parts = (data,) if isinstance(data, bytes) else tuple(data)
        size = sum(map(len, parts))
        if (self._refused_size is not None and size >= self._refused_size) or not self._puts.begin():
            return False
        began = time.monotonic()
        answer = self._ask("PUT", suffix, parts, size, _read)
        if answer is not None and answer.status in (*_STORED, _TOO_LARGE):
            self._puts.worked()
        else:
            self._puts.failed(began)
        if answer is not None and answer.status == _TOO_LARGE:  # smaller ones may be welcome
            self._refused_size = size
        return answer is not None and answer.status in _STORED

    def close(self) -> None:
        """Close this process's connections; they are made again when needed."""
        self._pool.close()

    def _ask(self, method: str, suffix: str, parts: tuple[bytes, ...], size: int, read: _Reader) -> HTTPAnswer | None:
        """One answer, what was unexpected being warned of; None if there was none."""
        answer = self._send(method, suffix, parts, size, read)
        if answer is not None and answer.status == 401 and self._has_new_token():
            answer = self._send(method, suffix, parts, size, read)
        expected = (200, _TOO_MUCH, *_MISSING) if method == "GET" else _STORED
        if answer is not None and answer.status not in expected:
            self.warn(f"answers {method} with status {answer.status}")
        return answer

    def _has_new_token(self) -> bool:
        try:
            return self._token.refresh()
        except OSError:  # no file any more: then there is no new token in it
            return False

    def _send(self, method: str, suffix: str, parts: tuple[bytes, ...], size: int, read: _Reader) -> HTTPAnswer | None:
        begin = time.monotonic_ns()
        _begin(self._timeout + size / MIN_RATE)  # what is sent takes its time, too
        problem: Exception | None = None
        for _ in range(1 + self._retries):
            try:
                answer = self._exchange(method, suffix, parts, size, read)
            except urllib3.exceptions.ProtocolError as exc:  # a kept connection that the server has closed, mostly
                problem = exc
            except (urllib3.exceptions.HTTPError, OSError) as exc:
                problem = exc
                break
            else:
                if (instrument := hooks.active) is not None:
                    moved = size + len(answer.body)
                    instrument.record_span("request", f"http.{method.lower()}", begin, moved, self.url + suffix)
                return answer
        if (instrument := hooks.active) is not None:
            error = type(problem).__name__
            instrument.record_span("request", f"http.{method.lower()}", begin, 0, self.url + suffix, error)
        self.warn(f"does not answer: {problem}")
        return None

    def _exchange(self, method: str, suffix: str, parts: tuple[bytes, ...], size: int, read: _Reader) -> HTTPAnswer:
        headers = {"Accept-Encoding": "identity", **self._token.headers()}
        if method == "PUT":
            headers["Content-Length"] = str(size)
        response = self._pool.get().urlopen(
            method,
            self.item_path(suffix),
            cast(Any, _pieces(parts)) if method == "PUT" else None,
            headers,
            retries=False,
            redirect=False,
            preload_content=False,
            decode_content=False,
        )
        try:
            body = read(response) if response.status == 200 else _read(response, _MOST_OF_A_REFUSAL)
            if body is None:
                response.close()  # the rest of it isn't worth reading
                return HTTPAnswer(_TOO_MUCH if response.status == 200 else response.status, b"")
            return HTTPAnswer(response.status, body)
        except BaseException:
            response.close()
            raise
        finally:
            response.release_conn()

    def warn(self, what: str) -> None:
        """Tell the user once of what is wrong, a text whose part before a `:` says of what kind it is."""
        kind = what.split(":")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(f"the HTTP cache {self.url} {what}; it is a miss", RuntimeWarning, stacklevel=6)

    def __repr__(self) -> str:
        return f"HTTPConnector({self.url!r})"


def _pool(origin: str, timeout: float) -> urllib3.HTTPConnectionPool:
    """Return a pool of connections to `scheme://host:port` whose responses have to arrive in time."""
    secured: dict[str, Any] = {}
    if origin.startswith("https:"):
        bundle = _bundle()
        secured["ssl_context"] = tls.client_context(**{"capath" if os.path.isdir(bundle or "") else "cafile": bundle})
    limit = urllib3.Timeout(timeout, timeout)
    made = urllib3.connection_from_url(origin, maxsize=CONNECTIONS, timeout=limit, **secured)
    made.ConnectionCls = _TLS if made.scheme == "https" else _Plain
    return made


def _pieces(parts: tuple[bytes, ...]) -> Iterator[bytes]:
    """Yield a body in pieces, each of which has the time limit of a connection."""
    for part in parts:
        yield from (part[at : at + _PIECE_SENT] for at in range(0, len(part), _PIECE_SENT))


def _read(response: urllib3.BaseHTTPResponse, limit: int = _MOST_OF_A_REFUSAL) -> bytes | None:
    """Return the body; None if it has more than `limit` bytes. `ProtocolError` if it breaks off."""
    announced = response.headers.get("Content-Length", "")
    if announced.isdigit() and int(announced) > limit:
        return None
    found = bytearray()
    while len(found) <= limit and (piece := response.read1(min(_PIECE, limit + 1 - len(found)))):
        found += piece
    if len(found) > limit:
        return None
    if announced.isdigit() and len(found) != int(announced):
        raise urllib3.exceptions.ProtocolError(f"the body has {len(found)} bytes of {announced}")
    return bytes(found)


def _read_frame(response: urllib3.BaseHTTPResponse, limit: int) -> bytes:
    """Return a framed body; of anything else, or of more than `limit` bytes, only what it begins with."""
    found = bytearray()
    while len(found) < frames.HEAD_SIZE and (piece := response.read1(frames.HEAD_SIZE - len(found))):
        found += piece
    head = frames.read_head(found)
    announced = response.headers.get("Content-Length", "")
    if head is None or head.total > limit or (announced.isdigit() and int(announced) != head.total):
        response.close()  # the rest of it isn't worth reading
        return bytes(found)
    while len(found) <= head.total and (piece := response.read1(min(_PIECE, head.total + 1 - len(found)))):
        found += piece
    if len(found) < head.total:
        raise urllib3.exceptions.ProtocolError(f"the body has {len(found)} bytes of {head.total}")
    return bytes(found)  # one byte too many is no frame, either


def _close(pool: Any) -> None:
    pool.close()


# ---- responses that have to arrive in time: urllib3's timeouts are for one `recv` each, so that a server that sends a
# byte now and then is waited for without end

MIN_RATE = 1024 * 1024
"""Bytes a second that a server has to send, on top of the time that it may take to begin."""
_current = threading.local()


def _begin(seconds: float) -> None:
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
