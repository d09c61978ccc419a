"""The tree of names that the keys of a bucket are: directories are common prefixes of keys, or empty objects whose keys
end in `/`.

A key that no path names (with an empty, `.` or `..` segment, or text that is not UTF-8) is in no listing, and is left
where it is; a listing warns of those that it has left out.
"""

from __future__ import annotations

import functools
import html
import itertools
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ...core import errors, keys
from ...core.stats import FileStat
from .listing import flat
from .messages import ObjectPage, Text

if TYPE_CHECKING:
    from .dialect import Dialect
    from .store import ObjectStore

T = TypeVar("T")
is_plain = re.compile("[^/.\ud800-\udfff][^/\ud800-\udfff]*(?:/[^/.\ud800-\udfff][^/\ud800-\udfff]*)*").fullmatch
"""Matches most of the names that a path can have, in less time than `keys.is_key` takes."""
_new = functools.partial(tuple.__new__, FileStat)
_MODE = FileStat("", 0).mode


class _LeftOut:
    """The keys that a listing has left out."""

    def __init__(self, fs: ObjectStore, key: str) -> None:
        self._fs = fs
        self._key = key
        self.count = 0
        self.example = ""

    def add(self, key: str) -> None:
        """Count a key."""
        self.count += 1
        self.example = self.example or key

    def warn(self) -> None:
        """Warn of the keys, if there are any."""
        if self.count:
            errors.warn_unnamed(self._fs.dialect.url(self._key), self.count, self.example)

    def error(self) -> OSError | None:
        """Return the error of an operation that has left the keys, if there are any."""
        return errors.unnamed_left(self._fs.dialect.url(self._key), self.count, self.example) if self.count else None


def is_path(name: str) -> bool:
    """Return whether a path can name a key; a directory's may end in `/`."""
    return is_plain(name) is not None or (keys.is_key(name.removesuffix("/")) and keys.is_text(name))


def prefix_of(key: str) -> str:
    """Return what the keys below a directory begin with."""
    return key + "/" if key else ""


def walk(
    fs: ObjectStore, key: str, of_object: Callable[[str, Text], T], of_directory: Callable[[str], T]
) -> Iterator[T | None]:
    """Yield everything below a directory, from a flat listing; a directory is put in where its first key shows it.

    None stands for a key that shows that the directory exists and is nothing in it.
    """
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    above: list[str] = []
    folder, cut = "", len(prefix)
    for page in flat(fs, prefix):
        for entry in page.objects:
            name = page.decode(entry[0])[cut:]
            if not is_plain(name) and not is_path(name):
                if name:
                    left_out.add(prefix + name)
                yield None
                continue
            last = name.rfind("/") + 1
            if name[:last] != folder:
                folder, folders = name[:last], name[:last].split("/")[:-1]
                for depth in range(_shared(above, folders), len(folders)):
                    yield of_directory("/".join(folders[: depth + 1]))
                above = folders
            if last < len(name):
                yield of_object(name, entry)
    left_out.warn()


def level(fs: ObjectStore, key: str, pages: Iterator[ObjectPage]) -> Iterator[FileStat | None]:
    """Yield the members of a directory from the pages of its listing, as `walk` does."""
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    to_stat = stats_of(fs.dialect)
    for page in pages:
        yield from _merged(prefix, page, to_stat, left_out)
    left_out.warn()


def _merged(
    prefix: str, page: ObjectPage, to_stat: Callable[[str, Text], FileStat], left_out: _LeftOut
) -> list[FileStat | None]:
    """Return the members on a page of one level: files and common prefixes, in the order of their names."""
    found: dict[str, FileStat | None] = {}
    cut = len(prefix)
    for entry in page.objects:
        name = page.decode(entry[0])[cut:]
        found[name] = to_stat(name, entry) if is_path(name) else None
    for folder in (*page.prefixes, *(f"{folder}/" for folder in page.folders)):
        name = folder[cut:]
        found[name] = FileStat.of_directory(name[:-1]) if is_path(name) else None
    for name, stat in found.items():
        if name and stat is None:
            left_out.add(prefix + name)
    return [found[name] for name in sorted(found)] if page.prefixes or page.folders else list(found.values())


def unnamed(fs: ObjectStore, key: str) -> Iterator[str]:
    """Yield the keys below a directory that no path names."""
    prefix = prefix_of(key)
    for page in flat(fs, prefix):
        found = page.keys()
        yield from (name for name in found if not is_path(name[len(prefix) :]) and name != prefix)


def named(fs: ObjectStore, key: str) -> Iterator[list[str]]:
    """Yield the keys of a tree that paths name, a page at a time; at the end raises an error if there are others."""
    prefix, left_out = prefix_of(key), _LeftOut(fs, key)
    for page in flat(fs, prefix):
        found = []
        for name in (*page.keys(), *page.folders):
            if name == prefix or is_path(name[len(prefix) :]):
                found.append(name)
            else:
                left_out.add(name)
        yield found
    if (failure := left_out.error()) is not None:
        raise failure


def _shared(one: list[str], other: list[str]) -> int:
    """Return how many folders two paths begin with in common."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def stats_of(dialect: Dialect) -> Callable[[str, Text], FileStat]:
    """Return what makes the stat of an object, under the name that its listing gives it."""
    seconds = dialect.seconds

    def to_stat(name: str, entry: Text) -> FileStat:
        _, written, etag, size = entry
        version = etag[6:-6] if etag[:6] == "&quot;" == etag[-6:] else html.unescape(etag).strip('"')
        stat: FileStat = _new((name, int(size), False, seconds(written), _MODE, version or None))
        return stat

    return to_stat
