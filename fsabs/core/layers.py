"""LayerFS, an FS around another one, and lazify, the layer whose FS is created on first use.

A layer has the keys, the root, the capabilities and the further attributes of its inner FS. It overrides those core
methods that it adds something to; every other one of the contract goes to the inner FS, so that its fast paths are
used. Some methods are other ways to the same result: where a layer overrides `_open_blob`, `_read_many` leads through
it, unless it is overridden, too. `_DERIVED_FROM` has all of these. What a store says of itself is asked of
`FS.backing`, and passes no layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from . import process
from .blobs import forwarded
from .fs import FS, StrPath

if TYPE_CHECKING:
    from typing import Self

    from .blobs import Blob
    from .stats import ListPage

Method = TypeVar("Method", bound=Callable[..., Any])

_DERIVED_FROM = {
    "_open_blob": ("_read_many", "_opened_by"),
    "_create": ("_write_many", "_copy"),
    "_remove": ("_remove_tree",),
    "_list": ("_walk",),
}


def _delegated(method: Method) -> Method:
    """Return a method of layers that calls the one of the same name of the inner FS."""
    name = method.__name__

    @functools.wraps(method, updated=())  # and not that it is abstract
    def delegate(self: LayerFS, *args: Any) -> Any:
        return getattr(self.inner, name)(*args)

    return cast("Method", delegate)


class LayerFS(FS):
    """The base of layers: delegates the contract to `inner`, and nothing else."""

    keeps_content: bool = True
    """A file has the bytes that it has in the inner FS. False for a layer that overrides `_open_blob` and doesn't say
    otherwise."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "_open_blob" in vars(cls) and "keeps_content" not in vars(cls):
            cls.keeps_content = False
        for overridden, names in _DERIVED_FROM.items():
            if overridden in vars(cls):
                for name in names:
                    if getattr(cls, name) is getattr(LayerFS, name):
                        setattr(cls, name, getattr(FS, name))

    def __init__(self, inner: FS) -> None:
        self._inner = inner
        self._root = inner._root
        self._cwd = inner._cwd
        self._plain_paths = inner._plain_paths

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
            return getattr(self._inner_here(), name)

    def _inner_here(self) -> Any:
        """Return the inner FS with the root and the `cwd` of this layer, which alone `subfs` and `cwd` have changed:
        what it resolves paths by itself with, in the methods that `FS` doesn't have.
        """
        inner = self.inner
        if (inner._root, inner._cwd) == (self._root, self._cwd):
            return inner
        here = inner.subfs("/" + self._root)
        here.cwd = "/" + self._cwd
        return here

    if not TYPE_CHECKING:  # which knows them from `FS`
        capabilities = forwarded("inner.capabilities")
        scheme = forwarded("inner.scheme")
        default_concurrency = forwarded("inner.default_concurrency")
        checks_writes = forwarded("inner.checks_writes")
        limits = forwarded("inner.limits")
        backing = forwarded("inner.backing")
        _listed_by = forwarded("inner._listed_by")
        _opened_by = forwarded("inner._opened_by")
        _notes = forwarded("inner._notes")
        _shown_as = forwarded("inner._shown_as")

    _url = _delegated(FS._url)
    _stat = _delegated(FS._stat)
    _list = _delegated(FS._list)
    _walk = _delegated(FS._walk)
    _open_blob = _delegated(FS._open_blob)
    _read_many = _delegated(FS._read_many)
    _create = _delegated(FS._create)
    _write_many = _delegated(FS._write_many)
    _mkdir = _delegated(FS._mkdir)
    _rename = _delegated(FS._rename)
    _remove = _delegated(FS._remove)
    _remove_tree = _delegated(FS._remove_tree)
    _set = _delegated(FS._set)
    _batch = _delegated(FS._batch)

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        if source is self:
            self.inner._copy(self.inner, src, dst)
        elif copied_by_store(source, self):
            self.inner._copy(source, src, dst)
        else:
            super()._copy(source, src, dst)

    def _close(self) -> None:
        self.inner.close()  # which leaves open what the inner FS is a `subfs` of

    def _abort(self) -> None:
        if self.inner._owns_resources:
            self.inner._abort()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


def stored_in(fs: FS) -> FS:
    """Return the FS, below layers, that has the files of `fs` with the same bytes under the same keys."""
    while isinstance(fs, LayerFS) and fs.keeps_content:
        fs = fs.inner
    return fs


def list_page(fs: FS, key: str, after: str) -> ListPage | None:
    """Return a page of the listing of a tree, of the FS whose `_list` lists the directories of `fs`.

    See `FS._list_page`.
    """
    while isinstance(fs, LayerFS) and type(fs)._list is LayerFS._list and type(fs)._list_page is FS._list_page:
        fs = fs.inner
    return fs._list_page(key, after)


def compared(fs: FS, key: str, blob: Blob) -> Blob:
    """Return `blob`, the file `key` in parts of which a cache has some; or one around it that compares them."""
    while isinstance(fs, LayerFS) and type(fs)._compared is FS._compared:
        fs = fs.inner
    return fs._compared(key, blob)


def copied_by_store(source: FS, target: FS) -> bool:
    """Return whether the store of `target` copies files of `source` without their bytes passing this process."""
    while isinstance(target, LayerFS):
        if type(target)._copy is FS._copy:
            return False
        target = target.inner
    return target._can_copy_from(stored_in(source))


class LazyFS(LayerFS):
    """The layer of `lazify`: its inner FS is what `init_func()` gives, asked for on first use and after `close()`."""

    def __init__(self, init_func: Callable[[], FS], lazy_init: bool = True, recreate_on_fork: bool = True) -> None:
        if not callable(init_func):
            raise TypeError(f"lazify takes a function that makes an FS, not {type(init_func).__name__}")
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
    def _plain_paths(self) -> bool:  # type: ignore[override]
        return self.inner._plain_paths

    @property
    def _cwd(self) -> str:
        return self.inner._cwd if self._moved is None else self._moved

    @_cwd.setter
    def _cwd(self, key: str) -> None:
        self._moved = key

    def subfs(self, path: StrPath) -> Self:
        """Return the directory `path` of the FS, as lazy as this one."""
        if self._moved is not None:
            path = "/" + self._key(path, "subfs")
        return type(self)(_SubOf(self._init_func, path), True, self._recreate_on_fork)

    def _close(self) -> None:
        self._kept = None
        self._made.close()

    def _abort(self) -> None:
        made = self._kept or self._made.peek()
        if made is not None and made._owns_resources:
            made._abort()  # closing a container that is being written would make it visible
        self._close()

    def __repr__(self) -> str:
        made = self._made.peek()
        return f"lazify({_name_of(self._init_func) if made is None else repr(made)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyFS, (self._init_func, True, self._recreate_on_fork), {"_moved": self._moved}


class _SubOf:
    """A picklable recipe of a `subfs`."""

    def __init__(self, init_func: Callable[[], FS], path: StrPath) -> None:
        self._init_func = init_func
        self._path = path

    def __call__(self) -> FS:
        sub = self._init_func().subfs(self._path)
        sub._owns_resources = True  # what init_func made has no other owner
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
    """Return an FS that `init_func()` builds on first use (`lazy_init=False`: now), and again in every new process.

    `recreate_on_fork=False` keeps the parent's FS in a forked child, for an `init_func` that is expensive. To be
    pickled, `init_func` must be picklable: a function of a module, or a `functools.partial` of one.
    """
    return LazyFS(init_func, lazy_init, recreate_on_fork)
