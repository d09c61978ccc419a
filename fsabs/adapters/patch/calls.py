"""One patched function: what is ours goes to a handler, everything else to the original, unchanged.

A handler is called with `call`, a function that calls the original with another value in place of the path; with the
path; and with all arguments of the call.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import weakref
from collections.abc import Callable
from typing import IO, Any

from ... import config, errors, registry, roots, urls
from ...fs import FS
from ...paths import Path

Call = Callable[[Any], Any]
Handler = Callable[[Call, Any, tuple[Any, ...], dict[str, Any]], Any]
_ORIGINAL = "__fsabs_original__"
_COPY = "__fsabs_copy__"
_scheme = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://").match


def is_ours(path: object) -> bool:
    """Return whether `path` is a `Path`, or the URL of a scheme that this library opens."""
    if isinstance(path, str):
        if path.startswith("/pfs/"):
            return urls.parse(path).scheme != "file"
        return "://" in path and (found := _scheme(path)) is not None and _known(found[1].lower())
    return isinstance(path, Path)


def _known(scheme: str) -> bool:
    if scheme in registry.BUILTIN_SCHEMES or registry.backend(scheme) is not None:
        return True
    if config.get_custom_scheme(scheme) is not None:
        return True
    from ...backends import fsspec

    return fsspec.knows(scheme)


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
        self._original: Any = None

    def apply(self) -> bool:
        """Replace the attribute; False if there is none, or if it is replaced already."""
        if (original := getattr(self._owner, self._name, None)) is None or hasattr(original, _ORIGINAL):
            return False
        self._original = vars(self._owner).get(self._name)
        self._wrapper = self._wrapped(original)
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
        handler, position, keyword = self._handler, self._position, self._keyword

        def patched(*args: Any, **kwargs: Any) -> Any:
            path = args[position] if len(args) > position else kwargs.get(keyword)
            if type(path) is str:  # most calls, in well under a microsecond
                if "://" not in path:
                    return original(*args, **kwargs)
            elif not isinstance(path, (str, Path)):
                return original(*args, **kwargs)
            if not (self.active and is_ours(path)):
                return original(*args, **kwargs)

            def call(value: Any) -> Any:
                if len(args) > position:
                    return original(*args[:position], value, *args[position + 1 :], **kwargs)
                return original(*args, **{**kwargs, keyword: value})

            return handler(call, path, args, kwargs)

        with contextlib.suppress(AttributeError, TypeError):  # a function in C may have no name and no signature
            functools.update_wrapper(patched, original)
        setattr(patched, _ORIGINAL, original)
        return patched


# ---- what a path is opened by


def as_url(path: str | Path) -> str:
    """Return the URL of a path, for messages and suffixes."""
    return path if isinstance(path, str) else path.as_uri()


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file."""
    # A string first: the class of `Path` is abstract, and to ask for its instances is expensive.
    return roots.call(path, _read_bytes) if isinstance(path, str) else path.read_bytes()


def _read_bytes(fs: FS, path: str) -> bytes:
    return fs.read_bytes(path)


def open_file(path: str | Path, mode: str = "rb", *args: Any) -> IO[Any]:
    """Open a file."""
    return path.open(mode, *args) if isinstance(path, Path) else roots.open_file(path, mode, *args)


def as_local(path: str | Path, mode: str = "r") -> contextlib.AbstractContextManager[str]:
    """Return a context manager of a local path."""
    return path.as_local(mode) if isinstance(path, Path) else roots.as_local(path, mode)


def exists(path: str | Path) -> bool:
    """Return whether there is a file or a directory."""
    return (path if isinstance(path, Path) else Path(path)).exists()


# ---- handlers


def by_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function an open file, which is closed when it returns."""
    with open_file(path) as file:
        return call(file)


def by_lasting_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function an open file, which its result keeps."""
    return call(open_file(path))


def by_bytes(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function the whole content, read by one request."""
    return call(io.BytesIO(read_bytes(path)))


def by_written_file(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a file to write, which becomes visible when it returns."""
    with open_file(path, "wb") as file:
        return call(file)


def by_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path with the content of the file."""
    with as_local(path) as local:
        return call(local)


def by_written_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path to write to, which is committed when it returns."""
    with as_local(path, "w") as local:
        return call(local)


def by_lasting_local(call: Call, path: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Give the function a local path that is there for as long as its result."""
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
    raise errors.unsupported(
        "memory-map", roots.shown(as_url(path)), "only a local file can be mapped; Path(url).as_local() gives one"
    )


def copy_until_closed(owner: Any, path: str | Path, mode: str) -> str:
    """Return a local path for `owner`, an object that reads or writes it until `close_copy(owner)`."""
    close_copy(owner)
    stack = contextlib.ExitStack()
    local = stack.enter_context(as_local(path, mode))
    vars(owner)[_COPY] = stack
    weakref.finalize(owner, _abandon, stack, os.getpid())
    return local


def close_copy(owner: Any, failed: bool = False) -> None:
    """Commit what was written to the copy of `owner`, unless it `failed`, and remove the copy."""
    stack = vars(owner).pop(_COPY, None)
    if stack is not None and failed:
        _abandon(stack, os.getpid())
    elif stack is not None:
        stack.close()


class _Abandoned(Exception):
    """Raised to abort the file that is being written."""


def _abandon(stack: contextlib.ExitStack, pid: int) -> None:
    if pid == os.getpid():
        with contextlib.suppress(_Abandoned):
            stack.__exit__(_Abandoned, _Abandoned(), None)
