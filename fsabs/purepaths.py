"""The part of `Path` that needs no store: names, parents, joining, matching, comparing, as `pathlib.PurePath` has them.

A path is a `pathlib.PurePosixPath` on a base: the store of a URL, the local disk, or an FS.
"""

from __future__ import annotations

import abc
import functools
import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any, ClassVar, NamedTuple, TypeVar

from .core import keys, redaction
from .core.fs import FS
from .urls import opening

P = TypeVar("P", bound="PurePath")
Q = TypeVar("Q", bound="PathParts")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/pfs/").match  # a datacenter has paths, too
Segment = str | os.PathLike[str]


class StoreBase(NamedTuple):
    """The store of URLs that begin with `drive`, "s3://bucket"."""

    drive: str

    def text(self, pure: PurePosixPath) -> str:
        """Return the URL of a path."""
        path = str(pure)
        return self.drive + (path if self.drive.startswith(("http:", "https:")) else keys.to_url_path(path))


class LocalBase(NamedTuple):
    """The local disk; relative paths start at the process's working directory."""

    drive: str = ""

    def text(self, pure: PurePosixPath) -> str:
        """Return the path as it stands."""
        return str(pure)


class FSBase:
    """An FS; relative paths start at its `cwd`."""

    drive: ClassVar[str] = ""

    def __init__(self, fs: FS) -> None:
        self.fs = fs
        self._key = (type(fs).__name__, fs.info()["url"])

    def text(self, pure: PurePosixPath) -> str:
        """Return the path in the FS."""
        return str(pure)

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, FSBase) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return str(self._key)


Base = StoreBase | LocalBase | FSBase


class PathParts(os.PathLike[str]):
    """The parts of a path that a `pathlib.PurePosixPath` knows, and the paths that differ in one of them."""

    __slots__ = ("_pure",)
    _pure: PurePosixPath

    @abc.abstractmethod
    def _with(self: Q, pure: PurePosixPath) -> Q:
        """Return a path of the same type in the same place."""

    @property
    def root(self) -> str:
        """`"/"`, or empty for a relative path."""
        return self._pure.root

    @property
    def parents(self: Q) -> Sequence[Q]:
        """The directories above, the nearest first."""
        return tuple(map(self._with, self._pure.parents))

    @property
    def parent(self: Q) -> Q:
        """The directory above; the root's is the root."""
        return self._with(self._pure.parent)

    @property
    def name(self) -> str:
        """The last name."""
        return self._pure.name

    @property
    def suffix(self) -> str:
        """The last suffix of the name, with its dot."""
        return self._pure.suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name."""
        return self._pure.suffixes

    @property
    def stem(self) -> str:
        """The name without its last suffix."""
        return self._pure.stem

    def with_name(self: Q, name: str) -> Q:
        """Return the path with another last name."""
        return self._with(self._pure.with_name(name))

    def with_stem(self: Q, stem: str) -> Q:
        """Return the path with another stem, and the same suffix."""
        return self._with(self._pure.with_stem(stem))

    def with_suffix(self: Q, suffix: str) -> Q:
        """Return the path with another suffix, or with none."""
        return self._with(self._pure.with_suffix(suffix))

    def is_absolute(self) -> bool:
        """Return whether the path has a root; a URL always does."""
        return self._pure.is_absolute()

    def is_reserved(self) -> bool:
        """Return False: no name is reserved."""
        return False


@functools.total_ordering
class PurePath(PathParts):
    """The methods and attributes of `pathlib.PurePath`."""

    __slots__ = ("_base",)
    _base: Base

    def __init__(self, *segments: Segment, fs: FS | None = None) -> None:
        base: Base = LocalBase() if fs is None else FSBase(fs)
        pure = PurePosixPath()
        for segment in segments:
            if isinstance(segment, PurePath):
                joins = segment._base == base or (segment._base == LocalBase() and not segment.is_absolute())
                base, pure = (base, pure / segment._pure) if joins else (segment._base, segment._pure)
            elif isinstance(segment, str) and fs is None and _URL(segment):
                base, pure = _from_url(segment)
            else:
                pure = pure / segment
        self._base, self._pure = base, pure

    def _with(self: P, pure: PurePosixPath) -> P:
        made = object.__new__(type(self))
        made._base, made._pure = self._base, pure
        return made

    def with_segments(self: P, *segments: Segment) -> P:
        """Return a path of the same type; on the same FS, for a path of an FS."""
        return type(self)(*segments, fs=self._base.fs if isinstance(self._base, FSBase) else None)

    # ---- parts

    @property
    def drive(self) -> str:
        """`"s3://bucket"` of a URL; empty for a local path and for a path of an FS."""
        return self._base.drive

    @property
    def anchor(self) -> str:
        """Drive and root."""
        return self.drive + self.root

    @property
    def parts(self) -> tuple[str, ...]:
        """The anchor, if there is one, and the names."""
        parts = self._pure.parts
        return (self.anchor, *parts[1:]) if self.root else parts

    # ---- other paths

    def joinpath(self: P, *segments: Segment) -> P:
        """Return the path of `segments` from this one; an absolute segment or a URL starts anew."""
        if not any(isinstance(segment, PurePath) or _URL(os.fspath(segment)) for segment in segments):
            return self._with(self._pure.joinpath(*segments))
        return type(self)(self, *segments, fs=self._base.fs if isinstance(self._base, FSBase) else None)

    def __truediv__(self: P, segment: Segment) -> P:
        try:
            return self.joinpath(segment)
        except TypeError:
            return NotImplemented

    def __rtruediv__(self: P, segment: Segment) -> P:
        try:
            return type(self)(segment, self)
        except TypeError:
            return NotImplemented

    def relative_to(self, other: Segment, *_deprecated: Segment, walk_up: bool = False) -> PurePosixPath | Any:
        """Return the path from `other`, a `PurePosixPath` if this path is in a store; `ValueError` if it isn't below.

        With `walk_up`, the path may begin with `..`.
        """
        above = self._on_same_base(other).joinpath(*_deprecated)
        ups, pure = 0, above._pure
        while not self._pure.is_relative_to(pure):
            if not walk_up or pure == pure.parent or pure.name == "..":
                raise ValueError(f"{self._shown!r} is not in the subpath of {above._shown!r}")
            ups, pure = ups + 1, pure.parent
        found = PurePosixPath(*[".."] * ups, self._pure.relative_to(pure))
        return found if isinstance(self._base, StoreBase) else self._with(found)

    def is_relative_to(self, other: Segment, *_deprecated: Segment) -> bool:
        """Return whether this path is `other` or lies below it."""
        try:
            self.relative_to(other, *_deprecated)
        except ValueError:
            return False
        return True

    def _on_same_base(self: P, other: Segment) -> P:
        path = other if isinstance(other, PurePath) else self.with_segments(other)
        if isinstance(self._base, StoreBase) and not isinstance(other, PurePath) and not path.is_absolute():
            path = self._with(PurePosixPath("/", other))
        if path._base != self._base:
            raise ValueError(f"{self._shown!r} and {path._shown!r} are in different stores")
        return self._with(path._pure)

    # ---- questions

    def match(self, path_pattern: Segment, *, case_sensitive: bool | None = None) -> bool:
        """Return whether the path, from its right end, matches a glob pattern."""
        parts = self._pattern(path_pattern)
        mine = [part for part in self._pure.parts if part != "/"]
        absolute = str(path_pattern).startswith("/") or bool(_URL(str(path_pattern)))
        if len(parts) > len(mine) or (absolute and len(parts) != len(mine)):
            return False
        flags = re.IGNORECASE if case_sensitive is False else 0
        pairs = zip(mine[-len(parts) :], parts, strict=True)
        return all(re.fullmatch(segment_regex(part), name, flags | re.DOTALL) for name, part in pairs)

    def full_match(self, pattern: Segment, *, case_sensitive: bool | None = None) -> bool:
        """Return whether the whole path matches a glob pattern, in which `**` stands for any number of directories."""
        parts = self._pattern(pattern)
        absolute = str(pattern).startswith("/") or bool(_URL(str(pattern)))
        if self.is_absolute() and not absolute and parts[0] == "**":
            parts = ["*", *parts]  # as of pathlib, where it stands for the root and at least one directory
        elif absolute != self.is_absolute():
            return False
        mine = "/".join(part for part in self._pure.parts if part != "/")
        return compile_glob(parts, case_sensitive, files_too=True).fullmatch(mine) is not None

    def _pattern(self, pattern: Segment) -> list[str]:
        text = str(self._on_same_base(pattern)._pure) if _URL(str(pattern)) else os.fspath(pattern)
        parts = [part for part in PurePosixPath(text).parts if part != "/"]
        if not parts:
            raise ValueError("empty pattern")
        return parts

    # ---- as a value

    def as_posix(self) -> str:
        """Return what `str` returns."""
        return str(self)

    def as_uri(self) -> str:
        """Return the URL."""
        if isinstance(self._base, FSBase):
            return self._base.fs.url(str(self._pure))
        if not self.is_absolute():
            raise ValueError("relative path can't be expressed as a file URI")
        return str(self) if self.drive else "file://" + keys.to_url_path(str(self))

    def __str__(self) -> str:
        return self._base.text(self._pure)

    @property
    def _shown(self) -> str:
        """The text of the path, without secrets."""
        return redaction.without_secrets(str(self)) if self.drive else str(self)

    def __repr__(self) -> str:
        on = f", fs={self._base.fs!r}" if isinstance(self._base, FSBase) else ""
        return f"{type(self).__name__}({self._shown!r}{on})"

    def _comparable(self) -> tuple[str, str, tuple[str, ...]]:
        return type(self._base).__name__, str(self._base), self._pure.parts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PurePath):
            return NotImplemented
        return self._base == other._base and self._pure == other._pure

    def __hash__(self) -> int:
        return hash((self._base, self._pure))

    def __lt__(self, other: PurePath) -> bool:
        return self._comparable() < other._comparable() if isinstance(other, PurePath) else NotImplemented

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self._base, str(self._pure))


def _rebuilt(kind: type[P], base: Base, pure: str) -> P:
    made = object.__new__(kind)
    made._base, made._pure = base, PurePosixPath(pure)
    return made


def _from_url(url: str) -> tuple[Base, PurePosixPath]:
    location = opening.parse(url)
    path = PurePosixPath("/" + location.path.lstrip("/"))
    if location.scheme == "file":
        return LocalBase(), path
    return StoreBase(f"{location.scheme}://{location.authority}"), path


def segment_regex(pattern: str) -> str:
    """Return the regular expression of a segment of a `pathlib` pattern; a wildcard matches a leading dot."""
    regex, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        end = pattern.find("]", at + 3 if pattern.startswith("[!", at) else at + 2) if char == "[" else -1
        if char == "*":
            regex += "[^/]*"
        elif char == "?":
            regex += "[^/]"
        elif end > 0:
            members = pattern[at + 1 : end].replace("\\", "\\\\").replace("[", "\\[")
            members = "^" + members[1:] if members[0] == "!" else "\\^" + members[1:] if members[0] == "^" else members
            regex, at = regex + f"(?!/)[{members}]", end
        else:
            regex += re.escape(char)
        at += 1
    return regex


def compile_glob(parts: Sequence[str], case_sensitive: bool | None, files_too: bool) -> re.Pattern[str]:
    """Compile a glob pattern for paths with `/`; `**` is any number of directories.

    Unless `files_too`, a `**` at the end matches directories only, which end in `/`.
    """
    regex = ""
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == "**":
            regex += (r".*" if files_too else r"(?:.*/)?") if last else r"(?:[^/]+/)*"
        else:
            regex += segment_regex(part) + ("" if last else "/")
    return re.compile(regex, re.DOTALL | (re.IGNORECASE if case_sensitive is False else 0))
