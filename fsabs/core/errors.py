"""The errors that are ours, and how every error gets its errno, URL and operation.

Everything raised for a file is an `OSError` of Python's own family; a library's exceptions never pass.

    OSError
     |-- FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError,
     |   PermissionError, TimeoutError, ConnectionError, io.UnsupportedOperation   (Python's)
     |-- CorruptFileError      the bytes are not what they claim to be             EBADMSG
     +-- StaleFileError        the file changed under an open reader               ESTALE
    ValueError
     |-- UnknownSchemeError    no backend for a URL's scheme
     +-- ConfigError           a bad pfio.ini
    UserWarning
     |-- ConfigWarning        a section or key of pfio.ini that can't be used
     +-- UnnamedKeysWarning   keys that a listing can't show
    ImportError
     +-- MissingDependencyError   an extra is not installed

Each `OSError` raised by an FS or a file has `errno`, the full URL in `filename` and the name of the
operation in `operation`.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Iterable
from typing import Any, TypeVar

from .redaction import without_secrets as without_secrets

E = TypeVar("E", bound=OSError)

_HOW_TO_OPEN_MORE = ": close files, or raise the limit of this process (ulimit -n, resource.RLIMIT_NOFILE)"


class CorruptFileError(OSError):
    """The bytes of a file are not what its format or its store says they are."""


class UnknownSizeError(OSError):
    """A store does not say how large a file is, which is there."""


class StaleFileError(OSError):
    """A file was replaced or removed while it was open for reading, or a container while it was added to."""


class UnnamedKeysWarning(UserWarning):
    """A listing left out keys that no path names: with an empty, `.` or `..` segment, or text that is not UTF-8."""


class UnknownSchemeError(ValueError):
    """No backend, custom scheme or plugin answers to a URL's scheme."""


class ConfigError(ValueError):
    """`pfio.ini` or a custom scheme is not right; the message names the file, section and key."""


class ConfigWarning(UserWarning):
    """A section of `pfio.ini` can't be used, or has a key that isn't known; the rest can be used."""


class MissingDependencyError(ImportError):
    """A library that an operation needs is not installed; the message says which extra installs it."""


def error(code: int, operation: str, url: str, reason: str | None = None) -> OSError:
    """Return the `OSError` (or subclass, by errno) for `operation` on `url`; `reason` replaces the errno's text."""
    return named(OSError(code, reason or os.strerror(code)), operation, url)


def corrupt(url: str, reason: str, operation: str = "read") -> CorruptFileError:
    """Return a `CorruptFileError` that says what was found and what was expected."""
    return named(CorruptFileError(errno.EBADMSG, reason), operation, url)


def stale(url: str, reason: str = "the file changed while it was open", operation: str = "read") -> StaleFileError:
    """Return a `StaleFileError` for a blob whose version is no longer what the store holds."""
    return named(StaleFileError(errno.ESTALE, reason), operation, url)


def unsupported(operation: str, url: str, reason: str) -> io.UnsupportedOperation:
    """Return an `io.UnsupportedOperation` (both an `OSError` and a `ValueError`) that names FS and operation."""
    return named(io.UnsupportedOperation(errno.EOPNOTSUPP, reason), operation, url)


def of_client(exc: OSError) -> OSError:
    """Return the error of what a client needs itself, a file of its credentials for example, as one that nothing takes
    for what the store says of a file.
    """
    if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return exc
    return OSError(errno.EINVAL, without_secrets(f"what requests to the store need: {exc}"))


def warn_unnamed(url: str, count: int, example: str) -> None:
    """Warn that a listing of `url` left out `count` keys that no path names."""
    warnings.warn(_unnamed(count, example, url), UnnamedKeysWarning, stacklevel=2)


def unnamed_left(url: str, count: int, example: str) -> OSError:
    """Return the error of a recursive remove that left keys that no path names."""
    return named(OSError(errno.ENOTEMPTY, _unnamed(count, example, "it")), "remove", url)


def _unnamed(count: int, example: str, where: str) -> str:
    keys = f"{count} keys" if count > 1 else "a key"
    return f"{where} has {keys} that no path names, such as {example!r}; unnamed() lists them"


def missing(package: str, extra: str, purpose: str) -> MissingDependencyError:
    """Return the error for a library that is not installed; `extra` is empty for one that fsabs always installs.

    Where the library is installed, and its import fails for another reason, the error says that.
    """
    caught = sys.exc_info()[1]
    if isinstance(caught, ImportError) and not _is_of(caught.name, package):
        reason = f"{purpose} can't import {package}: {caught}"
        return MissingDependencyError(reason, name=caught.name)
    wanted = f"'fsabs[{extra}]'" if extra else package
    return MissingDependencyError(f"{purpose} needs {package}: pip install {wanted}", name=package)


def required(module: str, package: str, extra: str, purpose: str) -> Any:
    """Import and return a module; raise the error that `missing` returns if its library is not installed."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing(package, extra, purpose) from None


def _is_of(module: str | None, package: str) -> bool:
    """Return whether a module that was not found is the package's own."""
    if module is None or module.partition(".")[0].lower() not in package.lower().replace("-", "_"):
        return False
    import importlib.util

    try:
        return importlib.util.find_spec(module) is None
    except ImportError:
        return True


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return the end of a message about a name that is not known: the nearest known one, or else `otherwise`."""
    import difflib

    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]!r}?" if near else otherwise


def unknown_option(name: str, known: Iterable[str], owner: str, others: Iterable[str] = ()) -> str:
    """Return the message about an option that `owner` doesn't have; `others` may be meant, too."""
    names = sorted(known)
    hint = did_you_mean(name, [*names, *others], f"; it has: {', '.join(names) or 'none'}")
    return f"{owner} has no option {name!r}{hint}"


def portable(exc: Exception) -> Exception:
    """Return an exception that another process can unpickle: `exc`, or a `RuntimeError` with its type and text."""
    import pickle

    try:
        pickle.loads(pickle.dumps(exc))
    except Exception:  # whatever the exception's class does
        return RuntimeError(f"{type(exc).__name__}: {exc}")
    return exc


def named(exc: E, operation: str, url: str) -> E:
    """Give `exc` its errno, URL and operation, keeping what an inner FS has already said; returns `exc`.

    URL and text lose their secrets.
    """
    if getattr(exc, "operation", None) is None:
        if exc.errno is None:
            exc.errno, exc.strerror = _errno_of(exc), str(exc) or type(exc).__name__
        exc.filename = without_secrets(url)
        if exc.filename2 is not None:
            del exc.filename2  # a None in its place would be printed
        exc.operation = operation  # type: ignore[attr-defined]
        if exc.errno == errno.EMFILE:
            exc.strerror = f"{exc.strerror or os.strerror(exc.errno)}{_HOW_TO_OPEN_MORE}"
        exc.strerror = f"{without_secrets(exc.strerror or os.strerror(exc.errno))} [{operation}]"
        exc.args = (exc.errno, exc.strerror)  # what a pickle, and so another process, sees of it
    return exc


_ERRNO_BY_TYPE: dict[type[OSError], int] = {
    FileNotFoundError: errno.ENOENT,
    FileExistsError: errno.EEXIST,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
    PermissionError: errno.EACCES,
    TimeoutError: errno.ETIMEDOUT,
    ConnectionRefusedError: errno.ECONNREFUSED,
    ConnectionResetError: errno.ECONNRESET,
    BrokenPipeError: errno.EPIPE,
    ConnectionError: errno.ECONNABORTED,
    io.UnsupportedOperation: errno.EOPNOTSUPP,
    CorruptFileError: errno.EBADMSG,
    StaleFileError: errno.ESTALE,
}


def _errno_of(exc: OSError) -> int:
    for kind in type(exc).__mro__:
        if kind in _ERRNO_BY_TYPE:
            return _ERRNO_BY_TYPE[kind]
    return errno.EIO
