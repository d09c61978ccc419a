"""Trees of files for the checks, and what follows from one: its directories, its listings, its walk."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from ..core import keys
from ..core.files import FIRST_WINDOW
from .subject import Subject

Files = Mapping[str, bytes]

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

EMPTY = "void"
"""An empty directory beside `TREE`, where a store can have one."""

SIZES = (0, 1, FIRST_WINDOW - 1, FIRST_WINDOW, FIRST_WINDOW + 1, (1 << 20) + 7)
"""Sizes of files about the size of a buffer."""


def noise(size: int, seed: int = 0) -> bytes:
    """`size` bytes that repeat nowhere, always the same ones; about every 256th is a newline."""
    return random.Random(size * 31 + seed).randbytes(size)


def sized() -> dict[str, bytes]:
    """A file of each of `SIZES`."""
    return {f"{size}.bin": noise(size) for size in SIZES}


def empty_directories(subject: Subject) -> list[str]:
    """The directories to add to `TREE`, for what the subject's store can have."""
    capabilities = subject.capabilities
    return [EMPTY] if capabilities.mkdir or not capabilities.implied_directories else []


def directories_of(files: Iterable[str], directories: Iterable[str] = ()) -> set[str]:
    """The keys of all directories of a tree, but for its root."""
    above = {ancestor for key in [*files, *directories] for ancestor in keys.ancestors(key)}
    return above | set(directories)


def below(names: Iterable[str], base: str) -> list[str]:
    """Those of `names` that lie below the key `base`, relative to it."""
    return [keys.relative(name, base) for name in names if name != base and keys.inside(name, base)]


def listing(files: Iterable[str], directories: Iterable[str] = (), base: str = "") -> list[str]:
    """Return the recursive listing of `base`: every name below it, those of directories with their `/`."""
    files = list(files)
    names = [*below(files, base), *(name + "/" for name in below(directories_of(files, directories), base))]
    return sorted(names)


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
