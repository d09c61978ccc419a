"""Trees in one order, so that two of them can be compared side by side without either being in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .. import keys
from ..stats import FileStat

if TYPE_CHECKING:
    from ..core import Core

_MOST_PASSED = 10_000
"""Files of a target that are passed over before its files are asked for one by one."""


def ordered_walk(fs: Core, key: str) -> Iterator[FileStat]:
    """Yield what is below a directory, names relative to it, in the order of the names with a directory's `/`.

    Where a store has no order, the names of one directory at a time are in memory.
    """
    if fs.capabilities.ordered:
        yield from fs._walk(key)
        return
    stack = [("", iter(sorted(fs._list_names(key))))]
    while stack:
        base, names = stack[-1]
        name = next(names, None)
        if name is None:
            stack.pop()
            continue
        name = base + name
        path = keys.join(key, name.removesuffix("/"))
        if not name.endswith("/"):
            try:
                yield fs._stat(path)._replace(filename=name)
            except FileNotFoundError:  # gone since
                continue
            continue
        yield FileStat.of_directory(name[:-1])
        if not fs._leads_back(path):
            stack.append((name, iter(sorted(fs._list_names(path)))))


class Existing:
    """The files that are below a directory of a target already, asked for in the order of `ordered_walk`.

    The directory is listed beside the walk of the source. If much more is in it than is asked for, it is no longer
    listed: each file is asked for.
    """

    def __init__(self, fs: Core, key: str) -> None:
        self._fs = fs
        self._key = key
        self._walk = existing(fs, key)
        self._next: FileStat | None = next(self._walk, None)
        self._empty = self._next is None
        self._listed = True
        self._passed = self._asked = 0

    def find(self, name: str) -> FileStat | None:
        """Return the stat of the file `name`, which follows those that were asked for before; None if there is none."""
        if self._empty:
            return None
        self._asked += 1
        while self._listed and self._next is not None and self._next.listed() < name:
            self._next = next(self._walk, None)
            self._passed += 1
            self._listed = self._passed <= _MOST_PASSED + 10 * self._asked
        if not self._listed:
            try:
                return self._fs._stat(keys.join(self._key, name))._replace(filename=name)
            except (FileNotFoundError, NotADirectoryError):
                return None
        found = self._next
        return found if found is not None and found.filename == name and not found.directory else None


def existing(fs: Core, key: str) -> Iterator[FileStat]:
    """Yield what is below a directory, as `ordered_walk` does; nothing if it is missing, or can't be read."""
    if not fs.capabilities.read:
        return
    walk = ordered_walk(fs, key)
    try:
        first = next(walk, None)
    except FileNotFoundError:
        return
    if first is not None:
        yield first
        yield from walk


def side_by_side(
    left: Iterator[FileStat], right: Iterator[FileStat]
) -> Iterator[tuple[FileStat | None, FileStat | None]]:
    """Yield the entries of two ordered walks, those of one name together."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one.listed() < other.listed()):
            yield one, None
            one = next(left, None)
        elif one is None or other.listed() < one.listed():
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)
