"""The raw files: a directory at any URL with all that is below it, an archive's members, one file, or a glob pattern.

Listing happens once, where the job is planned. What is sent to workers is a list of roots, which each process opens for
itself, and for each file the number of its root, its path and its size.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..backends.local import Local
from ..core import errors, keys
from ..core.fs import FS
from ..readers.data.files import Files
from ..readers.locate import locate
from ..urls import locations, opening


class InputRoot(NamedTuple):
    """A tree, an archive or a file, as each process opens it."""

    url: str
    """A URL or an absolute path."""
    manifest: str | None = None
    """The URL or path of a manifest, which then has the listing, and which every read is compared with."""

    def open(self) -> Files:
        """Return the files of the root."""
        if self.manifest is None:
            return Files(self.url)
        return Files(opening.from_url(self.url, manifest=self.manifest), owned=True)


class InputFile(NamedTuple):
    """A raw file of a job."""

    root: int
    """The number of the root that it is below."""
    path: str
    """Its path below the root."""
    size: int


class InputListing(NamedTuple):
    """All raw files of a job, sorted by path within each root."""

    roots: tuple[InputRoot, ...]
    files: list[InputFile]
    versions: list[str]
    """For each file, what changes when its content does, as far as the store says."""


def list_files(
    source: str | os.PathLike[str],
    manifest: str | os.PathLike[str] | None = None,
    check: Callable[[FS], None] = lambda fs: None,
) -> InputListing:
    """List the files at a URL, path or glob pattern; those that begin with a dot, or are below such, are left out.

    With a manifest of the data set at a URL, the files are those of the manifest, and the store is not listed.

    A pattern's matches are sorted by name; each is a file, a directory or an archive, whose members are meant.
    `check` is called with each tree before it is listed; what it raises is raised.
    Raises `FileNotFoundError` where there is no file.
    """
    roots: list[InputRoot] = []
    found: list[InputFile] = []
    versions: list[str] = []
    pinned = None if manifest is None else _absolute(os.fspath(manifest))
    for url in _urls(os.fspath(source), pinned):
        root = InputRoot(url, pinned)
        tree = root.open()
        try:
            check(tree.fs)
            for stat in tree.list():
                found.append(InputFile(len(roots), stat.filename, stat.size))
                versions.append(stat.version or f"{stat.last_modified}")
        finally:
            tree.close()
        roots.append(root)
    if not found:
        shown = errors.without_secrets(os.fspath(source))
        raise errors.error(errno.ENOENT, "prepare", shown, "there are no files")
    return InputListing(tuple(roots), found, versions)


def _absolute(source: str) -> str:
    return source if "://" in source else os.path.abspath(source)


def _urls(source: str, manifest: str | None) -> Iterator[str]:
    """Yield the URLs or absolute paths that a URL, path or pattern names."""
    if not source:
        raise ValueError("no raw data directory is given")
    path = _absolute(source)
    if manifest is not None or not keys.has_magic(source) or ("://" not in source and os.path.exists(source)):
        yield path
        return
    fs, pattern = locate(path)
    with fs:
        matches: set[str] = set()
        is_file = functools.cache(fs.isfile)  # as an object may be that has the name of a directory
        for name in fs.glob(pattern):
            if any(part.startswith(".") for part in name.split("/")) or name in matches:
                continue
            if any(above in matches and not is_file(above) for above in keys.ancestors(name)):
                continue  # what lies in a directory that matches is taken with it
            matches.add(name)
        yield from map(fs.url, sorted(matches))  # below a `**`, they come in the order of the disk


class InputRoots:
    """The roots of a job, opened in this process when they are first used."""

    def __init__(self, roots: Sequence[InputRoot]) -> None:
        self._roots = roots
        self._open: dict[int, tuple[Files, str | None]] = {}

    def fs(self, number: int) -> FS:
        """Return the FS of a root."""
        return self._opened(number)[0].fs

    def local_path(self, file: InputFile) -> str | None:
        """Return the path of a file on the local disk; None if it is in another store or in an archive."""
        folder = self._opened(file.root)[1]
        return None if folder is None else os.path.join(folder, file.path)

    def name(self, file: InputFile) -> str:
        """Return the path of a local file, the URL of another."""
        return self.local_path(file) or self.fs(file.root).url(file.path)

    def _opened(self, number: int) -> tuple[Files, str | None]:
        found = self._open.get(number)
        if found is None:
            files = self._roots[number].open()
            folder = locations.parse_without_query(files.fs.url()).path if isinstance(files.fs, Local) else None
            found = self._open[number] = files, folder
        return found

    def close(self) -> None:
        """Close all FS objects."""
        while self._open:
            self._open.popitem()[1][0].close()
