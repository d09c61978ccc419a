"""`fsabs cat`: the contents of files, one after the other."""

from __future__ import annotations

import shutil
import sys

import click

from .content import write_content
from .paths import PIPE, Paths, path_argument
from .program import FAILED, Invocation, common


@click.command()
@path_argument("paths", count=-1)
@common
def command(invocation: Invocation, paths: tuple[str, ...]) -> int:
    """Write files to the standard output. `-` is the standard input.

    \b
    Example: fsabs cat s3://bucket/logs/*.txt.zip/events.csv
    """
    code = 0
    with Paths() as resolver:
        for text in paths:
            if text == PIPE:
                shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
                continue
            try:
                for found in resolver.expand(text):
                    write_content(found.fs, found.path)
            except (OSError, ValueError) as exc:
                if isinstance(exc, BrokenPipeError) and exc.filename is None:
                    raise
                invocation.error(exc)
                code = FAILED
        sys.stdout.buffer.flush()
    return code
