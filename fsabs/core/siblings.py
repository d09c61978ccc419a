"""Directories beside each other, out of one listing of the tree that they are in: for walks and globs of stores that
list a tree by as few requests as one directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from . import errors, keys, process
from .stats import FileStat

if TYPE_CHECKING:
    from .fs import FS

_ALONE = 4
"""Directories beside each other that are asked for one by one first: more of them may not be wanted."""
_MOST = 1000
"""Names that are read of one directory's tree, or passed over before it: about as many as a request gives."""
Found = dict[str, list[str]]
"""The names in a directory and in those below it, by their keys."""


class _Stream(NamedTuple):
    """The listing of a tree, as far as it was read."""

    parent: str
    items: Iterator[FileStat] | Iterator[str]
    following: str | None
    """The name that was read last, and not used; None at the end."""
    used: bool = False
    """Names of it were given."""


class SiblingListing(process.IteratorOwner[Any]):
    """The names in directories that are asked for in the order of a walk from the top down.

    What it doesn't give is to be listed by itself: the first directories beside each other, those with many names in
    and below them, and all that are asked for out of order. It may be asked by one thread at a time; in a forked child
    it begins anew. Pickled, it is one that was asked for nothing.
    """

    __slots__ = ("_asked", "_fs", "_known", "_stream", "_useless")

    def __init__(self, fs: FS) -> None:
        super().__init__()
        self._fs = fs
        self._asked: dict[
            str, tuple[str, int]
        ] = {}  # by parents: the last name, and how many were asked for one by one
        self._known: Found = {}
        self._stream: _Stream | None = None
        self._useless = False  # the store doesn't list in order, or not from where it is to

    def listed(self, path: str) -> Iterable[str]:
        """Return the names in the directory `path`, as `FS.list` does."""
        names = self.names(self._fs._key(path, "list"))
        return self.checked(self._fs.list(path)) if names is None else names

    def checked(self, names: Iterable[str]) -> Iterator[str]:
        """Yield names of a listing of one directory; where they are out of order, nothing is read of a tree any more.

        In such a store what belongs together doesn't come together.
        """
        last = ""
        for name in names:
            self._useless = self._useless or name < last
            last = name
            yield name

    def holds(self, key: str, name: str) -> bool | None:
        """Return whether `name`, which may be a path, is in the directory `key`; None if that is to be asked for."""
        if self.names(key) is None:
            return None
        folder, _, last = f"{key}/{name}".rpartition("/")
        names = self._known.get(folder, [])
        return last in names or last + "/" in names

    def names(self, key: str) -> list[str] | None:
        """Return the names in the directory `key`; None if it is to be listed by itself."""
        can = self._fs.capabilities
        if not key or self._useless or not (can.flat_listing and can.ordered):
            return None
        if process.inherited(self._generation):
            self._end()
            self._asked, self._known = {}, {}
        if (known := self._known.get(key)) is not None:
            return known
        parent, name = keys.parent(key), keys.name(key) + "/"
        self._asked = {above: last for above, last in self._asked.items() if keys.inside(parent, above)}
        last, count = self._asked.get(parent, ("", 0))
        count = count + 1 if name > last else 1
        self._asked[parent] = name, count
        if count <= _ALONE:
            return None
        found = self._read(parent, name)
        if not found:
            self._end()
            self._asked[parent] = name, 0
        self._known = found
        return found.get(key)

    def _end(self) -> None:
        self._stream = None
        self._close_items()

    def _read(self, parent: str, name: str) -> Found:
        """Return the names in a directory, and in those below it; nothing if it is to be listed by itself."""
        stream, self._stream = self._stream, None  # an exception leaves nothing that is half read
        if stream is None or stream.parent != parent:
            self._end()
            try:
                items = self._fs._walk(parent, False, name[:-1])
                self._register_items(items)
                stream = _Stream(parent, items, _next(items))
            except OSError:
                stream = None
            if stream is None or (stream.following or name) < name[:-1]:
                self._useless = True
                return {}
        following, found = stream.following, Found()
        for _ in range(_MOST):
            if following is None or not (following < name or following.startswith(name)):
                self._stream = stream._replace(following=following, used=True)
                return found
            if following.startswith(name):
                path = keys.join(parent, following.removesuffix("/"))
                if following[-1] == "/":
                    found.setdefault(path, [])
                if following != name:
                    folder = keys.parent(path)
                    found.setdefault(folder, []).append(following[len(keys.relative(folder, parent)) + 1 :])
            before, following = following, _next(stream.items)
            if following is not None and following <= before:
                self._useless = True
                if not stream.used or following >= name:
                    return {}
                reason = f"the listing is out of order: {following!r} after {before!r}"
                raise errors.corrupt(self._fs._url(parent), reason, "list")
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return SiblingListing, (self._fs,)


def _next(items: Iterator[FileStat] | Iterator[str]) -> str | None:
    item = next(items, None)
    return item.listed() if isinstance(item, FileStat) else item
