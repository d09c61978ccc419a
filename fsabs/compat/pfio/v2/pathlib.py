"""PFIO's `Path`: pathlib's interface on an FS of `v2`. `fsabs.Path` has all of pathlib's, and needs no FS."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NoReturn

from ....paths import compile_glob
from .fs import FileStat
from .purepath import PurePath as PurePath
from .purepath import Segment
from .s3 import S3
from .zip import Zip

if TYPE_CHECKING:
    from typing import Self


def _only_following(follow_symlinks: bool) -> None:
    if not follow_symlinks:
        raise NotImplementedError("`follow_symlinks=False` is unsupported on this system")


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(f"`{name}` is unsupported on this system")


def _unsupported(name: str) -> Callable[[Any], NoReturn]:
    """Return a method that raises `NotImplementedError`."""

    def method(self: Any) -> NoReturn:
        """Raise `NotImplementedError`."""
        _refuse(name)

    method.__name__ = name
    return method


class Path(PurePath):
    """`pathlib.PosixPath`'s interface for a path on an FS, as far as PFIO has it.

    Absolute paths count from the FS's `cwd`. `stat` returns a `FileStat`.
    """

    def _key(self) -> str:
        return str(self._pure).removeprefix(self.anchor)

    # what PFIO has as a name alone
    expanduser = _unsupported("expanduser")
    group = _unsupported("group")
    is_mount = _unsupported("is_mount")
    is_symlink = _unsupported("is_symlink")
    is_socket = _unsupported("is_socket")
    is_fifo = _unsupported("is_fifo")
    is_block_device = _unsupported("is_block_device")
    is_char_device = _unsupported("is_char_device")
    lstat = _unsupported("lstat")
    owner = _unsupported("owner")
    readlink = _unsupported("readlink")

    @classmethod
    def cwd(cls) -> Self:
        """Raise `NotImplementedError`."""
        _refuse("cwd")

    @classmethod
    def home(cls) -> Self:
        """Raise `NotImplementedError`."""
        _refuse("home")

    def stat(self, *, follow_symlinks: bool = True) -> FileStat:
        """Return what the FS knows."""
        _only_following(follow_symlinks)
        return self._fs.stat(self._key())

    def chmod(self, *, mode: int, follow_symlinks: bool = True) -> None:
        """Raise `NotImplementedError`."""
        _refuse("chmod")

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Return whether there is a file or directory."""
        _only_following(follow_symlinks)
        return self.is_file() or self.is_dir()

    def glob(self, pattern: str, *, case_sensitive: bool | None = None) -> Iterator[Self]:
        """Yield the paths below this one that match a pattern as pathlib has them; `**` at the end matches files, too.

        `case_sensitive` is not supported.
        """
        if case_sensitive is not None:
            _refuse("case_sensitive=")
        parts = PurePosixPath(pattern).parts
        if not parts:
            raise ValueError(f"Unacceptable pattern: {pattern!r}")
        matches = compile_glob(parts, None, files_too=True).fullmatch
        seen: set[str] = set()
        try:
            for entry in self._fs.list(self._key(), recursive=len(parts) > 1 or "**" in parts):
                names = entry.strip("/").split("/")
                for depth in range(1, len(names) + 1):
                    name = "/".join(names[:depth])
                    if name not in seen:
                        seen.add(name)
                        if matches(name):
                            yield self / name
        except FileNotFoundError:
            return

    def is_dir(self) -> bool:
        """Return whether there is a directory."""
        if isinstance(self._fs, Zip) and not self.parts:
            return True
        return self._fs.isdir(self._key() + "/")

    def is_file(self) -> bool:
        """Return whether there is a file."""
        key = self._key()
        return self._fs.exists(key) and not self._fs.isdir(key)

    def is_junction(self) -> bool:
        """Return False: only Windows has junctions."""
        return False

    def iterdir(self) -> Iterator[Self]:
        """Yield the paths in a directory."""
        if not self.is_dir():
            raise NotADirectoryError(f"'{self}' is not a directory")
        for name in self._fs.list(self._key()):
            yield self / name

    def walk(
        self, top_down: bool = True, on_error: Callable[..., Any] | None = None, follow_symlinks: bool = False
    ) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Raise `NotImplementedError`."""
        _refuse("walk")

    def lchmod(self, mode: int) -> None:
        """Raise `NotImplementedError`."""
        _refuse("lchmod")

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a directory; on S3 nothing happens, since there are none."""
        if isinstance(self._fs, S3):
            return
        if not parents and self.parent != self and self.parent.parts and not self.parent.is_dir():
            raise FileNotFoundError(f"'{self.parent}' is not a directory")
        self._fs.makedirs(self._key(), mode=mode, exist_ok=exist_ok)

    def open(
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open the file."""
        options: Any = {"mode": mode, "buffering": buffering}
        return self._fs.open(self._key(), **options, encoding=encoding, errors=errors, newline=newline)

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        with self.open("rb") as file:
            content: bytes = file.read()
        return content

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        """Return the content of the text file."""
        with self.open("rt", encoding=encoding, errors=errors) as file:
            content: str = file.read()
        return content

    def rename(self, target: str | PurePath) -> Self:
        """Move the file or directory; return the new path."""
        moved = self.with_segments(str(target))
        self._fs.rename(self._key(), moved._key())
        return moved

    def replace(self, target: str | PurePath) -> Self:
        """Move the file or directory, replacing a file; return the new path."""
        return self.rename(target)

    def absolute(self) -> Self:
        """Return the path from the root, which is the FS's `cwd`."""
        return self.with_segments("/" / self._pure)

    def resolve(self, strict: bool = False) -> Self:
        """Return the path from the root without `..`; `strict`: `FileNotFoundError` if there is nothing."""
        found = self.with_segments(posixpath.normpath(posixpath.join("/", self._key())))
        if strict and not found.exists():
            raise FileNotFoundError(f"'{self}' not found")
        return found

    def rglob(self, pattern: str, *, case_sensitive: bool | None = None) -> Iterator[Self]:
        """Yield the paths below this one, at any depth, that match a pattern."""
        return self.glob(posixpath.join("**", pattern.removeprefix("/")), case_sensitive=case_sensitive)

    def rmdir(self) -> None:
        """Remove an empty directory; on S3 nothing happens, since there are none."""
        if isinstance(self._fs, S3):
            return
        if not self.is_dir():
            raise NotADirectoryError(f"'{self}' is not a directory")
        self._fs.remove(self._key())

    def samefile(self, other_path: str | Path) -> bool:
        """Raise `NotImplementedError`."""
        _refuse("samefile")

    def symlink_to(self, target: Segment, target_is_directory: bool = False) -> None:
        """Raise `NotImplementedError`."""
        _refuse("symlink_to")

    def hardlink_to(self, target: Segment) -> None:
        """Raise `NotImplementedError`."""
        _refuse("hardlink_to")

    def touch(self, mode: int = 0o666, exist_ok: bool = True) -> None:
        """Make an empty file; one that is there becomes empty, as PFIO has it."""
        if not exist_ok and self.exists():
            raise FileExistsError(f"'{self}' exists")
        self.write_bytes(b"")

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        if self.is_dir():
            raise IsADirectoryError(f"'{self}' is a directory")
        if self.is_file():
            self._fs.remove(self._key())
        elif not missing_ok:
            raise FileNotFoundError(f"'{self}' is not a file")

    def write_bytes(self, data: bytes) -> int:
        """Make `data` the content of the file; return its size."""
        with self.open("wb") as file:
            return file.write(data)

    def write_text(
        self, data: str, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> int:
        """Make `data` the content of the text file; return its number of characters."""
        with self.open("wt", encoding=encoding, errors=errors, newline=newline) as file:
            return file.write(data)


def copy(src: Path, dst: Path, *, chunk_size: int = 16 * (2**20)) -> None:
    """Copy a file, or a directory with all that is in it; each file is whole or not at all.

    Args:
        src: what is copied.
        dst: the path of the copy, on any FS.
        chunk_size: PFIO's; it has no effect.
    """
    source, target = src.resolve(), dst.resolve()
    here, there = source._fs.fsabs, target._fs.fsabs
    start, end = source._fs._path(source._key()), target._fs._path(target._key())
    if source.is_file():
        if target.is_dir():
            raise IsADirectoryError(f"{target.as_uri()} is a directory")
        here.copy(start, end, there)
    elif source.is_dir():
        if target.is_file():
            raise NotADirectoryError(f"{target.as_uri()} is a file")
        here.copy_tree(start, end, there)
    else:
        raise RuntimeError(f"unexpected storage object: {source.as_uri()}")


def unlink(target: Path) -> None:
    """Remove a file, or a directory with all that is in it."""
    path = target.resolve()
    if not path.exists():
        raise RuntimeError(f"unexpected storage object: {path.as_uri()}")
    path._fs.remove(path._key(), recursive=path.is_dir())
