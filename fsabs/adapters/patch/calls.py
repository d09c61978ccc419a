"""One patched function: what is ours goes to a handler, everything else to the original, unchanged.

A handler is called with `call`, a function that calls the original with another value in place of the path; with the
path; and with all arguments of the call.

Python imports this at its start where `FSABS_PATCH` is set: what opens a URL is imported with the first one.
"""

from __future__ import annotations

import functools
import io
import os
import sys
from types import BuiltinFunctionType, ModuleType

TYPE_CHECKING = False  # as typing's, which takes as long to import as all of this
if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable
    from typing import IO, Any

    from ...core.fs import FS
    from ...paths import Path

    Call = Callable[[Any], Any]
    Handler = Callable[[Call, Any, tuple[Any, ...], dict[str, Any]], Any]
PATCHED = "__fsabs_patched__"  # an attribute of what a `PatchedCall` has made that refers to the call
_COPY = "__fsabs_copy__"
_copies: dict[contextlib.ExitStack, int] = {}  # that are in use, with the process that made each
_PFS = "/pfs/"


def is_ours(path: object) -> bool:
    """Return whether `path` is the URL of a scheme that this library opens, or a `Path` that is no local one."""
    if isinstance(path, str):
        return ("://" in path or path.startswith(_PFS)) and _is_url(path)
    if not is_path(path):
        return False
    try:
        os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        return True
    return False


def _is_url(path: str) -> bool:
    from ...backends import fsspec
    from ...urls import locations

    if path.startswith(_PFS):
        return locations.parse_without_query(path).scheme != "file"
    scheme = path.partition("://")[0].lower()
    plain = scheme.replace("+", "").replace("-", "").replace(".", "")
    is_scheme = scheme[:1].isalpha() and plain.isalnum() and scheme.isascii()
    return is_scheme and (is_own_scheme(scheme) or fsspec.knows(scheme))


def is_own_scheme(scheme: str) -> bool:
    """Return whether this library opens a scheme by itself, and not through fsspec."""
    from ...core import registry
    from ...urls import config
    from ...urls.locations import PFS

    if scheme == PFS or scheme in registry.BUILTIN_SCHEMES or registry.backend(scheme) is not None:
        return True
    return config.get_custom_scheme(scheme) is not None


def is_path(path: object) -> bool:
    """Return whether `path` is a `Path` of this library."""
    paths = sys.modules.get("fsabs.paths")  # before it is imported, there is none
    return paths is not None and isinstance(path, paths.Path)


class PatchedCall:
    """The attribute `name` of `owner`, a module or a class.

    Its argument at `position`, or called `keyword`, is the path.
    """

    def __init__(self, owner: Any, name: str, handler: Handler, position: int = 0, keyword: str = "") -> None:
        self._owner = owner
        self._name = name
        self._handler = handler
        self._position = position
        self._keyword = keyword
        self.active = False
        self._wrapper: Any = None
        self._function: Any = None  # what the wrapper calls
        self._original: Any = None  # what the owner itself has; None for what is inherited

    def apply(self) -> bool:
        """Replace the attribute; False if there is none, or if it is replaced already."""
        original = getattr(self._owner, self._name, None)
        if original is None:
            return False
        self._original = vars(self._owner).get(self._name)
        there = getattr(original, PATCHED, None)
        if there is not None and there._wrapper is original:  # and not a copy of the attribute, by functools.wraps
            if there._owner is self._owner:
                return False
            # It was imported from another module while that was patched, as imageio does from imageio.v2.
            original = there._function
            self._original = self._original and original
        self._function = original
        self._wrapper = self._wrapped(original)
        setattr(self._wrapper, PATCHED, self)
        self.active = True
        setattr(self._owner, self._name, staticmethod(self._wrapper) if self._name == "__new__" else self._wrapper)
        return True

    def restore(self) -> None:
        """Put the original back; where another patch lies above ours, only stop handling URLs."""
        self.active = False
        if getattr(self._owner, self._name, None) is not self._wrapper:
            return
        if self._original is None:  # it was inherited
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._original)

    def _wrapped(self, original: Any) -> Any:
        patched: Any = functools.update_wrapper(self._patched(original), original)
        if isinstance(self._owner, ModuleType):
            if isinstance(original, BuiltinFunctionType):
                patched = functools.update_wrapper(_Builtin(patched), original)
            patched.__module__, patched.__qualname__ = self._owner.__name__, self._name  # by which it is pickled
        return patched

    def _patched(self, original: Any) -> Any:
        """Return a function that calls the handler if the path is ours, else the original."""
        handler, position, keyword = self._handler, self._position, self._keyword

        def patched(*args: Any, **kwargs: Any) -> Any:
            path = args[position] if len(args) > position else kwargs.get(keyword)
            if type(path) is str:  # most calls, in well under a microsecond
                if "://" not in path and path[:5] != _PFS:
                    return original(*args, **kwargs)
            elif not isinstance(path, str) and not is_path(path):
                return original(*args, **kwargs)
            if not (self.active and is_ours(path)):
                return original(*args, **kwargs)

            def call(value: Any) -> Any:
                if len(args) > position:
                    return original(*args[:position], value, *args[position + 1 :], **kwargs)
                return original(*args, **{**kwargs, keyword: value})

            return handler(call, path, args, kwargs)

        return patched


class _Builtin(functools.partial["Any"]):
    """Stands for a function that is written in C: as an attribute of a class, it binds no object."""

    def __get__(self, instance: object, owner: Any = None) -> Any:
        return self

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])

    def __repr__(self) -> str:
        return repr(vars(self)["__wrapped__"])


# ---- what a path is opened by


def as_url(path: str | Path) -> str:
    """Return the URL of a path, for messages and suffixes."""
    return path if isinstance(path, str) else path.as_uri()


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file."""
    from ...urls import roots

    # A string first: the class of `Path` is abstract, and to ask for its instances is expensive.
    return roots.call(path, _read_bytes) if isinstance(path, str) else path.read_bytes()


def _read_bytes(fs: FS, path: str) -> bytes:
    return fs.read_bytes(path)


def open_file(path: str | Path, mode: str = "rb", *args: Any) -> IO[Any]:
    """Open a file; one that is dropped unclosed is kept, as by the function that this stands for."""
    from ...core.writing import keep_if_dropped
    from ...urls import roots

    file = roots.open_file(path, mode, *args) if isinstance(path, str) else path.open(mode, *args)
    return file if mode in ("r", "rb", "rt") else keep_if_dropped(file)


def as_local(path: str | Path, mode: str = "r") -> contextlib.AbstractContextManager[str]:
    """Return a context manager of a local path."""
    from ...urls import roots

    return roots.as_local(path, mode) if isinstance(path, str) else path.as_local(mode)


def exists(path: str | Path) -> bool:
    """Return whether there is a file or a directory."""
    return as_path(path).exists()


def as_path(path: str | Path) -> Path:
    """Return a path of this library."""
    from ...paths import Path

    return Path(path) if isinstance(path, str) else path


# ---- handlers


def by_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function an open file, which is closed when it returns."""
    with open_file(path) as file:
        return call(file)


def by_remembering_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give a function of C++ an open file, whose own failure is raised in place of what the function makes of it."""
    from ...core.remembering import RememberingFile, remembering

    with open_file(path) as file, remembering(RememberingFile(file)) as remembered:
        return call(remembered)


def by_bytes(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function the whole content, read by one request."""
    return call(io.BytesIO(read_bytes(path)))


def by_written_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a file to write, which becomes visible when it returns."""
    with open_file(path, "wb") as file:
        return call(file)


def by_written_remembering_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """As `by_remembering_file`, with a file to write, which becomes visible when the function returns."""
    from ...core.remembering import RememberingFile, remembering

    with open_file(path, "wb") as file, remembering(RememberingFile(file)) as remembered:
        return call(remembered)


def by_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path with the content of the file."""
    with as_local(path) as local:
        return call(local)


def by_extended_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path to add to, with what is there already, which is committed when it returns."""
    with as_local(path, "r+" if exists(path) else "w") as local:
        return call(local)


def by_written_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path to write to, which is committed when it returns."""
    with as_local(path, "w") as local:
        return call(local)


def by_lasting_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path that is there for as long as its result."""
    import contextlib
    import weakref

    stack = contextlib.ExitStack()
    try:
        found = call(stack.enter_context(as_local(path)))
        weakref.finalize(found, stack.close)
    except BaseException:
        stack.close()
        raise
    return found


def refused(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Refuse what only a file on the local disk can do."""
    from ...core import errors
    from ...urls import roots

    raise errors.unsupported(
        "memory-map", roots.shown(as_url(path)), "only a local file can be mapped; Path(url).as_local() gives one"
    )


def copy_until_closed(owner: Any, path: str | Path, mode: str, call: Call, close: Callable[[], object]) -> Any:
    """Return `call(local)` with a local path for `owner`, an object that reads or writes it until `close_copy(owner)`.

    Where the owner is dropped, or still there when the interpreter ends, what was written is committed after `close()`,
    which must not refer to the owner.
    """
    import atexit
    import contextlib
    import weakref

    close_copy(owner)
    stack = contextlib.ExitStack()
    vars(owner)[_COPY] = stack
    try:
        found = call(stack.enter_context(as_local(path, mode)))
    except BaseException:
        close_copy(owner, failed=True)
        raise
    if mode != "r":
        stack.callback(close)
    if not _copies:
        atexit.unregister(_drop_all)  # which has to come before what is registered by now: that ends the files written
        atexit.register(_drop_all)
    _copies[stack] = os.getpid()
    weakref.finalize(owner, _drop, stack).atexit = False
    return found


def close_copy(owner: Any, failed: bool = False) -> None:
    """Commit what was written to the copy of `owner`, unless it `failed`, and remove the copy."""
    stack = vars(owner).pop(_COPY, None)
    _copies.pop(stack, None)
    if stack is not None and failed:
        import contextlib

        with contextlib.suppress(_Abandoned):
            stack.__exit__(_Abandoned, _Abandoned(), None)
    elif stack is not None:
        stack.close()


def _drop(stack: contextlib.ExitStack) -> None:
    if _copies.pop(stack, 0) == os.getpid():
        stack.close()


def _drop_all() -> None:
    import contextlib

    with contextlib.ExitStack() as all_of_them:  # one that fails keeps none of the others from being committed
        for stack in list(_copies):
            all_of_them.callback(_drop, stack)


class _Abandoned(Exception):
    """Raised to abort the file that is being written."""
