"""`fsabs cp`: copies of files and trees between any two places."""

from __future__ import annotations

import sys
from typing import Literal

import click

from .content import write_content
from .paths import PIPE, Paths, path_argument
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
def command(
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
