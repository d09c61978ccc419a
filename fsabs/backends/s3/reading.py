"""Reading objects: a blob of one version, whole objects and many of them; over our own connections where the answers
are plain, and by boto3 where they are not.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from operator import attrgetter
from typing import Any, TypeVar

from ... import errors, hooks
from ...blobs import Blob
from ...ranges import Range, plan
from . import fallback
from .access import BucketAccess
from .buffers import BodyBuffer
from .client import Client
from .failures import LargeObject, Transient, UnsupportedResponse
from .http1 import ResponseHead
from .messages import Request, Response
from .pipeline import MAX_BYTES, Outcome, send_many

T = TypeVar("T")
FIRST = 128 * 1024
"""What an object that is opened is asked for at once."""
GAP = 16 * 1024
"""The largest gap between two ranges of one request: it is received in a third of the time that a request takes."""
PIECE = 8 * 1024 * 1024
"""The largest size of a request, where there are several."""
STREAM_PIECE = 8 * 1024 * 1024
STREAM_WIDTH = 4
"""The number of pieces of a stream that are in flight: 32 MiB, with the kernel's buffers."""
CHUNK = 1024 * 1024
FAST = 250e6
"""The bytes a second, while the reader waits for them, from which one connection is enough for a stream."""
MEASURED_BYTES = 32 * 1024 * 1024
MEASURED_SECONDS = 0.25
"""The bytes, or the seconds of waiting, after which the rate is known."""
LARGE = 32 * 1024 * 1024
"""The size in bytes from which an object is read by parallel ranges."""
MAX_BATCH_BYTES = 16 * MAX_BYTES
"""The limit for `pread_many`, which returns all ranges together: a lower limit on bytes in flight would save no memory.
"""
EPOCH = datetime.fromtimestamp(0, UTC)


def get(fs: BucketAccess, request: Request) -> bytes:
    """Return the content that a GET requests."""
    client = fs.http
    if client is None:
        return fallback.get(fs, request)
    try:
        return client.send(request).body
    except UnsupportedResponse as exc:
        return by_boto3(fs, request, exc)


def by_boto3(fs: BucketAccess, request: Request, reason: UnsupportedResponse) -> bytes:
    """Return the content that a GET requests, which the fast client could not go on with."""
    body = fallback.get(fs, request)
    if reason.redirected:
        fs.redirected()
    return body


def read_whole(fs: BucketAccess, key: str) -> bytes:
    """Return the content of an object; raises `FileNotFoundError`, and `IsADirectoryError`."""
    client = fs.http
    try:
        if client is None or not key:
            return fs._open_blob(key).read_all()
        query = fs.versions.get(key, "") if fs.versions else ""
        return client.send(Request("GET", key, query, fs.read_headers, large=LARGE)).body
    except UnsupportedResponse as exc:
        return _whole_by_boto3(fs, key, exc)
    except LargeObject as exc:
        return S3Blob(fs, key, exc.head.length, version_of(exc.head)).read_all()
    except FileNotFoundError as exc:
        raise fs._no_file(key) from exc


def _whole_by_boto3(fs: BucketAccess, key: str, reason: UnsupportedResponse) -> bytes:
    try:
        return by_boto3(fs, Request("GET", key, fs.versions.get(key, "")), reason)
    except FileNotFoundError as exc:
        raise fs._no_file(key) from exc


def get_many(fs: BucketAccess, client: Client, wanted: Sequence[str], width: int) -> Iterator[bytes]:
    """Yield the contents of objects, in order; one that is missing raises in its turn."""

    def fall_back(key: str, reason: UnsupportedResponse) -> bytes:
        return by_boto3(fs, Request("GET", key, fs.versions.get(key, "")), reason)

    return _get_many(fs, client, wanted, width, attrgetter("body"), fall_back)


def get_many_versioned(
    fs: BucketAccess, client: Client, wanted: Sequence[str], width: int
) -> Iterator[tuple[bytes, str | None]]:
    """As `get_many`, each with the version that its response names."""

    def both(response: Response) -> tuple[bytes, str | None]:
        return response.body, version_of(response.head)

    return _get_many(fs, client, wanted, width, both, lambda key, _: fs._read_versioned(key))


def _get_many(
    fs: BucketAccess,
    client: Client,
    wanted: Sequence[str],
    width: int,
    result: Callable[[Response], T],
    fall_back: Callable[[str, UnsupportedResponse], T],
) -> Iterator[T]:
    instrument, total = hooks.active, 0
    begin = time.monotonic_ns() if instrument is not None else 0
    outcomes = _send_gets(fs, client, wanted, 0, width)
    try:
        for number, key in enumerate(wanted):
            outcome = next(outcomes)
            if isinstance(outcome, Response):
                total += len(outcome.body)
                content = result(outcome)
            elif isinstance(outcome, UnsupportedResponse):
                content = fall_back(key, outcome)
                found = fs.http
                if outcome.redirected and found is not None and not found.endpoint.same_address(client.endpoint):
                    outcomes.close()  # the other requests go to the endpoint that boto3 has been redirected to
                    client = found
                    outcomes = _send_gets(fs, client, wanted, number + 1, width)
            else:
                raise outcome
            del outcome
            yield content
            del content
    except FileNotFoundError as exc:
        raise fs._no_file(key) from exc
    finally:
        outcomes.close()
        if instrument is not None:
            instrument.record_span("batch", "s3.read_many", begin, total, fs._url(""))


def _send_gets(
    fs: BucketAccess, client: Client, wanted: Sequence[str], first: int, width: int
) -> Generator[Outcome, None, None]:
    versions, headers = fs.versions, fs.read_headers
    keys = itertools.islice(wanted, first, None)
    return send_many(client, (Request("GET", key, versions.get(key, ""), headers) for key in keys), width)


def head(fs: BucketAccess, key: str) -> tuple[int, datetime, str | None]:
    """Return size, time of writing and ETag of an object; raises `FileNotFoundError`."""
    client, found = fs.http, None
    if client is not None:
        try:
            found = client.send(Request("HEAD", key, fs.versions.get(key, ""), fs.read_headers)).head
        except UnsupportedResponse as exc:
            found = fallback.head(fs, key)
            if exc.redirected:
                fs.redirected()
    else:
        found = fallback.head(fs, key)
    length = found.header(b"content-length") or ""
    if not length.isdigit():
        raise errors.corrupt(fs._url(key), "a response that doesn't say how long the object is", "stat")
    try:
        written = parsedate_to_datetime(found.header(b"last-modified") or "")
    except (ValueError, TypeError):
        written = EPOCH
    return int(length), written, version_of(found)


def version_of(head: ResponseHead) -> str | None:
    """Return the version of the object that a response is about: its ETag, None if it has none."""
    etag = head.header(b"etag")
    return etag.strip('"') if etag else None


def open_from_start(fs: BucketAccess, key: str) -> S3Blob | None:
    """Return the blob of an object with its first bytes, by one request.

    None where the response does not describe the object: it may be empty. Raises `FileNotFoundError`.
    """
    client = fs.http
    if client is None:
        return None
    try:
        found = client.send(Request("GET", key, fs.versions.get(key, ""), fs.read_headers, range=(FIRST, 0)))
    except (UnsupportedResponse, errors.StaleFileError):  # a range of an empty object is refused
        return None
    if found.status == 200:  # the store ignores ranges
        total = found.head.header(b"content-length") or ""
    else:
        total = (found.head.header(b"content-range") or "").rpartition("/")[2]
    version = version_of(found.head)
    if version is None or not total.isdigit():
        return None
    return S3Blob(fs, key, int(total), version, found.body)


class S3Blob(Blob):
    """One version of an object, identified by its ETag: each read is a GET of a range with If-Match.

    Ranges that are read together are in flight together, as are the pieces of a large one. A stream takes up to 32 MiB.
    What came when the object was opened is kept until it has been read, at most 128 KiB; it does not pickle.
    """

    __slots__ = ("_start",)
    _origin: BucketAccess

    def __init__(self, origin: BucketAccess, key: str, size: int, version: str | None, start: bytes = b"") -> None:
        super().__init__(origin, key, size, version)
        self._start = start

    def _pread(self, size: int, offset: int) -> bytes:
        start = self._start
        if offset >= len(start):
            return self._read(size, offset)
        if offset + size >= len(start):
            self._start = b""
        found = start[offset : offset + size]
        missing = size - len(found)
        return found + self._read(missing, len(start)) if missing else found

    def _read(self, size: int, offset: int) -> bytes:
        if size > 2 * PIECE and self._origin.http is not None:
            return self._in_parallel(size, offset)
        part = (size, offset) if size != self.size else None
        try:
            return get(self._origin, self._request(part))
        except FileNotFoundError as exc:
            raise self._gone() from exc

    def _gone(self) -> errors.StaleFileError:
        return errors.stale(self.url, "the object was removed while it was open")

    def _in_parallel(self, size: int, offset: int) -> bytes:
        """A large range by several requests, into one place."""
        buffer = BodyBuffer(size)
        requests = plan([(size, offset)], 0, PIECE).requests
        places = [buffer.view[at - offset : at - offset + length] for length, at in requests]
        for number, _ in enumerate(self._responses(requests, self._origin.default_concurrency, places)):
            places[number].release()
        return buffer.release()

    @property
    def max_gap_bytes(self) -> int:
        """As `_pread_many` plans its requests."""
        return GAP if self._origin.http is not None else 0

    def _pread_many(self, ranges: Sequence[Range]) -> list[bytes]:
        if self._origin.http is None or len(ranges) < 2:
            return super()._pread_many(ranges)
        instrument = hooks.active
        begin = time.monotonic_ns() if instrument is not None else 0
        wanted = plan(ranges, GAP, PIECE)
        bodies = list(self._responses(wanted.requests, len(wanted.requests)))
        if instrument is not None:
            instrument.record_span("batch", "s3.pread_many", begin, sum(map(len, bodies)), self.url)
        return wanted.assemble(bodies)

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return None if self._origin.http is None else self._pieces(start)

    def _pieces(self, start: int) -> Iterator[memoryview]:
        at = start
        with contextlib.closing(self._while_fast(start)) as chunks:
            for chunk in chunks:
                at += len(chunk)
                yield memoryview(chunk)
        if at == self.size:
            return
        requests = _Pieces(self.size, at)
        with contextlib.closing(self._responses(requests, STREAM_WIDTH)) as bodies:
            for body in bodies:
                yield memoryview(body)

    def _while_fast(self, start: int) -> Generator[bytes, None, None]:
        """The bytes from `start` over one connection, until the end or until that is slow, or breaks.

        A near store gives one connection all that there is, at half the work of several.
        """
        client = self._origin.http
        if client is None or client.endpoint.tls:
            return
        instrument, begin, left = hooks.active, time.monotonic_ns(), self.size - start
        try:
            connection, rest = client.begin(self._request((left, start)))
        except (
            UnsupportedResponse,
            LargeObject,
            Transient,
            OSError,
        ):  # whatever it is, it is dealt with where there are many
            return
        try:
            for chunk in _chunks(connection.socket, rest, left):
                left -= len(chunk)
                yield chunk
        finally:
            if left:
                connection.close()
            else:
                client.pool.give_back(connection)
            if instrument is not None:
                instrument.record_span("request", "s3.get", begin, self.size - start - left, self.url)

    def _responses(
        self, requests: Sequence[Range], ahead: int, buffers: Sequence[memoryview] | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the bodies of ranges, in order; empty ones where they are received into `buffers`."""
        client = self._origin.http
        assert client is not None
        width = min(self._origin.default_concurrency, len(requests), ahead)
        wanted = (
            self._request(part, buffers[number] if buffers is not None else None)
            for number, part in enumerate(requests)
        )
        with contextlib.closing(send_many(client, wanted, width, ahead=ahead, max_bytes=MAX_BATCH_BYTES)) as outcomes:
            for number, outcome in enumerate(outcomes):
                if isinstance(outcome, Response):
                    yield outcome.body
                elif isinstance(outcome, UnsupportedResponse):
                    request = self._request(requests[number], buffers[number] if buffers is not None else None)
                    yield self._by_boto3(request, outcome)
                elif isinstance(outcome, FileNotFoundError):
                    raise self._gone() from outcome
                else:
                    try:
                        raise outcome
                    finally:
                        del outcome  # as in `Client._exchange`

    def _request(self, part: Range | None, into: memoryview | None = None) -> Request:
        fs, key = self._origin, self._key
        query = fs.versions.get(key, "")
        return Request("GET", key, query, fs.read_headers, b"", part, self.version, self.size, into)

    def _by_boto3(self, request: Request, reason: UnsupportedResponse) -> bytes:
        try:
            return by_boto3(self._origin, request, reason)
        except FileNotFoundError as exc:
            raise self._gone() from exc


def _chunks(connection: socket.socket, rest: bytes, left: int) -> Iterator[bytes]:
    """A body of `left` bytes, `rest` being its start, as it comes; no more of it once it is slow, or breaks off."""
    if rest:
        left -= len(rest)
        yield rest
    received, waited = 0, 0.0
    while left:
        if received >= MEASURED_BYTES or waited > MEASURED_SECONDS:
            if received < FAST * waited:
                return
            received, waited = 0, 0.0
        since = time.monotonic()
        try:
            chunk = connection.recv(min(left, CHUNK), socket.MSG_WAITALL)
        except OSError:
            return
        if not chunk:
            return
        waited += time.monotonic() - since
        received += len(chunk)
        left -= len(chunk)
        yield chunk


class _Pieces(Sequence[Range]):
    """The ranges of a stream, without a list of them."""

    def __init__(self, size: int, start: int) -> None:
        self._size = size
        self._start = start

    def __len__(self) -> int:
        return -(-(self._size - self._start) // STREAM_PIECE)

    def __getitem__(self, number: Any) -> Any:
        at = self._start + number * STREAM_PIECE
        return min(STREAM_PIECE, self._size - at), at
