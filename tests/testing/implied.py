"""A store whose directories are implied, as those of object stores are, right in every way: for the kit's own tests."""

from __future__ import annotations

import contextlib

from fsabs.core import keys
from fsabs.core.fs import FS, Capabilities
from fsabs.core.layers import LayerFS
from fsabs.core.writing import Writer
from fsabs.testing import MemorySubject, WrappedSubject


class Implied(LayerFS):
    """A layer that makes a file's directories, and takes them away with the last file."""

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        return self.inner.capabilities._replace(implied_directories=True, mkdir=False, append=False)

    def _create(self, key: str, exclusive: bool) -> Writer:
        if exclusive and self._is(key, directory=False):
            raise FileExistsError(17, "File exists")
        return ImpliedWriter(self.inner, key, exclusive)

    def _rename(self, src: str, dst: str) -> None:
        self.inner._stat(src)
        _make_parent(self.inner, dst)
        self.inner._rename(src, dst)
        self._prune(src)

    def _remove(self, key: str) -> None:
        self.inner._remove(key)
        self._prune(key)

    def _remove_tree(self, key: str) -> None:
        self.inner._remove_tree(key)
        self._prune(key)

    def _copy(self, src: str, dst: str) -> None:
        FS._copy(self, src, dst)

    def _prune(self, key: str) -> None:
        parent = keys.parent(key)
        while keys.inside(parent, self._root) and parent != self._root and not list(self.inner._list(parent)):
            self.inner._remove(parent)
            parent = keys.parent(parent)


class ImpliedWriter(Writer):
    def __init__(self, inner: FS, key: str, exclusive: bool) -> None:
        self._inner = inner
        self._key = key
        self._exclusive = exclusive
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._parts.append(data)

    def commit(self) -> None:
        _make_parent(self._inner, self._key)
        writer = self._inner._create(self._key, self._exclusive)
        writer.write(b"".join(self._parts))
        writer.commit()

    def abort(self) -> None:
        self._parts = []


def _make_parent(fs: FS, key: str) -> None:
    parent = keys.parent(key)
    if parent:
        with contextlib.suppress(FileExistsError):  # a file, below which the operation itself fails
            fs.makedirs(f"/{parent}", exist_ok=True)


def implied() -> WrappedSubject:
    return WrappedSubject(MemorySubject(), Implied)
