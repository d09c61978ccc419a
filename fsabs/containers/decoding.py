"""The decoded content of compressed bytes, as a blob: what a compressed tar is, and a large compressed member of a zip.

Compressed bytes are *frames*, one or several: the members of gzip, the streams of bzip2 and xz, the frames of zstd, and
the deflated or LZMA data of a zip's member. A `Codec` describes a format; a `Decoder` decodes one frame, forward, in
pieces of bounded size, whatever the frame expands to.

    DecodedBlob   positioned reads of the content
      Cursor      a decoder on its way through the frames; a few are kept where they stopped, for readers side by side
      SeekPoints  where decoding may start: the starts of frames, copies of a decoder's state, what a format has inside

Cursors belong to a process. A forked child starts its own, from the seek points that it inherits.
"""

from __future__ import annotations

import errno
import functools
import importlib
import sys
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from ..core import errors, hooks, process
from ..core.blobs import Blob, Origin
from ..core.buffers import BytesBuffer
from ..core.limits import DEFAULT, Limits
from ..core.readahead import ReadAhead

T = TypeVar("T")

MAX_CURSORS = 4
"""Cursors that are kept of one blob in one process."""
SPACING = 2 * 1024 * 1024
"""Decoded bytes between two seek points, until there are too many of them."""
MAX_POINTS = 1024
"""Seek points of one blob; a copied state takes about 45 KB."""
PIECE = 1024 * 1024
"""Bytes that are decoded at once."""
NEAR = 256 * 1024
"""Decoding this many bytes is no more expensive than starting at a seek point."""
FIRST_FETCH = 128 * 1024
MAX_FETCH = 4 * 1024 * 1024
"""Compressed bytes that are read at once: twice as many each time, between these."""
FIRST_FED, MOST_FED = 4 * 1024, 128 * 1024
"""Compressed bytes that a decoder is given at once: twice as many each time, between these."""
MARGIN = 64 * 1024
"""Compressed bytes that are read beyond what is expected to be enough."""
MAGIC_SIZE = 6
"""Bytes that are enough to recognise the start of a frame of any format."""
STANDARD_ZSTD = sys.version_info >= (3, 14)
"""Whether Python has zstd."""

_ZSTD_WINDOW_LOG = 31
"""Of the largest window that zstd decodes, which has 2 GiB; without being asked for it, it stops at 128 MiB."""
_ZSTD_HEADER = 18
"""Bytes of the longest header of a frame."""

_DEFLATE_PORTION = 128 * 1024  # what zlib leaves of it is copied, and stays in the copies of its state
_ZSTD_PORTION = 4096  # a block of 4 bytes may stand for 128 KiB, and zstandard has no other limit


def fastest_zlib() -> Any:
    """Return ISA-L's deflate and CRC-32 if they are installed (`fsabs[speed]`), else `zlib`: the interface is one."""
    try:
        return importlib.import_module("isal.isal_zlib")
    except ImportError:
        return zlib


crc32: Callable[..., int] = fastest_zlib().crc32
"""`zlib.crc32`; ISA-L's takes a tenth of its time, which is a third of that of reading a small stored member."""


# ---- one frame


class DecodeError(ValueError):
    """Compressed bytes that are not what their format says."""


class WindowTooLarge(DecodeError):
    """Compressed bytes that are no worse than others, but take more memory than is allowed."""


class Decoder:
    """The decoder of one frame, by a decompressor with the interface of the standard library's."""

    def __init__(self, state: Any, *failures: type[Exception], limits: Limits = DEFAULT) -> None:
        """`failures` are what `state` raises for damaged data."""
        self._state = state
        self._failures = failures
        self._limits = limits

    @property
    def eof(self) -> bool:
        """True if the frame has ended, and its checksum, if it has one, is right."""
        return cast(bool, self._state.eof)

    @property
    def unused(self) -> bytes:
        """After the end: the bytes that were fed and are not the frame's."""
        return cast(bytes, self._state.unused_data)

    @property
    def needs_input(self) -> bool:
        """True if there is no more output before more input is fed."""
        return cast(bool, self._state.needs_input)

    def decode(self, data: bytes, limit: int) -> bytes:
        """Feed `data`; return the next bytes of the content, about `limit` at most. Raises `DecodeError`."""
        try:
            return self._decode(data, limit)
        except self._failures as exc:
            raise DecodeError(str(exc)) from exc
        except MemoryError as exc:
            raise WindowTooLarge("decoding it takes more memory than there is") from exc

    def _decode(self, data: bytes, limit: int) -> bytes:
        return cast(bytes, self._state.decompress(data, limit))

    def copy(self) -> tuple[Decoder, int] | None:
        """Return a decoder in the same state, and how many of the bytes fed it has to be fed again; None if it can't be
        copied."""
        return None


class _InPortions(Decoder):
    """A decompressor that is given what was fed in small portions."""

    _fed = b""
    _at = 0
    """Of what was fed: the first byte that the decompressor hasn't got."""

    @property
    def unused(self) -> bytes:
        return super().unused + self._fed[self._at :]

    @property
    def needs_input(self) -> bool:
        return self._at >= len(self._fed)

    def _portion(self, data: bytes, size: int) -> bytes:
        """Take `data`; return what is to be given next."""
        if data:
            self._fed, self._at = self._fed[self._at :] + data, 0
        return self._fed[self._at : self._at + size]


class Inflate(_InPortions):
    """Deflated data, raw (`wbits=-15`) or a gzip member (31), whose CRC-32 and size are checked by zlib."""

    def __init__(self, wbits: int, state: Any = None) -> None:
        super().__init__(state or zlib.decompressobj(wbits), zlib.error)  # isal's can't be copied
        self._wbits = wbits
        self._full = False

    @property
    def needs_input(self) -> bool:
        return super().needs_input and not self._full

    def decode(self, data: bytes, limit: int) -> bytes:
        portion = self._portion(data, _DEFLATE_PORTION)
        found = super().decode(portion, limit)
        self._at += len(portion) - (0 if self._state.eof else len(self._state.unconsumed_tail))
        self._full = len(found) >= limit  # a long match may be inside still, with no input left
        return found

    def copy(self) -> tuple[Decoder, int] | None:
        return None if self.eof else (Inflate(self._wbits, self._state.copy()), len(self._fed) - self._at)


class _Zstd(Decoder):
    """A zstd frame; a skippable one holds nothing."""

    _head = b""  # of the frame: as much as may be its header

    def decode(self, data: bytes, limit: int) -> bytes:
        """As `Decoder.decode`; raises `WindowTooLarge`."""
        if len(self._head) < _ZSTD_HEADER:
            self._head += data[: _ZSTD_HEADER - len(self._head)]
            self._check_window(zstd_window(self._head))
        return super().decode(data, limit)

    def _check_window(self, size: int) -> None:
        what = f"a zstd window of {size} bytes"
        if self._limits.beyond("max_window_bytes", size):
            raise WindowTooLarge(self._limits.reason("max_window_bytes", what))
        if size > 1 << _ZSTD_WINDOW_LOG:
            raise WindowTooLarge(f"{what}, and zstd decodes those of {1 << _ZSTD_WINDOW_LOG} at most")


def zstd_window(head: bytes) -> int:
    """Return the bytes of content that a frame's decoder has to keep; 0 if `head`, its start, doesn't tell (RFC 8878).

    A frame of one segment has no window: it is all kept, and its size stands behind a dictionary's id.
    """
    if len(head) < 6 or not head.startswith(b"\x28\xb5\x2f\xfd"):
        return 0
    descriptor = head[4]
    if not descriptor & 0x20:
        base = 1 << 10 + (head[5] >> 3)
        return base + base // 8 * (head[5] & 7)
    start, size = 5 + (0, 1, 2, 4)[descriptor & 3], 1 << (descriptor >> 6)
    return int.from_bytes(head[start : start + size], "little") if len(head) >= start + size else 0


class Zstandard(_Zstd, _InPortions):
    """A zstd frame by the `zstandard` package."""

    def __init__(self, module: Any, limits: Limits) -> None:
        state = module.ZstdDecompressor(max_window_size=1 << _ZSTD_WINDOW_LOG).decompressobj()
        super().__init__(state, module.ZstdError, limits=limits)

    def _decode(self, data: bytes, limit: int) -> bytes:
        """As `Decoder.decode`; more than `limit` by at most what one portion stands for."""
        portion, state = self._portion(data, _ZSTD_PORTION), self._state
        found: list[bytes] = []
        while portion and limit > 0 and not state.eof:
            found.append(state.decompress(portion))
            limit -= len(found[-1])
            self._at += len(portion)
            portion = self._fed[self._at : self._at + _ZSTD_PORTION]
        return found[0] if len(found) == 1 else b"".join(found)


def bzip2_decoder() -> Decoder:
    """Return the decoder of a bzip2 stream."""
    import bz2

    return Decoder(bz2.BZ2Decompressor(), OSError, ValueError)


def zstd_decoder(limits: Limits = DEFAULT) -> Decoder:
    """Return the decoder of a zstd frame, by Python's own library or another; raises `MissingDependencyError`."""
    if STANDARD_ZSTD:
        module = importlib.import_module("compression.zstd")
        options = {module.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG}
        return _Zstd(module.ZstdDecompressor(options=options), module.ZstdError, limits=limits)
    try:
        module = importlib.import_module("zstandard")
    except ImportError as exc:
        raise errors.missing("zstandard", "zstd", "reading zstd") from exc
    return Zstandard(module, limits)


# ---- the formats


def starts_bzip2(data: bytes) -> bool:
    """Return whether the `MAGIC_SIZE` bytes are the start of a bzip2 stream."""
    return data.startswith(b"BZh") and data[3:4].isdigit() and data[3:4] != b"0"


def starts_zstd(data: bytes) -> bool:
    """Return whether the `MAGIC_SIZE` bytes are the start of a zstd frame, or of a skippable one (RFC 8878)."""
    return data.startswith(b"\x28\xb5\x2f\xfd") or (data[1:4] == b"\x2a\x4d\x18" and 0x50 <= data[0] <= 0x5F)


def starts_nothing(data: bytes) -> bool:
    """Return False: the format has one frame."""
    return False


class Codec(NamedTuple):
    """A format of compressed bytes."""

    name: str
    """As messages have it."""
    span: str
    """As traces have it: what decompression is called there."""
    decoder: Callable[..., Decoder]
    """Makes the decoder of a frame."""
    starts: Callable[[bytes], bool] = starts_nothing
    """Whether `MAGIC_SIZE` bytes, or all that are left, are the start of one more frame."""
    resume: Callable[..., Decoder] | None = None
    """Makes the decoder that starts at a seek point inside of a frame, from the point's `resume_data`."""
    marks_end: bool = True
    """Whether a frame says where it ends; the end of one that doesn't is that of the compressed bytes."""
    padded: bool = False
    """Whether zeros behind a frame mean nothing."""
    has_window: bool = False
    """Whether a frame says how much memory its decoder needs: what makes decoders takes `limits`."""

    def within(self, limits: Limits) -> Codec:
        """Return the codec whose decoders have these limits."""
        if not self.has_window:
            return self
        resume = None if self.resume is None else functools.partial(self.resume, limits=limits)
        return self._replace(decoder=functools.partial(self.decoder, limits=limits), resume=resume)


# ---- where decoding may start


class SeekPoint(NamedTuple):
    """A position where decoding may start."""

    out: int
    """Its offset in the content."""
    src: int
    """The offset of the next compressed byte."""
    resume_data: bytes = b""
    """For a position inside of a frame that any process can start from: what `Codec.resume` takes."""
    state: Decoder | None = None
    """For another one inside of a frame: a decoder, of which copies start there."""
    crc: int = 0
    """The CRC-32 of the content up to there, if that is checked."""


class SeekPoints:
    """The seek points of a blob, in order; good in threads and after a fork. Those without a state pickle."""

    def __init__(self, points: Sequence[SeekPoint] = (SeekPoint(0, 0),), spacing: int | None = None) -> None:
        self._points = tuple(points)
        self.spacing: int = SPACING if spacing is None else spacing
        """Bytes of the content between two points, at least."""
        self._lock = process.Lock()

    def __len__(self) -> int:
        return len(self._points)

    def lasting(self) -> tuple[SeekPoint, ...]:
        """Return the points that any process can start from."""
        return tuple(point for point in self._points if point.state is None)

    def wanted(self, out: int, frame: int = 0) -> bool:
        """Return whether a point at `out` would be far enough from its neighbours, and from the start of the frame."""
        points = self._points
        at = bisect_right(points, out, key=_out)
        close_behind = at < len(points) and points[at].out < out + self.spacing
        return not close_behind and out >= max(frame, points[at - 1].out) + self.spacing

    def add(self, point: SeekPoint) -> None:
        """Keep a point, if it is far enough from others; of too many, every other one is dropped."""
        with self._lock:
            if not self.wanted(point.out):
                return
            points = self._points
            at = bisect_right(points, point.out, key=_out)
            points = (*points[:at], point, *points[at:])
            if len(points) > MAX_POINTS:
                points, self.spacing = points[::2], 2 * self.spacing
            self._points = points

    def before(self, out: int) -> SeekPoint:
        """Return the last point up to `out`."""
        points = self._points
        return points[bisect_right(points, out, key=_out) - 1]

    def src(self, out: int) -> int:
        """Return about where the compressed bytes of `out` are: between two points, or at the last."""
        points = self._points
        at = bisect_right(points, out, key=_out)
        before, behind = points[at - 1], points[min(at, len(points) - 1)]
        if behind is before:
            return before.src
        return before.src + (behind.src - before.src) * (out - before.out) // (behind.out - before.out)

    def start(self, out: int, codec: Codec) -> tuple[SeekPoint, Decoder]:
        """Return the last point up to `out`, and a decoder that starts there, for the caller alone."""
        with self._lock:
            point = self.before(out)
            if point.resume_data:
                assert codec.resume is not None
                return point, codec.resume(point.resume_data)
            if point.state is None:
                return point, codec.decoder()
            # A child that is forked in the middle of this doesn't find the state: its lock would never be released.
            points = self._points
            self._points = tuple(other for other in points if other is not point)
            try:
                copied = point.state.copy()
            finally:
                self._points = points
            assert copied is not None
            return point, copied[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return SeekPoints, (self.lasting(), self.spacing)


def _out(point: SeekPoint) -> int:
    return point.out


# ---- a decoder on its way


class Declared(NamedTuple):
    """The declared size and CRC-32 of a content, which are compared with it when its end is reached."""

    what: str
    """What the content is of, as messages have it."""
    size: int
    crc: int

    def wrong_crc(self, url: str, found: int) -> errors.CorruptFileError:
        """Return the error for a content whose CRC-32 is another one."""
        return errors.corrupt(url, f"CRC-32 {found:08x} of {self.what} where {self.crc:08x} was expected")


class Reader(Protocol):
    """The content from some offset on."""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end."""

    def read_into(self, view: memoryview) -> int:
        """Fill `view` with the next bytes; return how many: fewer only at the end."""


class Cursor:
    """A decoder on its way through compressed bytes; for one thread at a time."""

    def __init__(
        self,
        source: Blob,
        codec: Codec,
        points: SeekPoints,
        start: int = 0,
        until: int = 0,
        declared: Declared | None = None,
    ) -> None:
        """At the last point up to `start`; what is read first will be used up to `until`."""
        point, decoder = points.start(start, codec)
        self._decoder: Decoder | None = decoder
        self._source = source
        self._ahead = ReadAhead(source)
        self._codec = codec
        self._points = points
        self._declared = declared
        self.first: int = point.out
        """The offset of the first byte that the cursor can still go to."""
        self.stop: int = point.out
        """The offset behind all that is decoded."""
        self._crc = point.crc
        self._ready = b""  # decoded bytes, from `first` to `stop`
        self._at = 0  # of those: the next one
        self._src = point.src  # offset behind all that is fetched
        self._fetched = b""
        self._fed = 0  # of what is fetched: the first byte that no decoder has got
        self._portion = FIRST_FED
        self._fetch_size = FIRST_FETCH
        self._expected = points.src(until) + MARGIN  # offset up to which is fetched in any case
        self._frame = point.out  # offset where the frame began, or was entered
        self.trailing = ""
        """At the end: what lies behind the last frame; empty if nothing does."""
        self.lost_frame = False
        """At the end: whether what lies behind would be a frame if one byte at its start were another."""

    @property
    def position(self) -> int:
        """The offset of the next byte in the content."""
        return self.first + self._at

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer only at the end. Raises `CorruptFileError`."""
        start, self._at = self._at, self._at + size
        if self._at <= len(self._ready):
            return self._ready[start : self._at]
        self._at = start
        buffer = BytesBuffer(size)
        with buffer.view as view:  # released also by an error, whose traceback has it
            read = self.read_into(view)
        return buffer.release()[:read]

    def read_all(self, size: int) -> bytes:
        """Return the content, which has `size` bytes, checked, also if it is empty."""
        data = self.read(size)
        if not size:
            self._advance()
        return data

    def read_into(self, view: memoryview) -> int:
        """Fill `view` with the next bytes; return how many: fewer only at the end. Raises `CorruptFileError`."""
        done = 0
        while done < len(view) and (self._at < len(self._ready) or self._advance()):
            piece = memoryview(self._ready)[self._at : self._at + len(view) - done]
            view[done : done + len(piece)] = piece
            done += len(piece)
            self._at += len(piece)
        return done

    def go_to(self, offset: int) -> bool:
        """Go to `offset`, which is `first` or behind it; return False if the content ends before."""
        while offset > self.stop:
            if not self._advance():
                return False
        self._at = offset - self.first
        return True

    def close(self) -> None:
        """End what is under way of reading."""
        self._ahead.close()

    def _advance(self) -> bool:
        """Decode the next piece into `_ready`, which is used up; return False at the end."""
        self._ready, self._at, self.first = b"", 0, self.stop  # it is freed before there is another
        declared = self._declared
        limit = PIECE if declared is None else min(PIECE, declared.size - self.stop)
        data = self._next(limit) if limit else b""
        self._ready = data
        self.stop += len(data)
        if declared is not None:
            self._crc = crc32(data, self._crc)
            if limit and not data:
                raise self._corrupt(f"{declared.what} holds {self.stop} bytes where {declared.size} were expected")
            if self.stop >= declared.size:
                self._check_end(declared)
        if data and self._decoder is not None:
            self._keep_point(self._decoder)
        return bool(data)

    def _next(self, limit: int) -> bytes:
        """Return the next decoded bytes, of this frame or of one behind it; none at the end."""
        while self._decoder is not None or self._start_frame():
            decoder = self._decoder
            assert decoder is not None
            feed = b""
            if decoder.needs_input:
                feed = self._feed()
                if not feed:
                    if self._codec.marks_end:
                        reason = f"the {self._codec.name} data ends in the middle, at offset {self._src}"
                        raise self._corrupt(reason)
                    return b""
            data = self._decode(decoder, feed, limit)
            if decoder.eof:
                self._fed -= len(decoder.unused)
                self._decoder = None
            if data:
                return data
        return b""

    def _decode(self, decoder: Decoder, feed: bytes, limit: int) -> bytes:
        begin = time.monotonic_ns() if hooks.active is not None else 0
        try:
            data = decoder.decode(feed, limit)
        except WindowTooLarge as exc:
            raise errors.error(errno.EFBIG, "read", self._source.url, str(exc)) from exc
        except DecodeError as exc:
            raise self._corrupt(f"bad {self._codec.name} data before offset {self._src}: {exc}") from exc
        if (instrument := hooks.active) is not None:
            instrument.record_span("decompress", self._codec.span, begin, len(data), self._source.url)
        return data

    def _start_frame(self) -> bool:
        """Begin the frame behind the one that has ended; return False if there is none."""
        self._fetch_magic()
        if self._codec.padded and self._fetched.startswith(b"\0", self._fed):
            self._pass_zeros()
            self._fetch_magic()
        magic, offset = self._fetched[self._fed : self._fed + MAGIC_SIZE], self._fed_until
        if not magic:
            return False
        if not self._codec.starts(magic):
            left = self._source.size - offset
            what = f"{left} bytes behind the {self._codec.name} data that are no frame of it"
            self.trailing = f"{what}, at offset {offset}: {magic!r}"
            changed = (magic[:at] + bytes([byte]) + magic[at + 1 :] for at in range(len(magic)) for byte in range(256))
            self.lost_frame = any(map(self._codec.starts, changed))
            return False
        self._points.add(SeekPoint(self.stop, offset, crc=self._crc))
        self._decoder, self._frame, self._portion = self._codec.decoder(), self.stop, FIRST_FED
        return True

    def _fetch_magic(self) -> None:
        while len(self._fetched) - self._fed < MAGIC_SIZE and self._fetch():
            pass

    def _pass_zeros(self) -> None:
        while self._fed < len(self._fetched) or self._fetch():
            piece = self._fetched[self._fed : self._fed + FIRST_FED]
            zeros = len(piece) - len(piece.lstrip(b"\0"))
            self._fed += zeros
            if zeros < len(piece):
                return

    @property
    def _fed_until(self) -> int:
        """The offset behind the compressed bytes that decoders have got."""
        return self._src - len(self._fetched) + self._fed

    def _feed(self) -> bytes:
        """Return the next compressed bytes for the decoder; none at their end.

        They are few at the start of a frame, which may be as short: what lies behind it is given to the next one again.
        """
        if self._fed == len(self._fetched) and not self._fetch():
            return b""
        start, self._fed = self._fed, min(self._fed + self._portion, len(self._fetched))
        self._portion = min(2 * self._portion, MOST_FED)
        return self._fetched[start : self._fed]

    def _check_end(self, declared: Declared) -> None:
        """Check that no frame goes on behind the content, and the content's CRC-32, which proves that it is whole."""
        if self.stop > declared.size or self._next(1):
            raise self._corrupt(f"{declared.what} holds more than the {declared.size} bytes that were expected")
        if self._crc != declared.crc:
            raise declared.wrong_crc(self._source.url, self._crc)

    def _keep_point(self, decoder: Decoder) -> None:
        """Keep the state inside of a long frame; the starts of short ones are cheaper."""
        if self._points.wanted(self.stop, self._frame) and (copied := decoder.copy()) is not None:
            state, again = copied
            self._points.add(SeekPoint(self.stop, self._fed_until - again, state=state, crc=self._crc))

    def _fetch(self) -> bool:
        """Read more compressed bytes behind those that are fetched and not fed; return False at their end."""
        size = min(max(self._fetch_size, self._expected - self._src), MAX_FETCH)
        data = self._ahead.pread(size, self._src)
        self._src += len(data)
        self._fetched, self._fed = self._fetched[self._fed :] + data, 0
        self._fetch_size = min(2 * self._fetch_size, MAX_FETCH)
        return bool(data)

    def _corrupt(self, reason: str) -> errors.CorruptFileError:
        return errors.corrupt(self._source.url, reason)


class _Pool:
    """The cursors of one process that are not in use, the least recently used first."""

    def __init__(self) -> None:
        self._idle: list[Cursor] = []
        self._lock = process.Lock()

    def take(self, offset: int) -> Cursor | None:
        """Return the cursor that has the shortest way to `offset`, for the caller alone; None if none is before it."""
        best: Cursor | None = None
        with self._lock:
            for cursor in self._idle:
                if cursor.first <= offset and (best is None or cursor.first > best.first):
                    best = cursor
            if best is not None:
                self._idle.remove(best)
        return best

    def give(self, cursor: Cursor) -> None:
        """Keep `cursor`, in place of the least recently used one if there are too many."""
        with self._lock:
            self._idle.append(cursor)
            dropped = self._idle.pop(0) if len(self._idle) > MAX_CURSORS else None
        if dropped is not None:
            dropped.close()

    def close(self) -> None:
        """End what is under way of reading."""
        for cursor in self._idle:
            cursor.close()


# ---- the content


class DecodedBlob(Blob):
    """The decoded content of compressed bytes.

    Args:
        origin, key, version: as of every blob.
        source: the compressed bytes.
        codec: their format.
        size: of the content.
        points: those that a first pass has found.
        declared: what the content is compared with when it has been decoded from its start, or a seek point, to its
            end.
    """

    __slots__ = ("_codec", "_declared", "_points", "_pool", "_source")

    def __init__(
        self,
        origin: Origin,
        key: str,
        source: Blob,
        codec: Codec,
        size: int,
        version: str | None = None,
        points: SeekPoints | None = None,
        declared: Declared | None = None,
    ) -> None:
        super().__init__(origin, key, size, version)
        self._source = source
        self._codec = codec
        self._points = SeekPoints() if points is None else points
        self._declared = declared
        self._pool = process.PerProcess(_Pool, _Pool.close)

    @property
    def codec(self) -> Codec:
        """The format of the compressed bytes."""
        return self._codec

    def _pread(self, size: int, offset: int) -> bytes:
        return self._read(size, offset, lambda reader: reader.read(size)) or b""

    def _pread_into(self, view: memoryview, offset: int) -> int:
        return self._read(len(view), offset, lambda reader: reader.read_into(view)) or 0

    def _pread_many(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read the ranges in the order of the content, whatever their order."""
        found = [b""] * len(ranges)
        for at in sorted(range(len(ranges)), key=lambda at: ranges[at][1]):
            if ranges[at][0]:
                found[at] = self._pread(*ranges[at])
        return found

    def read_all(self) -> bytes:
        """Return the whole content; that there is none is checked, too."""
        if not self.size:
            self._clip(0, 0)
            return Cursor(self._source, self._codec, self._points, declared=self._declared).read_all(0)
        return super().read_all()

    def check(self) -> str:
        """Decode all, and so check it; return what lies behind the compressed data, empty if nothing does."""
        cursor = Cursor(self._source, self._codec, SeekPoints(), declared=self._declared)
        while cursor.read(PIECE):
            pass
        return cursor.trailing

    def _read(self, size: int, offset: int, read: Callable[[Reader], T]) -> T | None:
        """Return what `read` returns for a reader at `offset`; None if the content ends before."""
        pool = self._pool.get()
        cursor = pool.take(offset)
        if cursor is None or cursor.stop + NEAR < offset:
            start, stop = self._points.before(offset).out, 0 if cursor is None else cursor.stop
            index = self._index_for(offset, offset - max(start, stop))
            if cursor is not None and (index is not None or stop + NEAR < start):
                pool.give(cursor)
                cursor = None
            if index is not None:
                return read(index)
            if cursor is None:
                cursor = Cursor(self._source, self._codec, self._points, offset, offset + size, self._declared)
        try:
            found = read(cursor) if cursor.go_to(offset) else None  # a short read is an error further up
        except BaseException:
            cursor.close()
            raise
        pool.give(cursor)
        return found

    def _index_for(self, offset: int, distance: int) -> Reader | None:
        """Return what reads at `offset` without decoding the `distance` bytes before it, if there is such a thing."""
        return None

    def _close(self) -> None:
        self._pool.close()
        self._points = SeekPoints(self._points.lasting())

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self._origin, self._key, self._source, self._codec, self.size, self.version)
        return type(self), (*arguments, self._points, self._declared)
