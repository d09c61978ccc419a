"""`fsabs du`: how many bytes and files are below a path."""

from __future__ import annotations

import click

from ..core.stats import TreeCounts
from .entries import is_listed
from .output import size_text
from .paths import ResolvedPath, each_path, path_argument
from .program import Invocation, common


@click.command(context_settings={"help_option_names": ["--help"]})
@path_argument("paths", count=-1, required=False)
@click.option("-h", "--human", is_flag=True, help="Show sizes for people: 1.5 MB.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], human: bool) -> int:
    """Sum up the bytes and the files below each path.

    A container at the end of a path counts as a file; with a / behind it, its members count, with their sizes when
    they are read.

    \b
    Example: fsabs du -h s3://bucket/train.zip/ s3://bucket/val/
    """

    def show(found: ResolvedPath) -> None:
        usage = found.fs.usage(found.path) if is_listed(found) else TreeCounts(1, bytes=found.stat().size)
        counts = {"url": found.url, "files": usage.files, "bytes": usage.bytes}
        shown = size_text(usage.bytes) if human else str(usage.bytes)
        invocation.output.record(counts, f"{shown:>15}  {usage.files:>12,} files  {found.shown}")

    return each_path(invocation, paths or (".",), show)
