"""`fsabs cp`, `mv` and `sync`: files and trees copied and moved between any two places."""

from __future__ import annotations

import errno
import sys
from typing import Literal

import click

from ..core import identity
from .content import write_content
from .paths import PIPE, Paths, ResolvedPath, path_argument
from .program import Invocation, common
from .transfers import Transfer, TransferOptions, transfer_options

_PIECE = 1 << 20


@click.command()
@path_argument("sources", count=-1)
@path_argument("target")
@click.option("-r", "--recursive", is_flag=True, help="Copy directories, and the members of containers.")
@click.option("-f", "--force", is_flag=True, help="Copy every file, also if it is at the target already.")
@click.option("-n", "--no-clobber", is_flag=True, help="Leave files that are at the target, also if they differ.")
@click.option("--checksum", is_flag=True, help="Compare contents to know what is at the target already, not times.")
@transfer_options
@common
def cp(
    invocation: Invocation,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    force: bool,
    no_clobber: bool,
    checksum: bool,
    options: TransferOptions,
) -> int:
    """Copy files, directories and the members of containers.

    TARGET gets the sources under their names if it ends in /, is an existing directory and they are files, or if they
    are several; else it is the copy. A source that ends in / stands for what is in it. `-` is the standard input or
    output. Files that are at the target already, unchanged, are skipped: run the command again after an interrupt.
    What symbolic links in a source lead to is copied, unless --links is given. Permissions are kept.

    \b
    Example: fsabs cp -r s3://bucket/train.zip/images/ /data/images
    """
    if force and no_clobber:
        raise click.UsageError("-f and -n exclude each other")
    if PIPE in (*sources, target):
        return _pipe(sources, target, options)
    with Paths() as paths, Transfer(invocation, options, "copied") as transfer:
        plan = options.plan(paths, existing=existing_of(force, no_clobber), content=checksum)
        for source, place in transfer.places(paths, sources, paths.resolve(target, "a")):
            transfer.copy(source, place, plan, recursive)
        return transfer.finish(paths)


def existing_of(force: bool, no_clobber: bool) -> Literal["replace", "skip", "compare"]:
    """Return the plan for files that are at the target already."""
    return "replace" if force else "skip" if no_clobber else "compare"


def _pipe(sources: tuple[str, ...], target: str, options: TransferOptions) -> int:
    """Copy from the standard input, or to the standard output."""
    if options.dry_run or options.filters:
        raise click.UsageError("- is copied as it comes: without --dry-run, --include and --exclude")
    with Paths() as paths:
        if target == PIPE:
            for found in paths.expand_all(sources):
                write_content(found.fs, found.path)
            sys.stdout.buffer.flush()
            return 0
        if len(sources) > 1:
            raise click.UsageError("- can't be copied together with other sources")
        place = paths.resolve(target, "a")
        if place.contents:
            raise click.UsageError("- has no name: name the file that it becomes")
        with place.fs.open(place.path, "wb") as file:
            while piece := sys.stdin.buffer.read(_PIECE):
                file.write(piece)
    return 0


@click.command()
@path_argument("sources", count=-1)
@path_argument("target")
@click.option("--force", is_flag=True, help="Move also the working directory, a home, a root, and what these are in.")
@transfer_options
@common
def mv(
    invocation: Invocation,
    sources: tuple[str, ...],
    target: str,
    force: bool,
    options: TransferOptions,
) -> int:
    """Move files and directories; TARGET means what it means to cp.

    Where the store can, a directory is moved in one step. Else each file is copied, verified, and then removed at the
    source: run the command again after an interrupt. Symbolic links are moved as links.

    \b
    Example: fsabs mv /scratch/run-7 s3://bucket/runs/
    """
    with Paths() as paths, Transfer(invocation, options, "moved") as transfer:
        plan = options.plan(paths, move=True, replace_links=True)
        for source, place in transfer.places(paths, sources, paths.resolve(target, "a")):
            try:
                if not force:
                    source.refuse_removal()
                if plan.wanted is None and plan.backup is None and _is_renamed(source, place, options.dry_run):
                    transfer.moved(source, place)
                    continue
            except (OSError, ValueError) as exc:
                transfer.error(exc)
                continue
            transfer.copy(source, place, plan)
        return transfer.finish(paths)


def _is_renamed(source: ResolvedPath, target: ResolvedPath, dry_run: bool) -> bool:
    """Move in one step, and return True, where the store can and no directory is at the target."""
    can = source.fs.capabilities
    if source.fs is not target.fs or source.contents or not can.rename or can.implied_directories:
        return False
    if target.fs.isdir(target.path) or (dry_run and source.is_directory()):
        return False
    if not source.is_link() and identity.inside(target.fs, target.key, source.fs, source.key):
        raise ValueError(f"can't move {source.shown} into itself: {target.shown}")
    if dry_run:
        return False
    above = target.path.rpartition("/")[0]
    if above:
        target.fs.makedirs(above, exist_ok=True)
    try:
        source.fs.rename(source.path, target.path)
    except OSError as exc:
        if exc.errno != errno.EXDEV:  # another disk, or another nameservice
            raise
        return False
    return True


@click.command()
@path_argument("source")
@path_argument("target")
@click.option("--delete", is_flag=True, help="Remove what is at the target and not in the source.")
@click.option("--max-delete", type=click.IntRange(min=0), help="Remove nothing if it would be more than this.")
@click.option("--force", is_flag=True, help="--delete also in the working directory, a home, a root, and above them.")
@click.option("--checksum", is_flag=True, help="Compare contents, not times.")
@transfer_options
@common
def sync(
    invocation: Invocation,
    source: str,
    target: str,
    delete: bool,
    max_delete: int | None,
    force: bool,
    checksum: bool,
    options: TransferOptions,
) -> int:
    """Copy what is new or changed in a directory to another one.

    Both are directories, with or without a / at their ends; a container as a source needs the /. Files are removed,
    with --delete, when all others have arrived and nothing has failed. What --exclude names is neither copied nor
    removed, and a symbolic link at the target is replaced, and never followed.

    \b
    Example: fsabs sync --delete --dry-run /data/train s3://bucket/train
    """
    with Paths() as paths, Transfer(invocation, options, "copied") as transfer:
        plan = options.plan(paths, content=checksum, replace_links=True, max_delete=max_delete)
        found, place = paths.resolve(source), paths.resolve(target, "a")
        if delete:
            place.fs._require("remove", "remove what the source does not have", place.key)
            if not force:
                place.refuse_removal()
        transfer.tree(found, place, plan, delete)
        return transfer.finish(paths)
