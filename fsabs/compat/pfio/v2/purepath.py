"""PFIO's `PurePath`: what a path on an FS of `v2` says without asking the FS."""

from __future__ import annotations

import sys
import warnings
from fnmatch import fnmatch, fnmatchcase
from os import PathLike, fspath
from pathlib import PurePosixPath
from posixpath import join
from typing import TYPE_CHECKING, Any
from urllib.parse import ParseResult, urlunparse

from ....paths import PathParts
from .fs import FS
from .hdfs import Hdfs
from .s3 import S3
from .zip import Zip

if TYPE_CHECKING:
    from typing import Self

Segment = str | PathLike[str]
_REMOVED = "pass a single joined path: several arguments are deprecated, as they are in pathlib"


class PurePath(PathParts):
    """`pathlib.PurePosixPath`'s interface for a path on an FS.

    Args:
        args: segments, which are joined.
        fs: the FS that the path is on.
    """

    def __init__(self, *args: Segment, fs: FS) -> None:
        self._fs = fs
        self._pure = PurePosixPath(*args)

    @property
    def sep(self) -> str:
        """The separator of segments."""
        return "/"

    @property
    def scheme(self) -> str:
        """The FS's scheme."""
        return self._fs.scheme

    def _with(self, pure: PurePosixPath) -> Self:
        return self.with_segments(pure)

    def __hash__(self) -> int:
        return hash((self._pure, type(self._fs), self.scheme))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PurePath):
            return NotImplemented
        return self._pure == other._pure and _where(self._fs) == _where(other._fs)

    def __fspath__(self) -> str:
        return str(self._pure)

    def __str__(self) -> str:
        return str(self._pure)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._pure)!r})"

    def __bytes__(self) -> bytes:
        return bytes(self._pure)

    def __truediv__(self, other: Segment) -> Self:
        return self.with_segments(self._pure / str(other))

    def __rtruediv__(self, other: Segment) -> Self:
        return self.with_segments(str(other) / self._pure)

    @property
    def parts(self) -> tuple[str, ...]:
        """The segments of the path; the first of an absolute path is `/`."""
        return self._pure.parts

    @property
    def drive(self) -> str:
        """An empty string: paths have no drive."""
        return self._pure.drive

    @property
    def anchor(self) -> str:
        """`/` for an absolute path, else an empty string."""
        return self._pure.anchor

    def as_posix(self) -> str:
        """Return the path as text."""
        return self._pure.as_posix()

    def as_uri(self) -> str:
        """Return the URL of an absolute path, which counts from the FS's `cwd`."""
        if not self.is_absolute():
            raise ValueError(f"'{self}' is not absolute path")
        netloc = self._fs.bucket if isinstance(self._fs, S3) else ""
        path = join(self._fs.cwd, str(self._pure).removeprefix("/"))
        return urlunparse(ParseResult(self.scheme, netloc, path, "", "", ""))

    def is_relative_to(self, *other: Segment) -> bool:
        """Return whether the path lies below another one, or is that."""
        return self._pure.is_relative_to(_one(other))

    def joinpath(self, *args: Segment) -> Self:
        """Return the path with further segments at its end."""
        return self.with_segments(self._pure.joinpath(*(fspath(one) for one in args)))

    def match(self, pattern: Segment, *, case_sensitive: bool = False) -> bool:
        """Return whether the URL of an absolute path matches a pattern of `fnmatch`, where `*` matches `/` too."""
        return (fnmatchcase if case_sensitive else fnmatch)(self.as_uri(), fspath(pattern))

    def relative_to(self, *other: Segment, walk_up: bool = False) -> Self:
        """Return the path from `other` to this one; `ValueError` if it lies outside, or needs `..` without `walk_up`.

        `walk_up` needs Python 3.12.
        """
        base = _one(other)
        if not walk_up:
            return self.with_segments(self._pure.relative_to(base))
        if sys.version_info < (3, 12):
            raise NotImplementedError("`walk_up=True` supports python version 3.12 or higher")
        return self.with_segments(self._pure.relative_to(base, walk_up=True))

    def with_segments(self, *args: Segment) -> Self:
        """Return another path on the same FS."""
        return type(self)(*args, fs=self._fs)


def _where(fs: FS) -> tuple[Any, ...]:
    """Return what tells an FS from others."""
    if isinstance(fs, S3):
        return S3, fs.cwd, fs.bucket, fs.endpoint
    if isinstance(fs, Zip):
        return Zip, fs.cwd, fs.file_path, _where(fs.backend)
    return type(fs), fs.cwd, fs.username if isinstance(fs, Hdfs) else None


def _one(paths: tuple[Segment, ...]) -> PurePosixPath:
    """Return the one path of an argument that pathlib once took several of."""
    if len(paths) > 1:
        warnings.warn(_REMOVED, DeprecationWarning, stacklevel=3)
    elif not paths:
        raise TypeError("a path is needed")
    return PurePosixPath(*(fspath(one) for one in paths))
