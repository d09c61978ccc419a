"""`fsabs find`: the files and directories below a path that have a name, a type, a size or an age."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import click

from . import entries
from .paths import Paths, ResolvedPath, path_argument
from .program import Invocation, common

if TYPE_CHECKING:
    from ..core.stats import FileStat

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SPANS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
Test = Callable[["FileStat"], bool]


@click.command()
@path_argument("paths", count=-1)
@click.option("--name", multiple=True, help="A pattern for the last segment; one of several has to match.")
@click.option("--path", "whole", multiple=True, help="A pattern for the path below PATHS; * matches / too.")
@click.option("--type", "kind", type=click.Choice(["f", "d"]), help="Files or directories only.")
@click.option("--size", help="+1M: larger than 1 MB; -20k: smaller.")
@click.option("--newer", help="Modified since: 2026-01-31, or 12h, 7d ago.")
@click.option("--older", help="Modified before: 2026-01-31, or 12h, 7d ago.")
@click.option("-0", "--print0", is_flag=True, help="End each path by a NUL, for xargs -0.")
@common
def command(
    invocation: Invocation,
    paths: tuple[str, ...],
    name: tuple[str, ...],
    whole: tuple[str, ...],
    kind: str | None,
    size: str | None,
    newer: str | None,
    older: str | None,
    print0: bool,
) -> None:
    """Find files and directories, at any depth below the paths.

    \b
    Example: fsabs find s3://bucket/train/ --name '*.jpg' --size +1M
    """
    tests = _tests(name, whole, kind, size, newer, older)
    output = invocation.output
    with Paths() as resolver:
        for top in resolver.expand_all(paths):
            prefix = top._replace(text=top.shown)
            for stat in entries.stats(top.fs, top.path, recursive=True):
                if not all(test(stat) for test in tests):
                    continue
                if output.json:
                    output.line(json.dumps(entries.values(stat, stat.filename, _url(top, stat.filename))))
                elif print0:
                    sys.stdout.write(prefix.member(stat.filename.removesuffix("/")).text + "\0")
                else:
                    output.line(output.name(prefix.member(stat.filename.removesuffix("/")).text, stat.directory))


def _url(top: ResolvedPath, name: str) -> str:
    return top.fs.url(f"{top.path}/{name}" if top.path else name)


def _tests(
    name: tuple[str, ...],
    whole: tuple[str, ...],
    kind: str | None,
    size: str | None,
    newer: str | None,
    older: str | None,
) -> list[Test]:
    """Return what a stat has to pass."""
    found: list[Test] = []
    if kind:
        found.append(lambda stat: stat.directory == (kind == "d"))
    if name:
        named = _matcher(name)
        found.append(lambda stat: named(stat.filename.rstrip("/").rpartition("/")[2]) is not None)
    if whole:
        placed = _matcher(whole)
        found.append(lambda stat: placed(stat.filename.rstrip("/")) is not None)
    if size:
        above, limit = _limit(size)
        found.append(lambda stat: not stat.directory and (stat.size > limit if above else stat.size < limit))
    if newer:
        since = _moment(newer, "--newer")
        found.append(lambda stat: stat.last_modified is not None and stat.last_modified >= since)
    if older:
        until = _moment(older, "--older")
        found.append(lambda stat: stat.last_modified is not None and stat.last_modified < until)
    return found


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], re.Match[str] | None]:
    import fnmatch

    return re.compile("|".join(fnmatch.translate(pattern) for pattern in patterns)).match


def _limit(text: str) -> tuple[bool, int]:
    match = re.fullmatch(r"([+-])(\d+)([kMGT]?)B?", text)
    if match is None:
        raise click.BadParameter(f"{text!r}: a size is +1M or -20k", param_hint="--size")
    return match[1] == "+", int(match[2]) * _UNITS[match[3]]


def _moment(text: str, option: str) -> float:
    if match := re.fullmatch(r"(\d+)([smhdw])", text):
        return time.time() - int(match[1]) * _SPANS[match[2]]
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except ValueError:
        raise click.BadParameter(f"{text!r}: a date is 2026-01-31, or 12h, 7d ago", param_hint=option) from None
