"""Seek points of a compressed file, where decoding may start: the starts of frames, and *points* inside of long ones.

A point inside of a frame is a `Place`, which any process can start from, or where the format has none, the copy of a
decoder's state, for this process and its forked children. Places are kept in the cache directory beside the archive's
index, and mapped by every process: little-endian, their number and spacing, a row of `_ROW` for each (its offset in
what the file holds, the offset in the file, and where its `how` ends), and what the rows tell of. With `SPACING`
between them, and at most 32 KiB for each, which is compressed like the file is, they take about 1 % of the file's size.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...core import process
from ...core.identity import Identity
from ...disk import indexes
from .codecs import TarCodec
from .decoders import FrameDecoder

KIND = "tar-points-1"
"""Of the cached index; another number is another layout."""
SPACING = 4 * 1024 * 1024
"""Decoded bytes between two points, until there are too many of them."""
MAX_POINTS = 1024
"""Points of one file; each takes up to 32 KiB in the process that finds it, or 45 KB as a state."""
_HEAD = struct.Struct("<QQ")
_ROW = struct.Struct("<QQQ")


class _Part(NamedTuple):
    """A `how` that is kept, and looked at when it is needed."""

    kept: indexes.CachedIndex
    start: int
    stop: int

    def read(self) -> bytes | None:
        """The bytes; None if they are damaged."""
        return bytes(self.kept.view[self.start : self.stop]) if self.kept.check(self.start, self.stop) else None


class Point(NamedTuple):
    """A position where decoding may start."""

    out: int
    """Offset in what the file holds."""
    src: int
    """Offset of the next compressed byte."""
    state: FrameDecoder | None = None
    """The decoder's state there; None at the start of a frame, and at a place."""
    how: bytes | _Part | None = None
    """How a decoder is made for a place."""

    @property
    def starts_frame(self) -> bool:
        """True if a frame starts there."""
        return self.state is None and self.how is None


class Points:
    """The points of a file; safe in threads, inherited by forked children, and found again by who gets a pickle."""

    def __init__(self, points: tuple[Point, ...] = (Point(0, 0),), spacing: int = SPACING) -> None:
        self._points = points
        self._spacing = spacing
        self._kept_as: Identity | None = None
        self._lock = process.Lock()
        # The point whose state is being copied, and by which process: a child that was forked meanwhile must not
        # touch that state, whose own lock would stay locked for ever.
        self._in_use: tuple[int, Point] | None = None

    def __len__(self) -> int:
        return len(self._points)

    def wanted(self, out: int, frame: int = 0) -> bool:
        """Return whether a point at `out` would be far enough from its neighbours, and from the `frame`'s beginning."""
        points = self._points
        at = bisect_right(points, out, key=_out)
        close_behind = at < len(points) and points[at].out < out + self._spacing
        return not close_behind and out >= max(frame, points[at - 1].out) + self._spacing

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
        """The points at the starts of frames."""
        return tuple((point.out, point.src) for point in self._points if point.starts_frame)

    def nearest(self, out: int) -> int:
        """The offset of the last point up to `out`."""
        return self._before(out).out

    def src(self, out: int) -> int:
        """About where in the file `out` is: between two points, or at the last."""
        points = self._points
        at = bisect_right(points, out, key=_out)
        before, behind = points[at - 1], points[min(at, len(points) - 1)]
        if behind is before:
            return before.src
        return before.src + (behind.src - before.src) * (out - before.out) // (behind.out - before.out)

    def start(self, out: int, kind: TarCodec) -> tuple[Point, FrameDecoder | None]:
        """The last point up to `out`, and a decoder for the caller alone; None at the start of a frame."""
        with self._lock:
            self._leave_inherited()
            while True:
                point = self._before(out)
                if point.starts_frame:
                    return point, None
                if (decoder := self._decoder(point, kind)) is not None:
                    return point, decoder
                self._points = tuple(other for other in self._points if other is not point)

    def _decoder(self, point: Point, kind: TarCodec) -> FrameDecoder | None:
        """A decoder that starts there; None if what was kept for it is damaged."""
        if point.state is None:
            how = point.how.read() if isinstance(point.how, _Part) else point.how
            return None if how is None or kind.resume is None else kind.resume(how)
        self._in_use = (process.generation(), point)
        copied = point.state.copy()
        self._in_use = None
        assert copied is not None
        return copied[0]

    def _before(self, out: int) -> Point:
        points = self._points
        return points[bisect_right(points, out, key=_out) - 1]

    def _leave_inherited(self) -> None:
        in_use = self._in_use
        if in_use is not None and in_use[0] != process.generation():
            process.abandon(in_use[1])
            self._points = tuple(point for point in self._points if point is not in_use[1])
            self._in_use = None

    # ---- kept for all processes

    def keep(self, identity: Identity) -> None:
        """Keep the places for this version of the file, and use what is kept from now on."""
        if places := [point for point in self._points if isinstance(point.how, bytes)]:
            indexes.save(KIND, identity, _pack(places, self._spacing))
            self.find(identity)

    def find(self, identity: Identity) -> None:
        """Take the places that were kept for this version of the file, in place of those that are in memory."""
        if (kept := indexes.lookup(KIND, identity)) is None or (found := _unpack(kept)) is None:
            return
        places, self._spacing = found
        others = (point for point in self._points if point.how is None)
        self._points = tuple(sorted((*others, *places), key=_out))
        self._kept_as = identity

    def __reduce__(self) -> tuple[Any, ...]:
        return _found_again, (self.frames(), self._spacing, self._kept_as)


def _found_again(frames: tuple[tuple[int, int], ...], spacing: int, kept_as: Identity | None) -> Points:
    """Return the points of an unpickled file, from this process's cache if they are there."""
    points = Points(tuple(Point(*frame) for frame in frames), spacing)
    if kept_as is not None:
        points.find(kept_as)
    return points


def _out(point: Point) -> int:
    return point.out


def _pack(places: list[Point], spacing: int) -> Iterable[bytes]:
    """The parts of what is kept."""
    rows, hows, end = bytearray(), [], 0
    for place in places:
        assert isinstance(place.how, bytes)
        hows.append(place.how)
        end += len(place.how)
        rows += _ROW.pack(place.out, place.src, end)
    return [_HEAD.pack(len(places), spacing), bytes(rows), *hows]


def _unpack(kept: indexes.CachedIndex) -> tuple[list[Point], int] | None:
    """The places, and their spacing; None if the rows are damaged."""
    if len(kept.view) < _HEAD.size or not kept.check(0, _HEAD.size):
        return None
    count, spacing = _HEAD.unpack_from(kept.view)
    stop = _HEAD.size + _ROW.size * count
    if not kept.check(0, stop):
        return None
    places, start = [], stop
    for out, src, end in _ROW.iter_unpack(kept.view[_HEAD.size : stop]):
        places.append(Point(out, src, None, _Part(kept, start, stop + end)))
        start = stop + end
    return places, spacing
