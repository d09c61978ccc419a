"""PFIO's `Local`: the files of this machine."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import IO, Any

import fsabs

from ....core.writing import keep_if_dropped
from .fs import DirectoryFS, FileStat, format_repr, warn_ignored

_FIELDS = {
    "last_modified": "st_mtime",
    "last_accessed": "st_atime",
    "created": "st_ctime",
    "last_modified_ns": "st_mtime_ns",
    "last_accessed_ns": "st_atime_ns",
    "created_ns": "st_ctime_ns",
    "mode": "st_mode",
    "size": "st_size",
    "uid": "st_uid",
    "gid": "st_gid",
    "ino": "st_ino",
    "dev": "st_dev",
    "nlink": "st_nlink",
}


class LocalFileStat(FileStat):
    """The result of `os.stat`, under PFIO's names.

    Attributes:
        filename, last_modified, mode, size: those of `FileStat`.
        last_accessed, created: seconds since 1970; `created` is the inode's change time.
        last_modified_ns, last_accessed_ns, created_ns: the same in nanoseconds.
        uid, gid, ino, dev, nlink: the fields of `os.stat_result`.
    """

    def __init__(self, _stat: os.stat_result, filename: str) -> None:
        for name, field in _FIELDS.items():
            setattr(self, name, getattr(_stat, field))
        self.filename = filename


class Local(DirectoryFS):
    """The local filesystem; relative paths start at `cwd`, or at the process's working directory of the moment.

    Args:
        cwd: a directory.
        trace: record calls in a trace of `fsabs.trace`.
        create: make the directory if it is missing.
        scheme: that of the URL.
    """

    def __init__(
        self, cwd: str | None = None, trace: bool = False, create: bool = False, scheme: str | None = None, **_: Any
    ) -> None:
        super().__init__(scheme=scheme)
        warn_ignored("Local", _)
        self.trace = trace
        self._cwd = os.fspath(cwd) if cwd is not None else ""
        store = fsabs.Local("/")
        self.fsabs = store
        if not self.isdir(""):
            if not create:
                raise ValueError(f"{self._cwd} must be a directory")
            os.makedirs(self._cwd, exist_ok=True)

    @property
    def cwd(self) -> str:
        """The directory that relative paths start from."""
        return self._cwd or os.getcwd()

    @cwd.setter
    def cwd(self, value: str) -> None:
        self._cwd = value

    def __repr__(self) -> str:
        return format_repr(Local, {"cwd": self._cwd})

    def _path(self, path: str | None) -> str:
        return os.path.join(os.getcwd(), self._cwd, path or "")

    def open(
        self,
        file_path: str,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> IO[Any]:
        """Open a file; a written one is visible, whole, when it is closed (not with `opener`, `w+`, `a+` and `x+`)."""
        path = self._path(file_path)
        if opener is not None or not closefd or ("+" in mode and "r" not in mode):
            return open(path, mode, buffering, encoding, errors, newline, closefd, opener)
        return keep_if_dropped(self.fsabs.open(path, mode, buffering, encoding, errors, newline))

    def list(self, path: str | None = "", recursive: bool = False, detail: bool = False) -> Iterator[Any]:
        """Yield the names in a directory, which are relative to it and end in `/` for directories."""
        directory = self._path(path)
        for name in self.fsabs.list(directory, recursive):
            yield _stat_of(directory, name) if detail else name

    def stat(self, path: str) -> FileStat:
        """Return the result of `os.stat`; `filename` is the path."""
        path = os.path.join(self.cwd, path)
        return LocalFileStat(os.stat(path), path)

    def isdir(self, path: str) -> bool:
        """Return True if there is a directory."""
        return os.path.isdir(self._path(path))

    def mkdir(self, file_path: str, mode: int = 0o777, *args: Any, dir_fd: int | None = None) -> None:
        """Make a directory."""
        self.fsabs.mkdir(self._path(file_path), mode)

    def makedirs(self, file_path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Make a directory and what is missing above it."""
        self.fsabs.makedirs(self._path(file_path), mode, exist_ok)

    def exists(self, file_path: str) -> bool:
        """Return True if there is something; False for a link to nothing."""
        return os.path.exists(self._path(file_path))

    def remove(self, file_path: str, recursive: bool = False) -> None:
        """Remove a file, an empty directory, or with `recursive` a directory and all that is in it."""
        self._remove(self._path(file_path), recursive, _is_directory)

    def glob(self, pattern: str) -> Any:
        """Return the paths below `cwd` that match a pattern of `pathlib.Path.glob`, relative to it."""
        directory = pathlib.Path(self._path(""))
        return [str(path.relative_to(directory)) for path in directory.glob(pattern)]

    def _canonical_name(self, file_path: str) -> str:
        return "file:/" + os.path.normpath(self._path(file_path))


def _stat_of(directory: str, name: str) -> LocalFileStat:
    name = name.rstrip("/")
    return LocalFileStat(os.stat(os.path.join(directory, name)), os.path.basename(name))


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
