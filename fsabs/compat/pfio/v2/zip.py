"""PFIO's `Zip`: a zip file as an FS."""

from __future__ import annotations

import io
import os
import posixpath
import time
import zipfile
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import IO, Any

import fsabs

from .fs import FS, FileStat, error_of_both, format_repr

_COPIED = (
    "filename",
    "orig_filename",
    "comment",
    "create_system",
    "create_version",
    "extract_version",
    "flag_bits",
    "volume",
    "internal_attr",
    "external_attr",
    "CRC",
    "header_offset",
    "compress_size",
    "compress_type",
)


class ZipFileStat(FileStat):
    """The stat of a zip entry: the fields of `zipfile.ZipInfo`, and those of every stat.

    Attributes:
        last_modified: seconds since 1970, of the entry's date in this machine's time zone.
        mode: as the entry has it; 0 if it has none.
    """

    def __init__(self, zip_info: zipfile.ZipInfo) -> None:
        for name in _COPIED:
            setattr(self, name, getattr(zip_info, name, 0))  # the CRC of what has no entry
        self.last_modified = datetime(*zip_info.date_time).timestamp()
        self.mode = zip_info.external_attr >> 16
        self.size = zip_info.file_size

    def isdir(self) -> bool:
        """Return True if it is a directory, by its mode or its name."""
        return super().isdir() or self.filename.endswith("/")


class Zip(FS):
    """A zip file of an FS as an FS.

    Args:
        backend: the FS that the file is in.
        file_path: its path there.
        mode: `r`, `w`, `x` or `a`; what is written is visible when the `Zip` is closed.
        create: refused.
        local_cache, local_cachedir: refused, as PFIO 2.10 does.
        trace: record calls in a trace of `fsabs.trace`.
        kwargs: `compression` and `compresslevel` of written members; others are kept and have no effect.
    """

    _readonly = True

    def __init__(
        self,
        backend: FS,
        file_path: str,
        mode: str = "r",
        create: bool = False,
        local_cache: bool = False,
        local_cachedir: str | None = None,
        trace: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(scheme=backend.scheme)
        if create:
            raise ValueError("create option is not supported")
        if "r" in mode and "w" in mode:
            raise io.UnsupportedOperation("Read-write mode is not supported")
        if local_cache or local_cachedir:
            raise NotImplementedError("Sparse file cache has been removed.")
        self.backend, self.file_path, self.mode, self.kwargs = backend, file_path, mode, kwargs
        self.trace = trace
        self._readonly = "r" in mode
        written = {name: kwargs[name] for name in ("compression", "compresslevel") if name in kwargs}
        archive = backend.fsabs.open_zip(backend._path(file_path), mode.replace("b", ""), **written)
        self.fsabs = archive
        self._stdlib: tuple[int, Any, zipfile.ZipFile] | None = None

    @property
    def fileobj(self) -> Any:
        """The zip file, opened for reading; None if it is being written."""
        opened = self._opened()
        return opened[1] if opened is not None else None

    @property
    def zipobj(self) -> Any:
        """The zip file as a `zipfile.ZipFile`; None if it is being written."""
        opened = self._opened()
        return opened[2] if opened is not None else None

    def _opened(self) -> tuple[int, Any, zipfile.ZipFile] | None:
        """Open the file once in each process, for what only the standard library's class tells."""
        if self._stdlib is not None and self._stdlib[0] == os.getpid():
            return self._stdlib
        if not self._readonly:
            return None
        options = {"buffering": self.kwargs["buffering"]} if "buffering" in self.kwargs else {}
        file = self.backend.open(self.file_path, "rb", **options)
        self._stdlib = os.getpid(), file, zipfile.ZipFile(file)
        return self._stdlib

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_stdlib": None}

    def __repr__(self) -> str:
        return format_repr(Zip, {"file_path": self.file_path, "mode": self.mode, "backend": self.backend})

    def _path(self, path: str | None) -> str:
        """Return the path of an entry; `/` for the root, and for what is above it."""
        self._checkfork()
        path = posixpath.normpath(posixpath.join(self.cwd, path or "")).strip("/")
        return "/" if path in (".", "..") or path.startswith("../") else "/" + path

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
        """Open an entry."""
        try:
            return self.fsabs.open(self._path(file_path), mode, buffering, encoding, errors, newline)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as exc:
            kind = error_of_both(type(exc), KeyError)  # type: ignore[arg-type]
            raise kind(exc.errno, exc.strerror, exc.filename) from exc

    def close(self) -> None:
        """Close the file; what was written becomes visible."""
        self._close_stdlib()
        self.fsabs.close()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close_stdlib()
        self.fsabs.__exit__(exc_type, exc_value, traceback)

    def _close_stdlib(self) -> None:
        opened, self._stdlib = self._stdlib, None
        if opened is not None and opened[0] == os.getpid():
            opened[2].close()
            opened[1].close()

    def stat(self, path: str) -> FileStat:
        """Return the stat of an entry; the root is none."""
        key = self._path(path)
        if key == "/":
            raise FileNotFoundError(2, f"{path} is not found")
        return ZipFileStat(self._info(key[1:], self._existing(key)))

    def _existing(self, key: str) -> fsabs.FileStat:
        try:
            return self.fsabs.stat(key)
        except NotADirectoryError as exc:  # something above it is a file
            raise FileNotFoundError(exc.errno, exc.strerror, exc.filename) from exc

    def _info(self, name: str, found: fsabs.FileStat) -> zipfile.ZipInfo:
        """Return the standard library's record of an entry; one is made for what has none."""
        archive = self.zipobj
        if archive is not None and (info := archive.NameToInfo.get(name + "/" * found.directory)) is not None:
            entry: zipfile.ZipInfo = info
            return entry
        when = max((1980, 1, 1, 0, 0, 0), time.localtime(found.last_modified or 0)[:6])  # the first that a zip can have
        info = zipfile.ZipInfo(name + "/" * found.directory, when)
        info.file_size, info.external_attr = found.size, found.mode << 16
        return info

    def list(self, path_or_prefix: str | None = "", recursive: bool = False, detail: bool = False) -> Iterator[Any]:
        """Yield the names in a directory, without a `/` at the end; `recursive`, those of all entries below it."""
        key = self._path(path_or_prefix)
        below = "" if key == "/" else key[1:] + "/"
        if key != "/":
            self._existing(key)
        for found in self.fsabs.list(key, recursive, detail=True):
            name = found.filename.rstrip("/")
            if found.directory and recursive and not self._has_entry(f"{below}{name}/"):
                continue
            yield ZipFileStat(self._info(below + name, found._replace(filename=name))) if detail else name

    def _has_entry(self, name: str) -> bool:
        archive = self.zipobj
        return archive is None or name in archive.NameToInfo

    def isdir(self, file_path: str) -> bool:
        """Return True if there is a directory; False of the root, as PFIO has it."""
        key = self._path(file_path)
        return key != "/" and self.fsabs.isdir(key)

    def mkdir(self, file_path: str, mode: int = 0o777, *args: Any, dir_fd: int | None = None) -> None:
        """Raise `io.UnsupportedOperation`."""
        raise io.UnsupportedOperation("zip does not support mkdir")

    def makedirs(self, file_path: str, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Raise `io.UnsupportedOperation`."""
        raise io.UnsupportedOperation("zip does not support makedirs")

    def exists(self, file_path: str) -> bool:
        """Return True if there is a file or directory; False of the root, as PFIO has it."""
        key = self._path(file_path)
        return key != "/" and self.fsabs.exists(key)

    def rename(self, *args: Any) -> None:
        """Raise `io.UnsupportedOperation`."""
        raise io.UnsupportedOperation("zip does not support rename")

    def remove(self, file_path: str, recursive: bool = False) -> None:
        """Raise `io.UnsupportedOperation`."""
        raise io.UnsupportedOperation("zip does not support remove")

    def subfs(self, path: str) -> Any:
        """Return this FS with another directory as its `cwd`."""
        sub = super().subfs(path)
        sub._stdlib = None
        sub.fsabs = self.fsabs.subfs("")  # whose close leaves the file open
        return sub

    def _canonical_name(self, file_path: str) -> str:
        path = posixpath.join(self.cwd, posixpath.normpath(file_path))
        return f"{self.backend._canonical_name(self.file_path)}/pfio-zipfs/{path}"
