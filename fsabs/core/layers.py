"""LayerFS, an FS around another one, and lazify, the layer whose FS is created on first use.

A layer has the keys, the root, the capabilities and the further attributes of its inner FS. It overrides those core
methods that it adds something to; every other call goes to the inner FS, so that its fast paths are used. Some methods
are other ways to the same result: where a layer overrides `_open_blob`, the other ways to the same bytes
(`_open_from_start`, `_open_to_read`, `_read_bytes`, `_read_many`, `_read_many_versioned`, `_local_path`) lead through
it, unless they are overridden, too. `_DERIVED_FROM` has all of these.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from . import process
from .blobs import Blob
from .fs import (
    FS,
    Capabilities,
    FileStat,
    ListPage,
    Path,
)
from .identity import Place
from .limits import Limits
from .ranges import StorageOrder
from .stats import StoreNotes, TreeCounts
from .writing import Writer

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Self


_DERIVED_FROM = {
    "_open_blob": (
        "_open_from_start",
        "_open_listed",
        "_open_to_read",
        "_read_bytes",
        "_read_many",
        "_read_many_versioned",
        "_local_path",
        "_stored_in",
    ),
    "_open_from_start": ("_open_to_read",),
    "_stat": ("_lstat",),
    "_create": ("_write_bytes", "_write_like", "_write_many", "_resume", "_can_copy_from", "_copy_from"),
    "_remove": ("_empty",),
    "_remove_tree": ("_empty",),
    "_list": ("_list_names", "_list_names_from", "_list_page"),
    "_walk": ("_walk_names", "_usage"),
}


class LayerFS(FS):
    """The base of layers: delegates the whole core to `inner`."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for overridden, names in _DERIVED_FROM.items():
            if overridden in vars(cls):
                for name in names:
                    if getattr(cls, name) is getattr(LayerFS, name):
                        setattr(cls, name, getattr(FS, name))

    def __init__(self, inner: FS) -> None:
        self._inner = inner
        self._root = inner._root
        self._cwd = inner._cwd
        self._follows_all_links = inner._follows_all_links

    @property
    def inner(self) -> FS:
        """The FS that this layer is around."""
        return self._inner

    if not TYPE_CHECKING:  # which would take any name for one of every layer's

        def __getattr__(self, name: str) -> Any:
            """Return an attribute of the inner FS that `FS` doesn't have: a cache's `status` below a trace, a zip's
            `verify`.
            """
            if name.startswith("_") or name == "inner":
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            return getattr(self.inner, name)

    @property
    def capabilities(self) -> Capabilities:  # type: ignore[override]
        """The inner FS's."""
        return self.inner.capabilities

    @property
    def scheme(self) -> str:  # type: ignore[override]
        """The inner FS's."""
        return self.inner.scheme

    @property
    def default_concurrency(self) -> int:  # type: ignore[override]
        """The inner FS's."""
        return self.inner.default_concurrency

    @property
    def checks_writes(self) -> bool:  # type: ignore[override]
        """The inner FS's."""
        return self.inner.checks_writes

    @property
    def limits(self) -> Limits:  # type: ignore[override]
        """The inner FS's."""
        return self.inner.limits

    @property
    def _notes(self) -> StoreNotes:  # type: ignore[override]
        return self.inner._notes

    def _check_links(self, key: str, root: str, operation: str) -> None:
        self.inner._check_links(key, root, operation)

    def _stat(self, key: str) -> FileStat:
        return self.inner._stat(key)

    def _list(self, key: str) -> Iterator[FileStat]:
        return self.inner._list(key)

    def _open_blob(self, key: str) -> Blob:
        return self.inner._open_blob(key)

    def _open_listed(self, key: str, stat: FileStat) -> Blob:
        return self.inner._open_listed(key, stat)

    def _url(self, key: str) -> str:
        return self.inner._url(key)

    def _resolved_store(self) -> str:
        return self.inner._resolved_store()

    def _place(self, key: str) -> Place:
        return self.inner._place(key)

    def _places(self, key: str) -> Iterator[Place]:
        return self.inner._places(key)

    def _principal(self) -> str:
        return self.inner._principal()

    def _is_settled(self, version: str) -> bool:
        return self.inner._is_settled(version)

    def _describe_store(self) -> dict[str, str]:
        return self.inner._describe_store()

    def _create(self, key: str, exclusive: bool) -> Writer:
        return self.inner._create(key, exclusive)

    def _append(self, key: str) -> Writer:
        return self.inner._append(key)

    def _open_update(self, key: str) -> io.BufferedIOBase:
        return self.inner._open_update(key)

    def _mkdir(self, key: str, mode: int) -> None:
        self.inner._mkdir(key, mode)

    def _makedirs(self, key: str, mode: int) -> None:
        self.inner._makedirs(key, mode)

    def _rename(self, src: str, dst: str) -> None:
        self.inner._rename(src, dst)

    def _remove(self, key: str) -> None:
        self.inner._remove(key)

    def _walk(self, key: str) -> Iterator[FileStat]:
        return self.inner._walk(key)

    def _list_page(self, key: str, after: str) -> ListPage | None:
        return self.inner._list_page(key, after)

    def _check_content(self, key: str, version: str | None, content: bytes) -> None:
        self.inner._check_content(key, version, content)

    def _list_names(self, key: str) -> Iterator[str]:
        return self.inner._list_names(key)

    def _list_names_from(self, key: str, start: str) -> Iterator[str]:
        return self.inner._list_names_from(key, start)

    def _walk_names(self, key: str) -> Iterator[str]:
        return self.inner._walk_names(key)

    def _usage(self, key: str) -> TreeCounts:
        return self.inner._usage(key)

    def _leads_back(self, key: str) -> bool:
        return self.inner._leads_back(key)

    def _directory_identity(self, key: str) -> Hashable:
        return self.inner._directory_identity(key)

    def _read_many(self, wanted: Sequence[str], concurrency: int | None) -> Iterator[bytes]:
        return self.inner._read_many(wanted, concurrency)

    def _read_many_versioned(
        self, wanted: Sequence[str], concurrency: int | None
    ) -> Iterator[tuple[bytes, str | None]]:
        return self.inner._read_many_versioned(wanted, concurrency)

    def _storage_order(self) -> StorageOrder | None:
        return self.inner._storage_order()

    def _read_bytes(self, key: str) -> bytes:
        return self.inner._read_bytes(key)

    def _open_from_start(self, key: str) -> Blob:
        return self.inner._open_from_start(key)

    def _open_to_read(self, key: str) -> Blob:
        return self.inner._open_to_read(key)

    def _unnamed(self, key: str) -> Iterator[str]:
        return self.inner._unnamed(key)

    def _local_path(self, key: str) -> str | None:
        return self.inner._local_path(key)

    def _write_bytes(self, key: str, data: bytes) -> None:
        self.inner._write_bytes(key, data)

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        return self.inner._write_many(pairs, concurrency)

    def _write_like(self, key: str, data: bytes, stat: FileStat) -> None:
        self.inner._write_like(key, data, stat)

    def _lstat(self, key: str) -> FileStat:
        return self.inner._lstat(key)

    def _read_link(self, key: str) -> str | None:
        return self.inner._read_link(key)

    def _make_link(self, key: str, target: str) -> None:
        self.inner._make_link(key, target)

    def _remove_tree(self, key: str) -> None:
        self.inner._remove_tree(key)

    def _empty(self, key: str) -> None:
        self.inner._empty(key)

    def _copy(self, src: str, dst: str) -> None:
        self.inner._copy(src, dst)

    def _can_copy_from(self, source: FS) -> bool:
        return self.inner._can_copy_from(source)

    def _copy_from(self, source: FS, src: str, dst: str) -> None:
        self.inner._copy_from(source, src, dst)

    def _resume(self, key: str, source: Blob) -> tuple[Writer, int]:
        return self.inner._resume(key, source)

    def _set_modified(self, key: str, when: float) -> None:
        self.inner._set_modified(key, when)

    def _set_mode(self, key: str, mode: int) -> None:
        self.inner._set_mode(key, mode)

    def _together(self, message: str) -> AbstractContextManager[None]:
        return self.inner._together(message)

    def _stored_in(self) -> FS:
        return self.inner._stored_in()

    def _has_content(self, stat: FileStat, blob: Blob) -> bool | None:
        return self.inner._has_content(stat, blob)

    def _same_content(self, version: str, other: str) -> bool | None:
        return self.inner._same_content(version, other)

    def _close(self) -> None:
        self.inner._close()

    def _abort(self) -> None:
        self.inner._abort()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


class LazyFS(LayerFS):
    """The layer of `lazify`: its inner FS is what `init_func()` gives, asked for on first use and after `close()`."""

    def __init__(self, init_func: Callable[[], FS], lazy_init: bool = True, recreate_on_fork: bool = True) -> None:
        self._init_func = init_func
        self._recreate_on_fork = recreate_on_fork
        self._made = process.PerProcess(init_func, FS.close)
        self._kept: FS | None = None
        self._moved: str | None = None  # what cwd was set to: it outlives the inner FS, which is built anew
        if not lazy_init:
            self.inner  # noqa: B018 - builds it now

    @property
    def inner(self) -> FS:
        """The FS, built by `init_func` if this process has none yet."""
        if self._recreate_on_fork:
            return self._made.get()
        if self._kept is None:
            self._kept = self._made.get()
        return self._kept

    @property
    def _root(self) -> str:  # type: ignore[override]
        return self.inner._root

    @property
    def _follows_all_links(self) -> bool:  # type: ignore[override]
        return self.inner._follows_all_links

    @property
    def _cwd(self) -> str:
        return self.inner._cwd if self._moved is None else self._moved

    @_cwd.setter
    def _cwd(self, key: str) -> None:
        self._moved = key

    def subfs(self, path: Path) -> Self:
        """The directory `path` of the FS, as lazy as this one."""
        if self._moved is not None:
            path = "/" + self._key(path, "subfs")
        return type(self)(_SubOf(self._init_func, path), True, self._recreate_on_fork)

    def _close(self) -> None:
        self._kept = None
        self._made.close()

    def _abort(self) -> None:
        made = self._kept or self._made.peek()
        if made is not None:
            made._abort()  # closing a container that is being written would make it visible
        self._close()

    def __repr__(self) -> str:
        made = self._made.peek()
        return f"lazify({_name_of(self._init_func) if made is None else repr(made)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyFS, (self._init_func, True, self._recreate_on_fork), {"_moved": self._moved}


class _SubOf:
    """A picklable recipe of a `subfs`."""

    def __init__(self, init_func: Callable[[], FS], path: Path) -> None:
        self._init_func = init_func
        self._path = path

    def __call__(self) -> FS:
        sub = self._init_func().subfs(self._path)
        sub._borrowed = False  # what init_func made has no other owner
        return sub

    def __repr__(self) -> str:
        return f"{_name_of(self._init_func)}.subfs({self._path!r})"


def _name_of(function: Callable[..., object]) -> str:
    """Return a function's name, without the arguments of a `functools.partial`, which may contain a password."""
    if isinstance(function, _SubOf):
        return repr(function)
    named = getattr(function, "func", function)
    return str(getattr(named, "__qualname__", type(named).__name__))


def lazify(init_func: Callable[[], FS], lazy_init: bool = True, recreate_on_fork: bool = True) -> LazyFS:
    """An FS that `init_func()` builds on first use (`lazy_init=False`: now), and again in every new process.

    `recreate_on_fork=False` keeps the parent's FS in a forked child, for an `init_func` that is expensive. To be
    pickled, `init_func` must be picklable: a function of a module, or a `functools.partial` of one.
    """
    return LazyFS(init_func, lazy_init, recreate_on_fork)
