"""The iterator of `FS.list` and `FS.glob`: takes names from the store's iterator in batches, and hands them out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from . import process

T_co = TypeVar("T_co", covariant=True)

_LARGEST_BATCH = 1024


class Listing(Iterator[T_co]):
    """An iterator that goes on in a forked child, in several threads and after pickling, as `process.Resumable` does.

    `start(n)` returns an iterator that begins at item `n`; it is called again, with the number of items taken so far,
    in each new process. Items come from it in batches, of one at first, so that most of them cost one call.
    """

    __slots__ = ("_failure", "_generation", "_items", "_lock", "_start", "_state")

    def __init__(self, start: Callable[[int], Iterator[T_co]], taken: int = 0) -> None:
        self._items: Iterator[T_co] | None = None
        self._start = start
        self._generation = process.generation()
        self._lock = process.Lock()
        self._failure: BaseException | None = None  # raised after the items that came before it
        # The number of items that have come, and those of them that haven't been taken: replaced as one, so that a
        # child that is forked at any moment takes up where its parent is.
        self._state: tuple[int, deque[T_co]] = (taken, deque())

    def __next__(self) -> T_co:
        while True:
            try:
                return self._state[1].popleft()
            except IndexError:
                if not self._fetch():
                    raise StopIteration from None

    def prime(self) -> Listing[T_co]:
        """Start now, so that what is wrong with the request is raised at the call; return itself."""
        self._fetch()
        return self

    def _fetch(self) -> bool:
        """Take the next batch from the store's iterator; return False at its end."""
        with self._lock:
            come, ready = self._state
            if ready:  # another thread was faster
                return True
            if self._generation != process.generation():
                self._items, self._failure, self._generation = None, None, process.generation()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._items is None:
                self._items = self._start(come)
                process.register(self, self._items)
            batch: deque[T_co] = deque()
            try:
                batch.extend(islice(self._items, min(come + 1, _LARGEST_BATCH)))
            except Exception as exc:
                if not batch:
                    raise
                self._failure = exc
            finally:
                self._state = (come + len(batch), batch)
            return bool(batch)

    def close(self) -> None:
        """Stop early and free what the iterator holds in this process."""
        with self._lock:
            items, self._items = self._items, iter(())
            self._state = (self._state[0], deque())
            if items is not None and not process.inherited(self._generation):
                process.release(self)
                if hasattr(items, "close"):
                    items.close()
            self._generation = process.generation()

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(
        self,
        inherited: Callable[[int], bool] = process.inherited,
        release: Callable[[object], None] = process.release,
    ) -> None:
        if self._items is not None and not inherited(self._generation):
            release(self)

    def __reduce__(self) -> tuple[Any, ...]:
        come, ready = self._state
        return Listing, (self._start, come - len(ready))
