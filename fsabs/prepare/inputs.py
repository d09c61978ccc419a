"""The raw files: a directory at any URL with all that is below it, an archive's members, one file, or a glob pattern.

Listing happens once, where the job is planned. What is sent to workers is a list of roots, which each process opens for
itself, and for each file the number of its root, its path and its size.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .. import errors, keys, urls
from ..backends.local import Local
from ..fs import FS
from ..readers.data.files import Files
from ..readers.locate import locate


class InputFile(NamedTuple):
    """A raw file of a job."""

    root: int
    """The number of the root that it is below."""
    path: str
    """Its path below the root."""
    size: int


class Listing(NamedTuple):
    """All raw files of a job, sorted by path within each root."""

    roots: tuple[str, ...]
    """URLs or absolute paths, for `Roots`."""
    files: list[InputFile]
    versions: list[str]
    """For each file, what changes when its content does, as far as the store says."""
    urls: tuple[str, ...]
    """The full URLs of the roots."""


def list_files(source: str | os.PathLike[str]) -> Listing:
    """List the files at a URL, path or glob pattern; those that begin with a dot, or are below such, are left out.

    A pattern's matches are taken in their order; each is a file, a directory or an archive, whose members are meant.
    Raises `FileNotFoundError` where there is no file.
    """
    roots: list[str] = []
    found: list[InputFile] = []
    versions: list[str] = []
    full: list[str] = []
    for root in _roots(os.fspath(source)):
        tree = Files(root)
        try:
            for stat in tree.list():
                found.append(InputFile(len(roots), stat.filename, stat.size))
                versions.append(stat.version or f"{stat.last_modified}")
            full.append(tree.fs.url())
        finally:
            tree.close()
        roots.append(root)
    if not found:
        shown = errors.without_secrets(os.fspath(source))
        raise errors.error(errno.ENOENT, "prepare", shown, "there are no files")
    return Listing(tuple(roots), found, versions, tuple(full))


def _roots(source: str) -> Iterator[str]:
    """Yield what a URL, path or pattern names, as URLs or absolute paths."""
    if not source:
        raise ValueError("no raw data directory is given")
    local = "://" not in source
    path = os.path.abspath(source) if local else source
    if not keys.has_magic(source) or (local and os.path.exists(source)):
        yield path
        return
    fs, pattern = locate(path)
    with fs:
        for name in fs.glob(pattern):
            if not any(part.startswith(".") for part in name.split("/")):
                yield fs.url(name)


class Roots:
    """The roots of a job, opened in this process when they are first used."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._roots = roots
        self._open: dict[int, Files] = {}

    def fs(self, number: int) -> FS:
        """Return the FS of a root."""
        if number not in self._open:
            self._open[number] = Files(self._roots[number])
        return self._open[number].fs

    def name(self, file: InputFile) -> str:
        """Return the path of a local file, the URL of another."""
        fs = self.fs(file.root)
        return local_path(fs, file.path) or fs.url(file.path)

    def close(self) -> None:
        """Close all FS objects."""
        while self._open:
            self._open.popitem()[1].close()


def local_path(fs: FS, path: str) -> str | None:
    """Return the path of a file on the local disk; None if it is in another store or in an archive."""
    if not isinstance(fs, Local):
        return None
    return urls.parse(fs.url(path)).path
