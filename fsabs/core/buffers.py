"""The buffer of one large read: it is filled in place and returned as `bytes` without a copy.

Most of what a large buffer costs is its page faults, one for each 4 KiB. Where the system has transparent huge pages on
request (`madvise`, the default of most distributions), a large buffer asks for them: one fault for each 2 MiB.
"""

from __future__ import annotations

import ctypes
import errno
import io
import mmap

MIN_ADVISED = 32 * 1024 * 1024
"""The size in bytes from which huge pages are asked for: malloc gives such a buffer a mapping of its own."""
_KEPT = 8 * 1024 * 1024
_HUGE_PAGE = 2 * 1024 * 1024
_MADV_HUGEPAGE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
_madvise = getattr(ctypes.CDLL(None), "madvise", None)


class _Bytes(io.BytesIO):
    """Is not closed when it is freed: a view of it may be freed behind it, with the same exception, and can't then."""

    def __del__(self) -> None:
        pass


class BytesBuffer:
    """`size` bytes, written through `view`; `OSError` (ENOMEM) for more than there is room for.

    The view is released also where writing fails: Python 3.12.1 crashes when the garbage collector finds both.
    """

    def __init__(self, size: int) -> None:
        try:
            self._file = _Bytes(bytes(size))
        except (MemoryError, OverflowError):
            raise OSError(errno.ENOMEM, f"{size:,} bytes do not fit into memory: read them in parts") from None
        self.view = self._file.getbuffer()
        if size >= MIN_ADVISED:
            _advise(self.view)

    def release(self) -> bytes:
        """Return the very bytes that were filled; every view of them has to be released."""
        self.view.release()
        return self._file.getvalue()  # without a copy: there is no other reference


def keep_freed_memory() -> None:
    """Have malloc keep the memory that large reads have used.

    It gives the end of its heap back to the system, and takes it again for the next read, page by page, until a large
    block has been freed once (mallopt(3), M_MMAP_THRESHOLD). This one costs microseconds: nothing is written to it.
    """
    bytes(_KEPT)


def _advise(view: memoryview) -> None:
    """Ask for huge pages; a system without them ignores it."""
    if _madvise is None or _MADV_HUGEPAGE is None:
        return
    start = ctypes.addressof(ctypes.c_char.from_buffer(view))
    first = -(-start // _HUGE_PAGE) * _HUGE_PAGE
    end = (start + len(view)) // _HUGE_PAGE * _HUGE_PAGE
    _madvise(ctypes.c_void_p(first), ctypes.c_size_t(end - first), _MADV_HUGEPAGE)
