"""PFIO's `ReadOnlyFileCache`."""

from __future__ import annotations

from .... import cache
from . import file_cache


class ReadOnlyFileCache(file_cache.Closing, cache.ReadOnlyFileCache):
    """The items of a preserved cache; before `preload()` there are none.

    Args:
        length: how many items there are.
        do_pickle: whether they were pickled.
        dir: the folder; `$XDG_CACHE_HOME/pfio` by default.
        verbose: PFIO's; there is nothing to log.
    """

    def __init__(self, length: int, do_pickle: bool = False, dir: str | None = None, verbose: bool = False) -> None:
        super().__init__(length, do_pickle, file_cache.directory(dir), verbose)
        self.verbose, self.closed = verbose, True

    def preload(self, name: str) -> bool:
        """Take the items of the preserved cache `name`; True."""
        super().preload(name)
        self.closed = False
        return True
