"""A tree in memory: the reference that the tests compare every other FS with, and useful in users' tests.

`memory://name` is the same tree wherever it is opened in a process. A forked child has its own copy from then on; a
pickle carries the whole tree, which is used where the process that unpickles has none of that name. A tree that is
empty is freed with the last FS that has it open; `forget` frees one that is not.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ..core import errors, keys, process
from ..core.blobs import Blob, BytesBlob, Hint
from ..core.fs import FS, Capabilities, FileStat, StoreNotes
from ..core.identity import Place
from ..core.writing import Writer
from . import WRITABLE


class Tree:
    """Directories and files by key. Each change is one assignment: a fork or a thread sees all of it or nothing."""

    def __init__(self, name: str, nodes: dict[str, tuple[bytes | None, float, int]] | None = None) -> None:
        self.name = name
        # key -> content (None for a directory), time of writing, a number that no other content has, in any process
        self.nodes: dict[str, tuple[bytes | None, float, int]] = nodes or {"": (None, time.time(), 0)}
        self.lock = process.Lock()
        # Names by directory, some of them perhaps removed or not added yet: `nodes` decides.
        self._names: dict[str, set[str]] = {}
        self._add_names(self.nodes)

    def _add_names(self, found: Iterable[str]) -> None:
        for key in found:
            self._names.setdefault(keys.parent(key), set()).add(keys.name(key))

    def members(self, key: str) -> list[tuple[str, tuple[bytes | None, float, int]]]:
        """Return the names in the directory `key`, in no order, with what is there."""
        with self.lock:
            found = ((name, self.nodes.get(keys.join(key, name))) for name in list(self._names.get(key, ())) if name)
            return [(name, node) for name, node in found if node is not None]

    def put(self, key: str, data: bytes | None) -> None:
        """Make `data` the content of a file; None makes a directory."""
        with self.lock:
            self._add_names((key,))
            self.nodes[key] = (data, time.time(), secrets.randbits(64))
            if _trees.get(self.name) is self:
                _kept[self.name] = self

    def remove(self, key: str) -> None:
        """Remove a file or an empty directory."""
        with self.lock:
            del self.nodes[key]
            self._names.get(keys.parent(key), set()).discard(keys.name(key))
            self._names.pop(key, None)
            if len(self.nodes) == 1 and _kept.get(self.name) is self:
                del _kept[self.name]

    def move(self, src: str, dst: str) -> None:
        """Move a file, or a directory and all that is in it, over what is at `dst`."""
        with self.lock:
            moved = {key: keys.join(dst, keys.relative(key, src)) for key in self.nodes if keys.inside(key, src)}
            self._add_names(moved.values())
            self.nodes = {moved.get(key, key): node for key, node in self.nodes.items() if key != dst}
            for key in moved:
                self._names.get(keys.parent(key), set()).discard(keys.name(key))
                self._names.pop(key, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return tree_of, (self.name, dict(self.nodes))


_trees: weakref.WeakValueDictionary[str, Tree] = weakref.WeakValueDictionary()
_kept: dict[str, Tree] = {}  # those that have something in them


def tree_of(name: str, nodes: dict[str, tuple[bytes | None, float, int]] | None = None) -> Tree:
    """Return this process's tree of a name, made with `nodes` if there is none; a new one where the name is empty."""
    if not name:
        return Tree(name, nodes)
    tree = _trees.get(name)
    if tree is None:
        tree = _trees.setdefault(name, Tree(name, nodes))
        if len(tree.nodes) > 1:
            _kept[name] = tree
    return tree


class Memory(FS):
    """The tree called `name` in this process's memory, or a new one of its own for the empty name."""

    scheme = "memory"
    _notes = StoreNotes(("opening: nothing", "listing: nothing", "an epoch: nothing"))
    capabilities: Capabilities = WRITABLE._replace(append=True, content_versions=True)

    def __init__(self, name: str = "", path: str = "") -> None:
        self._tree = tree_of(name)
        self._root = self._cwd = keys.normalize(path)

    def _url(self, key: str) -> str:
        return f"memory://{self._tree.name}/{keys.to_url_path(key)}"

    def _resolved_store(self) -> str:
        return f"memory {self._tree.name}"  # two trees of a name have no version in common: see `Tree.nodes`

    def _place(self, key: str) -> Place:
        return Place("memory", id(self._tree), key)

    def _node(self, key: str) -> tuple[bytes | None, float, int]:
        node = self._tree.nodes.get(key)
        if node is None:
            self._check_ancestors(key)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return node

    def _check_ancestors(self, key: str) -> None:
        for ancestor in keys.ancestors(key):
            node = self._tree.nodes.get(ancestor)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            if node[0] is not None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        return _to_stat(keys.name(key), self._node(key))

    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[FileStat]:
        if self._node(key)[0] is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        members = [_to_stat(name, node) for name, node in self._tree.members(key)]
        members.sort(key=FileStat.listed)
        return iter(members)

    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        data, _, serial = self._node(key)
        if data is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return BytesBlob(self, key, data, str(serial))

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        self._check_target(key, exclusive)
        with self._tree.lock:
            if append and key not in self._tree.nodes:
                self._tree.put(key, b"")
        return MemoryWriter(self, key, exclusive, append)

    def _check_target(self, key: str, exclusive: bool) -> None:
        self._check_ancestors(key)
        node = self._tree.nodes.get(key)
        if node is not None and node[0] is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if node is not None and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _mkdir(self, key: str, mode: int) -> None:
        with self._tree.lock:
            self._check_ancestors(key)
            if key in self._tree.nodes:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._tree.put(key, None)

    def _rename(self, src: str, dst: str) -> None:
        with self._tree.lock:
            moved = self._node(src)
            self._check_ancestors(dst)
            target = self._tree.nodes.get(dst)
            if target is not None and target[0] is None:
                if moved[0] is not None:
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if next(self._list(dst), None) is not None:
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            elif target is not None and moved[0] is None:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self._tree.move(src, dst)

    def _remove(self, key: str) -> None:
        with self._tree.lock:
            if self._node(key)[0] is None and next(self._list(key), None) is not None:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            self._tree.remove(key)

    def __repr__(self) -> str:
        return f"Memory({self._tree.name!r}, {self.cwd!r})"


class MemoryWriter(Writer):
    """Collects the parts, and puts them into the tree at once."""

    def __init__(self, fs: Memory, key: str, exclusive: bool, append: bool = False) -> None:
        self._fs = fs
        self._key = key
        self._exclusive = exclusive
        self._append = append
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Keep `data`."""
        self._parts.append(data)

    def commit(self) -> None:
        """Put the file into the tree."""
        with self._fs._tree.lock:
            self._fs._check_target(self._key, self._exclusive)
            there = self._fs._tree.nodes.get(self._key) if self._append else None
            start = there[0] or b"" if there is not None else b""
            self._fs._tree.put(self._key, b"".join([start, *self._parts]))

    def abort(self) -> None:
        """Forget the parts."""
        self._parts = []


def _to_stat(name: str, node: tuple[bytes | None, float, int]) -> FileStat:
    data, written, serial = node
    if data is None:
        return FileStat.of_directory(name, written)
    return FileStat(name, len(data), False, written, version=str(serial))


def forget(name: str) -> None:
    """Drop the tree called `name` from this process; FS objects that have it open keep it."""
    if name not in _trees:
        raise errors.error(errno.ENOENT, "forget", f"memory://{name}/")
    del _trees[name]
    _kept.pop(name, None)
