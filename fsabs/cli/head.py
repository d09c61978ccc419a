"""`fsabs head`: the first lines or bytes of files."""

from __future__ import annotations

import click

from .content import write_each, write_first
from .paths import path_argument
from .program import Invocation, common


@click.command()
@path_argument("paths", count=-1)
@click.option("-n", "--lines", type=click.IntRange(min=0), default=10, show_default=True, help="How many lines.")
@click.option("-c", "--bytes", "size", type=click.IntRange(min=0), help="How many bytes, in place of lines.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], lines: int, size: int | None) -> int:
    """Write the first lines of files to the standard output; only what is needed is read.

    \b
    Example: fsabs head -n 5 s3://bucket/train.zip/labels.csv
    """
    return write_each(
        invocation, paths, lambda fs, path: write_first(fs, path, None if size is not None else lines, size)
    )
