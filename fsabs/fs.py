"""FS: the public face of every filesystem, built on the core that a backend or container writes (`core.py`).

The methods are PFIO v2's, with its names and arguments, and a few more. Whatever must hold on every FS (the jail, the
names in a listing, the URL in an error) is done here, once.
"""

from __future__ import annotations

import copy
import errno
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from . import errors, keys, registry
from .globbing import glob
from .interop import AdapterMethods
from .listing import Listing
from .opening import FileMethods
from .opening import Path as Path
from .stats import Capabilities as Capabilities
from .stats import FileStat as FileStat
from .stats import TreeUsage as TreeUsage
from .threads import in_threads as in_threads
from .walking import Names, Walk

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from .copying.trees import CopiedTree, SyncedTree


class FS(AdapterMethods, FileMethods):
    """A tree of files under one interface, whatever it lies in.

    Use it from any thread, in forked processes and pickled, with no preparation; as a context manager it closes
    itself. Paths are `/`-separated and relative to `cwd`; an absolute one starts at the root of the backend and must
    lie inside the FS's own root.
    """

    # ---- asking and listing

    def stat(self, path: Path) -> FileStat:
        """Return the stat of a file or directory."""
        key = self._key(path, "stat")
        try:
            return self._stat(key)._replace(filename=keys.name(key))
        except OSError as exc:
            self._named(exc, "stat", key)
            raise

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or a directory; a store that can't be reached is an error, not False."""
        return self._is(self._key(path, "exists"), directory=None)

    def isdir(self, file_path: Path) -> bool:
        """Return whether there is a directory."""
        return self._is(self._key(file_path, "isdir"), directory=True)

    def isfile(self, file_path: Path) -> bool:
        """Return whether there is a file."""
        return self._is(self._key(file_path, "isfile"), directory=False)

    @overload
    def list(
        self, path_or_prefix: Path | None = "", recursive: bool = False, detail: Literal[False] = False
    ) -> Iterator[str]: ...
    @overload
    def list(
        self, path_or_prefix: Path | None = "", recursive: bool = False, *, detail: Literal[True]
    ) -> Iterator[FileStat]: ...
    @overload
    def list(self, path_or_prefix: Path | None, recursive: bool, detail: Literal[True]) -> Iterator[FileStat]: ...
    @overload
    def list(
        self, path_or_prefix: Path | None = "", recursive: bool = False, detail: bool = False
    ) -> Iterator[str] | Iterator[FileStat]: ...
    def list(
        self, path_or_prefix: Path | None = "", recursive: bool = False, detail: bool = False
    ) -> Iterator[str] | Iterator[FileStat]:
        """Yield the names in a directory, relative to it; a directory's name ends in `/`.

        Names come in their order where `capabilities.ordered`; local directories are read as a stream, in the order of
        the system: sort what depends on an order. `recursive` yields what is in its directories, too, each after its
        directory; `detail` yields `FileStat` in place of names. A missing path, or a file, raises at the call.
        """
        key = self._key("" if path_or_prefix is None else path_or_prefix, "list")
        return Listing(functools.partial(self._members, key, recursive, detail)).prime()

    def walk(self, path: Path = "") -> Iterator[tuple[str, Names, Names]]:
        """As `os.walk` from the top down: directory, names of directories, names of files; the lists may be pruned."""
        self._key(path, "walk")
        return Walk(os.fspath(path), self.list, self._enters)

    def usage(self, path: Path = "") -> TreeUsage:
        """Return how many files are below a directory, at any depth, and the sum of their sizes."""
        key = self._key(path, "usage")
        try:
            return self._usage(key)
        except OSError as exc:
            self._named(exc, "usage", key)
            raise

    def unnamed(self, path: Path = "") -> Iterator[str]:
        """List the raw keys below a directory that no path names, as the store has them.

        Other clients can store keys with empty, `.` or `..` segments, or text that is not UTF-8. No listing shows them:
        each warns of them once (`UnnamedKeysWarning`). No operation touches them.
        """
        key = self._key(path, "unnamed")
        try:
            yield from self._unnamed(key)
        except OSError as exc:
            self._named(exc, "unnamed", key)
            raise

    def glob(self, pattern: Path) -> Iterator[str]:
        """The paths that match `pattern` (`*`, `?`, `[seq]`, and `**` for any directories), ordered, as `glob.glob`."""
        self._key(pattern, "glob")
        return Listing(functools.partial(self._glob_from, os.fspath(pattern)))

    # ---- changing the tree

    def mkdir(self, file_path: Path, mode: int = 0o777) -> None:
        """Make a directory; an existing path is `FileExistsError`, a missing parent `FileNotFoundError`."""
        key = self._key(file_path, "mkdir")
        self._require("mkdir", "mkdir", key)
        try:
            self._mkdir(key, mode)
        except OSError as exc:
            self._named(exc, "mkdir", key)
            raise

    def makedirs(self, file_path: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        """Make a directory and what is missing of its parents."""
        key = self._key(file_path, "makedirs")
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

    def rename(self, src: Path, dst: Path) -> None:
        """Move a file or directory; a file at `dst` is replaced."""
        source, target = self._key(src, "rename"), self._key(dst, "rename")
        self._require("rename", "rename", source)
        if source != target and keys.inside(target, source):
            raise errors.error(errno.EINVAL, "rename", self._url(source), "can't move a directory into itself")
        try:
            self._rename(source, target) if source != target else self._stat(source)
        except OSError as exc:
            self._named(exc, "rename", source)
            raise

    def remove(self, file_path: Path, recursive: bool = False) -> None:
        """Remove a file, or with `recursive` a directory and all that is in it; the FS's root is emptied and stays."""
        key = self._key(file_path, "remove")
        self._require("remove", "remove", key)
        if key in ("", self._root) and not recursive:
            raise errors.error(errno.EISDIR, "remove", self._url(key))
        try:
            if key in ("", self._root):
                self._empty(key)
            elif not self._stat(key).directory:
                self._remove(key)
            elif recursive:
                self._remove_tree(key)
            else:
                raise errors.error(errno.EISDIR, "remove", self._url(key))
        except OSError as exc:
            self._named(exc, "remove", key)
            raise

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        key = self._key(path, "rmdir")
        self._require("remove", "rmdir", key)
        try:
            if not self._stat(key).directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            self._remove(key)
        except OSError as exc:
            self._named(exc, "rmdir", key)
            raise

    def copy(self, src: Path, dst: Path, dst_fs: FS | None = None) -> None:
        """Copy a file, to another FS if one is given; whole or not at all, replacing what was there."""
        target_fs = self if dst_fs is None else checked_fs(dst_fs, "dst_fs")
        source, target = self._key(src, "copy"), target_fs._file_key(dst, "copy")
        target_fs._require("write", "copy", target)
        try:
            if target_fs is self:
                if source == target:
                    self._open_blob(source).close()  # there is nothing to do, if it is a file
                else:
                    self._copy(source, target)
                return
            with self._open_blob(source) as blob:
                target_fs._write_blob(target, blob)
        except OSError as exc:
            self._named(exc, "copy", source)
            raise

    def copy_tree(
        self,
        src: Path,
        dst: Path,
        dst_fs: FS | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> CopiedTree:
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
        target_fs = self if dst_fs is None else checked_fs(dst_fs, "dst_fs")
        source, target = self._key(src, "copy_tree"), target_fs._key(dst, "copy_tree")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        target_fs._require("write", "copy_tree", target)
        from .copying import trees

        totals, plan = trees.TransferTotals(progress), trees.TreePlan("replace")
        run = trees.TreeTransfer(self, source, target_fs, target, plan, totals.report, totals.count, concurrency)
        run.run()
        return trees.CopiedTree(totals.files, run.directories, totals.bytes)

    def sync_tree(
        self,
        src: Path,
        dst: Path,
        dst_fs: FS | None = None,
        *,
        delete: bool = False,
        content: bool = False,
        progress: Callable[[int, int], None] | None = None,
        concurrency: int | None = None,
    ) -> SyncedTree:
        """Copy what is new or changed in a directory, as `copy_tree` does; a run that was interrupted is continued.

        Two files of one size are the same if the target keeps times and the times are equal; if the target's version is
        a checksum, and the source's content has it; else if the target was written later than the source.

        Args:
            src: a directory.
            dst: the directory that gets the members of `src`.
            dst_fs: where `dst` is; by default, this FS.
            delete: at the end, remove what is at the target and not in the source.
            content: two files of one size are the same if their contents are, by checksums or by reading both.
            progress, concurrency: as of `copy_tree`.

        Returns how many files were copied, skipped and removed, and how many bytes were copied.
        """
        target_fs = self if dst_fs is None else checked_fs(dst_fs, "dst_fs")
        source, target = self._key(src, "sync_tree"), target_fs._key(dst, "sync_tree")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"concurrency must be at least 1, not {concurrency}")
        target_fs._require("write", "sync_tree", target)
        from .copying import trees

        totals, plan = trees.TransferTotals(progress), trees.TreePlan("compare", content)
        run = trees.TreeTransfer(self, source, target_fs, target, plan, totals.report, totals.count, concurrency)
        run.run()
        if delete:
            run.remove_others()
        return trees.SyncedTree(totals.files, totals.skipped, totals.removed, totals.bytes)

    # ---- trees and containers

    def subfs(self, rel_path: Path) -> Self:
        """The same FS with the directory `rel_path` as its root and `cwd`: nothing outside of it can be reached."""
        sub = copy.copy(self)
        sub._root = sub._cwd = self._key(rel_path, "subfs")
        sub._borrowed = True
        return sub

    def open_zip(self, file_path: Path, mode: str = "r", **options: Any) -> FS:
        """The zip file at `file_path` as an FS; options as of `Zip`."""
        return self.open_container(file_path, mode, force_type="zip", **options)

    def open_container(self, path: Path, mode: str = "r", *, force_type: str | None = None, **options: Any) -> FS:
        """Open the container (zip, tar, HDF5) in the file at `path` as an FS; `force_type` overrides the format of its
        suffix.

        `mode` is `r`, `w` (a new file, replacing), `x` (a new file) or `a` (adding to a file, where the format can).
        """
        key = self._key(path, "open_container")
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
    def cwd(self, path: Path) -> None:
        self._cwd = self._key(path, "cwd")

    def url(self, path: Path = "") -> str:
        """The full URL of a path, as `from_url` and `open_url` take it."""
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
        if not self._borrowed:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._borrowed:
            return
        if kind is None:
            self._close()
        else:
            self._abort()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url(self._root)!r})"

    # ---- how it is derived

    @classmethod
    def from_location(cls, authority: str, path: str, **options: Any) -> FS:
        """The FS of a URL's authority and (decoded, absolute) path; options are the keyword-only ones of the class.

        The FS's root is `path`. A backend overrides this where its constructor takes something else.
        """
        return cast(Callable[..., FS], cls)(authority, path, **options)

    def _enters(self, path: str) -> bool:
        return not self._leads_back(self._key(path, "walk"))

    def _glob_from(self, pattern: str, start: int) -> Iterator[str]:
        return itertools.islice(glob(self, pattern), start, None)


def checked_fs(fs: Any, name: str) -> FS:
    """Return `fs`, the argument `name`; a URL or a path in its place is a `TypeError` that says how to open it."""
    if isinstance(fs, str | os.PathLike):
        raise TypeError(f"{name} is an FS, not a URL or a path: fsabs.from_url({str(fs)!r})")
    return cast(FS, fs)
