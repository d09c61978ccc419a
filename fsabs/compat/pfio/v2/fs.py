"""PFIO's abstract FS and stat, and the functions that make an FS of a URL."""

from __future__ import annotations

import abc
import contextlib
import copy
import functools
import inspect
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from ..version import __version__ as __version__
from . import config

if TYPE_CHECKING:
    from typing import Self

    import fsabs

SCHEMES = ("file", "hdfs", "s3")


class FileStat(abc.ABC):  # noqa: B024 - PFIO's is one, and cannot be instantiated by mistake
    """The stat of a file or directory.

    Attributes:
        filename: the name or path.
        last_modified: seconds since 1970.
        mode: type and permission bits, as `st_mode` has them.
        size: bytes.
    """

    filename: Any = None
    last_modified: Any = None
    mode: Any = None
    size: Any = None

    def isdir(self) -> bool:
        """Return True if it is a directory."""
        return stat.S_ISDIR(self.mode)

    def __str__(self) -> str:
        mode = stat.filemode(self.mode) if isinstance(self.mode, int) else self.mode
        return f'<{type(self).__name__} filename="{self.filename}" mode="{mode}">'

    def __repr__(self) -> str:
        return str(self)


class ForkedError(RuntimeError):
    """PFIO's error for objects that can't be used after a fork; never raised here."""


@functools.cache
def error_of_both(kind: type[OSError], other: type[Exception]) -> Any:
    """Return the class of errors that are of `kind`, as this library raises them, and of the class that PFIO raises."""
    own = {"__init__": kind.__init__, "__reduce__": kind.__reduce__, "__str__": kind.__str__}
    return type(kind.__name__, (kind, other), own)


class FS(abc.ABC):
    """PFIO's interface of a filesystem.

    Attributes:
        pid: the process that used the object last.
        trace: True if calls are traced.
        fsabs: the FS of this library that the object works on.
    """

    _cwd: str = ""
    _scheme: str = ""
    fsabs: fsabs.FS

    def __init__(self, scheme: str | None = None) -> None:
        self.pid = os.getpid()
        self.trace = False
        if scheme:
            self._scheme = str(scheme)

    @property
    def scheme(self) -> str:
        """The scheme of the URL, also a custom one."""
        return self._scheme

    @property
    def cwd(self) -> str:
        """The directory that relative paths start from."""
        return self._cwd

    @cwd.setter
    def cwd(self, value: str) -> None:
        self._cwd = value

    @abc.abstractmethod
    def open(
        self,
        file_path: str,
        mode: str = "rb",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Callable[[str, int], Any] | None = None,
    ) -> IO[Any]:
        """Open a file, as `builtins.open`."""

    def open_zip(self, file_path: str, mode: str = "r", **kwargs: Any) -> Any:
        """Return the zip file at `file_path` as an FS."""
        from .zip import Zip

        return Zip(self, file_path, mode, **kwargs)

    def subfs(self, rel_path: str) -> Any:
        """Return this FS with another directory, below this one, as its `cwd`."""
        if rel_path.startswith("/"):
            raise RuntimeError("Absolute path is not supported")
        if ".." in rel_path.split("/"):
            raise RuntimeError("Only subtree is supported")
        sub = copy.copy(self)
        sub.cwd = os.path.join(self.cwd, rel_path)
        return sub

    def _checkfork(self) -> None:
        if self.is_forked:
            self._reset()
            self.pid = os.getpid()

    def _reset(self) -> None:  # noqa: B027
        """Renew what a fork has made useless: nothing, since the FS below does so by itself."""

    def _path(self, path: str | None) -> str:
        """Return a path as `fsabs` takes it, from the root. Every method calls it."""
        self._checkfork()
        return os.path.join("/", self.cwd, path or "")

    @property
    def is_forked(self) -> bool:
        """True if the object was used last in another process."""
        return self.pid != os.getpid()

    @property
    def is_traced(self) -> bool:
        """True if calls are traced."""
        return self.trace

    def close(self) -> None:  # noqa: B027
        """Free nothing; containers are closed."""

    @abc.abstractmethod
    def list(self, path_or_prefix: str | None = None, recursive: bool = False, detail: bool = False) -> Iterator[Any]:
        """Yield names, or with `detail` stats, of what is in a directory."""

    @abc.abstractmethod
    def stat(self, path: str) -> FileStat:
        """Return the stat of a file or directory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abc.abstractmethod
    def isdir(self, file_path: str) -> bool:
        """Return True if there is a directory."""

    @abc.abstractmethod
    def mkdir(self, file_path: str, mode: int = 0o777, *args: Any, dir_fd: int | None = None) -> None:
        """Make a directory."""

    @abc.abstractmethod
    def makedirs(self, file_path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Make a directory and what is missing above it."""

    @abc.abstractmethod
    def exists(self, path: str) -> bool:
        """Return True if there is a file or directory."""

    @abc.abstractmethod
    def rename(self, src: str, dst: str) -> None:
        """Move a file or directory."""

    @abc.abstractmethod
    def remove(self, file_path: str, recursive: bool = False) -> None:
        """Remove a file or directory."""

    def glob(self, pattern: str) -> Any:
        """Yield the paths, relative to `cwd`, that match a pattern."""
        return self.fsabs.subfs(self._path("")).glob(pattern)

    @abc.abstractmethod
    def _canonical_name(self, file_path: str) -> str:
        """Return the name of a file that HTTP caches use."""


class DirectoryFS(FS):
    """An FS that has directories: that of this machine, and HDFS."""

    def rename(self, src: str, dst: str) -> None:
        """Move a file or directory."""
        self.fsabs.rename(self._path(src), self._path(dst))

    def _remove(self, path: str, recursive: bool, isdir: Callable[[str], bool]) -> None:
        """Remove a file, an empty directory, or with `recursive` a directory and all that is in it."""
        if not recursive and isdir(path):
            self.fsabs.rmdir(path)
        else:
            self.fsabs.remove(path, recursive)


@contextlib.contextmanager
def open_url(url: str, mode: str = "r", **kwargs: Any) -> Iterator[IO[Any]]:
    """Open the file at a URL; a context manager. Options are those of `from_url`."""
    parent, name = os.path.split(url)
    with from_url(parent, **kwargs) as fs, fs.open(name, mode) as file:
        yield file


def from_url(url: str, **kwargs: Any) -> Any:
    """Return the FS at a URL.

    Args:
        url: a path, or `scheme://authority/path` with the scheme `file`, `hdfs`, `s3`, or a custom one. The path is
            taken as it stands: `%20` is no space.
        force_type: `zip`: the URL is that of a zip file whatever its suffix; or the URL's own scheme: it is that of a
            directory.
        create: make the directory if it is missing.
        http_cache: the URL of a web server that keeps the files, as `HTTPCachedFS` has it.
        kwargs: options of the FS and of `Zip`.
    """
    if kwargs.pop("reset_on_fork", None) is not None:
        warnings.warn("reset_on_fork has no effect: every FS works after a fork", DeprecationWarning, stacklevel=2)
    parts = urlsplit(os.fspath(url))
    scheme = parts.scheme or "file"
    force_type = kwargs.pop("force_type", None)
    if force_type not in (None, "zip", scheme):
        raise ValueError(f"force_type={force_type!r} does not fit the URL's scheme {scheme!r}")
    http_cache = kwargs.pop("http_cache", None)
    is_zip = force_type == "zip" or (force_type is None and parts.path.endswith(".zip"))
    if is_zip and kwargs.get("create"):
        raise ValueError('"create" option is not supported for Zip FS.')
    fs = _store(parts, scheme, kwargs, is_zip)
    if http_cache is None:
        return fs
    from .http_cache import HTTPCachedFS

    return HTTPCachedFS(http_cache, fs)


def _store(parts: SplitResult, scheme: str, options: dict[str, Any], is_zip: bool) -> FS:
    """Return the FS of a URL's scheme, or of the zip file that the URL names."""
    from .hdfs import Hdfs
    from .local import Local
    from .s3 import S3
    from .zip import Zip

    actual = scheme
    if scheme not in SCHEMES:
        custom = config.get_custom_scheme(scheme)
        if custom is None:
            raise RuntimeError(f"scheme {scheme!r} is not defined")
        actual = custom.pop("scheme")
        if actual not in SCHEMES:
            raise ValueError(f"Scheme {actual} is not supported")
        options = {**custom, **options}
        if prefix := options.pop("prefix", ""):  # of its section, or given: what the URL's path is below
            parts = parts._replace(path=f"/{prefix.strip('/')}/{parts.path.lstrip('/')}")
    kind: Any = {"file": Local, "hdfs": Hdfs, "s3": S3}[actual]
    known = _parameters(kind) | (_parameters(Zip) | {"compression", "compresslevel"} if is_zip else set())
    warn_ignored(f"from_url of {scheme}://", sorted(options.keys() - known))
    path, name = os.path.split(parts.path) if is_zip else (parts.path, "")
    own = {key: value for key, value in options.items() if key in _parameters(kind)}
    if actual == "s3":
        fs: FS = S3(bucket=parts.netloc, prefix=path, scheme=scheme, **own)
    elif actual == "hdfs":
        fs = Hdfs(path, scheme=scheme, _nameservice=parts.netloc, **own)
    else:
        fs = Local(path, scheme=scheme, **own)
    return fs.open_zip(name, **options) if is_zip else fs


def _parameters(kind: Any) -> set[str]:
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}


def lazify(init_func: Callable[[], Any], lazy_init: bool = True, recreate_on_fork: bool = True) -> Any:
    """Return the FS that `init_func` makes; deprecated, since every FS works after a fork."""
    warnings.warn("lazify is deprecated: every FS works after a fork", DeprecationWarning, stacklevel=2)
    return init_func()


def format_repr(cls: type, data: dict[str, Any]) -> str:
    """Return the text of an object: the name of its class, and its arguments."""
    arguments = ", ".join(f"{name}={value!r}" for name, value in data.items())
    return f"{cls.__module__}.{cls.__qualname__}({arguments})"


class IgnoredOptionWarning(UserWarning):
    """An option has no effect."""


_warned: set[tuple[str, str]] = set()


def warn_ignored(where: str, names: Iterable[str]) -> None:
    """Warn that the options `names` have no effect; of each once in a process."""
    for name in names:
        if (where, name) not in _warned:
            _warned.add((where, name))
            warnings.warn(f"{where}: {name}= has no effect", IgnoredOptionWarning, stacklevel=4)
