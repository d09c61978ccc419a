"""Reading objects: a blob of one version, whole objects and many of them."""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...core import errors, hooks
from ...core.blobs import Blob
from ...core.buffers import BytesBuffer
from ...core.ranges import Range, plan
from .failures import LargeObject, Transient
from .messages import Reading, Request, Response
from .pipeline import MAX_BYTES, send_many

if TYPE_CHECKING:
    from .store import ObjectStore

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
_UP_TO_LARGE = Reading(large=LARGE)
MAX_BATCH_BYTES = 16 * MAX_BYTES
"""The limit for `pread_many`, which returns all ranges together: a lower limit on bytes in flight would save no memory.
"""


def read_whole(fs: ObjectStore, key: str) -> bytes:
    """Return the content of an object; raises `FileNotFoundError`, and `IsADirectoryError`."""
    if not key:
        raise fs._no_file(key)
    try:
        return fs.http.send(fs.dialect.read(key, _UP_TO_LARGE)).body
    except LargeObject as exc:
        return StoreBlob(fs, key, exc.head.length, fs.dialect.version(exc.head)).read_all()
    except FileNotFoundError as exc:
        raise fs._no_file(key) from exc


def get_many(fs: ObjectStore, wanted: Sequence[str], width: int, result: Callable[[Response], T]) -> Iterator[T]:
    """Yield the `result` of the response for each object, in order; one that is missing raises in its turn."""
    outcomes = send_many(fs.http, map(fs.dialect.read, wanted), width)
    try:
        for key in wanted:
            outcome = next(outcomes)
            if not isinstance(outcome, Response):
                try:
                    raise _error(fs, key, outcome)
                finally:
                    del outcome  # as in `client.Client`
            content = result(outcome)
            del outcome
            yield content
            del content
    finally:
        outcomes.close()


def _error(fs: ObjectStore, key: str, error: OSError) -> OSError:
    return fs._no_file(key) if isinstance(error, FileNotFoundError) else error


def open_from_start(fs: ObjectStore, key: str) -> StoreBlob | None:
    """Return the blob of an object with its first bytes, by one request.

    None where the response does not describe the object: it may be empty. Raises `FileNotFoundError`.
    """
    try:
        found = fs.http.send(fs.dialect.read(key, Reading((FIRST, 0))))
    except errors.StaleFileError:  # a range of an empty object is refused
        return None
    version = fs.dialect.version(found.head)
    if version is None or found.total is None:
        return None
    return StoreBlob(fs, key, found.total, version, found.body)


class StoreBlob(Blob):
    """One version of an object, each read is a GET of a range, on condition of the version.

    Ranges that are read together are in flight together, as are the pieces of a large one. A stream takes up to 32 MiB.
    What came when the object was opened is kept until it has been read, at most 128 KiB; it does not pickle.
    """

    __slots__ = ("_start",)
    _origin: ObjectStore
    smallest_window = 32 * 1024
    largest_window = 8 * 1024 * 1024
    streams = True

    def __init__(self, origin: ObjectStore, key: str, size: int, version: str | None, start: bytes = b"") -> None:
        super().__init__(origin, key, size, version)
        self._start = start

    def _pread(self, size: int, offset: int) -> bytes:
        if size > 2 * PIECE:
            buffer = BytesBuffer(size)
            with buffer.view as view:
                self._receive_into(view, offset)
            return buffer.release()
        found = self._kept(size, offset)
        missing = size - len(found)
        return found + self._read(missing, offset + len(found)) if missing else found

    def _pread_into(self, view: memoryview, offset: int) -> int:
        if len(view) <= 2 * PIECE:
            return super()._pread_into(view, offset)
        self._receive_into(view, offset)
        return len(view)

    def _kept(self, size: int, offset: int) -> bytes:
        """Return what came of a range when the object was opened; it is kept no longer once its end has been read."""
        start = self._start
        if offset + size >= len(start):
            self._start = b""
        return start[offset : offset + size]

    def _read(self, size: int, offset: int) -> bytes:
        part = (size, offset) if size != self.size else None
        try:
            return self._origin.http.send(self._request(part)).body
        except FileNotFoundError as exc:
            raise self._gone() from exc

    def _gone(self) -> errors.StaleFileError:
        return errors.stale(self.url, "the object was removed while it was open")

    def _receive_into(self, view: memoryview, offset: int) -> None:
        """Fill `view` with a large range, by several requests."""
        found = self._kept(len(view), offset)
        view[: len(found)] = found
        requests = plan([(len(view) - len(found), offset + len(found))], 0, PIECE).requests
        places = [view[at - offset : at - offset + length] for length, at in requests]
        for number, _ in enumerate(self._responses(requests, self._origin.default_concurrency, places)):
            places[number].release()

    @property
    def max_gap_bytes(self) -> int:
        """As `_pread_many` plans its requests."""
        return GAP

    def _pread_many(self, ranges: Sequence[Range]) -> list[bytes]:
        if len(ranges) < 2:
            return super()._pread_many(ranges)
        instrument = hooks.active
        begin = time.monotonic_ns() if instrument is not None else 0
        wanted = plan(ranges, GAP, PIECE)
        if not wanted.requests:  # all ranges are empty
            return wanted.assemble([])
        bodies = list(self._responses(wanted.requests, len(wanted.requests)))
        if instrument is not None:
            name, size = f"{self._origin.dialect.name}.pread_many", sum(map(len, bodies))
            instrument.record_span("batch", name, begin, size, self.url)
        return wanted.assemble(bodies)

    def _stream(self, start: int) -> Iterator[memoryview] | None:
        return self._pieces(start)

    def _pieces(self, start: int) -> Iterator[memoryview]:
        at = start
        with contextlib.closing(self._while_fast(start)) as chunks:
            for chunk in chunks:
                at += len(chunk)
                yield memoryview(chunk)
        if at == self.size:
            return
        starts = range(at, self.size, STREAM_PIECE)
        requests = ((min(STREAM_PIECE, self.size - start), start) for start in starts)
        with contextlib.closing(self._responses(requests, STREAM_WIDTH)) as bodies:
            for body in bodies:
                yield memoryview(body)

    def _while_fast(self, start: int) -> Generator[bytes, None, None]:
        """The bytes from `start` over one connection, until the end or until that is slow, or breaks.

        A near store gives one connection all that there is, at half the work of several.
        """
        client = self._origin.http
        instrument, begin, left = hooks.active, time.monotonic_ns(), self.size - start
        request = self._request((left, start))
        pool = client.peer(request).pool
        if pool.endpoint.tls:
            return
        try:
            exchange = client.begin(request)
        except (Transient, OSError):  # whatever it is, it is dealt with where there are many
            return
        connection, head = exchange.connection, exchange.head
        keep = head is not None and head.reusable and len(exchange.buffered) <= left
        try:
            for chunk in _chunks(connection.socket, exchange.buffered, left):
                left -= len(chunk)
                paused = time.monotonic_ns()
                yield chunk
                begin += time.monotonic_ns() - paused  # the consumer's time is not the store's
        finally:
            if keep and not left:
                pool.give_back(connection)
            else:
                connection.close()
            if instrument is not None:
                name = f"{self._origin.dialect.name}.get"
                instrument.record_span("request", name, begin, self.size - start - left, self.url)

    def _responses(
        self, requests: Iterable[Range], ahead: int, buffers: Sequence[memoryview] | None = None
    ) -> Generator[bytes, None, None]:
        """Yield the bodies of ranges, in order; empty ones where they are received into `buffers`."""
        client = self._origin.http
        width = min(self._origin.default_concurrency, ahead)
        places = itertools.repeat(None) if buffers is None else buffers
        wanted = (self._request(part, place) for part, place in zip(requests, places, strict=False))
        with contextlib.closing(send_many(client, wanted, width, ahead=ahead, max_bytes=MAX_BATCH_BYTES)) as outcomes:
            for outcome in outcomes:
                if isinstance(outcome, Response):
                    yield outcome.body
                elif isinstance(outcome, FileNotFoundError):
                    raise self._gone() from outcome
                else:
                    try:
                        raise outcome
                    finally:
                        del outcome  # as in `client.Client`

    def _request(self, part: Range | None, into: memoryview | None = None) -> Request:
        return self._origin.dialect.read(self._key, Reading(part, self.version, self.size, into))


def _chunks(connection: socket.socket, rest: bytes, left: int) -> Iterator[bytes]:
    """A body of `left` bytes, `rest` being its start, as it comes; no more of it once it is slow, or breaks off."""
    if rest := rest[:left]:
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
