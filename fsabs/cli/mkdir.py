"""`fsabs mkdir`: new directories."""

from __future__ import annotations

import click

from .paths import ResolvedPath, each_path, path_argument
from .program import Invocation, common


@click.command()
@path_argument("paths", count=-1)
@click.option(
    "-p", "--parents", is_flag=True, help="Make what is missing above, too; a directory that is there is fine."
)
@click.option("--dry-run", is_flag=True, help="Show what would be made.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], parents: bool, dry_run: bool) -> int:
    """Make directories.

    \b
    Example: fsabs mkdir -p hdfs:///user/me/runs/7
    """
    return make_all(invocation, paths, parents, dry_run)


def make_all(invocation: Invocation, paths: tuple[str, ...], parents: bool, dry_run: bool = False) -> int:
    """Make directories, and return the exit code."""

    def make(found: ResolvedPath) -> None:
        if not dry_run:
            found.fs.makedirs(found.path, exist_ok=True) if parents else found.fs.mkdir(found.path)
            return
        values = {"action": "made", "url": found.url, "dry_run": True}
        invocation.output.record(values, f"would make {invocation.output.name(found.shown)}")

    return each_path(invocation, paths, make, patterns=False)
