"""Attributes that are computed, and public names that are imported, when they are first used, so that importing a
package costs nothing; in processes that fork. A fork waits until other threads have finished what they are importing.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import _bootstrap
from types import MappingProxyType
from typing import Any, Generic, Self, TypeVar, overload

from . import process
from .errors import MissingDependencyError

T = TypeVar("T")

MAX_WAIT = 5.0
"""Seconds that a fork waits at most: a whole program may be running inside of an import."""


class cached_property(Generic[T]):  # noqa: N801  # as functools has it
    """An attribute that is computed when it is first asked for; several threads may compute it at once.

    `functools.cached_property` of Python 3.11 holds a lock, one for all instances, while it computes: a child that is
    forked meanwhile waits for it for ever.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> T: ...
    def __get__(self, instance: object, owner: type | None = None) -> Self | T:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value


def exports(
    package: str,
    homes: Mapping[str, str],
    modules: Mapping[str, str] = MappingProxyType({}),
    hints: Mapping[str, str] = MappingProxyType({}),
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of `package`, whose public names are in its modules `homes` (PEP 562).

    `modules` are those of its modules that are public themselves, and where they are. `hints` say what to use in place
    of a name that it doesn't have. A name whose library is missing can be looked at and imported, as `help()` and
    `import *` do, and raises `MissingDependencyError` when it is used.
    """

    def get(name: str) -> object:
        try:
            return load(name)
        except MissingDependencyError as exc:
            return _Missing(name, (), {"__doc__": str(exc), "_load": lambda: load(name)})

    def load(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f"{package}.{modules[name]}")
        if name not in homes:
            hint = f": {hints[name]}" if name in hints else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        value: object = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes, *modules})

    return get, names


class _Missing(type):
    """The type of what stands for a class, a function or a module whose library is missing."""

    _load: Callable[[], Any]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._load()(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(cls._load(), name)


def _importing() -> set[int]:
    """Return the identifiers of the threads that have an import under way: those that own a lock of a module.

    The table is importlib's own; the frames of running threads, which would show it too, can't be read safely.
    """
    locks = [reference() for reference in list(getattr(_bootstrap, "_module_locks", {}).values())]
    return {lock.owner for lock in locks if getattr(lock, "owner", None) is not None}


def _under_way() -> bool:
    """Return True if other threads import something that this thread can wait for.

    If this thread imports something itself, those that wait for an import may be waiting for this one.
    """
    owners = _importing()
    others = owners - {threading.get_ident()}
    if others == owners:
        return bool(others)
    waiting = getattr(_bootstrap, "_blocking_on", {})
    return any(not waiting.get(owner) for owner in others)


def _before_fork() -> None:
    """Wait for other threads' imports: a child that needs a module that was half there would wait for it for ever."""
    end = time.monotonic() + MAX_WAIT
    while _under_way() and time.monotonic() < end:
        time.sleep(0.001)


process.at_fork(before=_before_fork)
