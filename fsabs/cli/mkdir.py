"""`fsabs mkdir`: new directories."""

from __future__ import annotations

import click

from .paths import Paths, path_argument
from .program import FAILED, Invocation, common


@click.command()
@path_argument("paths", count=-1)
@click.option(
    "-p", "--parents", is_flag=True, help="Make what is missing above, too; a directory that is there is fine."
)
@common
def command(invocation: Invocation, paths: tuple[str, ...], parents: bool) -> int:
    """Make directories.

    \b
    Example: fsabs mkdir -p hdfs:///user/me/runs/7
    """
    return make_all(invocation, paths, parents)


def make_all(invocation: Invocation, paths: tuple[str, ...], parents: bool) -> int:
    """Make directories, and return the exit code; the error of one path does not stop the others."""
    code = 0
    with Paths() as resolver:
        for text in paths:
            try:
                found = resolver.resolve(text)
                found.fs.makedirs(found.path, exist_ok=True) if parents else found.fs.mkdir(found.path)
            except (OSError, ValueError) as exc:
                invocation.error(exc)
                code = FAILED
    return code
