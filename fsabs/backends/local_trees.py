"""Directories of the local filesystem: listed as the system has them, removed without following a link, and the rules
of symbolic links.

Each directory is read as a stream, in the system's order and without a `stat` for each name, so that the first entry of
a directory of millions comes at once, and the memory that listing takes doesn't grow with it; one descriptor is open at
a time, however deep a tree is.
"""

from __future__ import annotations

import errno
import functools
import os
import stat as stat_bits
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeVar, get_args

from ..core import errors, keys
from ..core.identity import Place
from ..core.limits import Limits, LinkedEntries
from ..core.stats import FileStat
from ..core.writing import is_partial

T = TypeVar("T")
Links = Literal["follow", "inside", "refuse"]
_LINKS: tuple[str, ...] = get_args(Links)


# ---- listing


def names(path: str) -> Iterator[str]:
    """Yield the names in the directory `path`; a directory's, and that of a link to one, ends in `/`."""
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name[0] == "." and is_partial(name):
                continue
            try:
                if entry.is_dir():
                    name += "/"
            except OSError:  # a link that leads to itself, or where nothing can be asked
                pass
            yield name


def stats(path: str, stat_of: Callable[[os.DirEntry[str]], FileStat]) -> Iterator[FileStat]:
    """Yield the stats of what is in the directory `path`."""
    with os.scandir(path) as entries:
        for entry in entries:
            if not is_partial(entry.name):
                yield stat_of(entry)


def walk_names(path: str, limits: Limits) -> Iterator[str]:
    """Yield the names of all that is below the directory `path`, relative to it, a directory before its members."""
    return _walk(path, names, lambda base, name: base + name, lambda name: name.endswith("/"), limits)


def walk_stats(path: str, stat_of: Callable[[os.DirEntry[str]], FileStat], limits: Limits) -> Iterator[FileStat]:
    """Yield the stats of all that is below the directory `path`, with names relative to it."""
    members = functools.partial(stats, stat_of=stat_of)
    return _walk(path, members, _below, FileStat.isdir, limits)


def _below(base: str, stat: FileStat) -> FileStat:
    return stat._replace(filename=base + stat.filename) if base else stat


def leads_back(path: str) -> bool:
    """Return True if `path` is a link to a directory that it lies in: it is listed, and not entered."""
    return os.path.islink(path) and _lies_in_its_target(path)


def _lies_in_its_target(path: str) -> bool:
    try:
        return any(os.path.samefile(path, "/" + above) for above in ("", *keys.ancestors(path[1:])))
    except OSError:  # gone since it was listed
        return False


def _walk(
    path: str,
    members: Callable[[str], Iterator[T]],
    below: Callable[[str, T], T],
    is_directory: Callable[[T], bool],
    limits: Limits,
) -> Iterator[T]:
    entries = LinkedEntries(limits)
    waiting = [("", False)]  # directories to be listed, and whether a link leads to them: each after its own is read
    while waiting:
        base, linked = waiting.pop()
        found: list[tuple[str, bool]] = []
        try:
            repeated = linked and entries.enter(directory_identity(f"{path}/{base}"))
            for member in members(f"{path}/{base}"):
                entries.count(repeated)
                if is_directory(member):
                    name = member.filename + "/" if isinstance(member, FileStat) else str(member)
                    is_link = os.path.islink(f"{path}/{base}{name[:-1]}")
                    if not (is_link and _lies_in_its_target(f"{path}/{base}{name[:-1]}")):
                        found.append((base + name, linked or is_link))
                yield below(base, member)
        except FileNotFoundError:  # a directory that was removed since it was listed
            if not base:
                raise
        except OSError as exc:
            errors.named(exc, "list", "file://" + keys.to_url_path(f"{path}/{base}".rstrip("/")))
            raise
        waiting += reversed(found)


def directory_identity(path: str) -> tuple[int, int]:
    """Return the device and inode of a directory."""
    status = os.stat(path)
    return status.st_dev, status.st_ino


def place(path: str) -> Place:
    """Return what a path leads to: its device and inode; if nothing is there, the path itself."""
    try:
        status = os.stat(path)
    except OSError as exc:
        if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
            raise
        return Place("file", None, os.path.realpath(path))
    return Place("file", status.st_dev, status.st_ino)


# ---- removing


def remove_tree(path: str) -> None:
    """Remove the directory `path` and all that is in it, following no link; a link is removed as itself.

    What can't be removed stays, with the directories that it is in: the rest is removed, and the first error is raised.
    """
    if not stat_bits.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    _TreeRemoval(path).run()


class _Folder(NamedTuple):
    """A directory whose removal has begun."""

    name: str
    status: os.stat_result
    folders: list[str]
    """Its directories that are still there."""


class _TreeRemoval:
    """The removal of a tree by descriptors: each name is removed from the open directory that it was found in, so that
    no directory that is moved or replaced by a link meanwhile leads out of the tree.

    One descriptor is open, however deep the tree is: the way back is `..`, compared with the directory that was left.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        self._open: list[_Folder] = []
        self._failures: list[OSError] = []

    def run(self) -> None:
        """Remove it; raise the first error."""
        try:
            self._enter(self._path, None)
            while self._open:
                folders = self._open[-1].folders
                if folders:
                    self._enter(folders.pop(), self._fd)
                else:
                    self._leave()
        finally:
            self._replace(-1)
        if self._failures:
            raise self._failures[0]

    def _replace(self, fd: int) -> None:
        before, self._fd = self._fd, fd
        if before >= 0:
            os.close(before)

    def _enter(self, name: str, above: int | None) -> None:
        """Remove the files of a directory, and begin with its directories."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        except OSError as exc:
            if isinstance(exc, FileNotFoundError):  # another process was faster
                return
            try:
                os.rmdir(name, dir_fd=above)  # as one may whose directory is empty
            except OSError:
                self._failed(exc, name)
            return
        self._replace(fd)
        self._open.append(_Folder(name, os.fstat(fd), []))
        try:
            with os.scandir(fd) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as exc:
            self._failed(exc)
            return
        for member, is_directory in found:
            if is_directory:
                self._open[-1].folders.append(member)
            else:
                self._remove(os.unlink, member, fd)

    def _leave(self) -> None:
        """Remove the directory that is open, and go back to the one above it."""
        folder = self._open.pop()
        if not self._open:
            self._remove(os.rmdir, folder.name, None)
            return
        fd = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        self._replace(fd)
        if not os.path.samestat(os.fstat(fd), self._open[-1].status):
            raise OSError(errno.ESTALE, "a directory was moved while it was removed")
        self._remove(os.rmdir, folder.name, fd)

    def _remove(self, function: Callable[..., None], name: str, above: int | None) -> None:
        try:
            function(name, dir_fd=above)
        except FileNotFoundError:  # another process was faster
            pass
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST) or not self._failures:
                self._failed(exc, name)

    def _failed(self, exc: OSError, *names: str) -> None:
        path = os.path.join(*(folder.name for folder in self._open), *names)
        self._failures.append(errors.named(exc, "remove", "file://" + keys.to_url_path(path)))


# ---- links
#
# A path is checked before it is used. That keeps a tree's links from leading a program astray; against another process
# that changes the tree at the same moment it is no sandbox.


def parsed_links(links: str) -> str:
    """Return the option, checked."""
    if links not in _LINKS:
        raise ValueError(f"links must be one of {', '.join(map(repr, _LINKS))}, not {links!r}")
    return links


def check_links(key: str, root: str, links: str, last: bool = True) -> None:
    """Raise a `PermissionError` if a link on the way to `key`, which lies in `root`, may not be followed.

    The last segment counts only if `last` is set: a link itself may be removed and renamed.
    """
    path = "/" + (key if last or key == root else keys.parent(key))
    if not _may_follow(path, "/" + root, links):
        led = "a link leads out of this FS's root" if links == "inside" else "a link is on the way"
        raise PermissionError(errno.EACCES, f"{led}, and links={links!r}")


def _may_follow(path: str, root: str, links: str) -> bool:
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    if links == "refuse":
        return real == os.path.normpath(os.path.join(real_root, os.path.relpath(path, root)))
    return keys.inside(real[1:], real_root[1:])


def shown(stat: FileStat, folder: str, root: str, links: str) -> FileStat:
    """Return an entry of a listing of `folder`: a link that is not followed is shown as itself."""
    path = os.path.join(folder, stat.filename)
    if not os.path.islink(path) or _may_follow(path, root, links):
        return stat
    status = os.lstat(path)
    return FileStat(stat.filename, status.st_size, False, status.st_mtime, status.st_mode)
