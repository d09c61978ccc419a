"""`fsabs stat`: what is known of a file or directory without reading it."""

from __future__ import annotations

import stat as stat_bits

import click

from . import entries
from .output import size_text
from .paths import ResolvedPath, each_path, path_argument
from .program import Invocation, common


@click.command()
@path_argument("paths", count=-1)
@common
def command(invocation: Invocation, paths: tuple[str, ...]) -> int:
    """Show what is known of files and directories: type, size, time, mode, version.

    \b
    Example: fsabs stat s3://bucket/train.zip
    """

    def show(found: ResolvedPath) -> None:
        stat = found.stat()
        mode = stat_bits.filemode(stat.mode)
        values = {**entries.values(stat, found.shown, found.url), "mode": mode}
        lines = {
            "url": found.url,
            "type": values["type"],
            "size": "-" if stat.directory else f"{stat.size} ({size_text(stat.size)})",
            "modified": entries.time_column(stat.last_modified),
            "mode": mode,
            "version": stat.version or "-",
        }
        invocation.output.record(values, "\n".join(f"{name + ':':10}{value}" for name, value in lines.items()))

    return each_path(invocation, paths, show)
