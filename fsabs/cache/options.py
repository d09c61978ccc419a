"""Options of caches as users write them: sizes, and what `cache=` and `http_cache=` of `from_url` may be."""

from __future__ import annotations

import os
import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
LARGEST_FLOOR = 50 * 10**9
"""Bytes of a disk that a cache leaves free by default, at most: a tenth of a small disk."""


def size_of(value: int | str, name: str, least: int = 0) -> int:
    """A number of bytes: a number, or text as `"50GB"` (10**9), `"1.5TiB"` (2**40), `"4096"`; `ValueError`."""
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None or (match[3] and not match[2]):
            raise ValueError(f"{name} is a number of bytes, or text as '50GB' or '1.5TiB', not {value!r}")
        value = int(float(match[1]) * (_BINARY if match[3] else _UNITS)[match[2].lower()])
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is a number of bytes, at least {least}, not {value!r}")
    return value


def share_of_disk(folder: str | None) -> int:
    """Return the default of `min_free`: a tenth of the disk, at most 50 GB."""
    return min(LARGEST_FLOOR, disk_size(folder) // 10) if folder is not None else 0


def disk_size(folder: str) -> int:
    """Return the size of the disk that holds `folder`, or that will."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize
