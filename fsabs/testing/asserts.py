"""Assertions of the checks that take more than one line: about contents, errors, and whole trees."""

from __future__ import annotations

import functools
import stat as stat_bits
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import pytest

from ..backends.memory import Memory
from ..core import keys
from ..core.fs import FS, StrPath
from ..core.stats import FileStat
from .subjects import Files
from .trees import directories_of, listing, members, walked

E = TypeVar("E", bound=BaseException)


class Interruption(Exception):
    """What a check raises in a `with` block."""


def assert_same(found: object, expected: object) -> None:
    """Assert that contents, or the contents of trees, are equal; the message has the place of the first difference.

    Whatever is large is compared by this: where CI is set or `-v` is given, pytest shows a difference line by line,
    which takes minutes for a megabyte.
    """
    if found != expected:
        raise AssertionError(_difference(found, expected))


def _difference(found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        key = next(key for key in (*expected, *found) if found.get(key) != expected.get(key))
        return f"{key!r}: {_difference(found.get(key, 'missing'), expected.get(key, 'nothing'))}"
    if isinstance(found, bytes) and isinstance(expected, bytes):
        unequal = (n for n, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other)
        at = next(unequal, min(len(found), len(expected)))
        sizes = f"{len(found)} bytes, expected {len(expected)}"
        return f"{sizes}; at offset {at} there is {found[at : at + 20]!r}, expected {expected[at : at + 20]!r}"
    if isinstance(found, list) and isinstance(expected, list):
        for at, (one, other) in enumerate(zip(found, expected, strict=False)):
            if one != other:
                return f"at index {at}: {_difference(one, other)}"
        return f"{len(found)} items, expected {len(expected)}"
    return f"{found!r:.300}, expected {expected!r:.300}"


def assert_raises(kind: type[E] | tuple[type[E], ...], call: Callable[..., Any], *arguments: Any) -> E:
    """Assert that `call(*arguments)` raises a `kind`; return what was raised."""
    with pytest.raises(kind) as caught:
        call(*arguments)
    return caught.value


def assert_error(
    codes: int | Collection[int], urls: str | Collection[str], call: Callable[..., Any], *arguments: Any
) -> OSError:
    """Assert that `call(*arguments)` raises an `OSError` of an FS that has one of these errnos and URLs; return it."""
    exc = assert_raises(OSError, call, *arguments)
    assert_named(exc)
    assert exc.errno in ({codes} if isinstance(codes, int) else codes)
    assert exc.filename in ({urls} if isinstance(urls, str) else urls)
    return exc


def assert_named(exc: OSError) -> None:
    """Assert that an error of an FS is of Python's or this library's, and has an errno, a URL and an operation."""
    assert type(exc).__module__.partition(".")[0] in ("builtins", "io", "_io", "fsabs")
    assert isinstance(exc.errno, int)
    assert isinstance(exc, type(OSError(exc.errno, "")))
    assert isinstance(exc.filename, str)
    assert isinstance(getattr(exc, "operation", None), str)
    assert exc.filename
    assert exc.operation  # type: ignore[attr-defined]


def operations(fs: FS, path: Any) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield a call of each operation that takes a path, with the capability that it needs; `""` for none."""
    for method in (fs.stat, fs.exists, fs.isdir, fs.isfile, fs.list, fs.url):
        yield "", functools.partial(method, path)
    yield "", lambda: fs.subfs(path).stat("")  # one that is lazy knows only now
    yield "", lambda: list(fs.walk(path))
    yield "", lambda: list(fs.glob(path))
    if isinstance(path, str):
        yield "", lambda: list(fs.glob(path.rstrip("/") + "/*"))
    yield "", lambda: setattr(fs, "cwd", path)
    for mode in ("r", "rb"):
        yield "read", functools.partial(fs.open, path, mode)
    yield "read", lambda: fs.read_bytes(path)
    yield "read", lambda: list(fs.read_many([path]))
    yield "read", lambda: fs.open_zip(path)
    yield "read", lambda: fs.copy(path, "new.txt", Memory())
    for mode in ("w", "wb", "xb"):
        yield "write", functools.partial(fs.open, path, mode)
    yield "write", lambda: fs.write_bytes(path, b"")
    yield "write", lambda: fs.copy(path, "new.txt")
    yield "write", lambda: fs.copy("inside.txt", path)
    for mode in ("a", "ab"):
        yield "append", functools.partial(fs.open, path, mode)
    for mode in ("r+", "r+b"):
        yield "update", functools.partial(fs.open, path, mode)
    yield "mkdir", lambda: fs.mkdir(path)
    yield "mkdir", lambda: fs.makedirs(path, exist_ok=True)
    yield "rename", lambda: fs.rename(path, "new.txt")
    yield "rename", lambda: fs.rename("inside.txt", path)
    yield "remove", lambda: fs.remove(path)
    yield "remove", lambda: fs.remove(path, recursive=True)


# ---- trees: every route to one fact, held against the tree and against each other


def listed(fs: FS, path: StrPath | None = "", recursive: bool = False) -> list[str]:
    """Return what `list` gives, in order: as it comes, or sorted where the FS promises no order."""
    names = list(fs.list(path, recursive))
    return names if fs.capabilities.ordered else sorted(names)


def listed_stats(fs: FS, path: StrPath = "", recursive: bool = False) -> list[FileStat]:
    """Return what `list` gives with `detail`, in order, as `listed` does."""
    stats = list(fs.list(path, recursive, detail=True))
    return stats if fs.capabilities.ordered else sorted(stats)


def assert_tree(fs: FS, files: Files, directories: Iterable[str] = (), base: str = "") -> None:
    """Assert that `fs` has, below its directory `base`, exactly this tree (keys from `base`).

    Lists it in every way, asks about every name in it, and reads every file by every route.
    """
    folders = directories_of(files, directories)
    everything = listing(files, folders)
    assert listed(fs, base, True) == everything
    detailed = listed_stats(fs, base, True)
    assert [stat.filename for stat in detailed] == everything
    for stat in detailed:
        _assert_stat(stat, fs.stat(keys.join(base, stat.filename.rstrip("/"))))
    for folder in ["", *sorted(folders)]:
        _assert_directory(fs, keys.join(base, folder), members(files, folders, folder))
    for name, data in files.items():
        _assert_file(fs, keys.join(base, name), data)
    assert_same(dict(zip(files, fs.read_many([keys.join(base, name) for name in files]), strict=True)), dict(files))
    walk = [(keys.join(base, path), names, others) for path, names, others in walked(files, folders)]
    assert list(fs.walk(base)) == walk
    shown = [name.rstrip("/") for name in everything if "/." not in f"/{name}"]
    assert sorted(fs.glob(f"{base}/**" if base else "**")) == sorted(keys.join(base, name) for name in shown)


def _assert_directory(fs: FS, path: str, names: list[str]) -> None:
    assert listed(fs, path) == listed(fs, path + "/." if path else ".") == names
    assert [stat.filename for stat in listed_stats(fs, path)] == names
    assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (True, True, False)
    stat = fs.stat(path)
    assert (stat.directory, stat.isdir(), stat.isfile(), stat.size) == (True, True, False, 0)
    assert stat.filename == keys.name(path) or not path
    assert stat_bits.S_ISDIR(stat.mode)


def _assert_file(fs: FS, path: str, data: bytes) -> None:
    assert (fs.exists(path), fs.isdir(path), fs.isfile(path)) == (True, False, True)
    stat = fs.stat(path)
    assert (stat.directory, stat.isdir(), stat.isfile(), stat.size) == (False, False, True, len(data))
    assert stat.filename == keys.name(path)
    assert stat_bits.S_ISREG(stat.mode)
    assert_same(fs.read_bytes(path), data)
    with fs.open(path, "rb") as file:
        assert_same(file.read(), data)
        blob = file.raw.blob
        if fs.capabilities.versions:
            assert stat.version is not None
            assert stat.version == blob.version


def _assert_stat(listed: FileStat, asked: FileStat) -> None:
    """Assert that a listing and `stat` say the same of a name."""
    assert isinstance(listed, FileStat)
    assert isinstance(asked, FileStat)
    assert listed.version is None or isinstance(listed.version, str)
    assert listed.filename.endswith("/") == listed.directory == asked.directory
    assert (listed.size, stat_bits.S_IFMT(listed.mode)) == (asked.size, stat_bits.S_IFMT(asked.mode))
    if not listed.directory:
        assert listed.version == asked.version
        if listed.last_modified is not None and asked.last_modified is not None:
            assert abs(listed.last_modified - asked.last_modified) < 1.0
