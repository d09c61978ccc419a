"""PFIO's `FileCache`, and what all its file caches share: the folder, and a size limit that includes the item table."""

from __future__ import annotations

import os
from typing import Any

from .... import cache


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


def item_bytes(length: int, cache_size_limit: Any) -> Any:
    """Return the bytes that items may take in a cache whose limit counts the table; None for no limit."""
    if not isinstance(cache_size_limit, (int, float)) or cache_size_limit <= 0:
        return cache_size_limit or None  # what is no limit, or is refused
    return max(cache_size_limit - _TABLE_ENTRY * length, 0.5)  # 0 would be none


class FileCache(Closing, cache.FileCache):
    """Items in a file, for one process until they are preserved.

    Args:
        length: how many items there can be.
        multithread_safe: what the property says; threads may share every cache.
        do_pickle: store pickles of objects; else items are bytes.
        dir: the folder; `$XDG_CACHE_HOME/pfio` by default.
        cache_size_limit: bytes of items and 16 for each of `length`; None or 0 for no limit.
        verbose: log, as `fsabs.cache`.
        trace: PFIO's; a trace of `fsabs.trace` sees every cache.
    """

    def __init__(
        self,
        length: int,
        multithread_safe: bool = False,
        do_pickle: bool = False,
        dir: str | None = None,
        cache_size_limit: int | None = None,
        verbose: bool = False,
        trace: bool = False,
    ) -> None:
        limit = item_bytes(length, cache_size_limit)
        super().__init__(length, multithread_safe, do_pickle, directory(dir), limit, verbose)
        self._multithread_safe, self.trace = multithread_safe, trace
        self.cache_size_limit = cache_size_limit

    @property
    def multithread_safe(self) -> bool:
        """The value that was given to the constructor."""
        return self._multithread_safe

    @property
    def multiprocess_safe(self) -> bool:
        """True if the cache is frozen."""
        return self.frozen
