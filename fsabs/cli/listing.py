"""`fsabs ls`, `du`, `stat` and `find`: what there is, in order; as lines, or as JSON objects."""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import re
import stat as stat_bits
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ..core.stats import TreeCounts
from .output import CommandOutput, size_text
from .paths import PATHS, Paths, ResolvedPath, each_path, path_argument
from .program import Invocation, argument, command, flag

if TYPE_CHECKING:
    from ..core.fs import FS
    from ..core.stats import FileStat

T = TypeVar("T")

SORTED = 10_000
"""Entries that are sorted where a store gives them in no order; of more, the first ones would have to wait."""


def listed_names(fs: FS, path: str, recursive: bool = False) -> Iterator[str]:
    """Yield the names in a directory, in order, a directory's with a `/` at its end."""
    return _in_order(fs, fs.list(path, recursive), str)


def listed_stats(fs: FS, path: str, recursive: bool = False) -> Iterator[FileStat]:
    """Yield the stats in a directory, in the order of their names."""
    return _in_order(fs, fs.list(path, recursive, detail=True), lambda stat: stat.filename)


def _in_order(fs: FS, items: Iterator[T], key: Callable[[T], str]) -> Iterator[T]:
    if fs.capabilities.ordered:
        return items
    first = list(itertools.islice(items, SORTED + 1))
    if len(first) <= SORTED:
        first.sort(key=key)
    return itertools.chain(first, items)


def size_column(stat: FileStat, human: bool) -> str:
    """Return a file's size, readable or in bytes; `-` for a directory."""
    if stat.directory:
        return "-"
    return size_text(stat.size) if human else str(stat.size)


def time_column(when: float | None) -> str:
    """Return a time in the local zone; `-` if there is none, or none that a clock shows, as archives may have them."""
    try:
        return "-" if when is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    except (OSError, OverflowError, ValueError):
        return "-"


def iso(when: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC; None if there is none, or none from the years 1 to 9999."""
    try:
        return None if when is None else datetime.fromtimestamp(when, UTC).isoformat().replace("+00:00", "Z")
    except (OSError, OverflowError, ValueError):
        return None


def stat_values(stat: FileStat, name: str, url: str) -> dict[str, Any]:
    """Return a file or directory as an object of `--json`."""
    return {
        "name": name,
        "url": url,
        "type": "directory" if stat.directory else "file",
        "size": None if stat.directory else stat.size,
        "modified": iso(stat.last_modified),
        "version": stat.version,
    }


def write_entry(output: CommandOutput, directory: ResolvedPath, stat: FileStat, text: str) -> None:
    """Write a line of a long listing: an entry of a directory as `text`, or as an object of `--json`."""
    if output.json:
        text = json.dumps(stat_values(stat, stat.filename, directory.member(stat.filename).url))
    output.line(text)


def is_listed(found: ResolvedPath) -> bool:
    """Return True if a path names a directory or the members of a container; `FileNotFoundError` if nothing is there.

    A file that is written with a `/` at its end is a `NotADirectoryError`, when it is listed.
    """
    return found.contents or found.stat().directory


_PLACES = path_argument("paths", "*", default=["."], help="By default, the working directory.")
_HUMAN = flag("-h", "--human", help="Show sizes for people: 1.5 MB.")


@command(
    _PLACES,
    flag("-l", dest="long", help="Show size and time of modification."),
    flag("-R", dest="recursive", help="Show what is in directories, too."),
    _HUMAN,
)
def ls(invocation: Invocation, given: Namespace) -> int:
    """List directories and containers; files are listed as themselves.

    A container at the end of a path is a file; with a / behind it, its members are listed. Directories end in /.

    Example: fsabs ls -lR s3://bucket/train.zip/images/
    """
    output, heading, blocks = invocation.output, len(given.paths) > 1, 0

    def text(stat: FileStat, name: str) -> str:
        shown = output.name(name, stat.directory)
        if not given.long:
            return shown
        return f"{size_column(stat, given.human):>13}  {time_column(stat.last_modified):<19}  {shown}"

    def show(found: ResolvedPath) -> None:
        nonlocal blocks
        if not is_listed(found):
            blocks += 1
            stat = found.stat()
            output.record(stat_values(stat, found.shown, found.url), text(stat, found.shown))
            return
        detail = given.long or output.json
        stats = listed_stats(found.fs, found.path, given.recursive) if detail else ()
        names = () if detail else listed_names(found.fs, found.path, given.recursive)
        if heading and not output.json:  # the directory is there
            output.line(f"\n{found.shown}:" if blocks else f"{found.shown}:")
        blocks += 1
        for name in names:
            output.line(output.name(name, name[-1] == "/"))
        for stat in stats:
            write_entry(output, found, stat, text(stat, stat.filename))

    return each_path(invocation, given.paths, show)


@command(_PLACES, _HUMAN)
def du(invocation: Invocation, given: Namespace) -> int:
    """Sum up the bytes and the files below each path.

    A container at the end of a path counts as a file; with a / behind it, its members count, with their sizes when
    they are read.

    Example: fsabs du -h s3://bucket/train.zip/ s3://bucket/val/
    """

    def show(found: ResolvedPath) -> None:
        usage = found.fs.usage(found.path) if is_listed(found) else TreeCounts(1, bytes=found.stat().size)
        counts = {"url": found.url, "files": usage.files, "bytes": usage.bytes}
        shown = size_text(usage.bytes) if given.human else str(usage.bytes)
        invocation.output.record(counts, f"{shown:>15}  {usage.files:>12,} files  {found.shown}")

    return each_path(invocation, given.paths, show)


@command(PATHS)
def stat(invocation: Invocation, given: Namespace) -> int:
    """Show what is known of files and directories: type, size, time, mode, version.

    Example: fsabs stat s3://bucket/train.zip
    """

    def show(found: ResolvedPath) -> None:
        stat = found.stat()
        mode = stat_bits.filemode(stat.mode)
        values = {**stat_values(stat, found.shown, found.url), "mode": mode}
        lines = {
            "url": found.url,
            "type": values["type"],
            "size": "-" if stat.directory else f"{stat.size} ({size_text(stat.size)})",
            "modified": time_column(stat.last_modified),
            "mode": mode,
            "version": stat.version or "-",
        }
        invocation.output.record(values, "\n".join(f"{name + ':':10}{value}" for name, value in lines.items()))

    return each_path(invocation, given.paths, show)


_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def _pattern(patterns: list[str]) -> re.Pattern[str]:
    """Return an expression that matches any of some patterns."""
    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns))


def _limit(text: str) -> tuple[bool, int]:
    """Return True if a limit is a lower bound, and the limit."""
    match = re.fullmatch(r"([+-])(\d+)([kMGT]?)B?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r}: a size is +1M or -20k")
    return match[1] == "+", int(match[2]) * _UNITS[match[3]]


def _moment(text: str) -> float:
    """Return a date, or so long ago, as a time."""
    if match := re.fullmatch(r"(\d+)([smhdw])", text):
        return time.time() - int(match[1]) * _SPANS[match[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: a date is 2026-01-31, or 12h, 7d ago") from None


@command(
    PATHS,
    argument("--name", action="append", help="A pattern for the last segment; one of several has to match."),
    argument("--path", action="append", help="A pattern for the path below PATHS; * matches / too."),
    argument("--type", choices=["f", "d"], help="Files or directories only."),
    argument("--size", type=_limit, help="+1M: larger than 1 MB; -20k: smaller."),
    argument("--newer", type=_moment, help="Modified since: 2026-01-31, or 12h, 7d ago."),
    argument("--older", type=_moment, help="Modified before: 2026-01-31, or 12h, 7d ago."),
    flag("-0", "--print0", help="End each path by a NUL, for xargs -0."),
)
def find(invocation: Invocation, given: Namespace) -> None:
    """Find files and directories, at any depth below the paths.

    Example: fsabs find s3://bucket/train/ --name '*.jpg' --size +1M
    """
    tests = list(_tests(given))
    output = invocation.output
    with Paths() as resolver:
        for top in resolver.expand_all(given.paths):
            prefix = top._replace(text=top.shown)
            for stat in listed_stats(top.fs, top.path, recursive=True):
                if not all(test(stat) for test in tests):
                    continue
                name = prefix.member(stat.filename.removesuffix("/")).text
                if given.print0 and not output.json:
                    sys.stdout.write(name + "\0")
                else:
                    write_entry(output, top, stat, output.name(name, stat.directory))


def _tests(given: Namespace) -> Iterator[Callable[[FileStat], bool]]:
    """Yield the tests that a stat has to pass."""
    if given.type:
        yield lambda stat: stat.directory == (given.type == "d")
    if given.name:
        names = _pattern(given.name)
        yield lambda stat: names.match(stat.filename.rstrip("/").rpartition("/")[2]) is not None
    if given.path:
        paths = _pattern(given.path)
        yield lambda stat: paths.match(stat.filename.rstrip("/")) is not None
    if given.size:
        above, limit = given.size
        yield lambda stat: not stat.directory and (stat.size > limit if above else stat.size < limit)
    if given.newer:
        yield lambda stat: stat.last_modified is not None and stat.last_modified >= given.newer
    if given.older:
        yield lambda stat: stat.last_modified is not None and stat.last_modified < given.older
