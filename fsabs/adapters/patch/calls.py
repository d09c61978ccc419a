"""One patched function: what is ours goes to a handler, everything else to the original, unchanged.

A handler is called with a `Call`, which knows the path and all arguments, and calls the original with another value in
place of the path.

Python imports this at its start where `FSABS_PATCH` is set: what opens a URL is imported with the first one.
"""

from __future__ import annotations

import functools
import os
import sys
from types import BuiltinFunctionType, ModuleType

TYPE_CHECKING = False  # as typing's, which takes as long to import as all of this
if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable
    from typing import IO, Any

    from ...paths import Path

    Handler = Callable[["Call"], Any]
    # Names of functions, with spaces between them; their parameters, as of a `PatchedCall`; how a call is served.
    Rows = list[tuple[str, str, Handler]]
PATCHED = "__fsabs_patched__"  # an attribute of what a `PatchedCall` has made that refers to the call
_COPY = "__fsabs_copy__"
_copies: dict[contextlib.ExitStack, int] = {}  # that are in use, with the process that made each
_PFS = "/pfs/"


def ours(value: object) -> str | Path | None:
    """Return what this library opens for `value`: a URL of a known scheme, or a `Path`; None if it is not ours.

    Ours are such URLs, all `Path` objects and the entries of the patched `os.scandir`.
    """
    if isinstance(value, str):
        return value if ("://" in value or value.startswith(_PFS)) and _is_url(value) else None
    if isinstance(value, Entry):
        return value.place
    paths = sys.modules.get("fsabs.paths")  # before it is imported, there is no `Path`
    return value if paths is not None and isinstance(value, paths.Path) else None


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
    from ...urls import config, locations

    built_in = scheme == locations.PFS or scheme in registry.BUILTIN_SCHEMES or registry.backend(scheme) is not None
    return built_in or config.get_custom_scheme(scheme) is not None


def _has_scheme(value: object) -> str | Path | None:
    """Return what `ours` does, but for the text of a path in a datacenter: that is one like any other to look at."""
    return None if isinstance(value, str) and "://" not in value else ours(value)


def _copied(value: object) -> object | None:
    """Return `value` if there is a local copy that it reads or writes."""
    return value if _COPY in getattr(value, "__dict__", ()) else None


class Call:
    """A call of the function `patched`; `path` is what `ours` returns for the argument that led here."""

    def __init__(self, patched: PatchedCall, args: tuple[Any, ...], kwargs: dict[str, Any], at: int, path: Any) -> None:
        self.patched = patched
        self._at = at
        self.path = path
        self.args = args
        self.kwargs = kwargs

    def __call__(self, value: Any, **others: Any) -> Any:
        """Call the original with `value` in place of the path, and with `others` by name."""
        args, at, kwargs = self.args, self._at, {**self.kwargs, **others}
        if len(args) > at:
            return self.patched.function(*args[:at], value, *args[at + 1 :], **kwargs)
        return self.patched.function(*args, **{**kwargs, self.patched.parameters[at]: value})

    def given(self) -> dict[str, Any]:
        """Return the arguments by their names."""
        return {**dict(zip(self.patched.parameters, self.args, strict=False)), **self.kwargs}

    def others(self) -> dict[str, Any]:
        """Return the arguments by their names, without the path."""
        return {name: value for name, value in self.given().items() if name != self.patched.parameters[self._at]}

    def get(self, name: str, default: Any = None) -> Any:
        """Return the argument of this name; `default` if there is none, or None."""
        found = self.given().get(name)
        return default if found is None else found


class PatchedCall:
    """The function `name` of `module`, or of a class in it (`File.close`).

    `parameters` are the names of its parameters, in their order, as far as they matter. The handler gets a call where
    one with an asterisk is ours, one with a `+` by its scheme, or one with an `@` is an object that has a local copy.
    """

    def __init__(self, module: Any, name: str, parameters: str, handler: Handler) -> None:
        *classes, self.name = name.split(".")
        self.title = f"{module.__name__}.{name.removesuffix('.__new__')}"
        self._owner = functools.reduce(lambda owner, part: getattr(owner, part, None), classes, module)
        self._handler = handler
        names = parameters.split()
        self.parameters = [name.lstrip("*+@") for name in names]
        tests = {"*": ours, "+": _has_scheme, "@": _copied}
        self._tests = [(at, name[1:], tests[name[0]]) for at, name in enumerate(names) if name[0] in tests]
        self.active = False
        self.function: Any = None  # what the wrapper calls
        self._wrapper: Any = None
        self._original: Any = None  # what the owner itself has; None for what is inherited

    def apply(self) -> bool:
        """Replace the attribute; False if there is none, or if it is replaced already."""
        original = getattr(self._owner, self.name, None)
        if original is None:
            return False
        self._original = vars(self._owner).get(self.name)
        there = getattr(original, PATCHED, None)
        if there is not None and there._wrapper is original:  # and not a copy of the attribute, by functools.wraps
            if there._owner is self._owner:
                return False
            # It was imported from another module while that was patched, as imageio does from imageio.v2.
            original = there.function
            self._original = self._original and original
        self.function = original
        self._wrapper = self._wrapped(original)
        setattr(self._wrapper, PATCHED, self)
        self.active = True
        setattr(self._owner, self.name, staticmethod(self._wrapper) if self.name == "__new__" else self._wrapper)
        for functions in _sets_of_os():
            if original in functions:
                functions.add(self._wrapper)
        return True

    def restore(self) -> None:
        """Put the original back; where another patch lies above ours, only stop handling URLs."""
        self.active = False
        for functions in _sets_of_os():
            functions.discard(self._wrapper)
        is_there = getattr(self._owner, self.name, None) is self._wrapper
        if is_there and self._original is None:  # it was inherited
            delattr(self._owner, self.name)
        elif is_there:
            setattr(self._owner, self.name, self._original)

    def _wrapped(self, original: Any) -> Any:
        patched: Any = functools.update_wrapper(self._patched(original), original)
        if isinstance(self._owner, ModuleType):
            if isinstance(original, BuiltinFunctionType):
                patched = functools.update_wrapper(_Builtin(patched), original)
            patched.__module__, patched.__qualname__ = self._owner.__name__, self.name  # by which it is pickled
        return patched

    def _patched(self, original: Any) -> Any:
        """Return a function that calls the handler if a path is ours, else the original."""
        tests = self._tests

        def patched(*args: Any, **kwargs: Any) -> Any:
            # Most calls have a local path only, and are passed on in a fraction of a microsecond.
            if kwargs or len(args) != 1 or type(args[0]) is not str or "://" in args[0] or _PFS in args[0]:
                for at, name, test in tests:
                    value = args[at] if len(args) > at else kwargs.get(name)
                    is_local = type(value) is str and "://" not in value and _PFS not in value
                    path = test(value) if not is_local and self.active else None
                    if path is not None:
                        return self._handler(Call(self, args, kwargs, at, path))
            try:
                return original(*args, **kwargs) if kwargs else original(*args)  # which is faster
            except FileNotFoundError as exc:
                _name_cause(exc)
                raise

        return patched


def _sets_of_os() -> list[set[Any]]:
    """Return the sets of functions that the module `os` has, as `os.supports_fd`, which `shutil` looks into."""
    return [found for name, found in vars(os).items() if name.startswith("supports_") and isinstance(found, set)]


def _name_cause(exc: FileNotFoundError) -> None:
    """Say of a missing `s3:/bucket/x` that it was a URL."""
    before, mark, _ = exc.filename.partition(":/") if isinstance(exc.filename, str) else ("", "", "")
    scheme = before.rpartition("/")[2].lower()
    if mark and is_own_scheme(scheme) and "://" not in str(exc.strerror):
        exc.strerror = f"{exc.strerror} (a URL begins with {scheme}://; unpatched pathlib and os.path drop a slash)"


class _Builtin(functools.partial["Any"]):
    """Stands for a function that is written in C: as an attribute of a class, it binds no object."""

    def __get__(self, instance: object, owner: Any = None) -> Any:
        return self

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])

    def __repr__(self) -> str:
        return repr(vars(self)["__wrapped__"])


class Entry:
    """An entry of the patched `os.scandir`, at `place`; a slash at the end of `name` says that it is a directory."""

    def __init__(self, place: str | Path, name: str) -> None:
        self.place = place
        self.name = name.rstrip("/")
        self._directory = name.endswith("/")

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a directory."""
        return self._directory

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether it is a file."""
        return not self._directory

    def is_symlink(self) -> bool:
        """Return False."""
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return its stat."""
        return as_path(self.place).stat()

    def __fspath__(self) -> str:
        return os.fspath(self.place)

    path = property(__fspath__, doc="The URL.")


# ---- what a path is opened by


def read_bytes(path: str | Path) -> bytes:
    """Return the content of a file."""
    from ...urls import roots

    # A string first: the class of `Path` is abstract, and to ask for its instances is expensive.
    return roots.call(path, lambda fs, at: fs.read_bytes(at)) if isinstance(path, str) else path.read_bytes()


def open_file(path: str | Path, mode: str = "rb", **options: Any) -> IO[Any]:
    """Open a file; one that is dropped unclosed is kept, as by the function that this stands for."""
    from ...core.writing import keep_if_dropped
    from ...urls import roots

    file = roots.open_file(path, mode, **options) if isinstance(path, str) else path.open(mode, **options)
    return file if mode in ("r", "rb", "rt") else keep_if_dropped(file)


def local(path: str | Path) -> str | None:
    """Return what the operating system calls the file of a `Path`; None if it is on no local disk."""
    try:
        text = os.fspath(path)
    except TypeError:
        return None
    return None if ours(text) else text


def as_path(path: str | Path) -> Path:
    """Return a path of this library."""
    from ...paths import Path

    return Path(path) if isinstance(path, str) else path


# ---- handlers


def fspath(call: Call) -> str:
    """Return the URL of a `Path` that is on no local disk; a path of an FS stays refused: its URL names no options."""
    path = call.path
    try:
        return str(call(path))
    except TypeError:
        if type(path)(str(path)) != path:
            raise
        return str(path.absolute().as_uri())


def by_file(call: Call, mode: str = "rb") -> Any:
    """Give the function an open file, which is closed when it returns."""
    with open_file(call.path, mode) as file:
        return call(file)


def by_remembering_file(call: Call, mode: str = "rb") -> Any:
    """Give a function of C++ an open file, whose own failure is raised in place of what the function makes of it."""
    from ...core.remembering import RememberingFile, remembering

    with open_file(call.path, mode) as file, remembering(RememberingFile(file)) as remembered:
        return call(remembered)


# With a file to write, which becomes visible when the function returns.
by_written_file = functools.partial(by_file, mode="wb")
by_written_remembering_file = functools.partial(by_remembering_file, mode="wb")


def by_local(call: Call, mode: str = "r") -> Any:
    """Give the function a local path with the content of the file."""
    with as_path(call.path).as_local(mode) as path:
        return call(path)


def by_written_local(call: Call, adds: bool = False) -> Any:
    """Give the function a local path to write to, which is committed when it returns.

    One that `adds` finds there what the file has already.
    """
    return by_local(call, "r+" if adds and as_path(call.path).exists() else "w")


def by_lasting_local(call: Call) -> Any:
    """Give the function a local path that is there for as long as its result."""
    import contextlib
    import weakref

    with contextlib.ExitStack() as stack:
        found = call(stack.enter_context(as_path(call.path).as_local()))
        weakref.finalize(found, stack.pop_all().close)
    return found


def elsewhere(handler: Handler) -> Handler:
    """Return a handler for what is not on the local disk; for a `Path` that is, the original is called."""

    def served(call: Call) -> Any:
        path = local(call.path)
        return handler(call) if path is None else call(path)

    return served


@elsewhere
def refused(call: Call) -> Any:
    """Refuse what only a file on the local disk can do."""
    from ...core import errors

    way = "it takes a path on the local disk: `with fsabs.Path(url).as_local() as path:` gives one"
    raise errors.unsupported(call.patched.title, errors.without_secrets(str(call.path)), way)


def closed(call: Call) -> None:
    """Close an object, then commit its copy; of one that can't be closed nothing is committed."""
    try:
        call(call.path)
    except BaseException:
        close_copy(call.path, failed=True)
        raise
    close_copy(call.path)


def left(call: Call) -> None:
    """Leave the block of an object; one that raises commits nothing."""
    if call.get("kind") is not None:
        close_copy(call.path, failed=True)
    call(call.path)


def copy_until_closed(
    owner: Any, path: str | Path, mode: str, call: Callable[[str], object], close: Callable[[], object]
) -> None:
    """Call `call(local)` with a local path for `owner`, an object that reads or writes it until `close_copy(owner)`.

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
        call(stack.enter_context(as_path(path).as_local(mode)))
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
