"""A tree in memory: the reference model that the tests hold every other FS against, and handy in users' own.

`memory://name` is the same tree wherever it is opened in a process. A forked child has its own copy from then on; a
pickle carries the whole tree, which is used where the process that unpickles has none of that name.
"""

from __future__ import annotations

import errno
import os
import secrets
import time
from collections.abc import Iterator
from typing import Any

from .. import errors, keys, process
from ..blobs import Blob, BytesBlob
from ..files import Writer
from ..fs import FS, Capabilities, FileStat


class Tree:
    """Directories and files by key. Each change is one assignment: a fork or a thread sees all of it or nothing."""

    def __init__(self, name: str, nodes: dict[str, tuple[bytes | None, float, int]] | None = None) -> None:
        self.name = name
        # key -> content (None for a directory), time of writing, a number that no other content has, in any process
        self.nodes: dict[str, tuple[bytes | None, float, int]] = nodes or {"": (None, time.time(), 0)}
        self.lock = process.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _tree, (self.name, dict(self.nodes))


_trees: dict[str, Tree] = {}


def _tree(name: str, nodes: dict[str, tuple[bytes | None, float, int]] | None = None) -> Tree:
    if not name:
        return Tree(name, nodes)
    return _trees.get(name) or _trees.setdefault(name, Tree(name, nodes))


class Memory(FS):
    """The tree called `name` in this process's memory, or a new one of its own for the empty name."""

    scheme = "memory"
    capabilities: Capabilities = Capabilities(
        write=True,
        exclusive=True,
        replace=True,
        append=True,
        mkdir=True,
        rename=True,
        remove=True,
        last_modified=True,
        versions=True,
    )

    def __init__(self, name: str = "", path: str = "") -> None:
        self._tree = _tree(name)
        self._root = self._cwd = keys.normalize(path)

    def _url(self, key: str) -> str:
        return f"memory://{self._tree.name}/{keys.to_url_path(key)}"

    def _resolved_store(self) -> str:
        return f"memory {self._tree.name}"  # two trees of a name have no version in common: see `Tree.nodes`

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

    def _stat(self, key: str) -> FileStat:
        return _to_stat(keys.name(key), self._node(key))

    def _list(self, key: str) -> Iterator[FileStat]:
        if self._node(key)[0] is not None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        members = [
            _to_stat(keys.name(member), node)
            for member, node in list(self._tree.nodes.items())
            if member and keys.parent(member) == key
        ]
        members.sort(key=FileStat.listed)
        return iter(members)

    def _open_blob(self, key: str) -> Blob:
        data, _, serial = self._node(key)
        if data is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return BytesBlob(self, key, data, str(serial))

    def _create(self, key: str, exclusive: bool) -> Writer:
        self._check_target(key, exclusive)
        return MemoryWriter(self, key, exclusive)

    def _append(self, key: str) -> Writer:
        self._check_target(key, False)
        with self._tree.lock:
            if key not in self._tree.nodes:
                self._put(key, b"")
        return MemoryWriter(self, key, False, append=True)

    def _check_target(self, key: str, exclusive: bool) -> None:
        self._check_ancestors(key)
        node = self._tree.nodes.get(key)
        if node is not None and exclusive:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
        if node is not None and node[0] is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))

    def _mkdir(self, key: str, mode: int) -> None:
        with self._tree.lock:
            self._check_ancestors(key)
            if key in self._tree.nodes:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._put(key, None)

    def _put(self, key: str, data: bytes | None) -> None:
        self._tree.nodes[key] = (data, time.time(), secrets.randbits(64))

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
            self._tree.nodes = {
                keys.join(dst, keys.relative(key, src)) if keys.inside(key, src) else key: node
                for key, node in self._tree.nodes.items()
                if key != dst
            }

    def _remove(self, key: str) -> None:
        with self._tree.lock:
            if self._node(key)[0] is None and next(self._list(key), None) is not None:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
            del self._tree.nodes[key]

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
            self._fs._put(self._key, b"".join([start, *self._parts]))

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
