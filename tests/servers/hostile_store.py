"""An S3 store in memory, on raw sockets, that answers a share of the requests in a way that goes wrong.

Each fault is a function of the exchange: it sends what it likes, and says whether the connection goes on. Whole objects
come with a checksum, as those of S3 do: a wrong length that nothing contradicts could not be seen.

Objects of keys `<size>-<name>` exist without having been written, with a content that their key gives; what is written
is kept, and can be looked at behind the client's back. In the process of its user: it is made of threads.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import itertools
import random
import re
import socket
import ssl
import struct
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import NamedTuple, Self
from xml.sax.saxutils import escape

import google_crc32c

LISTED = tuple(f"{100 + n}-listed{n:02}" for n in range(25))
"""The keys that a listing shows."""


@functools.lru_cache(32)  # of large objects, many ranges
def content(key: str) -> bytes:
    """The content of an object that nobody has written."""
    size = int(key.rpartition("/")[2].partition("-")[0])
    block = hashlib.sha512(key.encode()).digest()
    return (block * (size // len(block) + 1))[:size]


class Request(NamedTuple):
    """A request, as it came."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    target: str = ""
    """Path and query, as they came."""

    @property
    def path(self) -> str:
        """The path as it came: quoted."""
        return self.target.partition("?")[0]


class Answer(NamedTuple):
    """A response that is right."""

    status: int
    headers: dict[str, str]
    body: bytes
    length: int

    def head(self, http: str = "HTTP/1.1", /, **changes: str | None) -> bytes:
        """The bytes up to the body; a header is changed by its name with `_`, or left out where that is None."""
        headers = {"Content-Length": str(self.length), **self.headers}
        for name, value in changes.items():
            headers.pop(name.replace("_", "-"), None)
            if value is not None:
                headers[name.replace("_", "-")] = value
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"{http} {self.status} Status\r\n{lines}\r\n".encode("latin-1")

    @property
    def version(self) -> str:
        """The name of the header field of the version, as `head` takes it."""
        return "x_goog_generation" if "x-goog-generation" in self.headers else "ETag"

    @property
    def raw(self) -> bytes:
        """All of its bytes."""
        return self.head() + self.body


Fault = Callable[["Link", Request, Answer], bool]
FAULTS: dict[str, Fault] = {}


def fault(function: Fault) -> Fault:
    """Register a fault by its function's name."""
    FAULTS[function.__name__] = function
    return function


class Link:
    """One connection to the store."""

    def __init__(self, store: HostileStore, connection: socket.socket) -> None:
        self.store = store
        self.connection = connection
        self.buffer = b""

    def send(self, data: bytes) -> None:
        """Send all of `data`."""
        self.connection.sendall(data)

    def later(self, seconds: float, data: bytes) -> None:
        """Send `data` after a time, whatever is under way then."""

        def send() -> None:
            with contextlib.suppress(OSError, ValueError):
                self.send(data)

        timer = threading.Timer(seconds, send)
        timer.daemon = True
        timer.start()

    def reset(self) -> bool:
        """End the connection by a reset."""
        with contextlib.suppress(OSError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def run(self) -> None:
        """Answer requests until the connection ends."""
        try:
            while (head := self._head()) is not None:
                if not self._answer(head):
                    return
        except (OSError, ValueError):
            pass
        finally:
            self.store.closed(self)
            if isinstance(self.connection, ssl.SSLSocket):
                with contextlib.suppress(OSError, ValueError):
                    self.connection.unwrap() if self.store.polite else None
            self.connection.close()

    def _head(self) -> list[str] | None:
        while b"\r\n\r\n" not in self.buffer:
            more = self.connection.recv(65536)
            if not more:
                return None
            self.buffer += more
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        return head.decode("latin-1").split("\r\n")

    def _answer(self, lines: list[str]) -> bool:
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        path, _, query = target.partition("?")
        key = self.store.key_of(path)
        parameters = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        chosen = self.store.choose()
        length = int(headers.get("content-length", 0))
        if chosen in EARLY:
            early = Request(method, key, parameters, headers, b"", target)
            return FAULTS[chosen](self, early, error(503, "SlowDown"))
        if length and self.store.reads_slowly:
            time.sleep(0.05)
        while len(self.buffer) < length:
            more = self.connection.recv(65536)
            if not more:
                return False
            self.buffer += more
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        request = Request(method, key, parameters, headers, body, target)
        if chosen in UNAPPLIED:
            return FAULTS[chosen](self, request, error(500, "InternalError"))
        answer = self.store.answer(request)
        if not chosen:
            self.send(answer.raw)
            return True
        return FAULTS[chosen](self, request, answer)


def _crc32c(data: bytes) -> str:
    return base64.b64encode(int(google_crc32c.value(data)).to_bytes(4, "big")).decode()


def error(status: int, code: str) -> Answer:
    """The response of a refusal."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>said so</Message></Error>".encode()
    return Answer(status, {"x-amz-request-id": f"{random.getrandbits(64):x}"}, body, len(body))


class HostileStore:
    """A store on a port of its own; `fault` and `rate` say what goes wrong, and how often.

    Args:
        certificate: the file of a key and its certificate; plain without one.
        seed: of what is chosen by chance.
    """

    sends_checksums = True
    """With each object that is read as a whole."""

    def __init__(self, certificate: str | None = None, seed: int = 0) -> None:
        self.written: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.faults: tuple[str, ...] = ()
        self.rate = 0.0
        self.polite = True
        self.reads_slowly = False
        self.requests = 0
        self.connections = 0
        self.injected: dict[str, int] = {}
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._links: set[Link] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.context: ssl.SSLContext | None = None
        """Of TLS; a test may have it ask clients for a certificate."""
        if certificate is not None:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(certificate)
        scheme = "http" if certificate is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts, which a close alone leaves waiting
        self._listener.close()
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.connection.shutdown(socket.SHUT_RDWR)

    def intercept(self, change: Callable[[Request, Callable[[Request], Answer]], Answer]) -> None:
        """Have `change(request, answer)` answer all requests; `answer` is what has answered them so far."""
        inner = self.answer
        self.answer = lambda request: change(request, inner)  # type: ignore[method-assign]

    def lose_response(self, matches: Callable[[Request], bool]) -> None:
        """Have the response to the first request that matches get lost, after the request was executed."""
        lost = iter([True])

        def losing(request: Request, answer: Callable[[Request], Answer]) -> Answer:
            found = answer(request)
            return Answer(503, {}, b"", 0) if matches(request) and next(lost, False) else found

        self.intercept(losing)

    def key_of(self, path: str) -> str:
        """The key in a quoted path; empty for the bucket."""
        return urllib.parse.unquote(path).partition("/")[2].partition("/")[2]

    def closed(self, link: Link) -> None:
        """Forget a connection."""
        self._links.discard(link)

    def choose(self) -> str:
        """The fault of the next request; empty for none."""
        with self._lock:
            self.requests += 1
            if not self.faults or self._chance.random() >= self.rate:
                return ""
            found = self._chance.choice(self.faults)
            self.injected[found] = self.injected.get(found, 0) + 1
            return found

    def object(self, key: str) -> bytes | None:
        """The content of an object; None if there is none."""
        if key in self.written:
            return self.written[key]
        return content(key) if re.fullmatch(r"(.*/)?\d+-\w+", key) and not key.startswith("new") else None

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.reads_slowly:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        try:
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
            link = Link(self, connection)
            self._links.add(link)
            link.run()
        except (OSError, ValueError):
            connection.close()

    # ---- what is right

    def answer(self, request: Request) -> Answer:
        """The right response, after what it says has been done."""
        if request.method in ("GET", "HEAD"):
            return self._get(request) if request.key else self._list(request.query)
        checksum = request.headers.get("x-amz-checksum-crc32c")
        if checksum and checksum != _crc32c(request.body):
            return error(400, "BadDigest")
        if request.method == "DELETE":
            self.written.pop(request.key, None)
            return self._plain(204, b"")
        upload = request.query.get("uploadId", "")
        if request.method == "POST" and "uploads" in request.query:
            upload = f"upload{next(self._numbers)}"
            self.uploads[upload] = {}
            name = "InitiateMultipartUploadResult"
            key = escape(request.key)
            return self._plain(200, f"<{name}><Key>{key}</Key><UploadId>{upload}</UploadId></{name}>".encode())
        if upload and upload not in self.uploads:
            return error(404, "NoSuchUpload")
        stored = {"x-amz-checksum-crc32c": checksum} if checksum else {}
        if upload and request.method == "PUT":
            self.uploads[upload][int(request.query["partNumber"])] = request.body
        elif upload:
            parts = self.uploads.pop(upload)
            numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)<", request.body)]
            self.written[request.key] = b"".join(parts[number] for number in numbers)
            name = "CompleteMultipartUploadResult"
            return self._plain(200, f"<{name}><Key>{escape(request.key)}</Key></{name}>".encode())
        else:
            self.written[request.key] = request.body
        found = self._plain(200, b"", hashlib.md5(request.body).hexdigest())
        found.headers.update(stored)
        return found

    def _plain(self, status: int, body: bytes, etag: str = "") -> Answer:
        headers = {"x-amz-request-id": f"{next(self._numbers):016x}", **({"ETag": f'"{etag}"'} if etag else {})}
        return Answer(status, headers, body, len(body))

    def _object(self, key: str, body: bytes) -> Answer:
        headers = {
            "x-amz-request-id": f"{next(self._numbers):016x}",
            "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT",
            "ETag": f'"{hashlib.md5(key.encode() + body).hexdigest()}"',
        }
        return Answer(200, headers, body, len(body))

    def _get(self, request: Request) -> Answer:
        whole = self.object(request.key)
        if whole is None:
            return error(404, "NoSuchKey") if request.method == "GET" else self._plain(404, b"")
        found = self._object(request.key, whole)
        wanted = request.headers.get("if-match")
        if wanted and wanted != found.headers["ETag"]:
            return error(412, "PreconditionFailed")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("range", ""))
        if request.method == "HEAD":
            return found._replace(body=b"")
        if asked is None:
            if request.headers.get("x-amz-checksum-mode") == "ENABLED":
                found.headers["x-amz-checksum-crc32c"] = _crc32c(whole)
            return found
        start, end = int(asked[1]), min(int(asked[2]), len(whole) - 1)
        if start >= len(whole):
            return error(416, "InvalidRange")
        part = whole[start : end + 1]
        headers = {**found.headers, "Content-Range": f"bytes {start}-{end}/{len(whole)}"}
        return Answer(206, headers, part, len(part))

    def _list(self, query: dict[str, str]) -> Answer:
        prefix, after = query.get("prefix", ""), query.get("continuation-token") or query.get("start-after", "")
        keys = [key for key in (f"listed/{name}" for name in LISTED) if key.startswith(prefix) and key > after]
        size = min(10, int(query.get("max-keys", 10)))
        entries = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{hashlib.md5(key.encode()).hexdigest()}&quot;</ETag><Size>{len(content(key))}</Size></Contents>"
            for key in keys[:size]
        )
        more = len(keys) > size
        token = f"<NextContinuationToken>{keys[size - 1]}</NextContinuationToken>" if more else ""
        for name, element in (("continuation-token", "ContinuationToken"), ("start-after", "StartAfter")):
            token += f"<{element}>{escape(query[name])}</{element}>" if name in query else ""
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return self._plain(
            200, f"<ListBucketResult><Prefix>{prefix}</Prefix>{truncated}{token}{entries}</ListBucketResult>".encode()
        )


# ---- what goes wrong

EARLY: set[str] = set()
"""Faults that come before the body of a request has been received."""
UNAPPLIED: set[str] = set()
"""Faults in place of what the request asks for."""


def _duplicated(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.raw + answer.raw)
    return True


FAULTS["duplicated"] = _duplicated
_OF_LENGTH = frozenset({"gzip", "length_long", "length_short", "length_zero"})


def _shows(name: str, link: Link, request: Request, answer: Answer) -> bool:
    """Return whether a fault can be found: a HEAD has no body, and some whole objects no checksum, to compare with."""
    unchecked = not link.store.sends_checksums and request.method == "GET" and request.key and answer.status == 200
    return name not in _OF_LENGTH or not (request.method == "HEAD" or unchecked)


def _raw(name: str, make: Callable[[Answer], bytes], keep: bool = False) -> None:
    """A fault that sends the bytes that `make` gives, and then ends the connection or goes on."""

    def send(link: Link, request: Request, answer: Answer) -> bool:
        if not _shows(name, link, request, answer):
            link.send(answer.head() if request.method == "HEAD" else answer.raw)
            return False
        link.send(make(answer if request.method != "HEAD" else answer._replace(body=b"")))
        return keep

    FAULTS[name] = send


def _chunked(body: bytes, end: bytes = b"0\r\n\r\n", extension: bytes = b"") -> bytes:
    half = len(body) // 2
    pieces = [piece for piece in (body[:half], body[half:]) if piece]
    return b"".join(b"%x%s\r\n%s\r\n" % (len(piece), extension, piece) for piece in pieces) + end


_TE: dict[str, str | None] = {"Content_Length": None, "Transfer_Encoding": "chunked"}
_raw("chunked", lambda a: a.head(**_TE) + _chunked(a.body), keep=True)
_raw("chunked_with_trailer", lambda a: a.head(**_TE) + _chunked(a.body, b"0\r\nx-t: 1\r\n\r\n"), keep=True)
_raw("chunked_with_extension", lambda a: a.head(**_TE) + _chunked(a.body, extension=b";a=b"), keep=True)
_raw("chunked_cut", lambda a: a.head(**_TE) + _chunked(a.body)[:-7])
_raw("chunked_without_end", lambda a: a.head(**_TE) + _chunked(a.body, b""))
_raw("chunked_bad_size", lambda a: a.head(**_TE) + b"zz\r\n" + a.body)
_raw("chunked_negative", lambda a: a.head(**_TE) + b"-5\r\n" + a.body)
_raw("chunked_huge", lambda a: a.head(**_TE) + b"ffffffffffff\r\n" + a.body)
_raw("chunked_and_length", lambda a: a.head(Transfer_Encoding="chunked") + _chunked(a.body))
_raw("gzip", lambda a: a.head(Content_Encoding="gzip", Content_Length=str(len(g := gzip.compress(a.body)))) + g)
_raw("close_delimited", lambda a: a.head(Content_Length=None, Connection="close") + a.body)
_raw("close_delimited_cut", lambda a: a.head(Content_Length=None) + a.body[: len(a.body) // 2])
_raw("http_1_0", lambda a: a.head("HTTP/1.0") + a.body)
_raw("http_1_0_without_length", lambda a: a.head("HTTP/1.0", Content_Length=None) + a.body)
_raw("http_2_0", lambda a: a.head("HTTP/2.0") + a.body)
_raw("status_garbage", lambda a: b"HTTP/1.1 abc OK\r\n\r\n")
_raw("no_http", lambda a: b"220 smtp.example ESMTP\r\n\r\n")
_raw("no_reason", lambda a: a.raw.replace(b" Status\r\n", b"\r\n", 1), keep=True)
_raw("length_twice", lambda a: a.head().replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n") + a.body)
_raw(
    "length_repeated", lambda a: a.head(X_Length="0").replace(b"X-Length: 0", b"Content-Length: %d" % a.length) + a.body
)
_raw("length_garbage", lambda a: a.head(Content_Length="many") + a.body)
_raw("length_negative", lambda a: a.head(Content_Length="-1") + a.body)
_raw("length_plus", lambda a: a.head(Content_Length=f"+{a.length}") + a.body)
_raw("length_short", lambda a: a.head(Content_Length=str(a.length // 2)) + a.body)
_raw("length_long", lambda a: a.head(Content_Length=str(a.length + 10)) + a.body)
_raw("length_zero", lambda a: a.head(Content_Length="0") + a.body)
_raw("body_short", lambda a: a.head() + a.body[: len(a.body) // 2])
_raw("body_long", lambda a: a.head() + a.body + b"more", keep=True)
_raw("content_range_wrong", lambda a: a.head(Content_Range=f"bytes 1-{a.length}/{a.length + 1}") + a.body, keep=True)
_raw("content_range_missing", lambda a: a.head(Content_Range=None) + a.body, keep=True)
_raw("content_range_garbage", lambda a: a.head(Content_Range="bytes x-y/z") + a.body, keep=True)
_raw("etag_missing", lambda a: a.head(**{a.version: None}) + a.body, keep=True)
_raw("etag_other", lambda a: a.head(**{a.version: '"other"'}) + a.body, keep=True)
_raw("etag_weak", lambda a: a.head(ETag=f"W/{a.headers.get('ETag')}") + a.body, keep=True)
_raw("connection_close", lambda a: a.head(Connection="close") + a.body)
_raw("closed_after", lambda a: a.raw)
_raw("interim_100", lambda a: b"HTTP/1.1 100 Continue\r\n\r\n" + a.raw, keep=True)
_raw("interim_103", lambda a: b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 3 + a.raw, keep=True)
_raw("interim_endless", lambda a: b"HTTP/1.1 102 Processing\r\n\r\n" * 5000)
_raw("header_bomb", lambda a: a.head().replace(b"\r\n\r\n", b"\r\nx-bomb: " + b"x" * 300_000 + b"\r\n\r\n") + a.body)
_raw("header_many", lambda a: a.head().replace(b"\r\n\r\n", b"\r\n" + b"x-n: 1\r\n" * 20_000 + b"\r\n") + a.body)
_raw("header_without_colon", lambda a: a.head().replace(b"\r\n\r\n", b"\r\nnonsense\r\n\r\n") + a.body)
_raw("header_nul", lambda a: a.head(X_Odd="a\0b") + a.body)
_raw("header_folded", lambda a: a.head(X_Odd="a\r\n b") + a.body)
_raw("bare_newlines", lambda a: a.head().replace(b"\r\n", b"\n") + a.body)
_raw("status_204_with_length", lambda a: b"HTTP/1.1 204 No Content\r\nContent-Length: 10\r\n\r\n")
_raw("status_304", lambda a: b"HTTP/1.1 304 Not Modified\r\n\r\n", keep=True)
_raw("status_999", lambda a: b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", keep=True)
_raw("head_cut", lambda a: a.head()[:25])
_raw("nothing", lambda a: b"")

_STATUSES = {
    "status_500": b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n",
    "status_502_html": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 16\r\n\r\n<html>bad</html>",
    "status_503": b"HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n",
    "status_503_retry_after": b"HTTP/1.1 503 Slow\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n",
    "status_429": b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n",
    "status_408": b"HTTP/1.1 408 Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    "status_403_without_length": b"HTTP/1.1 403 Forbidden\r\n\r\n",
    "status_404_chunked_trailer": b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nx-t: 1\r\n\r\n",
    "status_501": b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n",
    "redirect_in_a_circle": b"HTTP/1.1 307 Elsewhere\r\nLocation: /\r\nContent-Length: 0\r\n\r\n",
}
for _name, _bytes in _STATUSES.items():
    _raw(_name, lambda a, raw=_bytes: raw, keep="without_length" not in _name and "408" not in _name)  # type: ignore[misc]
    UNAPPLIED.add(_name)


@fault
def late_response_after_408(link: Link, request: Request, answer: Answer) -> bool:
    link.send(b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n")
    link.later(0.02, answer.raw)
    return True


@fault
def whole_object_for_a_range(link: Link, request: Request, answer: Answer) -> bool:
    if answer.status == 206:
        whole = link.store.object(request.key) or b""
        answer = link.store._object(request.key, whole)
    link.send(answer.raw)
    return True


@fault
def shifted_range(link: Link, request: Request, answer: Answer) -> bool:
    if answer.status == 206:
        start, end, total = map(int, re.findall(r"\d+", answer.headers["Content-Range"]))
        moved = f"bytes {start + 1}-{end + 1}/{total}"
        answer = answer._replace(headers={**answer.headers, "Content-Range": moved})
    link.send(answer.raw)
    return True


@fault
def reset_before(link: Link, request: Request, answer: Answer) -> bool:
    return link.reset()


@fault
def reset_within_head(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.head()[:30])
    return link.reset()


@fault
def reset_within_body(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.head() + answer.body[: len(answer.body) // 2])
    return link.reset()


@fault
def half_closed_after(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.raw)
    if not isinstance(link.connection, ssl.SSLSocket):
        link.connection.shutdown(socket.SHUT_WR)
        return True
    return False


@fault
def tls_cut_within_body(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.head() + answer.body[: len(answer.body) // 2])
    link.store.polite = False
    return False


@fault
def dripping_head(link: Link, request: Request, answer: Answer) -> bool:
    for start in range(0, len(head := answer.head()), 40):
        link.send(head[start : start + 40])
        time.sleep(0.002)
    link.send(answer.body)
    return True


@fault
def dripping_body(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.head())
    step = max(1, len(answer.body) // 8)
    for start in range(0, len(answer.body), step):
        link.send(answer.body[start : start + step])
        time.sleep(0.002)
    return True


@fault
def silence(link: Link, request: Request, answer: Answer) -> bool:
    time.sleep(1.5)
    return False


@fault
def silence_within_body(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.head() + answer.body[: len(answer.body) // 2])
    time.sleep(1.5)
    return False


@fault
def early_503(link: Link, request: Request, answer: Answer) -> bool:
    link.send(answer.head(Connection="close") + answer.body)
    return False


@fault
def early_reset(link: Link, request: Request, answer: Answer) -> bool:
    return link.reset()


EARLY.update({"early_503", "early_reset"})


@fault
def error_in_a_success(link: Link, request: Request, answer: Answer) -> bool:
    body = b"<?xml version='1.0'?><Error><Code>InternalError</Code></Error>"
    if request.method == "POST":
        link.send(Answer(200, {}, body, len(body)).raw)
    else:
        link.send(b"HTTP/1.1 500 Error\r\nContent-Length: 0\r\n\r\n")
    return True


UNAPPLIED.add("error_in_a_success")
