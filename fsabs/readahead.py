"""Reading ahead: a blob that is read from front to back is read as a stream, which the store fills meanwhile.

Reads here and there stay what they are: one positioned read each. Where bytes come in order for long enough, and the
blob knows a way to have more of them under way than were asked for (`Blob._stream`), the next ones are taken from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from . import errors, process
from .blobs import Blob

STREAM_AFTER = 2 * 1024 * 1024
"""So many bytes in order make a pattern; what is left must be as much again, or a stream isn't worth its while."""


class ReadAhead:
    """Positioned reads of `blob`, by a stream where they follow one another; for one thread at a time.

    A stream belongs to the process that began it: a forked child leaves its parent's alone, and begins its own.
    """

    __slots__ = ("_blob", "_generation", "_next", "_pieces", "_rest", "_run")

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._pieces: Iterator[memoryview] | None = None
        self._rest = memoryview(b"")  # of the stream's last piece
        self._next = 0  # the offset that would go on with what was read last
        self._run = 0  # bytes read in order
        self._generation = process.generation()

    @property
    def streaming(self) -> bool:
        """True if the bytes come from a stream by now."""
        return self._pieces is not None

    def pread(self, size: int, offset: int) -> bytes:
        """As `Blob.pread`."""
        if self._generation != process.generation():
            self._leave_inherited()
        if offset != self._next:
            self.close()
        size = self._blob._clip(size, offset)
        if self._pieces is None and self._run >= STREAM_AFTER and self._blob.size - offset >= STREAM_AFTER:
            self._pieces = self._blob._stream(offset)
            if self._pieces is not None:
                process.register(self, self._pieces)  # a generator that is freed is closed: in a child, its parent's
            self._run = 0  # where there is no stream, it is asked for again after as many bytes
        data = self._blob.pread(size, offset) if self._pieces is None else self._take(size, offset)
        self._next = offset + len(data)
        self._run += len(data)
        return data

    def close(self) -> None:
        """End the stream, if there is one."""
        pieces, self._pieces = self._pieces, None
        self._rest = memoryview(b"")
        self._run = 0
        if pieces is not None and not process.inherited(self._generation):
            process.release(self)
            if hasattr(pieces, "close"):
                pieces.close()

    def __del__(
        self,
        inherited: Callable[[int], bool] = process.inherited,
        release: Callable[[object], None] = process.release,
    ) -> None:
        if self._pieces is not None and not inherited(self._generation):
            release(self)

    def _leave_inherited(self) -> None:
        self.close()
        self._generation = process.generation()

    def _take(self, size: int, offset: int) -> bytes:
        """The next `size` bytes of the stream."""
        assert self._pieces is not None
        rest, found, missing = self._rest, [], size
        try:
            while missing:
                if not rest:
                    rest = next(self._pieces)
                found.append(rest[:missing])
                rest = rest[missing:]
                missing -= len(found[-1])
        except BaseException as exc:
            self.close()
            if isinstance(exc, StopIteration):
                raise errors.corrupt(self._blob.url, f"no more than {size - missing} bytes at offset {offset}") from exc
            if isinstance(exc, OSError):
                errors.named(exc, "read", self._blob.url)
            raise
        self._rest = rest
        return joined(found)


def joined(pieces: list[memoryview]) -> bytes:
    """Return the bytes of the pieces; of one that is a whole object of bytes, that object."""
    whole = pieces[0].obj if len(pieces) == 1 else None
    return whole if isinstance(whole, bytes) and len(whole) == len(pieces[0]) else b"".join(pieces)
