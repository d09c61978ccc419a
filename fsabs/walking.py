"""The iterator of `FS.walk`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from . import process

Names = list[str]


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
