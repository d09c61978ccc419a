"""The iterators of `FS.list`, `FS.glob` and `FS.walk`: each goes on in a forked child, and pickled."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar, cast

from . import process
from .stats import FileStat

T_co = TypeVar("T_co", covariant=True)
Names = list[str]

_LARGEST_BATCH = 1024


def names_of(members: Iterator[FileStat] | Iterator[str]) -> Iterator[str]:
    """Return the names of a listing that has stats or names; the first one is asked for now."""
    first = next(members, None)
    if first is None:
        return iter(())
    if isinstance(first, str):
        return chain((first,), cast("Iterator[str]", members))
    return map(FileStat.listed, chain((first,), cast("Iterator[FileStat]", members)))


class Listing(process.IteratorOwner[T_co], Iterator[T_co]):
    """An iterator that goes on in a forked child, in several threads and after pickling, as `process.Resumable` does.

    `start(after)` returns an iterator of what follows the item `after`, or of all items for None; it is called again in
    each new process, with the item that came last. Items come from it in batches, of one at first, so that most of them
    cost one call.
    """

    __slots__ = ("_failure", "_lock", "_size", "_start", "_state")

    def __init__(self, start: Callable[[T_co | None], Iterator[T_co]], after: T_co | None = None) -> None:
        super().__init__()
        self._start = start
        self._lock = process.Lock()
        self._failure: BaseException | None = None  # raised after the items that came before it
        self._size = 1  # of the next batch
        # The last item of the batches before, the batch, and what of it hasn't been taken: replaced as one, so that a
        # child that is forked at any moment takes up where its parent is.
        self._state: tuple[T_co | None, Sequence[T_co], deque[T_co]] = (after, (), deque())

    def __next__(self) -> T_co:
        while True:
            try:
                return self._state[2].popleft()
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
            if self._state[2]:  # another thread was faster
                return True
            if self._generation != process.generation():
                self._items, self._failure, self._generation = None, None, process.generation()
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            last = self._taken_last()
            if self._items is None:
                self._register_items(self._start(last))
            assert self._items is not None
            batch: list[T_co] = []
            try:
                batch.extend(islice(self._items, self._size))
            except Exception as exc:
                if not batch:
                    raise
                self._failure = exc
            finally:
                self._size = min(2 * self._size, _LARGEST_BATCH)
                self._state = (last, batch, deque(batch))
            return bool(batch)

    def _taken_last(self) -> T_co | None:
        """Return the item that was taken last; None if there is none yet."""
        before, batch, ready = self._state
        taken = len(batch) - len(ready)
        return batch[taken - 1] if taken else before

    def close(self) -> None:
        """Stop early and free what the iterator holds in this process."""
        with self._lock:
            self._close_items()
            self._items, self._state = iter(()), (None, (), deque())

    def __reduce__(self) -> tuple[Any, ...]:
        return Listing, (self._start, self._taken_last())


class Walk(Iterator[tuple[str, Names, Names]]):
    """The directories below `top`, and `top`: a stack of those still to visit, so that it forks and pickles as it is.

    `names` lists a directory as `FS.list` does; `enters` returns whether to list one that is below another.
    """

    def __init__(self, top: str, names: Callable[[str], Iterable[str]], enters: Callable[[str], bool]) -> None:
        self._names = names
        self._enters = enters
        self._stack = [top]
        # How much of the stack counts, and what was given last, with the directories that the caller may prune. It is
        # replaced when a step is done: a child that is forked in the middle of one takes that step again.
        self._state: tuple[int, tuple[str, Names] | None] = (1, None)
        self._lock = process.Lock()

    def __next__(self) -> tuple[str, Names, Names]:
        with self._lock:
            depth, last = self._state
            del self._stack[depth:]
            if last is not None:  # only now is it known what the caller pruned
                below = [os.path.join(last[0], name) for name in reversed(last[1])]
                self._stack += [path for path in below if self._enters(path)]
            if not self._stack:
                raise StopIteration
            path, left = self._stack[-1], len(self._stack) - 1
            try:
                names = sorted(self._names(path))
            except OSError:
                self._state = (left, None)
                raise
            directories = [name[:-1] for name in names if name.endswith("/")]
            self._state = (left, (path, directories))
            return path, directories, [name for name in names if not name.endswith("/")]
