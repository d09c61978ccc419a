"""`fsabs ls`: the names in directories and containers, as a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from . import entries
from .paths import ResolvedPath, each_path, path_argument
from .program import Invocation, common

if TYPE_CHECKING:
    from ..core.stats import FileStat


@click.command(context_settings={"help_option_names": ["--help"]})
@path_argument("paths", count=-1, required=False)
@click.option("-l", "long", is_flag=True, help="Show size and time of modification.")
@click.option("-R", "recursive", is_flag=True, help="Show what is in directories, too.")
@click.option("-h", "--human", is_flag=True, help="Show sizes for people: 1.5 MB.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], long: bool, recursive: bool, human: bool) -> int:
    """List directories and containers; files are listed as themselves.

    A container at the end of a path is a file; with a / behind it, its members are listed. Directories end in /.

    \b
    Example: fsabs ls -lR s3://bucket/train.zip/images/
    """
    listing = _Listing(invocation, long, recursive, human)
    return each_path(invocation, paths or (".",), lambda found: listing.add(found, heading=len(paths) > 1))


class _Listing:
    """Writes the entries of directories."""

    def __init__(self, invocation: Invocation, long: bool, recursive: bool, human: bool) -> None:
        self._output = invocation.output
        self._long = long
        self._recursive = recursive
        self._human = human
        self._blocks = 0

    def add(self, found: ResolvedPath, heading: bool) -> None:
        """Write a directory, or a file."""
        if not entries.is_listed(found):
            self._blocks += 1
            stat = found.stat()
            if self._output.json:
                self._output.record(entries.values(stat, found.shown, found.url), "")
            else:
                self._output.line(self._text(stat, self._output.name(found.shown)))
            return
        if not (self._long or self._output.json):
            names = entries.names(found.fs, found.path, self._recursive)
            self._begin(found, heading)
            for listed in names:
                self._output.line(self._output.name(listed, listed[-1] == "/"))
            return
        stats = entries.stats(found.fs, found.path, self._recursive)
        self._begin(found, heading)
        for stat in stats:
            if self._output.json:
                url = found.fs.url(f"{found.path}/{stat.filename}" if found.path else stat.filename)
                self._output.line(json.dumps(entries.values(stat, stat.filename, url)))
            else:
                self._output.line(self._text(stat, self._output.name(stat.filename, stat.directory)))

    def _begin(self, found: ResolvedPath, heading: bool) -> None:
        """Write the heading of a directory, which is there."""
        if heading and not self._output.json:
            self._output.line(f"\n{found.shown}:" if self._blocks else f"{found.shown}:")
        self._blocks += 1

    def _text(self, stat: FileStat, shown: str) -> str:
        if not self._long:
            return shown
        size, modified = entries.size_column(stat, self._human), entries.time_column(stat.last_modified)
        return f"{size:>13}  {modified:<19}  {shown}"
