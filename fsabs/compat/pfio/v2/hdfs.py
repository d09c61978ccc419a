"""PFIO's `Hdfs`, on a client that needs no JVM."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from typing import IO, Any

import fsabs

from ....core.writing import keep_if_dropped
from .fs import DirectoryFS, FileStat, format_repr, warn_ignored


class HdfsFileStat(FileStat):
    """The stat of a file or directory of HDFS.

    Args:
        info: a `pyarrow.fs.FileInfo`.

    Attributes:
        filename, last_modified, mode, size: those of `FileStat`.
        last_accessed: the time of `last_modified`.
    """

    def __init__(self, info: Any) -> None:
        from pyarrow.fs import FileType

        self._info = info
        self.filename = info.base_name
        self.mode = {FileType.File: 0o100000, FileType.Directory: 0o40000}.get(info.type, 0)
        self.last_modified = self.last_accessed = info.mtime.timestamp()
        self.size = info.size


class Hdfs(DirectoryFS):
    """HDFS, after Hadoop's configuration in `$HADOOP_CONF_DIR`; it works after a fork.

    Args:
        cwd: a directory; a relative one is below the user's, which it is by default.
        create: make the directory if it is missing.
        scheme: that of the URL.

    Attributes:
        username: whose directory relative paths start from.
    """

    def __init__(self, cwd: str | None = None, create: bool = False, scheme: str | None = None, **_: Any) -> None:
        super().__init__(scheme=scheme)
        nameservice = _.pop("_nameservice", "")
        warn_ignored("Hdfs", _)
        self.fsabs = fsabs.Hdfs(None, nameservice)  # at the user's directory, and open up to the root
        self.username = os.path.basename(self.fsabs.cwd)
        self._cwd = os.path.join(self.fsabs.cwd, cwd or "")
        if not self.isdir(""):
            if not create:
                raise ValueError(f"{self._cwd} must be a directory")
            self.makedirs("", exist_ok=True)

    def __repr__(self) -> str:
        return format_repr(Hdfs, {"cwd": self._cwd})

    def open(
        self,
        file_path: str,
        mode: str = "rb",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> IO[Any]:
        """Open a file; a written one is visible, whole, when it is closed."""
        warn_ignored("Hdfs.open", ["opener"] * (opener is not None) + ["closefd"] * (not closefd))
        return keep_if_dropped(self.fsabs.open(self._path(file_path), mode, buffering, encoding, errors, newline))

    def list(self, path: str | None = "", recursive: bool = False, detail: bool = False) -> Iterator[Any]:
        """Yield the names of files and directories, relative to `path`, without a `/` at the end."""
        directory = self._path(path)
        for found in self.fsabs.list(directory, recursive, detail=True):
            name = found.filename.rstrip("/")
            yield HdfsFileStat(_info(os.path.join(directory, name), found)) if detail else name

    def stat(self, path: str) -> FileStat:
        """Return the stat of a file or directory."""
        path = self._path(path)
        return HdfsFileStat(_info(path, self.fsabs.stat(path)))

    def isdir(self, path: str | None) -> bool:
        """Return True if there is a directory."""
        return self.fsabs.isdir(self._path(path))

    def mkdir(self, path: str, *args: Any, dir_fd: int | None = None) -> None:
        """Make a directory and what is missing above it; one that is there stays."""
        self.fsabs.makedirs(self._path(path), exist_ok=True)

    def makedirs(self, path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Make a directory and what is missing above it."""
        self.fsabs.makedirs(self._path(path), mode, exist_ok)

    def exists(self, path: str) -> bool:
        """Return True if there is a file or directory."""
        return self.fsabs.exists(self._path(path))

    def remove(self, path: str, recursive: bool = False) -> None:
        """Remove a file, an empty directory, or with `recursive` a directory and all that is in it."""
        self._remove(self._path(path), recursive, self.fsabs.isdir)

    def normpath(self, file_path: str) -> str:
        """Return the URL of a path."""
        return self.fsabs.url(self._path(file_path))

    def _canonical_name(self, file_path: str) -> str:
        return self.normpath(file_path)


def _info(path: str, found: fsabs.FileStat) -> Any:
    from pyarrow.fs import FileInfo, FileType

    kind = FileType.Directory if found.directory else FileType.File
    modified = datetime.datetime.fromtimestamp(found.last_modified or 0, datetime.UTC)
    return FileInfo(path, kind, mtime=modified, size=None if found.directory else found.size)
