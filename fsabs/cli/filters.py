"""`--include` and `--exclude`: which files a command takes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..core import keys

if TYPE_CHECKING:
    from ..core.stats import FileStat


class Filters:
    """Patterns in the order in which they were given: the first that matches a file, or a directory above it, decides.

    What none matches is taken if the last one excludes. A pattern with a `/` is for the whole path below the source,
    others are for a name at any depth; `*` matches `/`, too, and a pattern that ends in `/` directories alone. What is
    in an excluded directory is not looked at.
    """

    def __init__(self, rules: Sequence[tuple[bool, str]]) -> None:
        """Take the rules, as pairs of whether it includes and the pattern."""
        for at, (included, pattern) in enumerate(rules[:-1]):
            if pattern in ("*", "**") and not included:
                after = "--include" if rules[at + 1][0] else "--exclude"
                raise click.UsageError(
                    f"{after} {rules[at + 1][1]!r} never counts behind --exclude {pattern!r}: go first"
                )
        self._rules = [(included, *_parsed(pattern)) for included, pattern in rules]
        self.only_files: bool = bool(rules) and rules[-1][0]
        """Directories are not taken by themselves."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def wants(self, stat: FileStat) -> bool:
        """Return whether a file is taken; of a directory, whether what is in it is looked at."""
        path = stat.filename.rstrip("/")
        taken = not self.only_files or stat.directory
        for part in [*keys.ancestors(path), path]:
            verdict = self._verdict(part, stat.directory or part != path)
            if verdict is False:
                return False
            taken = taken or verdict is True
        return taken

    def _verdict(self, path: str, directory: bool) -> bool | None:
        for included, pattern, whole, only_directories in self._rules:
            if (directory or not only_directories) and pattern.match(path if whole else keys.name(path)):
                return included
        return None


def _parsed(pattern: str) -> tuple[re.Pattern[str], bool, bool]:
    """Return what a path is matched with; whether it is the whole path; and whether it is a directory's."""
    return (
        re.compile(fnmatch.translate(pattern.strip("/"))),
        "/" in pattern.rstrip("/"),
        pattern.endswith("/"),
    )


def ordered(arguments: Sequence[str]) -> list[tuple[bool, str]]:
    """Return the rules that the arguments of a command have, in order."""
    rules = []
    for at, argument in enumerate(arguments):
        if argument == "--":
            break
        name, given, value = argument.partition("=")
        if name in ("--include", "--exclude"):
            rules.append((name == "--include", value if given else arguments[at + 1]))
    return rules
