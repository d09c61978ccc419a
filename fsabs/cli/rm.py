"""`fsabs rm`: files and trees removed."""

from __future__ import annotations

import click

from .paths import Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common


@click.command()
@path_argument("paths", count=-1)
@click.option("-r", "--recursive", is_flag=True, help="Remove directories with all that is in them.")
@click.option("-f", "--force", is_flag=True, help="Ignore paths that are missing.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("-v", "--verbose", is_flag=True, help="Write a line for each path.")
@common
def command(
    invocation: Invocation, paths: tuple[str, ...], recursive: bool, force: bool, dry_run: bool, verbose: bool
) -> int:
    """Remove files, and with -r directories.

    \b
    Example: fsabs rm -r s3://bucket/runs/old/ '/scratch/*.tmp'
    """
    return remove_all(invocation, paths, recursive, force, dry_run, verbose)


def remove_all(
    invocation: Invocation, paths: tuple[str, ...], recursive: bool, force: bool, dry_run: bool, verbose: bool
) -> int:
    """Remove what paths name, and return the exit code; the error of one path does not stop the others."""
    code = 0
    with Paths() as resolver:
        for text in paths:
            try:
                for found in resolver.expand(text):
                    _remove(found, recursive, dry_run)
                    if dry_run or verbose or invocation.output.json:
                        values = {"action": "removed", "url": found.url, "dry_run": dry_run}
                        done = "would remove" if dry_run else "removed"
                        invocation.output.record(values, f"{done} {invocation.output.name(found.shown)}")
            except FileNotFoundError as exc:
                if not force:
                    invocation.error(exc)
                    code = FAILED
            except (OSError, ValueError) as exc:
                invocation.error(exc)
                code = FAILED
    return code


def _remove(found: ResolvedPath, recursive: bool, dry_run: bool) -> None:
    if not found.path and found.fs.scheme == "file":
        raise ValueError("the root of this machine is not removed")
    if found.stat().directory and not recursive:
        raise IsADirectoryError(f"{found.shown} is a directory; -r removes it")
    if not dry_run:
        found.fs.remove(found.path, recursive)
