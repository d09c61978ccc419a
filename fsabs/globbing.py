"""Glob patterns on an FS, with the meaning of Python's `glob`: built on `list` and `exists` alone.

`*`, `?` and `[seq]` match inside a segment, `**` as a whole segment matches any directories, none included; what
starts with a dot is matched only by a pattern that does. Results come in the order of a listing, each once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import keys

if TYPE_CHECKING:
    from .fs import FS


def glob(fs: FS, pattern: str) -> Iterator[str]:
    """The paths on `fs` that match, written as the pattern is (relative or absolute)."""
    anchor = "/" if pattern.startswith("/") else ""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    only_directories = pattern.endswith("/")
    seen: set[str] = set()
    for path in _match(fs, anchor, parts):
        if path not in seen and not (only_directories and not fs.isdir(path)):
            seen.add(path)
            yield path + "/" if only_directories else path


def _match(fs: FS, base: str, parts: list[str]) -> Iterator[str]:
    literal = 0
    while literal < len(parts) and not keys.has_magic(parts[literal]):
        literal += 1
    if literal:
        base = "/".join([base.rstrip("/"), *parts[:literal]]) if base else "/".join(parts[:literal])
    parts = parts[literal:]
    if not parts:
        if base and fs.exists(base):
            yield base
        return
    if parts[0] == "**":
        yield from _match_any_depth(fs, base, parts[1:])
        return
    matches = keys.segment_matcher(parts[0]).match
    for name, directory in _members(fs, base):
        if matches(name):
            path = _below(base, name)
            if len(parts) == 1:
                yield path
            elif directory:
                yield from _match(fs, path, parts[1:])


def _match_any_depth(fs: FS, base: str, rest: list[str]) -> Iterator[str]:
    if rest:
        yield from _match(fs, base, rest)
    for name, directory in _members(fs, base):
        if name.startswith("."):
            continue
        path = _below(base, name)
        if not rest:
            yield path
        if directory and not fs._leads_back(fs._key(path, "glob")):
            yield from _match_any_depth(fs, path, rest)


def _below(base: str, name: str) -> str:
    return name if not base else f"{base.rstrip('/')}/{name}"


def _members(fs: FS, base: str) -> list[tuple[str, bool]]:
    try:
        return [(name.rstrip("/"), name.endswith("/")) for name in fs.list(base)]
    except (FileNotFoundError, NotADirectoryError):
        return []
