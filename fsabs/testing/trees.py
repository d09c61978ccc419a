"""Trees of files for the checks, and what follows from one: its directories, its listings, its walk."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ..core import keys
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
