"""Path: `pathlib.Path`'s interface on a URL, on a path inside of a container, or on an FS.

What `pathlib` documents holds, with these rules for what it doesn't know. A file that is a container (`train.zip`) is a
file to `stat`, `is_file` and `open`; `iterdir`, `glob`, `walk` and joining lead into it. Links, owners and permission
bits are the local disk's alone and `io.UnsupportedOperation` elsewhere. A `str` where another path is expected
(`rename`) is relative to the root of the store.
"""

from __future__ import annotations

import abc
import errno
import functools
import os
import pathlib
import posixpath
import re
import stat as stat_bits
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from .core import errors, identity, keys, redaction, registry
from .core.fs import FS
from .core.lazy import cached_property
from .core.stats import FileStat
from .transfer.trees import TransferTotals, TreePlan, TreeTransfer
from .urls import locations, roots

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

P = TypeVar("P", bound="PurePath")
Q = TypeVar("Q", bound="PathParts")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/pfs/").match  # a datacenter has paths, too
Segment = str | os.PathLike[str]


class URLBase(NamedTuple):
    """The store of URLs that begin with `drive`, "s3://bucket"; without one the local disk, where relative paths start
    at the process's working directory.
    """

    drive: str = ""

    def text(self, pure: PurePosixPath) -> str:
        """Return the URL of a path; a local path as it stands."""
        path = str(pure)
        is_verbatim = not self.drive or self.drive.startswith(("http:", "https:"))
        return self.drive + (path if is_verbatim else keys.to_url_path(path))


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
        if not isinstance(other, FSBase):
            return NotImplemented
        return self._key == other._key and (self.fs is other.fs or self._place() == other._place())

    def _place(self) -> identity.Place:
        return identity.place(self.fs, self.fs._cwd)

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return str(self._key)


Base = URLBase | FSBase


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
        base: Base = URLBase() if fs is None else FSBase(fs)
        pure = PurePosixPath()
        for segment in segments:
            if isinstance(segment, PurePath):
                joins = segment._base == base or (segment._base == URLBase() and not segment.is_absolute())
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
        return found if self.drive else self._with(found)

    def is_relative_to(self, other: Segment, *_deprecated: Segment) -> bool:
        """Return whether this path is `other` or lies below it."""
        try:
            self.relative_to(other, *_deprecated)
        except ValueError:
            return False
        return True

    def _on_same_base(self: P, other: Segment) -> P:
        path = other if isinstance(other, PurePath) else self.with_segments(other)
        if self.drive and not isinstance(other, PurePath) and not path.is_absolute():
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
    location = locations.parse_without_query(url)
    path = PurePosixPath("/" + location.path.lstrip("/"))
    if location.scheme == "file" and location.authority in ("", "localhost"):  # another host is refused when it is used
        return URLBase(), path
    return URLBase(f"{location.scheme}://{location.authority}"), path


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


T = TypeVar("T")


class Path(PurePath):
    """A path on any FS, with the interface of `pathlib.Path`.

    `Path("s3://bucket/train.zip/cat/1.jpg")` is a URL's, `Path("data/1.jpg")` a local one, and
    `Path("cat/1.jpg", fs=fs)` one of an FS. A path belongs to no process: it forks and pickles.
    """

    __slots__ = ()

    @classmethod
    def cwd(cls) -> Self:
        """Return the process's working directory."""
        return cls(os.getcwd())

    @classmethod
    def home(cls) -> Self:
        """Return the user's home directory."""
        return cls(pathlib.Path.home())

    @classmethod
    def from_uri(cls, uri: str) -> Self:
        """Return the path of a URL."""
        if "://" not in uri:
            raise ValueError(f"URI is not absolute: {uri!r}")
        return cls(uri)

    # ---- where the path is

    @property
    def fs(self) -> FS:
        """The FS that the path is on: the one given, or one at the root of the URL, which other paths share: closing it
        closes nothing, and it has a `cwd` of its own.
        """
        if isinstance(self._base, FSBase):
            return self._base.fs
        return self._call(lambda fs, path: fs.subfs("/" + fs._root))

    def as_local(self, mode: str = "r") -> AbstractContextManager[str]:
        """Return a context manager of a path on the local disk with the content of the file; see `FS.as_local`."""
        if isinstance(self._base, FSBase):
            return self._base.fs.as_local(str(self._pure), mode)
        return roots.as_local(str(self), mode)

    def _call(self, function: Callable[[FS, str], T], *, inside: bool = False) -> T:
        """Return `function` of the FS and the path on it; `inside` a container, if that is what the path names."""
        if isinstance(self._base, FSBase):
            path = str(self._pure)
            return function(self._base.fs, "" if path == "." else path)
        return roots.call(str(self), function, inside=inside)

    # ---- reading and writing

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open the file; every argument means what it means to `builtins.open`."""
        if isinstance(self._base, FSBase):
            return self._base.fs.open(str(self._pure), mode, buffering, encoding, errors, newline)
        return roots.open_file(str(self), mode, buffering, encoding, errors, newline)

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        return self._call(lambda fs, path: fs.read_bytes(path))

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        """Return the content of the text file."""
        with self.open("r", -1, encoding, errors, newline) as file:
            return str(file.read())

    def write_bytes(self, data: Buffer) -> int:
        """Make `data` the content of the file, whole or not at all; return the number of bytes."""
        with self.open("wb") as file, memoryview(data) as view:
            return file.write(view)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Make `data` the content of the text file, whole or not at all; return the number of characters."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open("w", -1, encoding, errors, newline) as file:
            return file.write(data)

    def write_many(
        self, pairs: Iterable[tuple[str, Buffer]] | Mapping[str, Buffer], *, concurrency: int | None = None
    ) -> int:
        """Write files of this directory, of which `pairs` has names and contents; see `FS.write_many`."""
        named = pairs.items() if isinstance(pairs, Mapping) else pairs

        def write(fs: FS, path: str) -> int:
            files = ((keys.join(path, name), data) for name, data in named)
            return fs.write_many(files, concurrency=concurrency)

        return self._call(write, inside=True)

    # ---- the same path, written in full

    def absolute(self) -> Self:
        """Return the path from the root."""
        if isinstance(self._base, FSBase):
            return self._with(pathlib.PurePosixPath(self._base.fs.cwd) / self._pure)
        return self._with(pathlib.PurePosixPath(os.getcwd()) / self._pure)

    def resolve(self, strict: bool = False) -> Self:
        """Return the path from the root without `..`, and of a local path without links; `strict`: it has to exist."""
        if self._is_local:
            return self._with(pathlib.PurePosixPath(os.path.realpath(str(self), strict=strict)))
        path = self.absolute()
        path = self._with(pathlib.PurePosixPath(posixpath.normpath(str(path._pure))))
        if strict:
            path.stat()
        return path

    # ---- questions

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Return the size, times and type of the file; of a local file all that `os.stat` knows."""
        if self._is_local:
            return os.stat(str(self), follow_symlinks=follow_symlinks)
        return _stat_result(self._call(lambda fs, path: fs.stat(path)))

    def lstat(self) -> os.stat_result:
        """Return the stat of a link itself."""
        return self.stat(follow_symlinks=False)

    def _mode(self) -> int:
        """Return the type bits of the file; 0 if there is none."""
        try:
            return self.stat().st_mode
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP):
                return 0
            raise
        except UnicodeEncodeError:  # no file has such a name, nor one with a NUL
            return 0
        except ValueError:
            if "\0" in str(self._pure):
                return 0
            raise

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is a file or a directory; a store that can't be reached is an error, not False."""
        if not follow_symlinks and self._is_local:
            return os.path.lexists(str(self))
        return self._mode() != 0

    def is_file(self) -> bool:
        """Return whether there is a file; a container is one."""
        return stat_bits.S_ISREG(self._mode())

    def is_dir(self) -> bool:
        """Return whether there is a directory."""
        return stat_bits.S_ISDIR(self._mode())

    def is_symlink(self) -> bool:
        """Return whether there is a symbolic link of the local disk."""
        return self._is_local and os.path.islink(str(self))

    @property
    def info(self) -> PathInfo:
        """What kind of file is there, asked for once."""
        return PathInfo(self)

    def is_mount(self) -> bool:
        """Return whether there is a mount point of the local disk."""
        return self._is_local and os.path.ismount(str(self))

    def is_junction(self) -> bool:
        """False: a junction is Windows'."""
        return False

    def is_block_device(self) -> bool:
        """Return whether there is a block device."""
        return stat_bits.S_ISBLK(self._mode())

    def is_char_device(self) -> bool:
        """Return whether there is a character device."""
        return stat_bits.S_ISCHR(self._mode())

    def is_fifo(self) -> bool:
        """Return whether there is a FIFO."""
        return stat_bits.S_ISFIFO(self._mode())

    def is_socket(self) -> bool:
        """Return whether there is a socket."""
        return stat_bits.S_ISSOCK(self._mode())

    def samefile(self, other_path: Segment) -> bool:
        """Return whether the other path is the same file; both must exist."""
        other = other_path if isinstance(other_path, Path) else self.with_segments(other_path)
        if self._is_local and other._is_local:
            return os.path.samefile(str(self), str(other))
        self.stat(), other.stat()  # FileNotFoundError

        def same(fs: FS, path: str, to: FS, there: str) -> bool:
            return identity.same(fs, fs._key(path, "samefile"), to, to._key(there, "samefile")) is True

        return self._call(lambda fs, path: other._call(lambda to, there: same(fs, path, to, there)))

    # ---- directories

    def iterdir(self) -> Iterator[Self]:
        """Yield the paths in the directory, or in the root of the container."""
        names = self._call(lambda fs, path: fs.list(path), inside=True)
        return (self._with(self._pure / name.rstrip("/")) for name in names)

    def _members(self, recursive: bool) -> Iterator[str]:
        """Yield the names in the directory, a directory's with its `/`; none if it is missing or a file."""
        try:
            yield from self._call(lambda fs, path: fs.list(path, recursive=recursive), inside=True)
        except (FileNotFoundError, NotADirectoryError):
            return

    def glob(
        self, pattern: Segment, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """Yield the paths below this one that match; a `**` at the end matches files since Python 3.13.

        A `**` of a local path leads into links to directories with `recurse_symlinks` only; that of an FS always does.
        """
        text = os.fspath(pattern)
        if text.startswith("/") or "://" in text:
            raise NotImplementedError("Non-relative patterns are unsupported")
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if not parts:
            raise ValueError(f"Unacceptable pattern: {text!r}")
        if sys.version_info < (3, 13) and any("**" in part and part != "**" for part in parts):
            raise ValueError("Invalid pattern: '**' can only be an entire path component")
        return self._glob(parts, text.endswith("/"), case_sensitive, recurse_symlinks)

    def rglob(
        self, pattern: Segment, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """Yield the paths in this directory and all below that match: `glob` of `**/` and the pattern."""
        text = os.fspath(pattern)
        if text.startswith("/") or "://" in text:
            raise NotImplementedError("Non-relative patterns are unsupported")
        return self.glob(f"**/{text}", case_sensitive=case_sensitive, recurse_symlinks=recurse_symlinks)

    def _glob(
        self, parts: Sequence[str], directories_only: bool, case_sensitive: bool | None, follows_links: bool
    ) -> Iterator[Self]:
        at = 0
        while at < len(parts) - 1 and not any(char in parts[at] for char in "*?[") and case_sensitive is not False:
            at += 1
        above, rest = self._with(self._pure.joinpath(*parts[:at])), parts[at:]
        if ".." in rest:
            at = rest.index("..")
            for path in above._glob(rest[:at], True, case_sensitive, follows_links) if at else (above,):
                if path.is_dir() and at + 1 < len(rest):
                    up = path._with(path._pure / "..")
                    yield from up._glob(rest[at + 1 :], directories_only, case_sensitive, follows_links)
                elif path.is_dir():
                    yield path._with(path._pure / "..")
            return
        recursive = "**" in rest
        files_too = sys.version_info >= (3, 13) and not directories_only
        if recursive and not follows_links and above._is_local and os.path.isdir(str(above)):
            yield from above._glob_past_links(rest, directories_only, case_sensitive, files_too)
            return
        if not recursive and len(rest) > 1:  # one directory after another
            for path in above._glob(rest[:1], True, case_sensitive, follows_links):
                yield from path._glob(rest[1:], directories_only, case_sensitive, follows_links)
            return
        matches = compile_glob(rest, case_sensitive, files_too).fullmatch
        if all(part == "**" for part in rest) and above.is_dir():
            yield above  # `**` matches no directory, too
        for name in above._members(recursive):
            if directories_only and not name.endswith("/"):
                continue
            if matches(name if rest[-1] == "**" and not files_too else name.rstrip("/")):
                yield self._with(above._pure / name.rstrip("/"))

    def _glob_past_links(
        self, parts: Sequence[str], directories_only: bool, case_sensitive: bool | None, files_too: bool
    ) -> Iterator[Self]:
        """Yield what matches below a directory of the local disk; `**` leads into no link, and may stand for none."""
        at = parts.index("**")
        before, after = parts[:at], parts[at + 1 :]
        matches = compile_glob(after, case_sensitive, files_too).fullmatch
        seen: set[Self] = set()  # where two `**` lead to a path twice
        for start in self._glob(before, True, case_sensitive, False) if before else (self,):
            for directory, directories, files in start.walk(on_error=_unless_missing):
                found: Iterable[Self] = ()
                if len(after) > 1 or after == ["**"]:
                    found = directory._glob(after, directories_only, case_sensitive, False)
                elif after:
                    names = directories if directories_only else directories + files
                    found = (directory._with(directory._pure / name) for name in names if matches(name))
                elif not files_too:
                    found = (directory,)
                else:
                    found = [*((start,) if directory == start else ()), *map(directory.joinpath, directories + files)]
                if "**" in after:
                    found = [path for path in found if path not in seen]
                    seen.update(found)
                yield from found

    def walk(
        self, top_down: bool = True, on_error: Callable[[OSError], object] | None = None, follow_symlinks: bool = False
    ) -> Iterator[tuple[Self, list[str], list[str]]]:
        """Yield each directory with the names of its directories and of its files, as `pathlib.Path.walk`."""
        try:
            names = list(self._call(lambda fs, path: fs.list(path), inside=True))
        except OSError as exc:
            if on_error is not None:
                on_error(exc)
            return
        directories = [name[:-1] for name in names if name.endswith("/")]
        files = [name for name in names if not name.endswith("/")]
        if top_down:
            yield self, directories, files
        for name in directories:
            below = self._with(self._pure / name)
            if follow_symlinks or not below.is_symlink():
                yield from below.walk(top_down, on_error, follow_symlinks)
        if not top_down:
            yield self, directories, files

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the directory; with `parents`, what is missing above it, too.

        An existing path is `FileExistsError`, but for a directory with `exist_ok`.
        """
        try:
            self._call(lambda fs, path: (fs.makedirs if parents else fs.mkdir)(path, mode))
        except FileExistsError:
            if not (exist_ok and self.is_dir()):
                raise

    def rmdir(self) -> None:
        """Remove the empty directory."""
        self._call(lambda fs, path: fs.rmdir(path))

    # ---- changing

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Make an empty file; of one that is there, set the time where the local disk has it."""
        if self._is_local:
            pathlib.Path(str(self)).touch(mode, exist_ok)
            return
        try:
            with self.open("xb"):
                pass
        except FileExistsError:
            if not exist_ok:
                raise

    def make_durable(self) -> None:
        """Have the file or directory, which was written, survive a crash of the machine, with its name."""
        self._call(lambda fs, path: fs.make_durable(path))

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        try:
            self._call(lambda fs, path: fs.remove(path))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: Segment) -> Self:
        """Move the file or directory within its store, replacing a file; return the new path.

        `OSError` (EXDEV) for a path in another store: `move` goes there.
        """
        path = self._target(target)
        if path._base != self._base:
            raise errors.error(errno.EXDEV, "rename", self._shown)
        self._call(lambda fs, source: fs.rename(source, path._call(lambda other, there: _same(fs, other, there))))
        return path

    def replace(self, target: Segment) -> Self:
        """As `rename`."""
        return self.rename(target)

    def copy(self, target: Segment, *, follow_symlinks: bool = True, preserve_metadata: bool = False) -> Self:
        """Copy the file, or the directory with all that is in it, to a path on any store; return that path.

        A file there is replaced; for a directory nothing may be there. Permissions and time are kept where both stores
        have them, whatever `preserve_metadata` says. Without `follow_symlinks` links are copied as links.
        """
        return self._transfer(self._target(target), TreePlan("replace", keep_links=not follow_symlinks))

    def copy_into(self, target_dir: Segment, *, follow_symlinks: bool = True, preserve_metadata: bool = False) -> Self:
        """As `copy`, into a directory; `ValueError` for a path without a name, as pathlib's."""
        into = self._target(target_dir) / self._own_name()
        return self.copy(into, follow_symlinks=follow_symlinks, preserve_metadata=preserve_metadata)

    def move(self, target: Segment) -> Self:
        """Move the file or directory to a path on any store; return that path.

        Within a store it is renamed; else each file is copied, and removed once its copy is whole.
        """
        path = self._target(target)
        try:
            return self.rename(path)
        except OSError as exc:
            if exc.errno != errno.EXDEV:
                raise
        return self._transfer(path, TreePlan("compare", move=True))

    def move_into(self, target_dir: Segment) -> Self:
        """As `move`, into a directory; `ValueError` for a path without a name, as pathlib's."""
        return self.move(self._target(target_dir) / self._own_name())

    def _own_name(self) -> str:
        if not self.name:
            raise ValueError(f"{self!r} has an empty name")
        return self.name

    def _transfer(self, path: Self, plan: TreePlan) -> Self:
        totals = TransferTotals(None)

        def run(fs: FS, src: str, other: FS, dst: str) -> None:
            source = (fs._nonempty_key if plan.move else fs._key)(src, "copy")
            target = other._file_key(dst, "copy")
            other._require("write", "copy", target)
            if plan.move:
                fs._require("remove", "move", source)
                if not other.capabilities.read:  # an archive that is written: what is in it may still be dropped
                    reason = "what is moved into an archive can be removed once that is closed: copy it"
                    raise errors.unsupported("move", other._url(target), reason)
            transfer = TreeTransfer(fs, source, other, target, plan, totals.report, totals.count)
            if not fs._is(source, directory=True) or (plan.keep_links and fs._is_link(source)):
                transfer.run_file()
            elif other.capabilities.read and other._is(target, directory=None):
                raise errors.error(errno.EEXIST, "copy", other._url(target))
            else:
                transfer.run()

        self._call(lambda fs, src: path._call(lambda other, dst: run(fs, src, other, dst)))
        return path

    def _target(self, target: Segment) -> Self:
        if isinstance(target, type(self)):
            return target
        if isinstance(target, (PurePath, pathlib.Path)):  # one of pathlib's is on the local disk, whatever this one is
            return type(self)(target)
        path = self.with_segments(target)
        if path._base != self._base and not path.drive:
            return self._with(pathlib.PurePosixPath("/", os.fspath(target)))
        return path

    # ---- what only the local disk has: `io.UnsupportedOperation` elsewhere

    @property
    def _is_local(self) -> bool:
        """Return whether the operating system knows the path: it is on the local disk, and in no container."""
        return self._base == URLBase() and not any(
            registry.container_of(above.name) and os.path.isfile(str(above))
            for above in self._pure.parents
            if above.name
        )

    def __bytes__(self) -> bytes:
        return os.fsencode(self)

    def __fspath__(self) -> str:
        return self._local_path()

    def _local_path(self) -> str:
        """Return what the operating system calls the file, and not its URL, as `os.fspath` does under a patch."""
        if self._is_local:
            return str(self)
        if isinstance(self._base, FSBase):
            fs, url = self._base.fs, self._base.fs.url(str(self._pure))
            if url.startswith("file:") and not hasattr(fs, "file_url"):
                return locations.parse_without_query(url).path
            raise TypeError(f"{url} has no path on the local disk; as_local() gives one")
        raise TypeError(f"{self._shown} has no path on the local disk; as_local() gives one")

    def _local(self, operation: str) -> pathlib.Path:
        """Return the path as pathlib's, for what only the local disk has."""
        try:
            return pathlib.Path(self._local_path())
        except TypeError:
            raise errors.unsupported(operation, self._shown, f"only the local disk can {operation}") from None

    def expanduser(self) -> Self:
        """Return the path with `~` and `~user` expanded, if it is a local one."""
        return self._with(pathlib.PurePosixPath(pathlib.Path(str(self)).expanduser())) if self._is_local else self

    def owner(self, *, follow_symlinks: bool = True) -> str:
        """Return the name of the owner."""
        return self._local("owner").owner()

    def group(self, *, follow_symlinks: bool = True) -> str:
        """Return the name of the group."""
        return self._local("group").group()

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set the permission bits."""
        self._local("chmod").chmod(mode, follow_symlinks=follow_symlinks)

    def lchmod(self, mode: int) -> None:
        """Set the permission bits of a link itself."""
        self._local("lchmod").lchmod(mode)

    def readlink(self) -> Self:
        """Return where the link leads to."""
        return self._with(pathlib.PurePosixPath(self._local("readlink").readlink()))

    def symlink_to(self, target: Segment, target_is_directory: bool = False) -> None:
        """Make the path a link to `target`."""
        self._local("symlink_to").symlink_to(target, target_is_directory)

    def hardlink_to(self, target: Segment) -> None:
        """Make the path another name of the file `target`."""
        self._local("hardlink_to").hardlink_to(target)


class PathInfo:
    """The kind of file that is at a path, as `pathlib.types.PathInfo` has it: asked for once, then remembered."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _mode(self) -> int:
        return self._path._mode()

    @cached_property
    def _is_symlink(self) -> bool:
        return self._path.is_symlink()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is a file or a directory."""
        return self._mode != 0 or (not follow_symlinks and self._is_symlink)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is a directory."""
        return stat_bits.S_ISDIR(self._mode) and (follow_symlinks or not self._is_symlink)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is a file."""
        return stat_bits.S_ISREG(self._mode) and (follow_symlinks or not self._is_symlink)

    def is_symlink(self) -> bool:
        """Return whether there is a symbolic link."""
        return self._is_symlink


def _unless_missing(exc: OSError) -> None:
    """Raise an error of a listing, but not that there is no directory."""
    if not isinstance(exc, FileNotFoundError | NotADirectoryError):
        raise exc


def _same(fs: FS, other: FS, path: str) -> str:
    """Return `path`, if both ends of a rename are on one FS."""
    if fs is not other:
        raise errors.error(errno.EXDEV, "rename", other.url(path))
    return path


def _stat_result(stat: FileStat) -> os.stat_result:
    seconds = stat.last_modified or 0.0
    times = [int(seconds)] * 3 + [seconds] * 3 + [int(seconds * 1e9)] * 3
    return os.stat_result((stat.mode, 0, 0, 1, 0, 0, stat.size, *times))
