"""A compressed file as a blob of what it holds: positioned reads, by decoders that only go forward.

Reading on is cheap, reading back starts again at the nearest point before (see `points.py`), of which a bounded number
is kept, evenly spread. A few decoders (*cursors*) are kept where they stopped, so that several readers at once don't
send one back and forth. Cursors belong to a process; a forked child starts its own, from the points that it inherits.
"""

from __future__ import annotations

from typing import Any

from ...core import errors, process
from ...core.blobs import Blob, Origin
from ...core.readahead import ReadAhead
from .codecs import MAGIC_SIZE, TarCodec, codec
from .decoders import DecodeError, FrameDecoder
from .points import Point, Points

MAX_CURSORS = 4
"""Decoders that are kept of one file in one process."""

_PIECE = 1024 * 1024  # decoded at once
_FIRST_FETCH = 128 * 1024
_MAX_FETCH = 4 * 1024 * 1024
_MARGIN = 64 * 1024  # fetched beyond what is expected to be enough
_SEARCHES = 3  # for places that may fail before no more are made: there are compressors that begin no blocks
_NEAR = 256 * 1024  # decoding this much is not dearer than starting at a point


class Cursor:
    """A decoder on its way through a file; for one thread at a time."""

    def __init__(self, blob: Blob, kind: TarCodec, points: Points, until: int = 0, start: int = 0) -> None:
        """At the last point up to `start`; what is read first will be used up to `until`."""
        point, self._decoder = points.start(start, kind)
        self._blob = blob
        self._source = ReadAhead(blob)
        self._codec = kind
        self._points = points
        self._out = point.out  # offset behind all that is decoded
        self._ready = b""  # decoded bytes, taken up to `_at`
        self._at = 0
        self._src = point.src  # offset behind all that is fetched
        self._pending = b""  # fetched, not fed
        self._fetch_size = _FIRST_FETCH
        self._expected = points.src(until) + _MARGIN  # offset up to which is fetched in any case
        self._searches = _SEARCHES
        self._started = point.out > 0 or point.src > 0
        self._frame = point.out  # offset where the frame began, or was entered
        self.garbage = ""
        """At the end, what is there behind the last frame in place of another one; empty if there is nothing."""

    @property
    def position(self) -> int:
        """The offset of the next byte in what the file holds."""
        return self._out - len(self._ready) + self._at

    def read(self, size: int) -> bytes:
        """The next `size` bytes; fewer only at the end of the file. `CorruptFileError`."""
        found: list[bytes] = []
        while size and (self._at < len(self._ready) or self._advance()):
            piece = self._ready[self._at : self._at + size]
            self._at += len(piece)
            size -= len(piece)
            found.append(piece)
        return found[0] if len(found) == 1 else b"".join(found)

    def skip_to(self, offset: int) -> bool:
        """Go forward to `offset`; False if the file ends before."""
        while offset > self._out:
            if not self._advance():
                return False
        self._at = len(self._ready) - (self._out - offset)
        return True

    def _advance(self) -> bool:
        """Decode the next piece into `_ready`, which is used up; False at the end of the file."""
        while True:
            if self._decoder is None and not self._start_frame():
                self._ready, self._at = b"", 0
                return False
            assert self._decoder is not None
            data = self._decode(self._decoder)
            self._ready, self._at = data, 0
            self._out += len(data)
            if self._decoder.eof:
                self._pending, self._decoder = self._decoder.unused + self._pending, None
            elif data:
                self._keep_point(self._decoder)
            if data:
                return True

    def _decode(self, decoder: FrameDecoder) -> bytes:
        if decoder.needs_input and not self._pending and not self._fetch():
            raise self._corrupt(f"the {self._codec.name} data ends in the middle, at offset {self._src}")
        feed = b""
        if decoder.needs_input:
            feed, self._pending = self._pending, b""
        try:
            return decoder.decode(feed, _PIECE)
        except DecodeError as exc:
            raise self._corrupt(f"bad {self._codec.name} data before offset {self._src}: {exc}") from exc

    def _start_frame(self) -> bool:
        """Begin the next frame; False where nothing is left, or what is no frame: a padding of zeros, or garbage."""
        while len(self._pending) < MAGIC_SIZE and self._fetch():
            pass
        if self._started and self._pending[:1] in (b"", b"\0"):
            self._skip_zeros()
            if not self._pending:
                return False
        offset = self._src - len(self._pending)
        if not self._codec.starts(self._pending[:MAGIC_SIZE]):
            kind = "a " + self._codec.name if not self._started else f"one more {self._codec.name}"
            self.garbage = f"no start of {kind} frame at offset {offset}, but {self._pending[:MAGIC_SIZE]!r}"
            if not self._started:
                raise self._corrupt(self.garbage)
            return False
        if self._started:
            self._points.add(Point(self._out, offset))
        self._decoder = self._codec.decoder()
        self._started, self._frame = True, self._out
        return True

    def _skip_zeros(self) -> None:
        self._pending = self._pending.lstrip(b"\0")
        while not self._pending and self._fetch():
            self._pending = self._pending.lstrip(b"\0")
        while len(self._pending) < MAGIC_SIZE and self._fetch():
            pass

    def _keep_point(self, decoder: FrameDecoder) -> None:
        """Keep a place, or the state, inside of a long frame; the starts of short ones are cheaper."""
        if not self._points.wanted(self._out, self._frame):
            return
        if decoder.LOOKS_AHEAD and self._searches:
            while len(self._pending) < decoder.LOOKS_AHEAD and self._fetch():
                pass
            if (place := decoder.place_ahead(self._pending)) is not None:
                src = self._src - len(self._pending) + place.src
                self._points.add(Point(self._out + place.out, src, None, place.how))
                self._searches = _SEARCHES
                return
            self._searches -= 1
        if copied := decoder.copy():
            state, waiting = copied
            self._points.add(Point(self._out, self._src - len(self._pending) - waiting, state))

    def _fetch(self) -> bool:
        """Read more of the file behind `_pending`; False at its end."""
        size = min(max(self._fetch_size, self._expected - self._src), _MAX_FETCH)
        data = self._source.pread(size, self._src)
        self._src += len(data)
        self._pending += data
        self._fetch_size = min(2 * self._fetch_size, _MAX_FETCH)
        return bool(data)

    def _corrupt(self, reason: str) -> errors.CorruptFileError:
        return errors.corrupt(self._blob.url, reason)


class _Pool:
    """The cursors of one process that are not in use, the least recently used first."""

    def __init__(self) -> None:
        self._idle: list[Cursor] = []
        self._lock = process.Lock()

    def take(self, offset: int) -> Cursor | None:
        """The cursor that has the shortest way to `offset`, for the caller alone; None if there is none before it."""
        with self._lock:
            best = max((c for c in self._idle if c.position <= offset), key=_position, default=None)
            if best is not None:
                self._idle.remove(best)
            return best

    def give(self, cursor: Cursor) -> None:
        """Keep `cursor`, in place of the least recently used one if there are too many."""
        with self._lock:
            self._idle.append(cursor)
            del self._idle[:-MAX_CURSORS]


def _position(cursor: Cursor) -> int:
    return cursor.position


class StreamBlob(Blob):
    """The decoded content of a compressed file, of `size` bytes; `points` are those that the first pass found."""

    __slots__ = ("_blob", "_codec", "_points", "_pool")

    def __init__(self, origin: Origin, key: str, blob: Blob, codec_name: str, size: int, points: Points) -> None:
        super().__init__(origin, key, size, blob.version)
        self._blob = blob
        self._codec = codec(codec_name)
        self._points = points
        self._pool = process.PerProcess(_Pool)

    @property
    def codec_name(self) -> str:
        """The name of its compression."""
        return self._codec.name

    def _pread(self, size: int, offset: int) -> bytes:
        pool = self._pool.get()
        cursor = pool.take(offset)
        if cursor is None or cursor.position + _NEAR < self._points.nearest(offset):
            if cursor is not None:
                pool.give(cursor)
            cursor = Cursor(self._blob, self._codec, self._points, offset + size, offset)
        data = cursor.read(size) if cursor.skip_to(offset) else b""  # a short read is an error further up
        pool.give(cursor)
        return data

    def _close(self) -> None:
        self._pool.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamBlob, (self._origin, self._key, self._blob, self._codec.name, self.size, self._points)
