"""Patches: applied and removed by library, with a count, now or when its module is imported."""

from __future__ import annotations

import importlib
import os
import sys
import threading

from .calls import PatchedCall

TYPE_CHECKING = False  # as typing's, which takes as long to import as all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any, Self, TypeVar

    from .calls import Rows

    F = TypeVar("F", bound=Callable[..., Any])

_HOMES = {  # the names that users say, by the module that patches them
    "libraries": "PIL cv2 h5py imageio indexed_gzip numpy pandas pyarrow safetensors soundfile torch",
    "system": "builtins glob os pathlib shutil",
}
_LIBRARIES = {name: home for home, names in _HOMES.items() for name in names.split()}
_PATHS = "fsabs"  # its own `Path`, whose `os.fspath` is the URL for as long as anything is patched
_INSTALL = {"cv2": "opencv-python-headless", "PIL": "pillow"}

_lock = threading.RLock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # type: ignore[attr-defined]
_counts: dict[str, int] = {}
_calls: dict[str, dict[str, list[PatchedCall]]] = {}  # that are applied, by library and module
_modules: dict[str, str] = {}  # the library by each module that is patched, or will be


def applied() -> list[str]:
    """Return the names of the libraries that are patched, or will be when they are imported."""
    return sorted(_counts.keys() - {_PATHS})


def patch(*libraries: str, missing_ok: bool = False) -> Patched:
    """Have the functions of `libraries` open URLs and `Path` objects through this library.

    The patch is applied at once, for good. Used as a context manager it is taken back at the end of the block; used as
    a decorator, it is there while the function runs. A module that is imported later is patched then.

    Args:
        libraries: of cv2, PIL, imageio, numpy, h5py, torch, safetensors, pandas, pyarrow, soundfile, indexed_gzip; and
            of Python's own builtins (`open`), os, shutil, glob, pathlib; `ValueError` for another one.
        missing_ok: pass over a library that is not installed, which is a `MissingDependencyError` otherwise.
    """
    if not libraries:
        raise TypeError(f"patch() needs the names of libraries, of {', '.join(sorted(_LIBRARIES))}")
    for name in _known(libraries):
        if not (missing_ok or name in sys.modules or _is_installed(name)):
            from ...core import errors

            package = _INSTALL.get(name, name)
            raise errors.MissingDependencyError(f"patch({name!r}) needs {name}: pip install {package}", name=name)
    return Patched(libraries)


def _is_installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


def unpatch(*libraries: str) -> None:
    """Take back the patches of `libraries`, all without arguments, however often they were applied."""
    with _lock:
        for name in _known(libraries) or applied():
            _take_back(name)


def _known(libraries: tuple[str, ...]) -> tuple[str, ...]:
    for name in libraries:
        if name not in _LIBRARIES:
            raise ValueError(f"{name!r} can't be patched; there are {', '.join(sorted(_LIBRARIES))}")
    return libraries


class Patched:
    """Patches that are applied; as a context manager, until the end of its block."""

    def __init__(self, libraries: tuple[str, ...]) -> None:
        self._libraries = libraries
        self._depth = 0
        self._apply()
        self._fresh = True  # the first block is what the patches were applied for

    def _apply(self) -> None:
        with _lock:
            for name in self._libraries:
                _counts[name] = _counts.get(name, 0) + 1
            _counts[_PATHS] = 1
            self._depth += 1
        # Not under the lock, which an import in another thread, that is waited for, takes.
        for name in (*self._libraries, _PATHS):
            _apply(name)

    def undo(self) -> None:
        """Take back what this object applied, once."""
        with _lock:
            if not self._depth:
                return
            self._depth -= 1
            for name in self._libraries:
                if _counts.get(name, 0) > 1:
                    _counts[name] -= 1
                else:
                    _take_back(name)

    def __enter__(self) -> Self:
        with _lock:
            is_applied = self._fresh and self._depth
            self._fresh = False
        if not is_applied:
            self._apply()
        return self

    def __exit__(self, *exc: object) -> None:
        self.undo()

    def __call__(self, function: F) -> F:
        """Apply the patches while `function` runs, and at no other time."""
        self.undo()
        import functools
        import inspect  # expensive, and not needed at the start of Python

        libraries = self._libraries
        patched: Any

        if inspect.isasyncgenfunction(function):

            async def patched(*args: Any, **kwargs: Any) -> Any:
                with Patched(libraries):
                    async for item in function(*args, **kwargs):
                        yield item
        elif inspect.iscoroutinefunction(function):

            async def patched(*args: Any, **kwargs: Any) -> Any:
                with Patched(libraries):
                    return await function(*args, **kwargs)
        elif inspect.isgeneratorfunction(function):

            def patched(*args: Any, **kwargs: Any) -> Any:
                with Patched(libraries):
                    return (yield from function(*args, **kwargs))
        else:

            def patched(*args: Any, **kwargs: Any) -> Any:
                with Patched(libraries):
                    return function(*args, **kwargs)

        return functools.wraps(function)(patched)  # type: ignore[return-value]

    def __repr__(self) -> str:
        return f"Patched({', '.join(self._libraries)})"


# ---- modules, now and later


def _targets(name: str) -> dict[str, Rows]:
    """Return what is patched in each module, by the module's name."""
    home = importlib.import_module(f"{__package__}.{_LIBRARIES.get(name, 'system')}")
    found: dict[str, Rows] = home.TABLE[name]
    return found


def _apply(name: str) -> None:
    _Finder.install()
    for module in _targets(name):
        _modules[module] = name
        if module in sys.modules and module not in _calls.get(name, ()):
            _patch_module(name, importlib.import_module(module))  # waits for an import in another thread


def _patch_module(name: str, module: ModuleType) -> None:
    with _lock:
        if name not in _counts:
            return
        there = _calls.setdefault(name, {}).setdefault(module.__name__, [])
        for functions, parameters, handler in _targets(name)[module.__name__]:
            for function in functions.split():
                call = PatchedCall(module, function, parameters, handler)
                if call.apply():
                    there.append(call)


def _take_back(name: str) -> None:
    """Take back all patches of a library; with the last one, that of our own `Path`."""
    if _counts.pop(name, 0):
        for there in reversed(_calls.pop(name, {}).values()):
            for call in reversed(there):
                call.restore()
    if _counts.keys() == {_PATHS}:
        _take_back(_PATHS)


class _Finder:
    """Finds what others find, and has it patched when it was executed."""

    def __init__(self) -> None:
        self._busy = threading.local()

    @classmethod
    def install(cls) -> None:
        """Be the first finder, once."""
        if not any(isinstance(finder, cls) for finder in sys.meta_path):
            sys.meta_path.insert(0, cls())

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module that is to be patched; None for all others."""
        library = _modules.get(fullname)
        if library is None or library not in _counts or getattr(self._busy, "on", False):
            return None
        import importlib.util  # expensive, and not needed at the start of Python

        self._busy.on = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy.on = False
        if spec is not None and spec.loader is not None:
            _patch_after(library, spec.loader)
        return spec


def _patch_after(library: str, loader: Any) -> None:
    execute = loader.exec_module

    def executed(module: ModuleType) -> None:
        execute(module)
        _patch_module(library, sys.modules.get(module.__name__, module))

    loader.exec_module = executed
