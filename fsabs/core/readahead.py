"""Reading ahead: a blob that is read from front to back is read as a stream, which the store fills meanwhile.

Reads here and there stay what they are: one positioned read each. Where bytes come in order for long enough, and the
blob knows a way to have more of them under way than were asked for (`Blob._stream`), the next ones are taken from it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing

from . import errors, process
from .blobs import Blob
from .buffers import MIN_ADVISED, BytesBuffer

PIECE = 8 * 1024 * 1024
"""Bytes of a large file that are read at once."""

STREAM_AFTER = 2 * 1024 * 1024
"""So many bytes in order make a pattern; what is left must be as much again, or a stream isn't worth its while."""


class ReadAhead(process.IteratorOwner[memoryview]):
    """Positioned reads of `blob`, by a stream where they follow one another; for one thread at a time.

    A stream belongs to the process that began it: a forked child leaves its parent's alone, and begins its own. It goes
    on behind a gap of up to `max_gap` bytes, which are read over.
    """

    __slots__ = ("_blob", "_max_gap", "_next", "_rest", "_run")

    def __init__(self, blob: Blob, max_gap: int = 0) -> None:
        super().__init__()
        self._blob = blob
        self._max_gap = max_gap
        self._rest = memoryview(b"")  # of the stream's last piece
        self._next = 0  # the offset that would go on with what was read last
        self._run = 0  # bytes read in order

    @property
    def streaming(self) -> bool:
        """True if the bytes come from a stream by now."""
        return self._items is not None

    def pread(self, size: int, offset: int) -> bytes:
        """Read `size` bytes at `offset`, ahead of which more may be read."""
        size = self._begin(size, offset)
        if self._items is None:
            data = self._blob.pread(size, offset)
        elif size < MIN_ADVISED:
            data = joined(list(self._take(size, offset)))
        else:  # of which there is to be no second copy
            buffer = BytesBuffer(size)
            with buffer.view as view:
                self._fill(view, offset)
            data = buffer.release()
        self._next = offset + len(data)
        self._run += len(data)
        return data

    def pread_into(self, view: memoryview, offset: int) -> int:
        """Fill `view` from `offset`, ahead of which more may be read; return the number of bytes."""
        size = self._begin(len(view), offset)
        if self._items is None:
            size = self._blob.pread_into(view, offset)
        else:
            self._fill(view[:size], offset)
        self._next = offset + size
        self._run += size
        return size

    def read_some(self, size: int, offset: int) -> memoryview:
        """Return up to `size` bytes; while there is a stream, what is left of its piece as it came, however long."""
        size = self._begin(size, offset)
        if self._items is None or not size:
            found = memoryview(self._blob.pread(size, offset))
        else:
            found = self._rest or self._piece(size, offset)
            self._rest = memoryview(b"")
        self._next = offset + len(found)
        self._run += len(found)
        return found

    def _begin(self, size: int, offset: int) -> int:
        """Begin a stream where it is time; return the size of a read, clipped at the end."""
        if self._generation != process.generation():
            self.close()
        if offset != self._next:
            if self._items is not None and 0 < offset - self._next <= self._max_gap:
                for _ in self._take(offset - self._next, self._next):
                    pass
            else:
                self.close()
        size = self._blob._clip(size, offset)
        if self._items is None and self._run >= STREAM_AFTER and self._blob.size - offset >= STREAM_AFTER:
            if (pieces := self._blob._stream(offset)) is not None:
                self._register_items(pieces)
            self._run = 0  # where there is no stream, it is asked for again after as many bytes
        return size

    def close(self) -> None:
        """End the stream, if there is one."""
        self._rest = memoryview(b"")
        self._run = 0
        self._close_items()

    def _take(self, size: int, offset: int) -> Iterator[memoryview]:
        """Yield the next `size` bytes of the stream, in pieces."""
        missing = size
        while missing:
            piece = self._rest or self._piece(missing, offset + size - missing)
            self._rest = piece[missing:]
            missing -= min(missing, len(piece))
            self._next = offset + size - missing  # where the stream is, if the reader breaks off here
            yield piece[: len(piece) - len(self._rest)]

    def _fill(self, view: memoryview, offset: int) -> None:
        """Fill `view` from the stream."""
        at = 0
        for piece in self._take(len(view), offset):
            view[at : at + len(piece)] = piece
            at += len(piece)

    def _piece(self, missing: int, offset: int) -> memoryview:
        """Return the stream's next piece, which is not empty; what is `missing` at `offset` says what there must be."""
        assert self._items is not None
        try:
            while not (piece := next(self._items)):
                pass
            return piece
        except BaseException as exc:
            self.close()
            if isinstance(exc, StopIteration):
                raise errors.corrupt(self._blob.url, f"the stream ends {missing} bytes early, at {offset}") from exc
            if isinstance(exc, OSError):
                errors.named(exc, "read", self._blob.url)
            raise


def joined(pieces: list[memoryview]) -> bytes:
    """Return the bytes of the pieces; of one that is a whole object of bytes, that object."""
    if not pieces:
        return b""
    whole = pieces[0].obj if len(pieces) == 1 else None
    return whole if isinstance(whole, bytes) and len(whole) == len(pieces[0]) else b"".join(pieces)


def pieces(blob: Blob, start: int = 0) -> Generator[bytes, None, None]:
    """Yield the bytes of `blob` from `start` on, from front to back."""
    with closing(ReadAhead(blob)) as source:
        for offset in range(start, blob.size, PIECE):
            yield source.pread(PIECE, offset)
