"""FS objects by the root of their URLs, reused: what opens a file by its URL alone gets its FS here.

The root of `s3://bucket/a/train.zip/b/1.jpg` is the innermost container on the way to the file,
`s3://bucket/a/train.zip`; where there is none, it is `s3://bucket/`. A root is opened once in a process, and the least
recently used of more than `LIMIT` is dropped. A root whose URL has the name of a container in it is opened again when
the container's file was replaced, or a directory of such a name has become a file, or a file a directory: that is
looked for before each use where a stat costs microseconds, at most every `CHECK_SECONDS` in other stores, and whenever
a use of it fails. One of a custom scheme is opened again when a scheme was added or replaced.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple, TypeVar

from ..core import (
    errors,
    keys,
    modes,
    process,
    registry,
)
from ..core.fs import FS
from . import config, locations, opening
from .locations import split

T = TypeVar("T")

LIMIT = 64
CHECK_SECONDS = 5.0


class _Folder(NamedTuple):
    """A directory's URL, split at the last segment that may be a container."""

    root: str
    """URL of the root."""
    store: str
    """URL of the root of the store that it is in."""
    containers: tuple[str, ...]
    """The paths in the store that may be containers, the outermost first."""
    path: str
    """The path from the root to the directory."""
    ends_here: bool = True
    """Whether the store's name can't go on in a longer URL, as that of a repository in `hf://datasets/org` does."""


class _Root:
    """An FS of the table, and what `Roots._state` had said of its containers when it was opened.

    `configuration` is the state of that, of which `fs` was made; None if it has no part in it.
    """

    __slots__ = ("checked", "configuration", "fs", "interval", "state")

    def __init__(self, fs: FS, state: tuple[str, Any] | None, interval: float, configuration: object) -> None:
        self.fs = fs
        self.state = state
        self.interval = interval
        self.configuration = configuration
        self.checked = time.monotonic()

    def is_due(self) -> bool:
        """Return whether the container has to be looked at again."""
        return time.monotonic() - self.checked >= self.interval


class Roots:
    """A table of FS objects by the root of their URLs; `options` are `from_url`'s, for each of them."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self.options = dict(options or {})
        self._lock = process.Lock()
        self._roots: OrderedDict[str, _Root] = OrderedDict()  # the least recently used first

    def clear(self) -> None:
        """Drop all FS objects of the table; those in use go on."""
        self._roots.clear()

    def __len__(self) -> int:
        return len(self._roots)

    def call(self, url: str, function: Callable[[FS, str], T], *, inside: bool = False) -> T:
        """Return `function(fs, path)` for the FS at the URL's root and the path in it.

        With `inside`, the last segment of the URL may be a container, whose own root is meant. A function that fails
        because the container's file was replaced is called again, on the new one.
        """
        folder, name = _locate(url, inside)
        root = self._root(folder)
        path = keys.join(folder.path, name) if folder.path else name
        try:
            return function(root.fs, path)
        except (errors.StaleFileError, FileNotFoundError, NotADirectoryError):
            if not self._replaced(root, folder):
                raise
        return function(self._opened(folder).fs, path)

    def open_file(
        self,
        url: str,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open the file at a URL; every argument means what it means to `builtins.open`.

        A container on the path is read only: `io.UnsupportedOperation` for other modes.
        """
        if modes.parse(mode).only_reads:
            return self.call(url, lambda fs, path: fs.open(path, mode, buffering, encoding, errors, newline))
        fs, path = self._plain(url)
        return fs.open(path, mode, buffering, encoding, errors, newline)

    @contextlib.contextmanager
    def as_local(self, url: str, mode: str = "r") -> Iterator[str]:
        """Give a path on the local disk for the file at a URL; see `FS.as_local`."""
        with contextlib.ExitStack() as stack:
            if mode == "r":
                yield self.call(url, lambda fs, path: stack.enter_context(fs.as_local(path)))
            else:
                fs, path = self._plain(url)
                yield stack.enter_context(fs.as_local(path, mode))

    def _plain(self, url: str) -> tuple[FS, str]:
        """Return the FS and the path on it of a file that is written; `io.UnsupportedOperation` in a container."""
        folder, name = _locate(url, False)
        if self._state(folder) is not None:
            raise opening.written_into_container(shown(url), shown(folder.root))
        root = self._root(folder)
        if root.state is not None:  # it was a container
            root = self._opened(folder)
        return root.fs, keys.join(folder.path, name)

    def _root(self, folder: _Folder) -> _Root:
        """Return the root of a folder, opened if it is not in the table or a container on the way was replaced."""
        with self._lock:
            found = self._roots.get(folder.root)
            if found is not None:
                self._roots.move_to_end(folder.root)
        if found is None or (found.configuration is not None and found.configuration != config.state()):
            return self._opened(folder)
        if folder.containers and found.is_due() and self._replaced(found, folder):
            return self._opened(folder)
        return found

    def _opened(self, folder: _Folder) -> _Root:
        """Open the root of a folder, and keep it."""
        configuration = None if folder.store.partition(":")[0] in registry.BUILTIN_SCHEMES else config.state()
        state, interval = self._state(folder), 0.0
        if folder.containers and self._store(folder.store).capabilities.stat_is_request:
            interval = CHECK_SECONDS
        fs = opening.from_url(folder.store if state is None else folder.root, **self.options)
        if state is None and folder.containers:
            fs = fs.subfs(folder.containers[-1])
        root = _Root(fs, state, interval, configuration)
        with self._lock:
            self._roots[folder.root] = root
            self._roots.move_to_end(folder.root)
            while len(self._roots) > LIMIT:
                self._roots.popitem(last=False)
        return root

    def _state(self, folder: _Folder) -> tuple[str, Any] | None:
        """Return the path of the outermost container of a folder and its file's state; None if all are directories."""
        for path in folder.containers:
            try:
                stat = self._store(folder.store).stat(path)
            except FileNotFoundError:
                return path, None
            if not stat.directory:
                return path, (stat.version, stat.size, stat.last_modified)
        return None

    def _store(self, url: str) -> FS:
        return self._root(_Folder(url, url, (), "")).fs

    def _replaced(self, root: _Root, folder: _Folder) -> bool:
        """Return whether what the containers of a folder are has changed since its root was opened."""
        if not folder.containers:
            return False
        state = self._state(folder)
        root.checked = time.monotonic()
        return state != root.state

    def __reduce__(self) -> tuple[Any, ...]:
        return with_options, (self.options,)


_default = Roots()
call = _default.call
open_file = _default.open_file
as_local = _default.as_local
clear = _default.clear
_tables: dict[object, Roots] = {}


def with_options(options: Mapping[str, Any]) -> Roots:
    """Return the table of the FS objects with `options` of `from_url`; the same one for equal options."""
    if not options:
        return _default
    try:
        key = tuple(sorted(options.items()))
        hash(key)
    except TypeError:  # an option that is no plain value
        return Roots(options)
    if len(_tables) >= LIMIT:
        _tables.clear()
    return _tables.setdefault(key, Roots(options))


def shown(url: str) -> str:
    """Return the URL without its secrets, for messages."""
    return locations.parse_without_query(url).text


# ---- from a URL to a root


def _locate(url: str, inside: bool) -> tuple[_Folder, str]:
    folder, _, name = url.rpartition("/")
    if not url.startswith("/") and "://" not in url:  # relative to a directory that may change
        return _split_url(url, inside)
    if inside or not folder or folder.endswith(("/", ":")) or name in ("", ".", "..") or "?" in url or "#" in name:
        return _split_url(url, inside)
    decoded = "%" in name and "://" in folder and not folder.lower().startswith(("http:", "https:"))
    found = _folder_of(folder)
    if not found.ends_here:
        return _split_url(url, inside)
    return found, keys.from_url_path(name) if decoded else name


@functools.lru_cache(maxsize=1024)
def _folder_of(url: str) -> _Folder:
    return _split_url(url, True)[0]


def _split_url(url: str, inside: bool) -> tuple[_Folder, str]:
    location = locations.parse_without_query(url)
    verbatim = location.scheme in ("http", "https")
    path, mark, query = location.path.partition("?") if verbatim else (location.path, "", "")
    parts, at = split(path)
    if mark:  # of the last segment
        parts.append((parts.pop() if parts else "") + "/" * path.endswith("/") + mark + query)
    name = "" if inside or not parts else parts.pop()
    store = f"{location.scheme}://{location.authority}/"
    containers = tuple("/".join(parts[: end + 1]) for end in at if end < len(parts))
    last = len(containers[-1].split("/")) if containers else 0
    root = store + (containers[-1] if verbatim else keys.to_url_path(containers[-1])) if containers else store
    ends_here = locations.long_authority(location.scheme) is None
    return _Folder(root, store, containers, "/".join(parts[last:]), ends_here), name
