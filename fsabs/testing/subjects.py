"""Subjects that are ready to use: local files, memory, and what goes around any other subject: layers, `subfs`,
`lazify` and containers. They are examples, too: a store of your own takes about as many lines as `LocalSubject`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..backends import memory
from ..backends.local import Local
from ..containers.base import Container
from ..core import keys
from ..core.fs import FS
from ..core.layers import LayerFS, lazify
from ..core.writing import PARTIAL_SUFFIX
from .subject import Files, Subject

_numbers = itertools.count(1)


class LocalSubject(Subject):
    """Local files, in directories made below `base` and looked at by `os`."""

    def __init__(self, base: str | os.PathLike[str] | None = None, opener: Callable[[str], FS] = Local) -> None:
        self._base = tempfile.mkdtemp(prefix="fsabs-kit-", dir=base)
        self._opener = opener

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Writes the tree with `os` and `open`."""
        root = tempfile.mkdtemp(dir=self._base)
        for key in directories:
            os.makedirs(os.path.join(root, key), exist_ok=True)
        for key, data in files.items():
            path = os.path.join(root, key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(data)
        return self.place(self._opener(root), root)

    def stored(self, location: str) -> dict[str, bytes]:
        """Reads the tree with `os.walk`."""
        return dict(_read_tree(location))

    def hidden(self, name: str) -> bool:
        """Return whether it is a half-written file of `Local`."""
        return name.startswith(".") and name.endswith(PARTIAL_SUFFIX)

    def close(self) -> None:
        """Removes the directories."""
        shutil.rmtree(self._base)


def _read_tree(root: str) -> Iterator[tuple[str, bytes]]:
    for folder, directories, names in os.walk(root):
        for name in directories:
            yield os.path.relpath(os.path.join(folder, name), root) + "/", b""
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                yield os.path.relpath(path, root), file.read()


class MemorySubject(Subject):
    """Trees in memory, put there and looked at as the dictionaries that they are."""

    def __init__(self) -> None:
        self._made: list[str] = []

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Makes the dictionary of a new tree."""
        name = f"kit-{os.getpid()}-{next(_numbers)}"
        wanted: dict[str, bytes | None] = {"": None}
        for key in [*directories, *files]:
            wanted.update(dict.fromkeys(keys.ancestors(key)))
        wanted.update(dict.fromkeys(directories))
        wanted.update(files)
        memory.tree_of(name, {key: (data, time.time(), n) for n, (key, data) in enumerate(wanted.items())})
        self._made.append(name)
        return self.place(memory.Memory(name), name)

    def stored(self, location: str) -> dict[str, bytes]:
        """Reads the dictionary."""
        nodes = memory.tree_of(location).nodes.items()
        return {key if data is not None else key + "/": data or b"" for key, (data, _, _) in nodes if key}

    def close(self) -> None:
        """Forgets the trees."""
        for name in self._made:
            with contextlib.suppress(FileNotFoundError):  # closed twice
                memory.forget(name)


class WrappedSubject(Subject):
    """An FS around the FS of another subject: `wrap(fs)` for each that is made."""

    def __init__(self, inner: Subject, wrap: Callable[[FS], FS]) -> None:
        self._inner = inner
        self._wrap = wrap
        self.live = inner.live
        self.shared = inner.shared
        self.timeout = inner.timeout
        self.refused_characters = inner.refused_characters

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Wraps what the inner subject makes."""
        return self._wrapped(self._inner.make(files, directories))

    def create(self) -> FS:
        """Wraps what the inner subject creates."""
        return self._wrapped(self._inner.create())

    def _wrapped(self, fs: FS) -> FS:
        return self.place(self._wrap(fs), self._inner.location(fs))

    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files that the inner subject sees."""
        return self._inner.stored(location)

    def hidden(self, name: str) -> bool:
        """As the inner subject has it."""
        return self._inner.hidden(name)

    def reopen(self, url: str) -> FS | None:
        """The inner FS: a layer has no place in a URL."""
        return self._inner.reopen(url)

    def close(self) -> None:
        """Closes the inner subject."""
        self._inner.close()


def layered(inner: Subject) -> WrappedSubject:
    """A do-nothing `LayerFS` around the FS of another subject."""
    return WrappedSubject(inner, LayerFS)


def lazified(inner: Subject) -> WrappedSubject:
    """`lazify` around the FS of another subject, which is built anew, from its pickle, wherever that can be."""
    return WrappedSubject(inner, _lazify)


def _lazify(fs: FS) -> FS:
    try:
        recipe = pickle.dumps(fs)
    except TypeError:  # a container that is being written exists once; unused, it would never be closed
        return lazify(functools.partial(_given, fs), lazy_init=False)
    fs.close()
    return lazify(functools.partial(pickle.loads, recipe))


def _given(fs: FS) -> FS:
    return fs


class SubFSSubject(WrappedSubject):
    """The `subfs` of another subject's FS at `at`; it holds, too, that nothing beside that directory is touched."""

    def __init__(self, inner: Subject, at: str = "sub/dir") -> None:
        super().__init__(inner, self._sub)
        self._at = at
        self._beside = {"outside.txt": b"outside", f"{at}-beside/x.txt": b"beside", f"{keys.parent(at)}/y": b"above"}
        self._furnished: set[str] = set()

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Has the tree made below `at`, and other files around it."""
        inside = {f"{self._at}/{key}": data for key, data in files.items()}
        fs = self._inner.make({**self._beside, **inside}, [self._at, *(f"{self._at}/{key}" for key in directories)])
        self._furnished.add(self._inner.location(fs))
        return self._wrapped(fs)

    def create(self) -> FS:
        """An empty directory; that of a new container, where the FS is one."""
        if self.live:
            return self.make({})
        fs = self._inner.create()
        if not fs.capabilities.implied_directories:
            fs.makedirs(self._at)
        return self._wrapped(fs)

    def _sub(self, fs: FS) -> FS:
        sub = fs.subfs(self._at)
        sub._borrowed = False  # the FS has no other owner: closing this closes it
        return sub

    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files below `at`; `AssertionError` if a file beside it has changed."""
        everything = self._inner.stored(location)
        prefix = self._at + "/"
        outside = {key: data for key, data in everything.items() if not key.startswith(prefix) and key[-1] != "/"}
        if outside != (self._beside if location in self._furnished else {}):
            raise AssertionError(f"outside of the subfs at {self._at!r} there is now {outside!r}")
        return {
            key[len(prefix) :]: data for key, data in everything.items() if key.startswith(prefix) and key != prefix
        }


class ContainerSubject(Subject):
    """A container, in a file of another subject's FS: a live one, or itself a container for containers in containers.

    `build(files, directories)` makes the archive's bytes and `parse(data)` takes them apart, as `Subject.stored` has
    it; both by an independent library. `opener(fs, path, mode)` opens the file; `fs.open_container` by default.
    """

    live = False

    def __init__(
        self,
        name: str,
        build: Callable[[Files, Iterable[str]], bytes],
        parse: Callable[[bytes], dict[str, bytes]],
        outer: Subject,
        opener: Callable[[FS, str, str], FS] | None = None,
    ) -> None:
        self._name = name
        self._build = build
        self._parse = parse
        self._outer = outer
        self._opener = opener or _open_container
        self.shared = outer.shared
        self.timeout = outer.timeout

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Has the archive put into the outer FS, and opens it there."""
        return self._open(self._outer.make({self._name: self._build(files, directories)}), "r")

    def create(self) -> FS:
        """A new archive in a new outer FS."""
        return self._open(self._outer.create(), "w")

    def _open(self, outer: FS, mode: str) -> FS:
        fs = self._opener(outer, self._name, mode)
        if isinstance(fs, Container):
            fs.own(outer)
        return self.place(fs, self._outer.location(outer))

    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files of the archive."""
        data = self._outer.stored(location).get(self._name)
        return {} if data is None else self._parse(data)

    def reopen(self, url: str) -> FS | None:
        """As the outer subject opens URLs: they lead through the container."""
        return self._outer.reopen(url)

    def close(self) -> None:
        """Closes the outer subject."""
        self._outer.close()


def _open_container(fs: FS, path: str, mode: str) -> Any:
    return fs.open_container(path, mode)
