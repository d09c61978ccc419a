"""PFIO's `NaiveCache`."""

from __future__ import annotations

from typing import Any

from .... import cache


class NaiveCache(cache.NaiveCache):
    """Items in the memory of this process: the objects themselves. Indexes below 0 count from the end.

    Args:
        length: how many items there can be.
        multithread_safe: what the property says; threads may share every cache.
        do_pickle: PFIO's; it has no effect.
    """

    def __init__(self, length: int, multithread_safe: bool = False, do_pickle: bool = False) -> None:
        super().__init__(length)
        self._multithread_safe = multithread_safe

    @property
    def multithread_safe(self) -> bool:
        """The value that was given to the constructor."""
        return self._multithread_safe

    def put(self, i: Any, data: Any) -> bool:
        """Store an item; False if it is there. None is no item."""
        return data is not None and super().put(self._from_start(i), data)

    def get(self, i: Any, default: Any = None) -> Any:
        """Return an item, or `default` if it is not there."""
        return super().get(self._from_start(i), default)

    def _from_start(self, i: Any) -> Any:
        return i + self.length if isinstance(i, int) and -self.length <= i < 0 else i
