"""`fsabs mkdir` and `rm`: directories made, files and trees removed."""

from __future__ import annotations

import click

from .paths import Paths, ResolvedPath, each_path, path_argument
from .program import Invocation, common


@click.command()
@path_argument("paths", count=-1)
@click.option(
    "-p", "--parents", is_flag=True, help="Make what is missing above, too; a directory that is there is fine."
)
@click.option("--dry-run", is_flag=True, help="Show what would be made.")
@common
def mkdir(invocation: Invocation, paths: tuple[str, ...], parents: bool, dry_run: bool) -> int:
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


@click.command()
@path_argument("paths", count=-1)
@click.option("-r", "--recursive", is_flag=True, help="Remove directories with all that is in them.")
@click.option("-f", "ignore_missing", is_flag=True, help="Ignore paths that are missing.")
@click.option("--force", is_flag=True, help="Remove also the working directory, a home, a root, and what these are in.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("-v", "--verbose", is_flag=True, help="Write a line for each path.")
@common
def rm(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    ignore_missing: bool,
    force: bool,
    dry_run: bool,
    verbose: bool,
) -> int:
    """Remove files, and with -r directories; members of zip, tar and HDF5 files, too.

    A symbolic link is removed, and what it leads to stays.

    \b
    Example: fsabs rm -r s3://bucket/runs/old/ '/scratch/*.tmp'
    """
    return remove_all(invocation, paths, recursive, ignore_missing, force, dry_run, verbose)


def remove_all(
    invocation: Invocation,
    paths: tuple[str, ...],
    recursive: bool,
    ignore_missing: bool,
    force: bool,
    dry_run: bool,
    verbose: bool,
) -> int:
    """Remove what paths name, and return the exit code.

    Members of a container are removed together, when all paths are done: it is written anew once.
    """
    members: list[ResolvedPath] = []

    def show(found: ResolvedPath) -> None:
        if dry_run or verbose or invocation.output.json:
            values = {"action": "removed", "url": found.url, "dry_run": dry_run}
            done = "would remove" if dry_run else "removed"
            invocation.output.record(values, f"{done} {invocation.output.name(found.shown)}")

    with Paths() as containers:

        def remove(found: ResolvedPath) -> None:
            if not force:
                found.refuse_removal()
            if not found.is_link() and found.stat().directory and not recursive:
                raise IsADirectoryError(f"{found.shown} is a directory; -r removes it")
            if not (dry_run or found.fs.capabilities.remove):
                member = containers.resolve(found.text, "a")
                member.fs.remove(member.path, recursive)
                members.append(found)
                return
            if not dry_run:
                found.fs.remove(found.path or ".", recursive)
            show(found)

        code = each_path(invocation, paths, remove, ignore_missing=ignore_missing)
    for found in members:
        show(found)
    return code
