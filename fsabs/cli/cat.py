"""`fsabs cat`: the contents of files, one after the other."""

from __future__ import annotations

import shutil
import sys

import click

from .content import write_content, write_each
from .paths import path_argument
from .program import Invocation, common


@click.command()
@path_argument("paths", count=-1)
@common
def command(invocation: Invocation, paths: tuple[str, ...]) -> int:
    """Write files to the standard output. `-` is the standard input.

    \b
    Example: fsabs cat s3://bucket/logs/*.txt.zip/events.csv
    """
    return write_each(invocation, paths, write_content, _write_pipe)


def _write_pipe() -> None:
    shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)
