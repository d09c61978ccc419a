"""PFIO's `FileCache`."""

from __future__ import annotations

from .... import cache
from . import folders


class FileCache(folders.Closing, cache.FileCache):
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
        limit = folders.limit(length, cache_size_limit)
        super().__init__(length, multithread_safe, do_pickle, folders.directory(dir), limit, verbose)
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
