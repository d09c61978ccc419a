"""Path: `pathlib.Path`'s interface on a URL, on a path inside of a container, or on an FS.

What `pathlib` documents holds, with these rules for what it doesn't know. A file that is a container (`train.zip`) is a
file to `stat`, `is_file` and `open`; `iterdir`, `glob`, `walk` and joining lead into it. Links, owners and permission
bits are the local disk's alone and `io.UnsupportedOperation` elsewhere. A `str` where another path is expected
(`rename`) is relative to the root of the store.
"""

from __future__ import annotations

import errno
import functools
import os
import pathlib
import posixpath
import stat as stat_bits
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Any, TypeVar

from .core import errors, keys, registry
from .core.fs import FS
from .core.stats import FileStat
from .purepaths import FSBase, LocalBase, PurePath, Segment, compile_glob
from .transfer.trees import TransferTotals, TreePlan, TreeTransfer
from .urls import opening, roots

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

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
        """The FS that the path is on: the one given, or the one at the root of the URL."""
        return self._call(lambda fs, path: fs)

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
        """Return the path from the root without `..`, and of a local path without links."""
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
        except ValueError:
            if "\0" in str(self._pure):  # which no file has
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
        return self.resolve().as_uri() == other.resolve().as_uri()

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
        """Yield the paths below this one that match; a `**` at the end matches files since Python 3.13."""
        text = os.fspath(pattern)
        if text.startswith("/") or "://" in text:
            raise NotImplementedError("Non-relative patterns are unsupported")
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if not parts:
            raise ValueError(f"Unacceptable pattern: {text!r}")
        if sys.version_info < (3, 13) and any("**" in part and part != "**" for part in parts):
            raise ValueError("Invalid pattern: '**' can only be an entire path component")
        return self._glob(parts, text.endswith("/"), case_sensitive)

    def rglob(
        self, pattern: Segment, *, case_sensitive: bool | None = None, recurse_symlinks: bool = False
    ) -> Iterator[Self]:
        """Yield the paths in this directory and all below that match: `glob` of `**/` and the pattern."""
        text = os.fspath(pattern)
        if text.startswith("/") or "://" in text:
            raise NotImplementedError("Non-relative patterns are unsupported")
        return self.glob(f"**/{text}", case_sensitive=case_sensitive)

    def _glob(self, parts: Sequence[str], directories_only: bool, case_sensitive: bool | None) -> Iterator[Self]:
        at = 0
        while at < len(parts) - 1 and not any(char in parts[at] for char in "*?[") and case_sensitive is not False:
            at += 1
        above, rest = self._with(self._pure.joinpath(*parts[:at])), parts[at:]
        if rest == [".."]:
            if above.is_dir():
                yield self._with(above._pure / "..")
            return
        recursive = "**" in rest
        files_too = sys.version_info >= (3, 13) and not directories_only
        if not recursive and len(rest) > 1:  # one directory after another
            for path in above._glob(rest[:1], True, case_sensitive):
                yield from path._glob(rest[1:], directories_only, case_sensitive)
            return
        matches = compile_glob(rest, case_sensitive, files_too).fullmatch
        if all(part == "**" for part in rest) and above.is_dir():
            yield above  # `**` matches no directory, too
        for name in above._members(recursive):
            if directories_only and not name.endswith("/"):
                continue
            if matches(name if rest[-1] == "**" and not files_too else name.rstrip("/")):
                yield self._with(above._pure / name.rstrip("/"))

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
        """Make the directory; with `parents`, what is missing above it, too."""
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

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        try:
            self._call(lambda fs, path: fs.remove(path))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def rename(self, target: Segment) -> Self:
        """Move the file or directory within its store, replacing a file; return the new path."""
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
        """As `copy`, into a directory."""
        into = self._target(target_dir) / self.name
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
        """As `move`, into a directory."""
        return self.move(self._target(target_dir) / self.name)

    def _transfer(self, path: Self, plan: TreePlan) -> Self:
        totals = TransferTotals(None)

        def run(fs: FS, src: str, other: FS, dst: str) -> None:
            source = (fs._nonempty_key if plan.move else fs._key)(src, "copy")
            target = other._file_key(dst, "copy")
            other._require("write", "copy", target)
            if plan.move:
                fs._require("remove", "move", source)
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
        return isinstance(self._base, LocalBase) and not any(
            registry.container_of(above.name) and os.path.isfile(str(above))
            for above in self._pure.parents
            if above.name
        )

    def __bytes__(self) -> bytes:
        return os.fsencode(self)

    def __fspath__(self) -> str:
        if self._is_local:
            return str(self)
        if isinstance(self._base, FSBase):
            url = self._base.fs.url(str(self._pure))
            fs = self._base.fs
            if fs.scheme == "file" and not hasattr(fs, "file_url"):
                return opening.parse(url).path
            raise TypeError(f"{url} has no path on the local disk; as_local() gives one")
        raise TypeError(f"{self._shown} has no path on the local disk; as_local() gives one")

    def _local(self, operation: str) -> pathlib.Path:
        """Return the path as pathlib's, for what only the local disk has."""
        try:
            return pathlib.Path(os.fspath(self))
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

    @functools.cached_property
    def _mode(self) -> int:
        return self._path._mode()

    @functools.cached_property
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


def _same(fs: FS, other: FS, path: str) -> str:
    """Return `path`, if both ends of a rename are on one FS."""
    if fs is not other:
        raise errors.error(errno.EXDEV, "rename", other.url(path))
    return path


def _stat_result(stat: FileStat) -> os.stat_result:
    seconds = stat.last_modified or 0.0
    times = [int(seconds)] * 3 + [seconds] * 3 + [int(seconds * 1e9)] * 3
    return os.stat_result((stat.mode, 0, 0, 1, 0, 0, stat.size, *times))
