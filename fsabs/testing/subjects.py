"""`Subject`, the interface that an implementer writes, and subjects that are ready to use.

These are local files, memory, and what goes around another subject: layers, `subfs`, `lazify` and containers.

A check makes its tree and looks at the result through the subject's side channel, never through the FS under test: a
`write` and a `read` that are wrong in the same way would otherwise agree.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import os
import pickle
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from ..backends import memory
from ..backends.local import Local
from ..containers.base import Container
from ..core import keys
from ..core.fs import FS
from ..core.layers import LayerFS, lazify
from ..core.lazy import cached_property
from ..core.stats import Capabilities
from ..core.writing import PARTIAL_SUFFIX

F = TypeVar("F", bound=FS)
Files = Mapping[str, bytes]
_numbers = itertools.count(1)


class Subject(abc.ABC):
    """One FS under test, and its side channel.

    A *live* FS (a store, a layer over one) reads what it has just written. A container is not live: an archive is read,
    or it is written; `make` then gives an FS that reads, and `create` one that writes.
    """

    live: bool = True
    """Whether what `create` gives reads what it has written, at once."""
    shared: bool = True
    """Whether a process that is started anew finds in the store what is there; False for one in a process's memory."""
    timeout: float = 20.0
    """Seconds that a child process may take with a few files before it is taken to hang."""
    refused_characters: str = ""
    """Characters that the store can't have in a name."""

    @cached_property
    def capabilities(self) -> Capabilities:
        """The capabilities of this subject's FS objects: for a container, of reading and writing together."""
        with self.make({}) as made, self.create() as created:
            both = zip(made.capabilities, created.capabilities, strict=True)
            return Capabilities(*(one or other for one, other in both))

    @abc.abstractmethod
    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Return a new FS that holds this tree and nothing else, put there by the side channel.

        `files` are contents by key; `directories` are keys, wanted even where they are empty. Directories above what is
        named are made, too. Give the FS through `place`, so that `contents` knows where to look.
        """

    def create(self) -> FS:
        """Return a new, empty FS to write to."""
        return self.make({})

    @abc.abstractmethod
    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files that are really stored, read by the side channel.

        Files by key; a directory's key ends in `/`, and its content is empty. Leftovers of half-written files belong to
        it. Where a container's file isn't there at all, there is nothing: an empty dict.
        """

    def hidden(self, name: str) -> bool:
        """Return whether a listing leaves out what is stored under `name`, the last segment of a key."""
        return False

    def reopen(self, url: str) -> FS | None:
        """Return the FS at a URL that an FS of this subject gave; None where nothing answers to such URLs.

        Override this where `from_url` needs options.
        """
        from ..urls.opening import from_url

        return from_url(url)

    def close(self) -> None:  # noqa: B027 - many have nothing to free
        """Throw away what was made, all of it."""

    # ---- for implementers and checks; nothing to override

    def place(self, fs: F, location: str) -> F:
        """Note that `fs` lies at `location`, which is what `stored` takes; return `fs`."""
        self._locations[fs] = location
        return fs

    def location(self, fs: FS) -> str:
        """Return the location of an FS that `make` or `create` returned."""
        return self._locations[fs]

    def contents(self, where: FS | str) -> dict[str, bytes]:
        """Return the files that are really stored at an FS or a location, hidden leftovers included."""
        return self.stored(where if isinstance(where, str) else self.location(where))

    def files(self, where: FS | str) -> dict[str, bytes]:
        """Return the files that are stored under names that listings show."""
        return {key: data for key, data in self.contents(where).items() if not key.endswith("/") and self._shown(key)}

    def directories(self, where: FS | str) -> set[str]:
        """Return the keys of the directories that are stored as such."""
        return {key[:-1] for key in self.contents(where) if key.endswith("/") and self._shown(key[:-1])}

    def _shown(self, key: str) -> bool:
        return not any(self.hidden(name) for name in key.split("/"))

    @cached_property
    def _locations(self) -> weakref.WeakKeyDictionary[FS, str]:
        return weakref.WeakKeyDictionary()


class LocalSubject(Subject):
    """Local files, in directories made below `base` and looked at by `os`."""

    def __init__(self, base: str | os.PathLike[str] | None = None, opener: Callable[[str], FS] = Local) -> None:
        self._base = tempfile.mkdtemp(prefix="fsabs-kit-", dir=base)
        self._opener = opener

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Write the tree with `os` and `open`."""
        root = tempfile.mkdtemp(dir=self._base)
        for key in (*directories, *map(keys.parent, files)):
            os.makedirs(os.path.join(root, key), exist_ok=True)
        for key, data in files.items():
            with open(os.path.join(root, key), "wb") as file:
                file.write(data)
        return self.place(self._opener(root), root)

    def stored(self, location: str) -> dict[str, bytes]:
        """Read the tree with `os.walk`."""
        return dict(_read_tree(location))

    def hidden(self, name: str) -> bool:
        """Return whether it is a half-written file of `Local`."""
        return name.startswith(".") and name.endswith(PARTIAL_SUFFIX)

    def close(self) -> None:
        """Remove the directories."""
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
        """Make the dictionary of a new tree."""
        name = f"kit-{os.getpid()}-{next(_numbers)}"
        folders = (folder for key in [*directories, *files] for folder in keys.ancestors(key))
        nodes: dict[str, bytes | None] = {**dict.fromkeys(["", *folders, *directories]), **files}
        memory.tree_of(name, {key: (data, time.time(), n) for n, (key, data) in enumerate(nodes.items())})
        self._made.append(name)
        return self.place(memory.Memory(name), name)

    def stored(self, location: str) -> dict[str, bytes]:
        """Read the dictionary."""
        nodes = memory.tree_of(location).nodes.items()
        return {key if data is not None else key + "/": data or b"" for key, (data, _, _) in nodes if key}

    def close(self) -> None:
        """Forget the trees."""
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
        """Wrap what the inner subject makes."""
        return self._wrapped(self._inner.make(files, directories))

    def create(self) -> FS:
        """Wrap what the inner subject creates."""
        return self._wrapped(self._inner.create())

    def _wrapped(self, fs: FS) -> FS:
        return self.place(self._wrap(fs), self._inner.location(fs))

    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files that the inner subject sees."""
        return self._inner.stored(location)

    def hidden(self, name: str) -> bool:
        """Return whether the inner subject's listings leave it out."""
        return self._inner.hidden(name)

    def reopen(self, url: str) -> FS | None:
        """Return the inner FS: a layer has no place in a URL."""
        return self._inner.reopen(url)

    def close(self) -> None:
        """Close the inner subject."""
        self._inner.close()


def layered(inner: Subject) -> WrappedSubject:
    """Return a subject with a do-nothing `LayerFS` around the FS of another one."""
    return WrappedSubject(inner, LayerFS)


def lazified(inner: Subject) -> WrappedSubject:
    """Return a subject with `lazify` around the FS of another one, rebuilt from its pickle where it has one."""
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
        """Have the tree made below `at`, and other files around it."""
        inside = {f"{self._at}/{key}": data for key, data in files.items()}
        fs = self._inner.make({**self._beside, **inside}, [self._at, *(f"{self._at}/{key}" for key in directories)])
        self._furnished.add(self._inner.location(fs))
        return self._wrapped(fs)

    def create(self) -> FS:
        """Return an FS of an empty directory; of that of a new container, where the FS is one."""
        if self.live:
            return self.make({})
        fs = self._inner.create()
        if not fs.capabilities.implied_directories:
            fs.makedirs(self._at)
        return self._wrapped(fs)

    def _sub(self, fs: FS) -> FS:
        sub = fs.subfs(self._at)
        sub._owns_resources = True  # the FS has no other owner: closing this closes it
        return sub

    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files below `at`; `AssertionError` if a file beside it has changed."""
        everything = self._inner.stored(location)
        prefix = self._at + "/"
        outside = {key: data for key, data in everything.items() if not key.startswith(prefix) and key[-1] != "/"}
        if outside != (self._beside if location in self._furnished else {}):
            raise AssertionError(f"outside of the subfs at {self._at!r} there is now {outside!r}")
        inside = ((key.removeprefix(prefix), data) for key, data in everything.items() if key.startswith(prefix))
        return {key: data for key, data in inside if key}


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
        self._opener = opener
        self.shared = outer.shared
        self.timeout = outer.timeout

    def make(self, files: Files, directories: Iterable[str] = ()) -> FS:
        """Have the archive put into the outer FS, and open it there."""
        return self._open(self._outer.make({self._name: self._build(files, directories)}), "r")

    def create(self) -> FS:
        """Return a new archive in a new outer FS."""
        return self._open(self._outer.create(), "w")

    def _open(self, outer: FS, mode: str) -> FS:
        fs = self._opener(outer, self._name, mode) if self._opener else outer.open_container(self._name, mode)
        if isinstance(fs, Container):
            fs.own(outer)
        return self.place(fs, self._outer.location(outer))

    def stored(self, location: str) -> dict[str, bytes]:
        """Return the files of the archive."""
        data = self._outer.stored(location).get(self._name)
        return {} if data is None else self._parse(data)

    def reopen(self, url: str) -> FS | None:
        """Return what the outer subject gives for the URL, which leads through the container."""
        return self._outer.reopen(url)

    def close(self) -> None:
        """Close the outer subject."""
        self._outer.close()
