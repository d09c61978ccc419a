"""The checks of `Tar.verify` that the index's own pass doesn't make."""

from __future__ import annotations

import stat as stat_bits
from collections.abc import Iterator

from ...core import keys
from ...core.limits import Limits
from ..problems import Problem
from . import links
from .index import TarIndex


def later_problems(index: TarIndex, limits: Limits) -> Iterator[Problem]:
    """The conflicts of names, and the links that lead nowhere."""
    entries = index.tree.entries
    directories: set[str] = set()
    for name in entries:
        path = keys.parent(name)
        while path and path not in directories:
            directories.add(path)
            path = keys.parent(path)
    for path in sorted(directories):
        if path in entries:
            yield Problem(path, "conflict", "it is a file, and a directory with members, at once")
    for name, member in entries.items() if index.links else ():
        if stat_bits.S_ISLNK(member.mode):
            try:
                links.find(index, name, limits)
            except OSError as exc:
                yield Problem(name, "lost link", f"to {str(member.extra)!r}: {exc.strerror}")
