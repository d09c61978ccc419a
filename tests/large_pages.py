"""The memory of the test process, which hundreds of tests fork: in pages of 2 MB, of which there are few to copy."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_LARGE = 1 << 21
_MADV_COLLAPSE = 25  # of Linux 6.1; older kernels refuse it
_ANONYMOUS = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0 ", re.MULTILINE)


def use() -> None:
    """Have what is in memory now moved into large pages, where the kernel can and while they are not written to by two
    processes.
    """
    if not _MAPS.exists():
        return
    advise = ctypes.CDLL(None).madvise
    for begin, end in _ANONYMOUS.findall(_MAPS.read_text()):
        first = -(-int(begin, 16) // _LARGE) * _LARGE
        size = (int(end, 16) - first) // _LARGE * _LARGE
        if size > 0:
            advise(ctypes.c_void_p(first), ctypes.c_size_t(size), _MADV_COLLAPSE)
