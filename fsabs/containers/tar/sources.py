"""The sources of the pass over an archive's headers: a plain file by positioned reads, or a decoder's output."""

from __future__ import annotations

from typing import Protocol

from ...core.blobs import Blob
from ...core.limits import Limits
from .streams import Cursor

_FIRST_WINDOW = 64 * 1024
_FAR_WINDOW = 4 * 1024
_MAX_WINDOW = 8 * 1024 * 1024
_FAR = 1024 * 1024  # payload between two headers that is dearer to read over than a request of its own is


class HeaderSource(Protocol):
    """An archive's bytes, read in ascending order."""

    def read(self, size: int, offset: int) -> bytes:
        """`size` bytes from `offset`; fewer only where the archive ends."""

    @property
    def end(self) -> int:
        """The archive's size; known at the latest when a read came out short."""

    @property
    def stored(self) -> int:
        """The size of the archive's file, compressed if it is."""

    @property
    def garbage(self) -> str:
        """At the end of what could be decoded: what follows there and can't be; empty if there is nothing."""


class PlainSource:
    """The file itself. Headers that lie close together come by large reads, others by a small read each."""

    def __init__(self, blob: Blob) -> None:
        self._blob = blob
        self._start = 0
        self._data = b""
        self._window = _FIRST_WINDOW // 2
        self._served = 1

    @property
    def end(self) -> int:
        """See `HeaderSource`."""
        return self._blob.size

    stored = end
    garbage = ""

    def read(self, size: int, offset: int) -> bytes:
        """See `HeaderSource`."""
        at = offset - self._start
        if at + size > len(self._data):
            stride = at / self._served
            self._window = _FAR_WINDOW if stride > _FAR else min(2 * self._window, _MAX_WINDOW)
            self._start, self._data = offset, self._blob.pread(max(size, self._window), offset)
            self._served = at = 0
        self._served += 1
        return self._data[at : at + size]


class StreamSource:
    """A decoder's output, which is refused if headers and members say that it is too much for the size of the file."""

    def __init__(self, cursor: Cursor, blob: Blob, limits: Limits) -> None:
        self._cursor = cursor
        self._blob = blob
        self._limits = limits

    @property
    def end(self) -> int:
        """See `HeaderSource`."""
        return self._cursor.position

    @property
    def stored(self) -> int:
        """See `HeaderSource`."""
        return self._blob.size

    @property
    def garbage(self) -> str:
        """See `HeaderSource`."""
        return self._cursor.garbage

    def read(self, size: int, offset: int) -> bytes:
        """See `HeaderSource`."""
        if self._limits.declares_too_much(offset + size, self._blob.size):
            raise self._bomb(offset + size)
        return self._cursor.read(size) if self._cursor.skip_to(offset) else b""

    def drain(self) -> bool:
        """Read to the end, so that every checksum has been seen; whether there was anything but zeros."""
        found, start = False, self._cursor.position
        while data := self._cursor.read(1 << 20):
            found = found or data.count(0) < len(data)
            if self._limits.expands_too_far(self._cursor.position - start, self._blob.size):
                raise self._bomb(self._cursor.position)
        return found or bool(self._cursor.garbage)

    def _bomb(self, size: int) -> OSError:
        what = f"a decompression bomb, as it seems: {self._blob.size} bytes that stand for {size} or more"
        return self._limits.error("max_ratio", what, "open_container", self._blob.url)
