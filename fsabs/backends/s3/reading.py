"""Reading objects: a blob of one version, whole objects and many of them; over our own connections where the answers
are plain, and by boto3 where they are not.
"""

from __future__ import annotations

import contextlib
import io
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ... import errors, hooks
from ...blobs import Blob
from ...ranges import Range, plan
from .answers import Ask, Large, PlainAnswerMissing, Transient, backoff, field
from .boto import translated
from .flight import Flight

if TYPE_CHECKING:
    from .bucket import S3

FIRST = 128 * 1024
"""What an object that is opened is asked for at once."""
GAP = 16 * 1024
"""What may lie between two ranges of one request: it is received in a third of the time that a request takes."""
PIECE = 8 * 1024 * 1024
"""The size of a request at most, where there are several."""
STREAM_PIECE = 8 * 1024 * 1024
STREAM_WIDTH = 4
"""So many pieces of a stream are under way: 32 MiB, with what the kernel holds of them."""
CHUNK = 1024 * 1024
FAST = 250e6
"""Bytes a second, while somebody waits for them, from which on one connection is enough for a stream."""
JUDGED = 32 * 1024 * 1024
PATIENCE = 0.25
"""So many bytes, or seconds, tell how fast it is."""
AHEAD = 2
"""How many times as many objects as connections may wait for an earlier one."""


def get(fs: S3, ask: Ask) -> bytes:
    """The bytes of one GET."""
    wire = fs.wire
    if wire is not None:
        try:
            return wire.fetch(ask).body
        except PlainAnswerMissing:
            pass
    return get_by_boto3(fs, ask)


def get_whole(fs: S3, key: str) -> bytes:
    """The content of an object; `FileNotFoundError`."""
    try:
        return get(fs, Ask(key))
    except Large as found:
        version = (field(found.head, b"etag") or b"").strip(b'"').decode("latin-1")
        return S3Blob(fs, key, found.size, version).read_all()


def get_many(fs: S3, wanted: Sequence[str], width: int) -> Iterator[bytes]:
    """The contents of objects, in order; what is missing raises in its turn."""
    wire = fs.wire
    assert wire is not None
    instrument, total = hooks.active, 0
    begin = time.monotonic_ns() if instrument is not None else 0
    flight = Flight(wire, lambda number: Ask(wanted[number]), len(wanted), width, width * AHEAD).run()
    try:
        for key, outcome in zip(wanted, flight, strict=True):
            if isinstance(outcome, list):
                body = outcome[0] if len(outcome) == 1 else b"".join(outcome)
            elif outcome is None:
                body = get_by_boto3(fs, Ask(key))
            else:
                raise outcome
            total += len(body)
            yield body
    except FileNotFoundError as exc:
        raise fs._no_file(key) from exc
    finally:
        flight.close()
        if instrument is not None:
            instrument.record_span("batch", "s3.read_many", begin, total, fs._url(""))


def head(fs: S3, key: str) -> tuple[int, datetime, str]:
    """Size, time of writing and ETag of an object; `FileNotFoundError`."""
    wire = fs.wire
    if wire is not None:
        with contextlib.suppress(PlainAnswerMissing, ValueError, TypeError, AttributeError):
            told = wire.head(key)
            length, written, etag = (field(told, name) for name in (b"content-length", b"last-modified", b"etag"))
            return int(length), parsedate_to_datetime(written.decode()), etag.decode("latin-1").strip('"')  # type: ignore
    with translated():
        answer = fs.client.head_object(Bucket=fs.bucket, Key=key)
    return answer["ContentLength"], answer["LastModified"], answer["ETag"].strip('"')


def open_from_start(fs: S3, key: str) -> S3Blob | None:
    """The blob of an object with its first bytes, by one request; None where that tells too little (it may be empty).

    Raises `FileNotFoundError`.
    """
    wire = fs.wire
    if wire is None:
        return None
    try:
        found = wire.fetch(Ask(key, (FIRST, 0)))
    except (PlainAnswerMissing, errors.StaleFileError):  # a range of an empty object is an error
        return None
    total = (field(found.head, b"content-range") or b"").rpartition(b"/")[2]
    etag = field(found.head, b"etag")
    if etag is None or not total.isdigit():
        return None
    return S3Blob(fs, key, int(total), etag.decode("latin-1").strip('"'), found.body)


def get_by_boto3(fs: S3, ask: Ask) -> bytes:
    """As `get`, with every answer understood.

    boto3 tries again what fails before the body; a body that breaks off is tried again here.
    """
    conditions = {}
    if ask.part is not None:
        conditions["Range"] = f"bytes={ask.part[1]}-{ask.part[1] + ask.part[0] - 1}"
    if ask.strong:
        conditions["IfMatch"] = f'"{ask.version}"'
    for attempt in range(1, fs.options.max_attempts + 1):
        with translated():
            answer = fs.client.get_object(Bucket=fs.bucket, Key=ask.key, **conditions)
        try:
            with translated(), contextlib.closing(answer["Body"]) as stream:
                body: bytes = stream.read()
            _check_length(fs._url(ask.key), ask, body, answer)
            return body
        except (ConnectionError, TimeoutError, errors.CorruptFileError):
            if attempt == fs.options.max_attempts:
                raise
            time.sleep(backoff(attempt))
    raise AssertionError("max_attempts is at least 1")


def _check_length(url: str, ask: Ask, body: bytes, answer: dict[str, Any]) -> None:
    announced = answer.get("ContentLength")
    if announced is None and "transfer-encoding" not in answer["ResponseMetadata"]["HTTPHeaders"]:
        # boto3 takes a head that breaks off for a whole one, and an empty body for the object.
        raise errors.corrupt(url, "an answer that doesn't say how long it is", "read")
    if announced is not None and len(body) != announced:
        raise errors.corrupt(url, f"a body of {len(body)} bytes where {announced} were announced", "read")
    told = answer.get("ContentRange")
    if ask.part is not None and told and not told.startswith(f"bytes {ask.part[1]}-"):
        raise errors.corrupt(url, f"{told} where {ask.part[0]} bytes from {ask.part[1]} were expected", "read")


class S3Blob(Blob):
    """One version of an object, told by its ETag: each read is a GET of a range with If-Match.

    Ranges that are read together are in flight together, as are the pieces of a large one. A stream takes up to 32 MiB.
    What came when the object was opened is kept until it has been read, at most 128 KiB; it does not pickle.
    """

    __slots__ = ("_start",)
    _origin: S3

    def __init__(self, origin: S3, key: str, size: int, version: str | None, start: bytes = b"") -> None:
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
        if size > 2 * PIECE and self._origin.wire is not None:
            return self._in_parallel(size, offset)
        part = (size, offset) if size != self.size else None
        try:
            return get(self._origin, Ask(self._key, part, self.version, self.size))
        except FileNotFoundError as exc:
            raise self._gone() from exc

    def _gone(self) -> errors.StaleFileError:
        return errors.stale(self.url, "the object was removed while it was open")

    def _in_parallel(self, size: int, offset: int) -> bytes:
        """A large range by several requests, into one place."""
        buffer = io.BytesIO(bytes(size))
        view = buffer.getbuffer()
        requests = plan([(size, offset)], 0, PIECE).requests
        places = [view[at - offset : at - offset + length] for length, at in requests]
        view.release()
        for number, outcome in enumerate(self._flight(requests, self._origin.default_concurrency, places)):
            if outcome is None:
                places[number][:] = self._by_boto3(requests[number])
            places[number].release()
        return buffer.getvalue()  # the very bytes that were filled, since nobody else has them

    def _pread_many(self, ranges: Sequence[Range]) -> list[bytes]:
        if self._origin.wire is None or len(ranges) < 2:
            return super()._pread_many(ranges)
        instrument = hooks.active
        begin = time.monotonic_ns() if instrument is not None else 0
        wanted = plan(ranges, GAP, PIECE)
        bodies = []
        for request, outcome in zip(wanted.requests, self._flight(wanted.requests, len(wanted.requests)), strict=True):
            bodies.append(self._by_boto3(request) if outcome is None else b"".join(outcome))
        if instrument is not None:
            instrument.record_span("batch", "s3.pread_many", begin, sum(map(len, bodies)), self.url)
        return wanted.assemble(bodies)

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return None if self._origin.wire is None else self._pieces(start)

    def _pieces(self, start: int) -> Iterator[memoryview]:
        at = start
        with contextlib.closing(self._while_fast(start)) as chunks:
            for chunk in chunks:
                at += len(chunk)
                yield memoryview(chunk)
        if at == self.size:
            return
        requests = _Pieces(self.size, at)
        outcomes = self._flight(requests, STREAM_WIDTH)
        with contextlib.closing(outcomes):
            for number, outcome in enumerate(outcomes):
                for chunk in [self._by_boto3(requests[number])] if outcome is None else outcome:
                    yield memoryview(chunk)

    def _while_fast(self, start: int) -> Generator[bytes, None, None]:
        """The bytes from `start` over one connection, until the end or until that is slow, or breaks.

        A near store gives one connection all that there is, at half the work of several.
        """
        wire = self._origin.wire
        assert wire is not None
        if wire.endpoint.tls:
            return
        instrument, begin, left = hooks.active, time.monotonic_ns(), self.size - start
        try:
            connection, rest = wire.begin(Ask(self._key, (left, start), self.version, self.size))
        except (PlainAnswerMissing, Transient, OSError):  # whatever it is, it is dealt with where there are many
            return
        try:
            for chunk in _chunks(connection, rest, left):
                left -= len(chunk)
                yield chunk
        finally:
            if left:
                connection.close()
            else:
                wire.give_back(connection)
            if instrument is not None:
                instrument.record_span("request", "s3.get", begin, self.size - start - left, self.url)

    def _flight(
        self, requests: Sequence[Range], ahead: int, places: Sequence[memoryview] | None = None
    ) -> Generator[list[bytes] | None, None, None]:
        """The bodies of ranges, in order; None for one that boto3 has to get."""
        wire = self._origin.wire
        assert wire is not None

        def ask(number: int) -> Ask:
            return Ask(self._key, requests[number], self.version, self.size, places[number] if places else None)

        width = min(self._origin.default_concurrency, len(requests), ahead)
        flight = Flight(wire, ask, len(requests), width, ahead).run()
        with contextlib.closing(flight):
            for outcome in flight:
                if isinstance(outcome, FileNotFoundError):
                    raise self._gone() from outcome
                if isinstance(outcome, OSError):
                    raise outcome
                yield outcome

    def _by_boto3(self, part: Range) -> bytes:
        try:
            return get_by_boto3(self._origin, Ask(self._key, part, self.version, self.size))
        except FileNotFoundError as exc:
            raise self._gone() from exc


def _chunks(connection: socket.socket, rest: bytes, left: int) -> Iterator[bytes]:
    """A body of `left` bytes, `rest` being its start, as it comes; no more of it once it is slow, or breaks off."""
    if rest:
        left -= len(rest)
        yield rest
    received, waited = 0, 0.0
    while left:
        if received >= JUDGED or waited > PATIENCE:
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
