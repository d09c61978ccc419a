"""Glob patterns on an FS, with the meaning of Python's `glob`: built on `list` and `exists` alone.

`*`, `?` and `[seq]` match inside a segment, `**` as a whole segment matches any directories, none included; what
starts with a dot is matched only by a pattern that does. Results come in the order of a listing, each once.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from . import errors, keys
from .limits import LinkedEntries
from .listing import names_of
from .siblings import SiblingListing

if TYPE_CHECKING:
    from .fs import FS

_MAGIC = re.compile("[*?[]")
Deeper = tuple[str, list[str]]
"""A directory, and the parts that are left to be matched there."""


def glob(fs: FS, pattern: str) -> Iterator[str]:
    """Yield the paths on `fs` that match, written as the pattern is (relative or absolute)."""
    anchor = "/" if pattern.startswith("/") else ""
    parts: list[str] = []
    for part in pattern.split("/"):
        if part not in ("", ".") and not (part == "**" and parts[-1:] == ["**"]):
            parts.append(part)
    if fs.limits.beyond("max_pattern_parts", len(parts)):
        reason = fs.limits.reason("max_pattern_parts", f"the pattern has {len(parts)} segments")
        raise errors.error(errno.E2BIG, "glob", fs._url(fs._root), reason)
    paths = _match(fs, anchor, parts)
    if pattern.endswith("/"):
        paths = (path.rstrip("/") + "/" for path in paths if fs._is(fs._key(path, "glob"), directory=True))
    yield from paths


def _match(fs: FS, base: str, parts: list[str]) -> Iterator[str]:
    """Yield the matches of `parts` below `base`, by a stack of steps: a tree may be deeper than Python recurses."""
    listings = _Listings(fs)
    stack = [_step(fs, base, parts, listings)]
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif isinstance(found, tuple):
            base, parts = found
            stack.append(_step(fs, base, parts, listings))
        else:
            yield from found


def _step(fs: FS, base: str, parts: list[str], listings: _Listings) -> Iterator[Iterable[str] | Deeper]:
    """Yield the matches in the directory `base`, and the directories where there may be more."""
    literal = 0
    while literal < len(parts) and not keys.has_magic(parts[literal]):
        literal += 1
    known: bool | None = None
    if literal:
        known = listings.holds(base, parts[:literal])
        base = "/".join([base.rstrip("/"), *parts[:literal]]) if base else "/".join(parts[:literal])
        parts = parts[literal:]
    if not parts:
        if base and (fs._is(fs._key(base, "glob"), directory=None) if known is None else known):
            yield [base]
        return
    rest = parts[1:]
    start = base.rstrip("/") + "/" if base else ""
    if parts[0] != "**":
        matches = keys.segment_matcher(parts[0]).match
        start_of_names = _MAGIC.split(parts[0], maxsplit=1)[0]
        found = [name for name in listings.names(base, start_of_names) if matches(name.removesuffix("/"))]
        if not fs.capabilities.ordered:
            found.sort()
        if rest:
            yield from ((start + name[:-1], rest) for name in found if name[-1] == "/")
        else:
            yield dict.fromkeys(start + name.removesuffix("/") for name in found)
    elif not rest or (len(rest) == 1 and rest[0] != "**"):
        yield _once(fs, _ending(_names(fs, base, recursive=True), start, rest[0] if rest else "*"))
    else:
        yield _once(fs, _matching(_names(fs, base, recursive=True), start, parts))


def _once(fs: FS, paths: Iterator[str]) -> Iterator[str]:
    """Yield each path once: a store of objects may have a file and a directory of one name, a little behind it."""
    if not fs.capabilities.implied_directories:
        yield from paths
        return
    beginnings = [""]  # each path before that the last one begins with
    for path in paths:
        while not path.startswith(beginnings[-1]):
            beginnings.pop()
        if path != beginnings[-1]:
            beginnings.append(path)
            yield path


def _ending(names: Iterator[str], start: str, last: str) -> Iterator[str]:
    """Yield what `**/last` matches of all names below a directory."""
    matches = keys.segment_matcher(last).match
    for name in names:
        path = name.removesuffix("/")
        cut = path.rfind("/") + 1
        if matches(path, cut) and not (cut and (name[0] == "." or "/." in name[:cut])):
            yield start + path


def _matching(names: Iterator[str], start: str, parts: list[str]) -> Iterator[str]:
    """Yield what any `parts` match of all names below a directory: in one pass over the segments of each."""
    any_depth = [part == "**" for part in parts]
    matchers = [keys.segment_matcher("*" if part == "**" else part).match for part in parts]

    def reached(numbers: set[int]) -> set[int]:
        """Add the parts behind each `**`, which may match no segment."""
        for number in sorted(numbers):
            while number < len(parts) and any_depth[number]:
                number += 1
                numbers.add(number)
        return numbers

    for name in names:
        path = name.removesuffix("/")
        before: set[int] = set()
        at = reached({0})
        for segment in path.split("/"):
            before = {number for number in at if number < len(parts) and matchers[number](segment)}
            at = reached({number if any_depth[number] else number + 1 for number in before})
        if len(parts) in at and (not any_depth[-1] or before & {len(parts) - 1}):
            yield start + path


class _Listings:
    """The directories that a glob lists, one level each, counted as `max_linked_entries` has it."""

    def __init__(self, fs: FS) -> None:
        self._fs = fs
        self._siblings = SiblingListing(fs)
        self._entries = LinkedEntries(fs.limits)
        self._known: dict[Hashable, list[str]] = {}  # of directories that several links lead to

    def holds(self, base: str, parts: list[str]) -> bool | None:
        """Return whether a path of `parts` is in a directory; None if that is to be asked for."""
        if ".." in parts or not base.strip("/"):
            return None
        return self._siblings.holds(self._fs._key(base, "glob"), "/".join(parts))

    def names(self, base: str, start: str) -> Iterator[str]:
        """Yield the names in a directory that begin with `start`, or all; none if it is missing, or a file."""
        key = self._fs._key(base, "glob")
        try:
            if (found := self._siblings.names(key)) is not None:
                yield from found
                return
            identity = self._fs._listed_by._directory_identity(key)
            repeated = identity is not None and self._entries.enter(identity)
            if repeated:
                names = self._known[identity] = self._known.get(identity) or list(_names(self._fs, base))
                self._entries.count(repeated, len(names))
                yield from names
                return
            number = 0
            listed = _names(self._fs, base, start=start)
            if self._fs.capabilities.flat_listing:
                listed = self._siblings.checked(listed)
            for name in listed:
                number += 1
                yield name
            self._entries.count(repeated, number)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as exc:
            self._fs._named(exc, "glob", key)
            raise


def _names(fs: FS, base: str, recursive: bool = False, start: str = "") -> Iterator[str]:
    """Yield the names in a directory, at least those that begin with `start`; none if it is missing, or a file."""
    key = fs._key(base, "glob")
    try:
        names = names_of(fs._list(key, False, start)) if start else fs._members(key, recursive, False)
        first = next(names, None)
    except (FileNotFoundError, NotADirectoryError):
        return
    if first is not None:
        yield first
        yield from names
