"""Directories of the local filesystem, listed as the system has them: in its order, without a `stat` for each name.

Each directory is read as a stream, so that the first entry of a directory of millions comes at once, and the memory
that listing takes doesn't grow with it; one descriptor is open at a time, however deep a tree is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from .. import keys
from ..files import is_partial
from ..limits import Limits, LinkedEntries
from ..stats import FileStat

T = TypeVar("T")


def names(path: str) -> Iterator[str]:
    """Yield the names in the directory `path`; a directory's, and that of a link to one, ends in `/`."""
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if name[0] == "." and is_partial(name):
                continue
            yield name + "/" if entry.is_dir() else name


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


def remove_tree(path: str) -> None:
    """Remove the directory `path` and all that is in it, following no link."""
    try:
        import shutil

        shutil.rmtree(path)
    except RecursionError:  # before Python 3.13: a tree of a thousand levels
        folders = [path]
        for folder in folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        os.unlink(entry.path)
        for folder in reversed(folders):
            os.rmdir(folder)


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
            repeated = linked and entries.enter(_directory_id(f"{path}/{base}"))
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
        waiting += reversed(found)


def _directory_id(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino
