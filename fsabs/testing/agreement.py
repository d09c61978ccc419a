"""Every route to one fact: an FS's answers about a tree, held against the tree and against each other."""

from __future__ import annotations

import stat as stat_bits
from collections.abc import Iterable

from ..core import keys
from ..core.fs import FS, FileStat, Path
from . import expect
from .trees import Files, below, directories_of, listing, members, walked


def check_tree(fs: FS, files: Files, directories: Iterable[str] = (), base: str = "") -> None:
    """Hold `fs` to having, below its directory `base`, exactly this tree (keys from `base`); `AssertionError`.

    Lists it in every way, asks about every name in it, and reads every file by every route.
    """
    folders = directories_of(files, directories)
    _check_listings(fs, files, folders, base)
    for folder in ["", *sorted(folders)]:
        _check_directory(fs, keys.join(base, folder), members(files, folders, folder))
    for name, data in files.items():
        _check_file(fs, keys.join(base, name), data)
    paths = [keys.join(base, name) for name in files]
    found = dict(zip(files, fs.read_many(paths), strict=True))
    expect.equal(found, dict(files), f"read_many of all files below {base!r}")
    _check_walk(fs, files, folders, base)


def listed(fs: FS, path: Path | None = "", recursive: bool = False) -> list[str]:
    """Return what `list` gives, in order: as it comes, or sorted where the FS promises no order."""
    names = list(fs.list(path, recursive))
    return names if fs.capabilities.ordered else sorted(names)


def listed_stats(fs: FS, path: Path = "", recursive: bool = False) -> list[FileStat]:
    """Return what `list` gives with `detail`, in order, as `listed` does."""
    stats = list(fs.list(path, recursive, detail=True))
    return stats if fs.capabilities.ordered else sorted(stats)


def _check_listings(fs: FS, files: Files, folders: Iterable[str], base: str) -> None:
    everything = listing(files, folders, base="")
    expect.equal(listed(fs, base, True), everything, f"list({base!r}, recursive=True)")
    detailed = listed_stats(fs, base, True)
    expect.equal([stat.filename for stat in detailed], everything, f"list({base!r}, recursive=True, detail=True)")
    for stat in detailed:
        check_stat(stat, fs.stat(keys.join(base, stat.filename.rstrip("/"))))


def _check_directory(fs: FS, path: str, names: list[str]) -> None:
    expect.equal(listed(fs, path), names, f"list({path!r})")
    expect.equal(listed(fs, path + "/." if path else "."), names, f"list of {path!r}, spelt otherwise")
    expect.equal([stat.filename for stat in listed_stats(fs, path)], names, f"list({path!r}, detail=True)")
    asked = (fs.exists(path), fs.isdir(path), fs.isfile(path))
    expect.equal(asked, (True, True, False), f"exists, isdir and isfile of the directory {path!r}")
    stat = fs.stat(path)
    expect.equal((stat.directory, stat.isdir(), stat.isfile(), stat.size), (True, True, False, 0), f"stat({path!r})")
    if path:
        expect.equal(stat.filename, keys.name(path), f"stat({path!r}).filename")
    expect.true(stat_bits.S_ISDIR(stat.mode), f"stat({path!r}).mode is {stat.mode:o}, which is no directory's")


def _check_file(fs: FS, path: str, data: bytes) -> None:
    asked = (fs.exists(path), fs.isdir(path), fs.isfile(path))
    expect.equal(asked, (True, False, True), f"exists, isdir and isfile of the file {path!r}")
    stat = fs.stat(path)
    expect.equal((stat.directory, stat.isdir(), stat.isfile()), (False, False, True), f"stat({path!r})")
    expect.equal(stat.filename, keys.name(path), f"stat({path!r}).filename")
    expect.equal(stat.size, len(data), f"stat({path!r}).size")
    expect.true(stat_bits.S_ISREG(stat.mode), f"stat({path!r}).mode is {stat.mode:o}, which is no file's")
    expect.equal(fs.read_bytes(path), data, f"read_bytes({path!r})")
    with fs.open(path, "rb") as file:
        expect.equal(file.read(), data, f"open({path!r}).read()")
        blob = getattr(file.raw, "blob", None)
        expect.true(blob is not None, f"open({path!r}, 'rb') has no blob to read by position")
        if fs.capabilities.versions:
            expect.true(stat.version is not None, f"`versions` is declared, and stat({path!r}).version is None")
            expect.equal(blob and blob.version, stat.version, f"the version of the blob and the stat of {path!r}")


def check_stat(listed: FileStat, asked: FileStat) -> None:
    """Hold what a listing tells of a name to what `stat` tells."""
    name = listed.filename
    expect.equal(listed.filename.endswith("/"), listed.directory, f"whether {name!r} is listed as a directory")
    expect.equal(asked.directory, listed.directory, f"whether stat says that {name!r} is a directory")
    expect.equal(listed.size, asked.size, f"the size of {name!r}, listed and asked for")
    expect.equal(stat_bits.S_IFMT(listed.mode), stat_bits.S_IFMT(asked.mode), f"the kind of {name!r} by its mode")
    if not listed.directory:
        expect.equal(listed.version, asked.version, f"the version of {name!r}, listed and asked for")
        if listed.last_modified is not None and asked.last_modified is not None:
            apart = abs(listed.last_modified - asked.last_modified)
            expect.true(apart < 1.0, f"the times of {name!r}, listed and asked for, are {apart} s apart")


def _check_walk(fs: FS, files: Files, folders: Iterable[str], base: str) -> None:
    expected = [(keys.join(base, path), names, others) for path, names, others in walked(files, folders)]
    expect.equal(list(fs.walk(base)), expected, f"walk({base!r})")
    found = sorted(fs.glob(f"{base}/**" if base else "**"))
    visible = [name for name in below(listing(files, folders), "") if not _hidden(name)]
    expect.equal(found, sorted(keys.join(base, name.rstrip("/")) for name in visible), f"glob of all below {base!r}")


def _hidden(name: str) -> bool:
    return any(part.startswith(".") for part in name.split("/"))
