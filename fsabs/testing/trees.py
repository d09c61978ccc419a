"""Trees of files for the checks, and what follows from one: its directories, its listings, its walk; and `Reference`, a
tree as a plain dictionary: what every FS should do, said in the simplest way that there is.
"""

from __future__ import annotations

import errno
import fnmatch
import random
from collections.abc import Iterable, Iterator

from ..core import keys
from ..core.fs import Capabilities
from .subjects import Files, Subject

TREE: dict[str, bytes] = {
    ".hidden": b"a name with a dot in front",
    ".hidden-dir/inside.txt": b"inside a hidden directory",
    "Z.txt": b"upper case sorts first",
    "a.txt": b"first line\nsecond line\r\nthird line",
    "empty.bin": b"",
    "foo-bar/x.txt": b"in a directory whose name starts with another's",
    "foo.txt": b"beside a directory of that name",
    "foo/deep/er/leaf.bin": bytes(range(256)) * 16,
    "foo/deep/second.txt": b"2",
    "foo/inside.txt": b"inside",
    "foo0": b"sorts after foo/",
    "numbers/10.txt": b"10",
    "numbers/9.txt": b"9",
}
"""A small tree of names that are easily got wrong: siblings that start alike, hidden ones, all levels of depth."""


def noise(size: int, seed: int = 0) -> bytes:
    """Return `size` bytes that repeat nowhere, always the same ones; about every 256th is a newline."""
    return random.Random(size * 31 + seed).randbytes(size)


def inside(files: Files, base: str) -> dict[str, bytes]:
    """Return the files below the directory `base`, by their keys from there."""
    return {keys.relative(key, base): data for key, data in files.items() if keys.inside(key, base)}


def empty_directories(subject: Subject) -> list[str]:
    """Return an empty directory to have beside `TREE`, if the subject's store can have one."""
    capabilities = subject.capabilities
    return ["void"] if capabilities.mkdir or not capabilities.implied_directories else []


def directories_of(files: Iterable[str], directories: Iterable[str] = ()) -> set[str]:
    """Return the keys of all directories of a tree, but for its root."""
    above = {ancestor for key in [*files, *directories] for ancestor in keys.ancestors(key)}
    return above | set(directories)


def listing(files: Iterable[str], directories: Iterable[str] = (), base: str = "") -> list[str]:
    """Return the recursive listing of `base`: every name below it, those of directories with their `/`."""
    files = list(files)
    names = [*files, *(f"{directory}/" for directory in directories_of(files, directories))]
    return sorted(keys.relative(name, base) for name in names if keys.inside(name, base) and name.rstrip("/") != base)


def members(files: Iterable[str], directories: Iterable[str] = (), base: str = "") -> list[str]:
    """Return the plain listing of `base`."""
    return [name for name in listing(files, directories, base) if "/" not in name[:-1]]


def walked(
    files: Iterable[str], directories: Iterable[str] = (), base: str = ""
) -> list[tuple[str, list[str], list[str]]]:
    """Return the walk from `base`."""
    files, directories = list(files), list(directories)
    found = members(files, directories, base)
    folders = [name[:-1] for name in found if name.endswith("/")]
    here = (base, folders, [name for name in found if not name.endswith("/")])
    deeper = [entry for folder in folders for entry in walked(files, directories, keys.join(base, folder))]
    return [here, *deeper]


class Reference:
    """Files by key, and directories; each operation tells the errnos that it may fail with, or is done.

    A failure may have several causes at once, of which a store finds one; so `problems` are sets.
    """

    def __init__(self, capabilities: Capabilities) -> None:
        self.files: dict[str, bytes] = {}
        self.made: set[str] = set()
        self._capabilities = capabilities

    # ---- what is there

    def directories(self) -> set[str]:
        """Return all directories but the root."""
        return directories_of(self.files, self.made)

    def isdir(self, key: str) -> bool:
        """Return whether there is a directory."""
        return not key or key in self.directories()

    def listed(self, key: str) -> list[str]:
        """Return the recursive listing of a directory."""
        return listing(self.files, self.made, key)

    def glob(self, pattern: str) -> set[str]:
        """Return the paths that match a pattern."""
        return {
            path.rstrip("/") for path in self.listed("") if _matches(path.rstrip("/").split("/"), pattern.split("/"))
        }

    # ---- what would be wrong

    def absent(self, key: str) -> set[int]:
        """Return the errnos that a missing path may raise; empty if the path exists."""
        return set() if key in self.files or self.isdir(key) else self._above(key) or {errno.ENOENT}

    def unreadable(self, key: str) -> set[int]:
        """Return the errnos that reading the path may raise; empty if it is a file."""
        return {errno.EISDIR} if self.isdir(key) else self.absent(key)

    def unlistable(self, key: str) -> set[int]:
        """Return the errnos that listing the path may raise; empty if it is a directory."""
        return {errno.ENOTDIR} if key in self.files else self.absent(key)

    def unwritable(self, key: str, mode: str = "w") -> set[int]:
        """Return the errnos that writing a file may raise; empty if it succeeds."""
        if self.isdir(key):
            return {errno.EISDIR, errno.EEXIST} if mode == "x" else {errno.EISDIR}
        if key in self.files and (mode == "x" or (mode == "w" and not self._capabilities.replace)):
            return {errno.EEXIST}
        return self._above(key)

    def unmakable(self, key: str) -> set[int]:
        """Return the errnos that making a directory may raise; empty if it succeeds."""
        return {errno.EEXIST} if key in self.files or self.isdir(key) else self._above(key)

    def unmovable(self, src: str, dst: str) -> set[int]:
        """Return the errnos that a rename may raise; empty if it succeeds."""
        problems = self.absent(src)
        if src == dst:
            return problems
        if keys.inside(dst, src):
            problems |= {errno.EINVAL}
        problems |= self._above(dst)
        if self.isdir(dst) and src in self.files:
            problems |= {errno.EISDIR}
        if dst in self.files and self.isdir(src):
            problems |= {errno.ENOTDIR}
        if self.isdir(dst) and self.listed(dst) and (self.isdir(src) or keys.inside(src, dst)):
            problems |= {errno.ENOTEMPTY, errno.EEXIST}  # Linux says so of a file in the directory, too
        return problems

    def _above(self, key: str) -> set[int]:
        """Return the errnos that the directories above a path may cause; empty if they are fine."""
        for ancestor in keys.ancestors(key):
            if ancestor in self.files:
                return {errno.ENOTDIR}
            if not self.isdir(ancestor):
                return set() if self._capabilities.implied_directories else {errno.ENOENT}
        return set()

    # ---- what is done

    def write(self, key: str, data: bytes) -> None:
        """Make `data` the content of a file."""
        self.files[key] = data
        self._keep(key)

    def make(self, key: str) -> None:
        """Make a directory, and those above it."""
        self.made |= {key, *keys.ancestors(key)}

    def move(self, src: str, dst: str) -> None:
        """Rename a file or a directory."""
        if src == dst:
            return
        self.files = {_moved(key, src, dst): data for key, data in self.files.items() if key != dst}
        self.made = {_moved(key, src, dst) for key in self.made}
        self._keep(dst)

    def remove(self, key: str) -> None:
        """Remove a file or a tree."""
        self.files = {name: data for name, data in self.files.items() if not keys.inside(name, key)}
        self.made = {name for name in self.made if not keys.inside(name, key)}

    def _keep(self, key: str) -> None:
        """Keep the directories above a removed file, if directories are real."""
        if not self._capabilities.implied_directories:
            self.made |= set(keys.ancestors(key))


def _moved(key: str, src: str, dst: str) -> str:
    return keys.join(dst, keys.relative(key, src)) if keys.inside(key, src) else key


def _matches(path: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern == ["**"]:
        return bool(path)  # what is below a directory, and not the directory itself
    if pattern[0] == "**":
        return any(_matches(path[at:], pattern[1:]) for at in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], pattern[0]) and _matches(path[1:], pattern[1:])


def paths_of(names: tuple[str, ...], depth: int) -> Iterator[str]:
    """Yield all paths of up to `depth` of `names`."""
    for name in names:
        yield name
        if depth > 1:
            yield from (f"{name}/{rest}" for rest in paths_of(names, depth - 1))
