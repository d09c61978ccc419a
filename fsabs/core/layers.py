"""LayerFS, an FS around another one, and lazify, the layer whose FS is created on first use.

A layer has the keys, the root, the capabilities and the further attributes of its inner FS. It overrides those core
methods that it adds something to; every other call goes to the inner FS, so that its fast paths are used. Some methods
are other ways to the same result: where a layer overrides `_open_blob`, the other ways to the same bytes
(`_open_from_start`, `_open_to_read`, `_read_bytes`, `_read_many`, `_read_many_versioned`, `_local_path`) lead through
it, unless they are overridden, too. `_DERIVED_FROM` has all of these.
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

Method = TypeVar("Method", bound=Callable[..., Any])

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
    "_stat": ("_lstat", "_stat_directory"),
    "_create": ("_write_bytes", "_write_blob", "_write_like", "_write_many", "_can_copy_from", "_copy_from"),
    "_remove": ("_empty",),
    "_remove_tree": ("_empty",),
    "_list": ("_list_names", "_list_names_from", "_list_page"),
    "_walk": ("_walk_names", "_usage"),
}

_DELEGATED = """
_divided_path _check_key _open_listed _resolved_store _place _places _principal _is_strong _describe_store _create
_append _open_update _mkdir _makedirs _rename _remove _walk _list_page _compared _list_names _list_names_from
_walk_names _usage _leads_back _directory_identity _read_many _read_many_versioned _storage_order _read_bytes
_open_from_start _open_to_read _unnamed _local_path _write_bytes _write_blob _write_many _write_like _lstat _read_link
_make_link _remove_tree _empty _copy _can_copy_from _copy_from _reads_back _set_modified _set_mode _together _stored_in
_has_content _has_digest _same_content _unchanged_since _stat_directory
"""
"""The core methods that a layer leaves to its inner FS, unless it overrides them."""


def _delegated(method: Method) -> Method:
    """Return a method of layers that calls the one of the same name of the inner FS."""
    name = method.__name__

    @functools.wraps(method, updated=())  # and not that it is abstract
    def delegate(self: LayerFS, *args: Any) -> Any:
        return getattr(self.inner, name)(*args)

    return cast("Method", delegate)


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
        _notes = forwarded("inner._notes")

    # These are abstract in `FS`; `_DELEGATED` has the others.
    _stat = _delegated(FS._stat)
    _list = _delegated(FS._list)
    _open_blob = _delegated(FS._open_blob)
    _url = _delegated(FS._url)

    def _close(self) -> None:
        self.inner.close()  # which leaves open what the inner FS is a `subfs` of

    def _abort(self) -> None:
        if self.inner._owns_resources:
            self.inner._abort()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"


for _name in _DELEGATED.split():
    setattr(LayerFS, _name, _delegated(getattr(FS, _name)))


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
