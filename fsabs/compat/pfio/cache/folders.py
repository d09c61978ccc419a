"""The base of PFIO's file caches: their folder, and a size limit that includes the table of items."""

from __future__ import annotations

import os
from typing import Any


class Closing:
    """Gives a cache PFIO's attribute `closed`."""

    closed = False

    def close(self) -> None:
        """Close the cache; its file goes with the last process that has it, unless it was preserved."""
        super().close()  # type: ignore[misc]  # of the cache that this is mixed into
        self.closed = True


_TABLE_ENTRY = 16
"""Bytes that PFIO's table takes for each item, and counts."""


def directory(dir: str | None) -> str:
    """Return the folder of a cache: `$XDG_CACHE_HOME/pfio`, or `~/.cache/pfio`, if none is given."""
    if dir is not None:
        return dir
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "pfio")


def limit(length: int, cache_size_limit: Any) -> Any:
    """Return the bytes that items may take in a cache whose limit counts the table; None for no limit."""
    if not isinstance(cache_size_limit, (int, float)) or cache_size_limit <= 0:
        return cache_size_limit or None  # what is no limit, or is refused
    return max(cache_size_limit - _TABLE_ENTRY * length, 0.5)  # 0 would be none
