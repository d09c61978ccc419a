"""The directories of an archive: a sorted table of its names, searched and listed without a scan.

For containers whose entries are a mapping by key, as tar's is; a zip's are rows of a table of its own.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

E = TypeVar("E")


class NameTree(Generic[E]):
    """The entries of an archive by key; immutable once made.

    A file's key is its path without a `/` at either end; a directory's, where the archive itself has an entry for it,
    ends in `/`. Directories that only the names of files tell of are there, too.
    """

    def __init__(self, entries: Mapping[str, E], names: Sequence[str] | None = None) -> None:
        """`names` are the keys, sorted, where the caller has them so already."""
        self.entries = entries
        self._names = sorted(entries) if names is None else names

    def __len__(self) -> int:
        return len(self.entries)

    def file(self, key: str) -> E:
        """The entry of the file `key`; `IsADirectoryError`, `FileNotFoundError`, `NotADirectoryError`."""
        entry = self.entries.get(key)
        if entry is None:
            raise self._no_file(key)
        return entry

    def after(self, key: str) -> Iterator[tuple[str, E]]:
        """Yield the entries whose names come after `key`, in order."""
        for at in range(bisect_left(self._names, key) + 1, len(self._names)):
            yield self._names[at], self.entries[self._names[at]]

    def isdir(self, key: str) -> bool:
        """Return whether `key` is a directory."""
        if not key:
            return True
        at = bisect_left(self._names, key + "/")
        return at < len(self._names) and self._names[at].startswith(key + "/")

    def children(self, key: str) -> Iterator[tuple[str, E | None]]:
        """The members of the directory `key` in order: name (a directory's ends in `/`) and entry, None if implied."""
        if key in self.entries and not self.isdir(key):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not self.isdir(key):
            raise self.missing(key)
        return self._children(key + "/" if key else "")

    def _children(self, prefix: str) -> Iterator[tuple[str, E | None]]:
        names = self._names
        at = bisect_left(names, prefix)
        while at < len(names) and names[at].startswith(prefix):
            name, slash, _ = names[at][len(prefix) :].partition("/")
            if not slash:
                if name:
                    yield name, self.entries[names[at]]
                at += 1
                continue
            yield name + "/", self.entries.get(prefix + name + "/")
            at = bisect_left(names, prefix + name + "0", at)  # "0" follows "/": behind all that is below the directory

    def _no_file(self, key: str) -> OSError:
        if self.isdir(key):
            return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return self.missing(key)

    def missing(self, key: str) -> OSError:
        """The error for a key that is not there: `NotADirectoryError` below a file, else `FileNotFoundError`."""
        parts = key.split("/")
        for at in range(1, len(parts)):
            if "/".join(parts[:at]) in self.entries:
                return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
