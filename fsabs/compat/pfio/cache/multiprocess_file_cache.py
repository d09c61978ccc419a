"""PFIO's `MultiprocessFileCache`."""

from __future__ import annotations

from .... import cache
from . import file_cache


class MultiprocessFileCache(file_cache.Closing, cache.MultiprocessFileCache):
    """Items in a file, for all processes that have the cache: forked, or spawned with it pickled.

    Args:
        length: how many items there can be.
        do_pickle: store pickles of objects; else items are bytes.
        dir: the folder; `$XDG_CACHE_HOME/pfio` by default.
        cache_size_limit: bytes of items and 16 for each of `length`; None or 0 for no limit.
        verbose: log, as `fsabs.cache`.
        trace: PFIO's; a trace of `fsabs.trace` sees every cache.
    """

    def __init__(
        self,
        length: int,
        do_pickle: bool = False,
        dir: str | None = None,
        cache_size_limit: int | None = None,
        verbose: bool = False,
        trace: bool = False,
    ) -> None:
        super().__init__(
            length, do_pickle, file_cache.directory(dir), file_cache.item_bytes(length, cache_size_limit), verbose
        )
        self.cache_size_limit, self.trace = cache_size_limit, trace
