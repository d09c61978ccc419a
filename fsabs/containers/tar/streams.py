"""A compressed file as a blob of what it holds: positioned reads, by decoders that only go forward.

Reading on is cheap, reading back starts again at the nearest *point* before: the start of a frame, or for gz the copy
of a decoder's state, of which a bounded number is kept, evenly spread. A few decoders (*cursors*) are kept where they
stopped, so that several readers at once don't send one back and forth. Cursors belong to a process; a forked child
starts its own, from the points that it inherits.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, NamedTuple

from ... import errors, process
from ...blobs import Blob, Origin
from ...readahead import ReadAhead
from .codecs import MAGIC_SIZE, Codec, DecodeError, Decoder, codec

SPACING = 4 * 1024 * 1024
"""Decoded bytes between two points, until there are too many of them."""
MAX_POINTS = 256
"""Points that are kept of one file; a gz state takes about 45 KB."""
MAX_CURSORS = 4
"""Decoders that are kept of one file in one process."""

_PIECE = 1024 * 1024  # decoded at once
_FIRST_FETCH = 128 * 1024
_MAX_FETCH = 4 * 1024 * 1024
_NEAR = 256 * 1024  # decoding this much is not dearer than starting at a point


class Point(NamedTuple):
    """Where decoding may start."""

    out: int
    """Offset in what the file holds."""
    src: int
    """Offset of the next compressed byte."""
    state: Decoder | None = None
    """The decoder's state there; None at the start of a frame."""


class Points:
    """The points of a file; safe in threads, and inherited by forked children."""

    def __init__(self, points: tuple[Point, ...] = (Point(0, 0),), spacing: int = SPACING) -> None:
        self._points = points
        self._spacing = spacing
        self._lock = process.Lock()
        # The point whose state is being copied, and by which process: a child that was forked meanwhile must not
        # touch that state, whose own lock would stay locked for ever.
        self._in_use: tuple[int, Point] | None = None

    def __len__(self) -> int:
        return len(self._points)

    def wanted(self, out: int, frame: int = 0) -> bool:
        """Whether a point at `out` would be far enough from the one before it, and from the `frame`'s beginning."""
        return out >= max(frame, self._before(out).out) + self._spacing

    def add(self, point: Point) -> None:
        """Keep `point`; when there are too many, every other one is dropped."""
        with self._lock:
            self._leave_inherited()
            if not self.wanted(point.out):
                return
            points = self._points
            at = bisect_right(points, point.out, key=_out)
            points = (*points[:at], point, *points[at:])
            if len(points) > MAX_POINTS:
                points, self._spacing = points[::2], 2 * self._spacing
            self._points = points

    def frames(self) -> tuple[tuple[int, int], ...]:
        """The points at the starts of frames, which every process can start from."""
        return tuple((point.out, point.src) for point in self._points if point.state is None)

    def nearest(self, out: int) -> int:
        """The offset of the last point up to `out`."""
        return self._before(out).out

    def start(self, out: int) -> Point:
        """The last point up to `out`, with a state of the caller's own."""
        with self._lock:
            self._leave_inherited()
            point = self._before(out)
            if point.state is None:
                return point
            self._in_use = (process.generation(), point)
            copied = point.state.copy()
            self._in_use = None
        assert copied is not None
        return point._replace(state=copied[0])

    def _before(self, out: int) -> Point:
        points = self._points
        return points[bisect_right(points, out, key=_out) - 1]

    def _leave_inherited(self) -> None:
        in_use = self._in_use
        if in_use is not None and in_use[0] != process.generation():
            process.abandon(in_use[1])
            self._points = tuple(point for point in self._points if point is not in_use[1])
            self._in_use = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Points, (tuple(point for point in self._points if point.state is None), self._spacing)


def _out(point: Point) -> int:
    return point.out


class Cursor:
    """A decoder on its way through a file; for one thread at a time."""

    def __init__(self, blob: Blob, kind: Codec, points: Points, point: Point) -> None:
        self._blob = blob
        self._source = ReadAhead(blob)
        self._codec = kind
        self._points = points
        self._decoder = point.state
        self._out = point.out  # offset behind all that is decoded
        self._ready = b""  # decoded bytes, taken up to `_at`
        self._at = 0
        self._src = point.src  # offset behind all that is fetched
        self._pending = b""  # fetched, not fed
        self._fetch_size = _FIRST_FETCH
        self._started = point.out > 0 or point.src > 0
        self._frame = point.out  # offset where the frame began, or was entered

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

    def _decode(self, decoder: Decoder) -> bytes:
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
        """Begin the next frame; False where nothing, or only a padding of zeros, is left."""
        while len(self._pending) < MAGIC_SIZE and self._fetch():
            pass
        if self._started and self._pending[:1] in (b"", b"\0"):
            self._skip_zeros()
            if not self._pending:
                return False
        offset = self._src - len(self._pending)
        if not self._codec.starts(self._pending[:MAGIC_SIZE]):
            kind = "a " + self._codec.name if not self._started else f"one more {self._codec.name}"
            raise self._corrupt(f"no start of {kind} frame at offset {offset}, but {self._pending[:MAGIC_SIZE]!r}")
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

    def _keep_point(self, decoder: Decoder) -> None:
        """Keep the state inside of a long frame; the starts of short ones are cheaper, and travel in pickles."""
        if self._points.wanted(self._out, self._frame) and (copied := decoder.copy()):
            state, waiting = copied
            self._points.add(Point(self._out, self._src - len(self._pending) - waiting, state))

    def _fetch(self) -> bool:
        """Read more of the file behind `_pending`; False at its end."""
        data = self._source.pread(self._fetch_size, self._src)
        self._src += len(data)
        self._pending += data
        self._fetch_size = min(2 * self._fetch_size, _MAX_FETCH)
        return bool(data)

    def _corrupt(self, reason: str) -> errors.CorruptFileError:
        return errors.corrupt(self._blob.url, reason)


class _Pool:
    """The cursors of one process that nobody uses right now, the least recently used first."""

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
    """What a compressed file holds, `size` bytes decoded; `points` are those that the first pass found."""

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
            cursor = Cursor(self._blob, self._codec, self._points, self._points.start(offset))
        data = cursor.read(size) if cursor.skip_to(offset) else b""  # a short read is an error further up
        pool.give(cursor)
        return data

    def _close(self) -> None:
        self._pool.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return StreamBlob, (self._origin, self._key, self._blob, self._codec.name, self.size, self._points)
