"""Stats of files and capabilities of filesystems: plain data."""

from __future__ import annotations

import os
import stat as stat_bits
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class FileStat(NamedTuple):
    """The stat of a file or directory: its name, size, times and version."""

    filename: str
    """The name: as listed (a directory's ends in `/`), or the last segment of the path asked for."""
    size: int
    """Bytes; 0 for a directory."""
    directory: bool = False
    last_modified: float | None = None
    """Seconds since 1970 in UTC, or None where the store doesn't tell."""
    mode: int = stat_bits.S_IFREG | 0o644
    """Type and permission bits as in `os.stat_result.st_mode`; typical ones where the store has none."""
    version: str | None = None
    """Distinguishes this content of the path from another (etag; inode, times and size), or None."""
    link: str | None = None
    """Where a symbolic link leads, in the stat of the link itself; else None."""

    def isdir(self) -> bool:
        """Return whether it is a directory."""
        return self.directory

    def isfile(self) -> bool:
        """Return whether it is a file."""
        return not self.directory

    def listed(self) -> str:
        """Return the name as a listing has it, and the key that listings are sorted by."""
        return self.filename + "/" if self.directory else self.filename

    @classmethod
    def of_directory(cls, filename: str, last_modified: float | None = None, mode: int | None = None) -> FileStat:
        """Return the stat of a directory."""
        return cls(filename, 0, True, last_modified, stat_bits.S_IFDIR | 0o755 if mode is None else mode)

    @classmethod
    def of_link(cls, filename: str, link: str) -> FileStat:
        """Return the stat of a symbolic link itself."""
        return cls(filename, len(os.fsencode(link)), False, None, stat_bits.S_IFLNK | 0o777, link=link)


LAST_NAME = "\U0010ffff"
"""Above all names of files."""


class ListPage(NamedTuple):
    """A part of the listing of a tree, which took one request."""

    files: list[FileStat]
    """Of the files in and below a directory, by their paths in it."""
    last: str
    """The path up to which no file is missing; `LAST_NAME` at the end."""


class TreeCounts(NamedTuple):
    """What an operation on a tree has found or done: `usage`, `copy_tree`, `sync_tree`, `pack`, `unpack`, `warm`."""

    files: int = 0
    """Files that were found, written, or fetched into a cache."""
    directories: int = 0
    """Directories that were made. A store with implied directories is given the empty ones alone."""
    bytes: int = 0
    """The sizes of the files, added up."""
    skipped: int = 0
    """Files that were the same at the target already."""
    removed: int = 0
    """Files of the target that were removed."""
    fetched: int = 0
    """Bytes of the files that were not cached."""

    def __repr__(self) -> str:
        """Show what is not 0."""
        return f"TreeCounts({', '.join(f'{name}={count}' for name, count in self._asdict().items() if count)})"


class StoreNotes(NamedTuple):
    """What the command prints of a kind of store, whichever of its stores it is."""

    costs: tuple[str, ...] = ("opening, listing, an epoch: as the store has it; --measure shows it",)
    """What opening, listing and an epoch cost, a line each."""
    permissions: Mapping[str, str] = MappingProxyType({})
    """The store's names of the permissions to `list`, `read` and `write`."""
    records_requests: bool = False
    """Whether each request is a span of the kind `request`, so that requests can be counted."""


class Capabilities(NamedTuple):
    """The operations that an FS supports; others raise `io.UnsupportedOperation`. They select the conformance tests."""

    read: bool = True
    write: bool = False
    """Files can be created (`w`, `x`)."""
    exclusive: bool = False
    """`x` is safe against another process that creates the same file."""
    replace: bool = False
    """`w` may replace an existing file."""
    append: bool = False
    """Mode `a`; such a file is not whole-or-nothing."""
    update: bool = False
    """Mode `r+`; such a file is not whole-or-nothing."""
    mkdir: bool = False
    rename: bool = False
    remove: bool = False
    implied_directories: bool = False
    """A directory is there because a file is below it: a file needs no parent, and takes its directory away with it."""
    last_modified: bool = False
    """Files tell when they were written."""
    settable_times: bool = False
    """A copied file can be given the time of its source."""
    ordered: bool = True
    """`list` gives the names in their order; where False, in any order, and without waiting for the last one."""
    flat_listing: bool = False
    """A directory is listed with all that is below it by requests for as many names as those for one level."""
    versions: bool = False
    """Stats and blobs have a `version`: a reader whose file was replaced raises, or goes on with what it opened."""
    content_versions: bool = False
    """A version is that of a content, or counted: none is made of times, which two contents may share."""
    stat_is_request: bool = False
    """A stat takes a request to a server."""
    links: bool = False
    """It has symbolic links."""
    modes: bool = False
    """A file has permissions, which `FileStat.mode` has and a copy is given."""
    commits: bool = False
    """A change is a commit, and so is `write_many` as a whole. The FS reads the commit of its opening, and after a
    change of its own the one that it has made: what others commit is seen by an FS that is opened then."""
