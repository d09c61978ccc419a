"""Reading large values faster than `pread` does: from a mapping, where the pages are in memory."""

from __future__ import annotations

import mmap
import os

LARGE = 32 * 1024
"""Bytes from which on a value is copied out of the mapping."""
_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_MORE = 16 * 1024 * 1024


class Mapped:
    """The data of a growing file. Threads share it, and forked children go on with it."""

    __slots__ = ("_beyond", "_fd", "_map", "_one", "_size")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map: mmap.mmap | None = None
        self._size = 0
        self._beyond = 0
        self._one = (bytearray(1),)

    def read(self, size: int, offset: int) -> bytes | None:
        """`size` bytes, or None where `pread` is to be asked: they are not in memory, or not in the file.

        One byte is read first, at the end and without waiting: it isn't there where the file was cut off (which in a
        mapping is a SIGBUS) or has to come from the disk (for which `pread` waits without holding the GIL).
        """
        end = offset + size
        if end > self._size:
            self._grow(size)
            return None
        mapped = self._map
        try:
            if mapped is not None and os.preadv(self._fd, self._one, end - 1, _NOWAIT) == 1:
                return mapped[offset:end]
        except OSError:
            pass
        return None

    def _grow(self, size: int) -> None:
        """Map anew when a quarter more than what is mapped was read beyond it."""
        self._beyond += size
        if self._beyond > self._size // 4 + _MORE and _NOWAIT:
            self._beyond = 0
            length = os.fstat(self._fd).st_size
            self._map, self._size = mmap.mmap(self._fd, length, prot=mmap.PROT_READ), length
