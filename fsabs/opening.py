"""FileMethods: the part of an FS's public face that opens, reads and writes single files and batches of them."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from errno import EISDIR
from os import PathLike
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast, overload

from . import errors, files, local_copies, modes, process, texts, writemany
from .core import Core
from .files import BlobReader, WriteFile
from .modes import OpenMode, ReadBinaryMode, TextMode, UpdateBinaryMode, WriteBinaryMode

if TYPE_CHECKING:
    from typing_extensions import Buffer

Path = str | PathLike[str]


class FileMethods(Core):
    """The methods of `FS` for single files; see `FS`."""

    @overload
    def open(
        self,
        file_path: Path,
        mode: TextMode = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(self, file_path: Path, mode: ReadBinaryMode, buffering: int = -1) -> BlobReader: ...
    @overload
    def open(self, file_path: Path, mode: WriteBinaryMode, buffering: int = -1) -> WriteFile: ...
    @overload
    def open(self, file_path: Path, mode: UpdateBinaryMode, buffering: int = -1) -> BinaryIO: ...
    @overload
    def open(
        self,
        file_path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]: ...
    def open(
        self,
        file_path: Path,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open a file; every argument means what it means to `builtins.open`.

        Written files (`w`, `x`) are visible, complete, once `close()` has returned, or never. `a` and `r+` work where
        `capabilities` say so.
        """
        how = modes.parsed(mode)
        if type(buffering) is not int or not buffering or (encoding, errors, newline) != (None, None, None):
            modes.check(how, buffering, encoding, errors, newline)
        key = self._key(file_path, "open") if how.action == "r" else self._file_key(file_path, "open")
        if how.action == "r" and not how.update:
            binary: io.BufferedIOBase = self._open_reader(key, buffering)
        else:
            binary = self._open_writer(key, how, buffering)
        if not how.text:
            return cast(IO[Any], binary)
        try:
            return cast(IO[Any], texts.as_text(binary, encoding, errors, newline, buffering == 1, mode))
        except BaseException:
            binary.abort() if isinstance(binary, WriteFile) else binary.close()
            raise

    def read_bytes(self, path: Path) -> bytes:
        """The whole content of a file."""
        key = self._key(path, "read_bytes")
        try:
            return self._read_bytes(key)
        except OSError as exc:
            self._named(exc, "read_bytes", key)
            raise

    def read_text(
        self, path: Path, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """Return the whole content of a file as text; the arguments are those of `open`."""
        with self.open(path, "r", -1, encoding, errors, newline) as file:
            return file.read()

    def read_many(self, paths: Iterable[Path], *, concurrency: int | None = None) -> Iterator[bytes]:
        """The contents of many files, in the order of `paths`, with up to `concurrency` of them under way at once."""
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        wanted = keys_of(self, paths, "read_many")
        return process.Resumable(functools.partial(self._contents, wanted, concurrency))

    def write_bytes(self, path: Path, data: Buffer) -> int:
        """Make `data` the content of a file, whole or not at all; returns its size in bytes."""
        key = self._file_key(path, "write_bytes")
        self._require("write", "open for writing", key)
        if key in ("", self._root):
            raise errors.error(EISDIR, "write_bytes", self._url(key))
        content = data if type(data) is bytes else writemany.content_of(path, data)
        try:
            self._write_bytes(key, content)
        except OSError as exc:
            self._named(exc, "write_bytes", key)
            raise
        return len(content)

    def write_many(
        self, pairs: Iterable[tuple[Path, Buffer]] | Mapping[Any, Buffer], *, concurrency: int | None = None
    ) -> int:
        """Write many files, each whole or not at all, with up to `concurrency` of them under way; return how many.

        Contents are taken from `pairs` as there is room for them, up to 64 MiB at once. After a failure no more are
        taken: when all that was under way has ended, the first exception is raised, with the others in its notes.
        Paths must differ: of two contents for one, either may remain.
        """
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        self._require("write", "write_many", self._root)
        return self._write_many(writemany.contents(pairs, self._key_to_write), concurrency)

    def write_text(
        self,
        path: Path,
        data: str,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> int:
        """Make the text `data` the content of a file, whole or not at all; return its number of characters."""
        if not isinstance(data, str):
            raise TypeError(f"data must be str, not {type(data).__name__}")
        with self.open(path, "w", -1, encoding, errors, newline) as file:
            return file.write(data)

    def as_local(self, path: Path, mode: str = "r") -> AbstractContextManager[str]:
        """Give a file as a path on the local disk, for libraries that take nothing else; a context manager.

        Args:
            path: a file.
            mode: `r`: the path is that of the file itself on a local FS, else of a temporary copy, which is for reading
                only. `w`, `x`: nothing is at the path yet; the file that the block leaves there is committed at the end
                of the block, whole or not at all. `r+`: as `w`, but the path starts as a copy of the file.

        The path's name is that of the file, or has at least its suffix. A block that raises commits nothing. Temporary
        files are removed at the end of the block, whatever happens in it.
        """
        key = self._key(path, "as_local") if mode == "r" else self._file_key(path, "as_local")
        return local_copies.as_local(self, key, mode, self._open_writer)

    def _open_reader(self, key: str, buffering: int) -> BlobReader:
        self._require("read", "open for reading", key)
        try:
            blob = self._open_to_read(key)
        except OSError as exc:
            self._named(exc, "open", key)
            raise
        size = buffering if buffering > 1 or not buffering else files.BUFFER_SIZE
        return BlobReader(blob, size, max_line_length=self.limits.max_line_length)

    def _key_to_write(self, path: Path) -> str:
        key = self._file_key(path, "write_many")
        if key in ("", self._root):
            raise errors.error(EISDIR, "write_many", self._url(key))
        return key

    def _open_writer(self, key: str, how: OpenMode, buffering: int) -> io.BufferedIOBase:
        if how.update and how.action != "r":
            raise errors.unsupported(
                "open", self._url(key), "a file that is read and written at once is opened with r+, where it exists"
            )
        self._require("update" if how.update else "append" if how.action == "a" else "write", "open for writing", key)
        if key in ("", self._root):
            raise errors.error(EISDIR, "open", self._url(key))
        try:
            if how.update:
                file = self._open_update(key)
                return cast(io.BufferedIOBase, file.detach()) if buffering == 0 else file
            if how.action == "a":
                return self._open_append(key, buffering)
            writer = self._create(key, how.action == "x")
        except OSError as exc:
            self._named(exc, "open", key)
            raise
        return WriteFile(writer, self._url(key), _write_buffer(buffering), how.action + "b")

    def _open_append(self, key: str, buffering: int) -> WriteFile:
        writer = self._append(key)
        try:
            size = self._stat(key).size
        except BaseException:
            writer.abort()
            raise
        return WriteFile(writer, self._url(key), buffering and _write_buffer(buffering), "ab", size)

    def _contents(self, wanted: Sequence[str], concurrency: int | None, start: int) -> Iterator[bytes]:
        at = start
        try:
            for content in self._read_many(wanted[start:], concurrency):
                yield content
                at += 1
        except OSError as exc:
            self._named(exc, "read_many", wanted[min(at, len(wanted) - 1)])
            raise


def _write_buffer(buffering: int) -> int:
    return buffering if buffering > 1 else files.WRITE_BUFFER_SIZE


def keys_of(fs: Core, paths: Iterable[Path], operation: str) -> list[str]:
    """Return the keys of several paths; for a str, whose characters are paths too, raise `TypeError`."""
    if isinstance(paths, str):
        raise TypeError(f"{operation} takes several paths, not one str: {operation}([{paths!r}])")
    return [fs._key(path, operation) for path in paths]
