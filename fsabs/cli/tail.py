"""`fsabs tail`: the last lines or bytes of files."""

from __future__ import annotations

import sys

import click

from .content import write_last
from .paths import Paths, path_argument
from .program import FAILED, Invocation, common


@click.command()
@path_argument("paths", count=-1)
@click.option("-n", "--lines", type=click.IntRange(min=0), default=10, show_default=True, help="How many lines.")
@click.option("-c", "--bytes", "size", type=click.IntRange(min=0), help="How many bytes, in place of lines.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], lines: int, size: int | None) -> int:
    """Write the last lines of files to the standard output; only what is needed is read.

    \b
    Example: fsabs tail -n 5 s3://bucket/train.zip/labels.csv
    """
    code = 0
    with Paths() as resolver:
        for text in paths:
            try:
                for found in resolver.expand(text):
                    write_last(found.fs, found.path, None if size is not None else lines, size)
            except (OSError, ValueError) as exc:
                if isinstance(exc, BrokenPipeError) and exc.filename is None:
                    raise
                invocation.error(exc)
                code = FAILED
        sys.stdout.buffer.flush()
    return code
