"""`FS.walk`'s iterator, built on `list` alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import process

if TYPE_CHECKING:
    from .fs import FS

Names = list[str]


class Walk(Iterator[tuple[str, Names, Names]]):
    """The iterator of `FS.walk`: a stack of directories still to visit, so that it forks and pickles as it stands."""

    def __init__(self, fs: FS, top: str) -> None:
        self._fs = fs
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
                names = sorted(self._fs.list(path))
            except OSError:
                self._state = (left, None)
                raise
            directories = [name[:-1] for name in names if name.endswith("/")]
            self._state = (left, (path, directories))
            return path, directories, [name for name in names if not name.endswith("/")]

    def _enters(self, path: str) -> bool:
        return not self._fs._leads_back(self._fs._key(path, "walk"))
