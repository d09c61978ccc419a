"""FS: the interface that every filesystem has, and the few methods that a backend or a container writes for it.

The public methods are PFIO v2's, with its names and arguments, and a few more. Whatever must hold on every FS (the
jail, the names in a listing, the URL in an error) is done here, once. Below them stand the methods that are written
for a store, all of them on keys counted from the backend's own root; users call none of those.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import errno
import functools
import io
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, cast, overload

from . import errors, identity, keys, modes, process, redaction, registry, writemany
from .blobs import Blob, Hint
from .files import BlobFile, LimitedReader, LimitedTextReader, ReadFile, TextReader, buffered
from .globbing import glob
from .limits import DEFAULT, Limits
from .listing import Listing, Names, Walk, names_of
from .modes import OpenMode, ReadBinaryMode, TextMode, UpdateBinaryMode, WriteBinaryMode
from .ranges import StorageOrder
from .readahead import pieces
from .siblings import SiblingListing
from .stats import LAST_NAME as LAST_NAME
from .stats import Capabilities as Capabilities
from .stats import FileStat as FileStat
from .stats import ListPage as ListPage
from .stats import StoreNotes as StoreNotes
from .stats import TreeCounts as TreeCounts
from .threads import in_threads as in_threads
from .writing import (
    APPEND_BUFFER_SIZE,
    WRITE_BUFFER_SIZE,
    KeptWriteFile,
    TextUpdate,
    TextWriter,
    WriteFile,
    Writer,
    WriterFile,
    committing,
    write_again,
)

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import Buffer


T = TypeVar("T")
StrPath = str | os.PathLike[str]
"""A path as a call takes it: a text, or a path object, of which the text is taken."""

_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""What a stat fails with where there is no file, and where there can be none."""


class FS(abc.ABC):
    """A tree of files under one interface, whatever it lies in.

    Use it from any thread, in forked processes and pickled, with no preparation; as a context manager it closes
    itself. Paths are `/`-separated and relative to `cwd`; an absolute one starts at the root of the backend and must
    lie inside the FS's own root.
    """

    capabilities: Capabilities = Capabilities()
    scheme: str = ""
    default_concurrency: int = 1
    """The default number of files that `read_many` has in flight."""
    checks_writes: bool = False
    """The store compares what arrives with a checksum of what was written."""
    limits: Limits = DEFAULT
    """What files, globs and containers that are opened through this FS may cost."""

    _notes: StoreNotes = StoreNotes()
    _shown_as: str = ""  # the URL in `backing` of what a layer shows by URLs of its own
    _splits_authority: bool = False  # whether an @ in a URL's authority is the backend's to read, and in no URL shown
    _root: str = ""
    _cwd: str = ""
    _plain_paths: bool = True  # whether every normalised path is a key, without further checks
    _owns_resources: bool = True  # not made by subfs, whose open resources belong to another FS object

    # ---- files

    @overload
    def open(
        self,
        path: StrPath,
        mode: TextMode = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> io.TextIOWrapper: ...
    @overload
    def open(self, path: StrPath, mode: ReadBinaryMode, buffering: int = -1) -> ReadFile: ...
    @overload
    def open(self, path: StrPath, mode: WriteBinaryMode, buffering: int = -1) -> WriteFile: ...
    @overload
    def open(self, path: StrPath, mode: UpdateBinaryMode, buffering: int = -1) -> BinaryIO: ...
    @overload
    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]: ...
    def open(
        self,
        path: StrPath,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open a file; every argument means what it means to `builtins.open`, and so do the files that it returns.

        Written files (`w`, `x`) are visible, complete, once `close()` has returned, or never. `a` and `r+` work where
        `capabilities` say so.
        """
        open_mode = modes.parse(mode)
        if type(buffering) is not int or not buffering or (encoding, errors, newline) != (None, None, None):
            modes.check(open_mode, buffering, encoding, errors, newline)
        key = (self._read_key if open_mode.action == "r" else self._file_key)(path, "open")
        if open_mode.only_reads:
            binary: io.IOBase = self._open_reader(key, buffering)
        else:
            binary = self._open_writer(key, open_mode, buffering)
        if not open_mode.text:
            return cast(IO[Any], binary)
        encoding = encoding or io.text_encoding(None, 2)
        try:
            text = _text_type(binary)(cast(Any, binary), encoding, errors, newline, buffering == 1)
        except BaseException:
            binary.abort() if isinstance(binary, WriteFile) else binary.close()
            raise
        text.mode = mode  # type: ignore[misc]
        if isinstance(text, TextUpdate):  # at the interpreter's end it is closed, and not the file below it
            process.finished(cast(TextUpdate, binary))
            process.abort_at_exit(text)
        return cast(IO[Any], text)

    def read_bytes(self, path: StrPath) -> bytes:
        """Return the whole content of a file."""
        key = self._read_key(path, "read_bytes")
        if not self.capabilities.read:
            raise self._unsupported("read_bytes", key)
        try:  # which costs nothing, as `_naming` does: small files are read in microseconds
            return self._content(key)
        except OSError as exc:
            self._named(exc, "read_bytes", key)
            raise

    def read_text(
        self, path: StrPath, encoding: str | None = None, errors: str | None = None, newline: str | None = None
    ) -> str:
        """Return the whole content of a file as text; the arguments are those of `open`."""
        with self.open(path, "r", -1, encoding, errors, newline) as file:
            return file.read()

    def read_many(self, paths: Iterable[StrPath], *, concurrency: int | None = None) -> Iterator[bytes]:
        """Yield the contents of many files, in the order of `paths`, with up to `concurrency` of them under way.

        By default these are `default_concurrency`. A file that can't be read raises in its turn, after the contents
        before it.
        """
        _check_concurrency(concurrency)
        self._require("read", "read_many", self._root)
        wanted = keys_of(self, paths, "read_many")
        return process.Resumable(functools.partial(self._contents, wanted, concurrency))

    def write_bytes(self, path: StrPath, data: Buffer) -> int:
        """Make `data` the content of a file, whole or not at all; returns its size in bytes."""
        key = self._file_key(path, "write_bytes")
        self._require("write", "open for writing", key)
        if key in ("", self._root):
            raise errors.error(errno.EISDIR, "write_bytes", self._url(key))
        content = data if type(data) is bytes else writemany.content_of(path, data)
        with self._naming("write_bytes", key):
            self._write_bytes(key, content)
        return len(content)

    def write_many(
        self, pairs: Iterable[tuple[StrPath, Buffer]] | Mapping[Any, Buffer], *, concurrency: int | None = None
    ) -> int:
        """Write many files, each whole or not at all, with up to `concurrency` of them under way; return how many.

        Contents are taken from `pairs` as there is room for them, up to 64 MiB at once. After a failure no more are
        taken: when all that was under way has ended, the first exception is raised, with the others in its notes.
        Paths must differ: of two contents for one, either may remain. Two that a disk takes for one, by case or Unicode
        form, are a `FileExistsError`.
        """
        _check_concurrency(concurrency)
        self._require("write", "write_many", self._root)
        names = identity.DistinctNames(self, "write_many")
        keyed = writemany.contents(pairs, lambda path: names.check(self._key_to_write(path)))
        return self._write_many(keyed, concurrency)

    def write_text(
        self,
        path: StrPath,
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

    def as_local(self, path: StrPath, mode: str = "r") -> AbstractContextManager[str]:
        """Give a file as a path on the local disk, for libraries that take nothing else; a context manager.

        Args:
            path: a file.
            mode: `r`: the path is that of the file itself on a local FS, else of a temporary copy that can't be written
                to. `w`, `x`: nothing is at the path yet; the file that the block leaves there is committed at the end
                of the block, whole or not at all. `r+`: as `w`, but the path starts as a copy of the file.

        The path's name is that of the file, or has at least its suffix. A block that raises commits nothing. Temporary
        files are removed at the end of the block, whatever happens in it.
        """
        key = (self._read_key if mode == "r" else self._file_key)(path, "as_local")
        from ..disk import local_copies

        return local_copies.as_local(self, key, mode, self._open_writer)

    # ---- asking and listing

    def stat(self, path: StrPath) -> FileStat:
        """Return the stat of a file or directory; `FileNotFoundError`, and `NotADirectoryError` for `file/`."""
        key = self._key(path, "stat")
        try:
            stat = self._stat_directory(key) if names_directory(path) else self._stat(key)
        except OSError as exc:
            self._named(exc, "stat", key)
            raise
        return stat._replace(filename=keys.name(key))

    def exists(self, path: StrPath) -> bool:
        """Return whether there is a file or a directory; a store that can't be reached is an error, not False."""
        return self._is(self._key(path, "exists"), None, names_directory(path))

    def isdir(self, path: StrPath) -> bool:
        """Return whether there is a directory."""
        return self._is(self._key(path, "isdir"), True, names_directory(path))

    def isfile(self, path: StrPath) -> bool:
        """Return whether there is a file."""
        return self._is(self._key(path, "isfile"), directory=False) and not names_directory(path)

    @overload
    def list(
        self, path: StrPath | None = "", recursive: bool = False, detail: Literal[False] = False
    ) -> Iterator[str]: ...
    @overload
    def list(
        self, path: StrPath | None = "", recursive: bool = False, *, detail: Literal[True]
    ) -> Iterator[FileStat]: ...
    @overload
    def list(self, path: StrPath | None, recursive: bool, detail: Literal[True]) -> Iterator[FileStat]: ...
    @overload
    def list(
        self, path: StrPath | None = "", recursive: bool = False, detail: bool = False
    ) -> Iterator[str] | Iterator[FileStat]: ...
    def list(
        self, path: StrPath | None = "", recursive: bool = False, detail: bool = False
    ) -> Iterator[str] | Iterator[FileStat]:
        """Yield the names in a directory, relative to it; a directory's name ends in `/`.

        Names come in their order where `capabilities.ordered`; local directories are read as a stream, in the order of
        the system: sort what depends on an order. `recursive` yields what is in its directories, too, each after its
        directory; `detail` yields `FileStat` in place of names. A missing path, or a file, raises at the call.
        """
        key = self._key("" if path is None else path, "list")
        return Listing(functools.partial(self._members, key, recursive, detail)).prime()

    def walk(self, path: StrPath = "") -> Iterator[tuple[str, Names, Names]]:
        """Walk a tree from the top down, as `os.walk` does: yield `(directory, names of directories, names of files)`.

        Directories that are removed from the list of their names are not walked. Links to directories are followed, as
        with `followlinks=True`, but for those that lead to a directory above. A directory that can't be listed is
        raised, where `os.walk` leaves it out without `onerror`.
        """
        self._key(path, "walk")
        names = SiblingListing(self).listed if self.capabilities.flat_listing else self.list
        return Walk(os.fspath(path), names, self._enters)

    def usage(self, path: StrPath = "") -> TreeCounts:
        """Return how many files are below a directory, at any depth, and the sum of their sizes."""
        key = self._key(path, "usage")
        with self._naming("usage", key):
            files = size = 0
            for member in self._walk(key):
                if not member.directory:
                    files += 1
                    size += member.size
        return TreeCounts(files, bytes=size)

    def unnamed(self, path: StrPath = "") -> Iterator[str]:
        """List the raw keys below a directory that no path names, as the store has them.

        Other clients can store keys with empty, `.` or `..` segments, or text that is not UTF-8. No listing shows them:
        each warns of them once (`UnnamedKeysWarning`). No operation touches them.
        """
        key = self._key(path, "unnamed")
        with self._naming("unnamed", key):
            yield from self._listed_by._unnamed(key)

    def glob(self, pattern: StrPath) -> Iterator[str]:
        """Yield the paths that match `pattern` as `glob.glob(..., recursive=True)` has it: `*`, `?`, `[seq]`, `**`.

        They come in the order of their names; below a `**`, in that of `list`.
        """
        self._key(pattern, "glob")
        return Listing(functools.partial(self._glob_after, os.fspath(pattern)))

    # ---- changing the tree

    def mkdir(self, path: StrPath, mode: int = 0o777) -> None:
        """Make a directory; an existing path is `FileExistsError`, a missing parent `FileNotFoundError`.

        `mode` is that of `os.mkdir`, for stores that have permissions.
        """
        key = self._key(path, "mkdir")
        self._require("mkdir", "mkdir", key)
        with self._naming("mkdir", key):
            self._mkdir(key, mode)

    def makedirs(self, path: StrPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Make a directory, with `mode`, and what is missing of its parents.

        An existing path is `FileExistsError`, but for a directory with `exist_ok`.
        """
        key = self._key(path, "makedirs")
        self._require("mkdir", "makedirs", key)
        try:
            self._makedirs(key, mode)
        except FileExistsError as exc:
            if not (exist_ok and self._is(key, directory=True)):
                self._named(exc, "makedirs", key)
                raise
        except OSError as exc:
            self._named(exc, "makedirs", key)
            raise

    def make_durable(self, path: StrPath) -> None:
        """Have a file or directory that was written survive a crash of the machine, with its name; stores do anyway."""
        key = self._key(path, "make_durable")
        with self._naming("make_durable", key):
            self.backing._make_durable([key])

    def rename(self, src: StrPath, dst: StrPath) -> None:
        """Move a file or directory; a file at `dst` is replaced by a file, an empty directory by a directory."""
        source, target = self._nonempty_key(src, "rename"), self._nonempty_key(dst, "rename")
        self._require("rename", "rename", source)
        if source != target and keys.inside(target, source):
            raise errors.error(errno.EINVAL, "rename", self._url(source), "can't move a directory into itself")
        with self._naming("rename", source):
            if names_directory(src) and not self._stat(source).directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if self._is_link(source) and identity.same(self, source, self, target) and not self._is_link(target):
                raise OSError(errno.EINVAL, "the link leads to what it would replace")
            self._rename(source, target) if source != target else self._stat(source)

    def remove(self, path: StrPath, recursive: bool = False) -> None:
        """Remove a file, or with `recursive` a directory and all that is in it; else that is `IsADirectoryError`.

        Where a store has both an object and others below its key, `recursive` removes all of them; with a path that
        ends in `/`, those below it. A link is removed, and what it leads to stays. The FS's own root, `.`, is emptied
        and stays; an empty path is none (`FileNotFoundError`).
        """
        key = self._nonempty_key(path, "remove")
        self._require("remove", "remove", key)
        if key in ("", self._root) and not recursive:
            raise errors.error(errno.EISDIR, "remove", self._url(key))
        with self._naming("remove", key):
            if key in ("", self._root):
                self._remove_tree(key, True)
                return
            if below := names_directory(path):
                self._stat_directory(key)  # else an error
            if self._is_link(key) or not (below or self._stat(key).directory):
                self._remove(key)
                if recursive and self.capabilities.implied_directories and self._is(key, directory=True):
                    self._remove_tree(key)  # a store of objects may have one, and others below its key
            elif recursive:
                self._remove_tree(key)
            else:
                raise errors.error(errno.EISDIR, "remove", self._url(key))

    def rmdir(self, path: StrPath) -> None:
        """Remove an empty directory; another one is an `OSError` (ENOTEMPTY), a file or link `NotADirectoryError`."""
        key = self._nonempty_key(path, "rmdir")
        self._require("remove", "rmdir", key)
        with self._naming("rmdir", key):
            if self._is_link(key) or not self._stat(key).directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self._remove(key)

    def copy(self, src: StrPath, dst: StrPath, dst_fs: FS | None = None) -> None:
        """Copy a file, to another FS if one is given; whole or not at all, replacing what was there.

        The copy has the permissions and the time of the file, where both FS keep them. Within one store no bytes pass
        this process. A file that is copied onto itself, under whatever name, is an `OSError` (EINVAL).
        """
        target_fs = self if dst_fs is None else checked_fs(dst_fs, "dst_fs")
        source, target = self._read_key(src, "copy"), target_fs._file_key(dst, "copy")
        if target_fs is not self:  # an archive that is added to copies its own members, and can't be read
            self._require("read", "copy", source)
        target_fs._require("write", "copy", target)
        from ..transfer import files

        with self._naming("copy", source):
            files.copy(self, source, target_fs, target)

    def copy_tree(
        self,
        src: StrPath,
        dst: StrPath,
        dst_fs: FS | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> TreeCounts:
        """Copy a directory and all that is in it, to another FS if one is given.

        Each file is copied whole or not at all, and replaces the file at its target. `dst` is made if it is missing;
        what is in it already stays. The first error ends the copy: the files that are complete by then stay, and no
        other is begun.

        Args:
            src: a directory.
            dst: the directory that gets the members of `src`.
            dst_fs: where `dst` is; by default, this FS.
            progress: called as `progress(files, bytes)` with what is done so far, in the thread of the caller: after
                each file and each piece of a large one.
            concurrency: how many files are copied at once; by default, what suits the two FS.

        Returns how many files and directories, and how many bytes of files, were copied.
        """
        return self._transfer_tree("copy_tree", src, dst, dst_fs, progress, concurrency)

    def sync_tree(
        self,
        src: StrPath,
        dst: StrPath,
        dst_fs: FS | None = None,
        *,
        delete: bool = False,
        content: bool = False,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> TreeCounts:
        """Copy what is new or changed in a directory, as `copy_tree` does; a run that was interrupted is continued.

        Two files of one size are the same if the target keeps times and the times are equal; if the target was written
        after the last change of a local source; if the target's version is a checksum, and the source's content has it;
        else if the target was written later than the source. Only `content` finds what has changed in spite of that.

        Args:
            src: a directory.
            dst: the directory that gets the members of `src`.
            dst_fs: where `dst` is; by default, this FS.
            delete: at the end, remove what is at the target and not in the source.
            content: two files of one size are the same if their contents are, by checksums or by reading both.
            progress, concurrency: those of `copy_tree`.

        Returns how many files and bytes were copied, how many directories were made, and how many files were skipped
        and removed.
        """
        return self._transfer_tree("sync_tree", src, dst, dst_fs, progress, concurrency, delete, content)

    def _transfer_tree(
        self,
        operation: str,
        src: StrPath,
        dst: StrPath,
        dst_fs: FS | None,
        progress: Callable[[int, int], None] | None,
        concurrency: int | None,
        delete: bool = False,
        content: bool = False,
    ) -> TreeCounts:
        target_fs = self if dst_fs is None else checked_fs(dst_fs, "dst_fs")
        source = self._key(src, operation)
        target = (target_fs._nonempty_key if delete else target_fs._key)(dst, operation)
        _check_concurrency(concurrency)
        target_fs._require("write", operation, target)
        from ..transfer import trees

        syncs = operation == "sync_tree"
        plan = trees.TreePlan("compare" if syncs else "replace", content, replace_links=syncs)
        totals = trees.TransferTotals(progress)
        run = trees.TreeTransfer(self, source, target_fs, target, plan, totals.report, totals.count, concurrency)
        run.run(delete)
        return totals.counts(run.directories)

    # ---- trees and containers

    def subfs(self, path: StrPath) -> Self:
        """Return the same FS with the directory `path` as its root and `cwd`: nothing outside of it can be reached.

        The directory is not looked for: if it is missing, what is done in it fails.
        """
        sub = copy.copy(self)
        sub._root = sub._cwd = self._key(path, "subfs")
        sub._owns_resources = False
        return sub

    def open_zip(self, path: StrPath, mode: str = "r", **options: Any) -> FS:
        """Return the zip file at `path` as an FS; options are those of `Zip`."""
        return self.open_container(path, mode, force_type="zip", **options)

    def open_container(self, path: StrPath, mode: str = "r", *, force_type: str | None = None, **options: Any) -> FS:
        """Open the container (zip, tar, HDF5) in the file at `path` as an FS; `force_type` overrides the format of its
        suffix.

        `mode` is `r`, `w` (a new file, replacing), `x` (a new file) or `a` (adding to a file, where the format can).
        `options` are those of the format's class; `ValueError` if the suffix is of no container.
        """
        key = self._key(path, "open_container")
        if mode == "r":
            self._require("read", "open_container", key)
        name = force_type or registry.container_of(keys.name(key))
        if name is None:
            raise ValueError(f"no container has the suffix of {self._url(key)!r}; name one by force_type=")
        kind = registry.container(name)
        if kind is None:
            raise ValueError(f"unknown container {name!r}; known: {', '.join(registry.containers())}")
        return cast(Callable[..., FS], kind)(self, path, mode, **options)

    @property
    def cwd(self) -> str:
        """The directory that relative paths start from, as an absolute path; may be set, inside of the root."""
        return "/" + self._cwd

    @cwd.setter
    def cwd(self, path: StrPath) -> None:
        self._cwd = self._key(path, "cwd")

    def url(self, path: StrPath = "") -> str:
        """Return the full URL of a path, as `from_url` and `open_url` take it."""
        return self._url(self._key(path, "url"))

    def info(self) -> dict[str, Any]:
        """Return the FS's type, scheme, URL and capabilities."""
        return {
            "type": type(self).__name__,
            "scheme": self.scheme,
            "url": self._url(self._root),
            "capabilities": self.capabilities._asdict(),
        }

    def close(self) -> None:
        """Free what is held in this process; closing twice is no error. A container being written becomes visible.

        Closing what `subfs` gave closes nothing: the FS that it came from goes on.
        """
        if self._owns_resources:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._owns_resources:
            return
        if kind is None:
            self._close()
        else:
            self._abort()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url(self._root)!r})"

    @property
    def backing(self) -> FS:
        """The FS of the store, or of the container, that the files are in: below all layers, which have its keys."""
        return self

    @property
    def _listed_by(self) -> FS:
        """The FS whose `_list` lists the directories: below the layers that leave that to it."""
        return self

    @property
    def _opened_by(self) -> FS:
        """The FS whose `_open_blob` opens the files: below the layers that leave that to it."""
        return self

    # ---- other libraries' interfaces

    def open_blob(self, path: StrPath, stat: FileStat | None = None) -> Blob:
        """Open a file for positioned reads, `pread` and `pread_many`; nothing is read ahead. Close it after use.

        `stat` is the file's, of a listing: a store then need not be asked for it, and a file that has changed since
        raises `StaleFileError` when it is read, or opens with another size or version.
        """
        key = self._read_key(path, "open")
        self._require("read", "open for reading", key)
        with self._naming("open", key):
            blob = self._open_blob(key, Hint.ANY, stat)
        blob.opened_by_user = True
        return blob

    def fsspec(self, *, asynchronous: bool = False) -> Any:
        """Return this FS as a filesystem of fsspec's, for whatever takes one; paths are the FS's own.

        With `asynchronous`, its methods are coroutines, as zarr's `FsspecStore` wants them.
        """
        return registry.adapter("fsspec")(self, asynchronous)

    def arrow(self) -> Any:
        """Return this FS as a `pyarrow.fs.FileSystem`; files are read by exactly the ranges that are asked for."""
        return registry.adapter("arrow")(self)

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> FS:
        """Return the FS of a URL's authority and (decoded, absolute) path; options are the class's keyword-only ones.

        The FS's root is `path`. A backend overrides this where its constructor takes something else.
        """
        return cast(Callable[..., FS], cls)(authority, path, **options)

    @classmethod
    def options_of_fsspec(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options of this class for those that scripts give fsspec's filesystem of the same scheme.

        Names that this class has stay as they are; what changes no result is left out.
        """
        return dict(options)

    # ---- the core: what a backend or container writes, on keys counted from the backend's own root

    @abc.abstractmethod
    def _stat(self, key: str, follow: bool = True, /) -> FileStat:
        """Return the stat of `key`; `FileNotFoundError` if there is nothing.

        Without `follow`, which is for FS with the capability `links`, return that of a symbolic link itself.
        """

    def _stat_directory(self, key: str) -> FileStat:
        """Return the stat of the directory `key`, which may have a file's name; `NotADirectoryError` for a file."""
        stat = self._stat(key)
        if stat.directory:
            return stat
        if self.capabilities.implied_directories:
            with contextlib.suppress(io.UnsupportedOperation):  # of a web server, which lists nothing
                next(self._list(key, False), None)  # `NotADirectoryError` if nothing is below the file
                return FileStat.of_directory(stat.filename)
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))

    @overload
    def _list(self, key: str, detail: Literal[True] = True, start: str = "", /) -> Iterator[FileStat]: ...
    @overload
    def _list(self, key: str, detail: bool, start: str = "", /) -> Iterator[FileStat] | Iterator[str]: ...
    @abc.abstractmethod
    def _list(self, key: str, detail: bool = True, start: str = "", /) -> Iterator[Any]:
        """Yield the members of the directory `key`, one level, with bare names.

        In the order of their names as listed (a directory counts with its `/`), by code point, unless `capabilities`
        say that they aren't `ordered`. `FileNotFoundError` or
        `NotADirectoryError` at the latest when the first item is asked for.

        Without `detail`, names may be yielded in place of all stats, a directory's with its `/`: where that is faster.
        With `start`, members whose names don't begin with it may be left out.
        """

    @abc.abstractmethod
    def _open_blob(self, key: str, hint: Hint = Hint.ANY, stat: FileStat | None = None, /) -> Blob:
        """Return the blob of the file `key`; `FileNotFoundError`, `IsADirectoryError`.

        `hint` says how it will be read. `stat` is the file's, of a listing: a store need not be asked for it again.
        """

    @abc.abstractmethod
    def _url(self, key: str) -> str:
        """Return the full URL of `key`, with no secret in it."""

    # ---- writing

    def _create(self, key: str, exclusive: bool, append: bool = False, update: bool = False, /) -> Writer:
        """Return a writer of a new file; `exclusive` makes an existing one a `FileExistsError`, here or at commit.

        A directory is `IsADirectoryError` in every mode, and a parent that is missing or a file ENOENT or ENOTDIR,
        where directories aren't implied. With `append` (needs the capability), make the file at once if it is missing,
        and add at commit to what it holds then. With `update` (the same), return an `UpdateWriter` of the file.
        """
        raise self._unsupported("open for writing", key)

    def _mkdir(self, key: str, mode: int) -> None:
        """Make the directory `key`; `FileExistsError`, and `FileNotFoundError` without its parent."""
        raise self._unsupported("mkdir", key)

    def _rename(self, src: str, dst: str) -> None:
        """Move a file or directory; a file at `dst` is replaced."""
        raise self._unsupported("rename", src)

    def _remove(self, key: str) -> None:
        """Remove a file or an empty directory (ENOTEMPTY otherwise); `FileNotFoundError`."""
        raise self._unsupported("remove", key)

    def _close(self) -> None:  # noqa: B027 - nothing to free is a good answer
        """Free what is held in this process; may be called again."""

    def _abort(self) -> None:
        """Close the FS after a failure: a container that is being written is thrown away."""
        self._close()

    # ---- fast paths: right as they stand, overridden where a store can do better

    @overload
    def _walk(self, key: str, detail: Literal[True] = True, after: str = "", /) -> Iterator[FileStat]: ...
    @overload
    def _walk(self, key: str, detail: bool, after: str = "", /) -> Iterator[FileStat] | Iterator[str]: ...
    def _walk(self, key: str, detail: bool = True, after: str = "", /) -> Iterator[Any]:
        """Yield all files and directories below `key`, a directory before its members, names relative to `key`.

        Without `detail`, names may be yielded in place of all stats, as `_list` may. Names that don't follow `after`,
        which is for FS with the capability `flat_listing`, may be left out.
        """
        stack = [("", self._list(key))]
        while stack:
            base, members = stack[-1]
            member = next(members, None)
            if member is None:
                stack.pop()
                continue
            name = base + member.filename
            yield member._replace(filename=name)
            if member.directory and not self._listed_by._leads_back(path := keys.join(key, name)):
                stack.append((name + "/", self._list(path)))

    @overload
    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: Literal[False] = False, /
    ) -> Iterator[bytes]: ...
    @overload
    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None, versions: Literal[True], /
    ) -> Iterator[tuple[bytes, str | None]]: ...
    @overload
    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None, versions: bool, /
    ) -> Iterator[bytes] | Iterator[tuple[bytes, str | None]]: ...
    def _read_many(
        self, wanted: Sequence[str], concurrency: int | None = None, versions: bool = False, /
    ) -> Iterator[Any]:
        """Yield the contents of the files `wanted`, in order.

        With `versions`, yield pairs of content and version; both are of one open file, or of one response.
        """

        def read(key: str) -> Any:
            with self._open_blob(key, Hint.FROM_START) as blob:
                return (blob.read_all(), blob.version) if versions else blob.read_all()

        return self._read_each(read, wanted, concurrency)

    def _content(self, key: str) -> bytes:
        """Return the content of the file `key`: `_read_many` of one.

        An FS of which a read takes microseconds has a shortcut here, beside its `_read_many`. No layer passes it on.
        """
        return next(self._read_many((key,)))

    def _read_each(self, read: Callable[[str], T], wanted: Sequence[str], concurrency: int | None) -> Iterator[T]:
        """Yield `read` of each key, by as many threads as files may be under way."""
        width = min(concurrency or self.default_concurrency, len(wanted))
        return in_threads(read, wanted, width) if width > 1 else map(read, wanted)

    def _write_bytes(self, key: str, data: bytes, like: FileStat | None = None, moved: bool = False, /) -> None:
        """Make `data` the content of the file `key`.

        A store that keeps them gives it the time of `like`, and if it is new or `moved` its permissions.
        """

        def write(writer: Writer) -> None:
            try:
                writer.expect(len(data))
                if like is not None:
                    writer.keep(like, moved=moved)
                writer.write(data)
                writer.commit()
            except BaseException:
                writer.abort()
                raise

        write_again(functools.partial(self._create, key, False), write)

    def _lstat(self, key: str) -> FileStat:
        """Return the stat of a key; of a symbolic link its own."""
        return self._stat(key, False) if self.capabilities.links else self._stat(key)

    def _write_blob(self, key: str, blob: Blob) -> None:
        """Make the content of `blob` that of the file `key`; errors of writing name it. The blob may be closed then."""
        with self._naming("copy", key), committing(self._create(key, False)) as writer:
            writer.expect(blob.size)
            for piece in pieces(blob):
                writer.write(piece)

    def _write_many(self, pairs: Iterator[tuple[str, bytes]], concurrency: int | None) -> int:
        """Write the files of `pairs` and return how many they are; a failure of one is an `OSError` that names it."""

        def write(key: str, data: bytes) -> None:
            with self._naming("write_many", key):
                self._write_bytes(key, data)

        workers = concurrency or self.default_concurrency
        return writemany.one_by_one(write, pairs) if workers == 1 else writemany.in_threads(write, pairs, workers)

    def _remove_tree(self, key: str, keep: bool = False, /) -> None:
        """Remove the directory `key` and all that is in it; what a link leads to stays, and `key` itself with `keep`.

        A directory is listed, completely and in order, before anything in it is removed.
        """
        if keep:
            self._remove_members(key)
            return
        folders = [key]
        for folder in folders:
            for member in list(self._in_order(folder, self._list(folder))):
                path = keys.join(folder, member.filename)
                if member.directory and not self._is_link(path):
                    folders.append(path)
                else:
                    self._remove(path)
        for folder in reversed(folders):
            try:
                self._remove(folder)
            except FileNotFoundError:
                if not self.capabilities.implied_directories:  # which is gone with the last file in it
                    raise

    def _remove_members(self, key: str) -> None:
        """Remove all that is in the directory `key`, which stays."""
        for member in list(self._in_order(key, self._list(key))):
            path = keys.join(key, member.filename)
            self._remove_tree(path) if member.directory and not self._is_link(path) else self._remove(path)
        left = list(self.backing._unnamed(key))
        if left:
            raise errors.unnamed_left(self._url(key), len(left), left[0])
        can = self.capabilities
        if key and can.implied_directories and can.mkdir and not self._is(key, directory=True):
            self._mkdir(key, 0o777)  # it went with the last file

    def _makedirs(self, key: str, mode: int) -> None:
        """Make the directory `key` and what is missing above it; `FileExistsError` if it is there."""
        wanted, tried = [key], set()
        while wanted:
            path = wanted[-1]
            try:
                self._mkdir(path, 0o777 if len(wanted) > 1 else mode)
            except FileNotFoundError:
                if not path or path in tried:
                    raise
                tried.add(path)
                wanted.append(keys.parent(path))
                continue
            except FileExistsError:  # above the wanted one: another process was faster
                if len(wanted) == 1:
                    raise
            wanted.pop()

    def _copy(self, source: FS, src: str, dst: str, /) -> None:
        """Copy the file `src` of `source` to `dst`, replacing it: by the store itself after `_can_copy_from`."""
        from ..transfer.files import copy_file

        copy_file(source, src, self, dst, verify=False)

    def _batch(self, message: str) -> AbstractContextManager[None]:
        """Return a block whose changes are made as one, with this message, by a store that can."""
        return nullcontext()

    def _set(self, key: str, stat: FileStat, /) -> None:
        """Give `key` the time of modification of `stat`, unless it is None, and the permissions, unless `mode` is 0.

        With the stat of a link, make `key` one (`FileExistsError`). It needs the capabilities `settable_times`, `modes`
        and `links`.
        """
        raise self._unsupported("set times and permissions", key)

    # ---- what a store says of itself: asked of `backing`, and passed on by no layer. `identity` has functions for it.

    def _resolved_store(self) -> str:
        """Return the store that the URLs are of, as it was resolved from options, configuration and environment.

        Two FS with the same text have the same content under the same URL, in whichever process; there is no secret in
        it. A backend that does not override this shares nothing that is kept with another FS object, except for copies
        of itself: pickled ones and those of forked processes.
        """
        return f"{type(self).__module__}.{type(self).__qualname__} {self.__dict__.setdefault('_token', _new_token())}"

    def _place(self, key: str) -> identity.Place:
        """Return what `key` leads to; of a name that nothing has, what it would be."""
        pinned = self._url(key).partition("?")[2]  # to a version, which is another object than the current one
        return identity.Place(type(self).__qualname__, self._resolved_store(), (key, pinned))

    def _places(self, key: str) -> Iterator[identity.Place]:
        """Yield the places of `key` and of the directories that it lies in, from inside out."""
        yield self._place(key)
        for above in reversed(keys.ancestors(key)):
            yield self._place(above)
        if key:
            yield self._place("")

    def _principal(self) -> str:
        """Return the principal that the store knows this FS as, with no secret in it; an empty string if there is none.

        A store's response to one principal is never returned to another one without a request.
        """
        return ""

    def _is_strong(self, version: str) -> bool:
        """Return whether `version` is strong: no later content of a file can have it, as it may within a clock's tick.

        Versions that are made of the content, or counted by the store, always are.
        """
        return True

    def _describe_store(self) -> dict[str, str]:
        """Return how the store is reached, for people: endpoint, region, the source of credentials; no secret."""
        return {}

    def _storage_order(self) -> StorageOrder | None:
        """Return how files are stored one behind the other; None if each is stored apart."""
        return None

    def _unnamed(self, key: str) -> Iterator[str]:
        """Yield the raw keys below the directory `key` that no path names; most stores can't have any."""
        return iter(())

    def _can_copy_from(self, source: FS) -> bool:
        """Return whether files of `source` can be copied to this FS without their bytes passing this process."""
        return False

    def _make_durable(self, keys: Iterable[str]) -> None:  # noqa: B027 - what most stores have taken survives
        """Have what was written at `keys` survive a crash of the machine, with its names, where that can be said."""

    def _has_digest(self, key: str) -> bool:
        """Return whether the version of the file `key`, which looks like a digest of its content, is one."""
        return True

    def _has_content(self, stat: FileStat, blob: Blob) -> bool | None:
        """Return whether the file with this stat has the content of `blob`; None if the stat does not say."""
        return None

    def _same_content(self, version: str, other: str) -> bool | None:
        """Return whether two versions, in stores of this kind, are of equal contents; None if versions don't say."""
        return None

    def _unchanged_since(self, stat: FileStat, when: float) -> bool:
        """Return whether the file with this stat was changed last before `when`, by a time that can't be set."""
        return False

    # These two are called unless `_plain_paths`.

    def _divided_path(self, path: StrPath) -> tuple[StrPath, str]:
        """Return a path, and what follows it in its key as it is written: the query of a file of a web server."""
        return path, ""

    def _check_key(self, key: str, root: str, operation: str) -> None:  # noqa: B027 - most stores take every key
        """Raise an error if `key` may not be used: a link on the way from the directory `root` is not to be followed,
        or the store takes it for another one.
        """

    # ---- what the FS says that lists the directories, or opens the files: see `_listed_by`, `_opened_by`

    def _list_page(self, key: str, after: str) -> ListPage | None:
        """Return the files in and below the directory `key` whose paths in it follow `after`, as many as one request
        gives; None if the store has no such request.
        """
        return None

    def _leads_back(self, key: str) -> bool:
        """Return whether the directory `key` is a link to one above it, which is listed and not entered."""
        return False

    def _directory_identity(self, key: str) -> Hashable:
        """Return what identifies the directory `key`, whichever link leads to it; None if links lead to none."""
        return None

    def _compared(self, key: str, blob: Blob) -> Blob:
        """Return `blob`, the file `key` in parts of which a cache has some; or one around it that compares them."""
        return blob

    def _local_path(self, key: str) -> str | None:
        """Return the path of `key` on the local disk; None where files have none."""
        return None

    # ---- how the public methods are derived, and what those above share

    def _key(self, path: str | os.PathLike[str], operation: str) -> str:
        """Return the key of a path; one outside of the root is a `PermissionError`."""
        rest = ""
        try:
            if not self._plain_paths:
                path, rest = self.backing._divided_path(path)
            key, root = keys.normalize(path, self._cwd), self._root
            if root and key != root and not key.startswith(f"{root}/"):
                raise PermissionError(errno.EACCES, f"{path!r} is outside of this FS's root")
        except PermissionError as exc:
            self._named(exc, operation, self._root)
            raise
        if self._plain_paths:
            return key
        self.backing._check_key(key, root, operation)
        return key + rest

    def _nonempty_key(self, path: str | os.PathLike[str], operation: str) -> str:
        """Return the key of a path; an empty one, as of a variable that was never set, is a `FileNotFoundError`."""
        if os.fspath(path) == "":
            raise errors.error(errno.ENOENT, operation, self._url(self._root), "an empty path names nothing")
        return self._key(path, operation)

    def _file_key(self, path: str | os.PathLike[str], operation: str) -> str:
        """Return the key of a file that is going to be written; a path that names a directory is refused."""
        key = self._key(path, operation)
        if names_directory(path):
            raise errors.error(errno.EISDIR, operation, self._url(key))
        return key

    def _read_key(self, path: str | os.PathLike[str], operation: str) -> str:
        """Return the key of a file that is going to be read; a path that names a directory is refused."""
        key = self._key(path, operation)
        if (path if type(path) is str else os.fspath(path))[-1:] in _LAST_OF_DIRECTORIES and names_directory(path):
            with self._naming(operation, key):
                code = errno.EISDIR if self._stat(key).directory else errno.ENOTDIR
                raise OSError(code, os.strerror(code))
        return key

    def _named(self, exc: OSError, operation: str, key: str) -> None:
        if getattr(exc, "operation", None) is None:
            errors.named(exc, operation, self._url(key))

    def _naming(self, operation: str, key: str) -> _Naming:
        """Give an `OSError` of the block the operation, and the URL of `key`, unless it has them."""
        return _Naming(self, operation, key)

    def _require(self, capability: str, operation: str, key: str) -> None:
        if not getattr(self.capabilities, capability):
            raise self._unsupported(operation, key)

    def _unsupported(self, operation: str, key: str) -> io.UnsupportedOperation:
        return errors.unsupported(operation, self._url(key), f"{type(self).__name__} can't {operation}")

    def _is(self, key: str, directory: bool | None, below: bool = False) -> bool:
        """Return whether there is a file or a directory, or either; `below`: whether the path names a directory."""
        try:
            found = (self._stat_directory(key) if below else self._stat(key)).directory
        except errors.UnknownSizeError:
            found = False
        except OSError as exc:
            if exc.errno in _NOTHING_THERE:
                return False
            self._named(exc, "stat", key)
            raise
        return directory is None or found == directory

    def _is_link(self, key: str) -> bool:
        return self.capabilities.links and self._stat(key, False).link is not None

    def _members(self, key: str, recursive: bool, detail: bool, after: Any = None) -> Iterator[Any]:
        """Yield names as `FS.list` does, or stats with `detail`; those that follow `after` if it is given."""
        with self._naming("list", key):
            if detail:
                stats = self._walk(key) if recursive else self._list(key)
                found: Iterator[Any] = (
                    member._replace(filename=member.listed()) if member.directory else member for member in stats
                )
            else:
                found = names_of(self._walk(key, False) if recursive else self._list(key, False))
            yield from found if after is None else self._following(after, found, self.capabilities.ordered)

    def _following(self, after: FileStat | str, items: Iterator[Any], ordered: bool) -> Iterator[Any]:
        """Yield the items of a listing that follow the name of `after`; `StaleFileError` if that can't be found out."""
        last = after if isinstance(after, str) else after.filename
        for item in items:
            name = item if isinstance(item, str) else item.filename
            if name == last:
                yield from items
                return
            if ordered and name > last:  # the one that was given last is gone
                yield item
                yield from items
                return
        if not ordered:
            reason = f"the listing can't be continued in another process: {last!r}, which it gave last, is gone"
            raise errors.stale(self._url(self._root), reason, "list")

    def _in_order(self, key: str, members: Iterator[FileStat]) -> Iterator[FileStat]:
        """Yield a listing of `key`; raise `CorruptFileError` where it repeats a name, or goes back, against its store's
        order: such a listing is not complete, and nothing may be removed for not being in it.
        """
        last, ordered = "", self.capabilities.ordered
        for member in members:
            name = member.listed()
            if ordered and name <= last:
                reason = f"the listing is out of order: {name!r} after {last!r}"
                raise errors.corrupt(self._url(key), reason, "list")
            last = name
            yield member

    def _rename_target(self, dst: str, source: FileStat) -> FileStat | None:
        """Return the stat of `dst`, or None; raise an error unless `source` can be renamed to it."""
        try:
            target = self._stat(dst)
        except FileNotFoundError:
            return None
        if target.directory and not source.directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if source.directory and not target.directory:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if target.directory and next(self._list(dst), None) is not None:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
        return target

    def _open_reader(self, key: str, buffering: int) -> ReadFile | BlobFile:
        self._require("read", "open for reading", key)
        with self._naming("open", key):
            blob = self._open_blob(key, Hint.FILE)
        blob.opened_by_user = True
        if not buffering:
            return BlobFile(blob)
        return buffered(blob, buffering if buffering > 1 else -1, max_line_length=self.limits.max_line_length)

    def _key_to_write(self, path: StrPath) -> str:
        key = self._file_key(path, "write_many")
        if key in ("", self._root):
            raise errors.error(errno.EISDIR, "write_many", self._url(key))
        return key

    def _open_writer(self, key: str, open_mode: OpenMode, buffering: int) -> io.IOBase:
        if open_mode.update and open_mode.action != "r":
            raise errors.unsupported(
                "open", self._url(key), "a file that is read and written at once is opened with r+, where it exists"
            )
        needed, purpose = ("update", "updating") if open_mode.update else ("write", "writing")
        if open_mode.action == "a":
            needed, purpose = "append", "appending"
        self._require(needed, f"open for {purpose}", key)
        if key in ("", self._root):
            raise errors.error(errno.EISDIR, "open", self._url(key))
        with self._naming("open", key):
            if open_mode.update:
                file = self._create(key, False, False, True).updated_file()
                return file.detach() if buffering == 0 else file
            if open_mode.action == "a":
                return self._open_append(key, buffering)
            writer = self._create(key, open_mode.action == "x")
        raw = WriterFile(writer, self._url(key), open_mode.action + "b")
        kind = KeptWriteFile if writer.keeps_bytes else WriteFile
        return kind(raw, buffering if buffering > 1 else WRITE_BUFFER_SIZE) if buffering else raw

    def _open_append(self, key: str, buffering: int) -> WriteFile | WriterFile:
        writer = self._create(key, False, True)
        try:
            size = self._stat(key).size
        except BaseException:
            writer.abort()
            raise
        raw = WriterFile(writer, self._url(key), "ab", size)
        return WriteFile(raw, buffering if buffering > 1 else APPEND_BUFFER_SIZE) if buffering else raw

    def _contents(self, wanted: Sequence[str], concurrency: int | None, start: int) -> Iterator[bytes]:
        at = start
        try:
            for content in self._read_many(wanted[start:], concurrency):
                yield content
                at += 1
        except OSError as exc:
            self._named(exc, "read_many", wanted[min(at, len(wanted) - 1)])
            raise

    def _enters(self, path: str) -> bool:
        return not self._listed_by._leads_back(self._key(path, "walk"))

    def _glob_after(self, pattern: str, after: str | None) -> Iterator[str]:
        found = glob(self, pattern)
        return found if after is None else self._following(after, found, ordered=False)


class _Naming:
    """A block in which an `OSError` gets the operation and the URL that it is about."""

    __slots__ = ("_fs", "_key", "_operation")

    def __init__(self, fs: FS, operation: str, key: str) -> None:
        self._fs, self._operation, self._key = fs, operation, key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if isinstance(exc, OSError):
            self._fs._named(exc, self._operation, self._key)


def _text_type(binary: io.IOBase) -> type[io.TextIOWrapper]:
    if isinstance(binary, LimitedReader):
        return LimitedTextReader
    if isinstance(binary, io.BufferedReader):
        return TextReader
    return TextWriter if isinstance(binary, WriteFile) else TextUpdate


_LAST_OF_DIRECTORIES = frozenset("/.")


def names_directory(path: str | os.PathLike[str]) -> bool:
    """Return whether a path ends as one of a directory does: in `/`, `/.` or `/..`."""
    return os.fspath(path).endswith(("/", "/.", "/.."))


def keys_of(fs: FS, paths: Iterable[StrPath], operation: str) -> list[str]:
    """Return the keys of several paths; for a str, whose characters are paths too, raise `TypeError`."""
    if isinstance(paths, str):
        raise TypeError(f"{operation} takes several paths, not one str: {operation}([{paths!r}])")
    return [fs._read_key(path, operation) for path in paths]


def checked_fs(fs: Any, name: str) -> FS:
    """Return `fs`, the argument `name`; a URL or a path in its place is a `TypeError` that says how to open it."""
    if isinstance(fs, str | os.PathLike):
        raise TypeError(f"{name} is an FS, not a URL or a path: fsabs.from_url({redaction.without_secrets(str(fs))!r})")
    return cast(FS, fs)


def _check_concurrency(concurrency: int | None) -> None:
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, not {concurrency}")


def _new_token() -> str:
    return os.urandom(8).hex()
