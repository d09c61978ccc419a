"""`fsabs cp`: copies of files and trees between any two places."""

from __future__ import annotations

import sys
from typing import Literal

import click

from .. import keys
from ..copying.trees import TreePlan
from .content import write_content
from .paths import PIPE, Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common
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

    \b
    Example: fsabs cp -r s3://bucket/train.zip/images/ /data/images
    """
    if force and no_clobber:
        raise click.UsageError("-f and -n exclude each other")
    plan = TreePlan(existing_of(force, no_clobber), checksum, wanted=options.wanted)
    if PIPE in (*sources, target):
        return _pipe(invocation, sources, target)
    with Paths() as paths, Transfer(invocation, options, "copied") as transfer:
        into = paths.resolve(target, "a")
        for source, place in places(paths, sources, into, transfer):
            transfer.copy(source, place, plan, recursive)
        return FAILED if transfer.failed else 0


def existing_of(force: bool, no_clobber: bool) -> Literal["replace", "skip", "compare"]:
    """Return the plan for files that are at the target already."""
    return "replace" if force else "skip" if no_clobber else "compare"


def places(
    paths: Paths, sources: tuple[str, ...], target: ResolvedPath, transfer: Transfer
) -> list[tuple[ResolvedPath, ResolvedPath]]:
    """Return each source with the place that it goes to."""
    found: list[ResolvedPath] = []
    for text in sources:
        try:
            found += paths.expand(text)
        except (OSError, ValueError) as exc:
            transfer.error(exc)
    several = len(found) > 1 or len(sources) > 1
    into = target.contents or several
    is_directory = None if into else _is_directory(target)
    result = []
    for source in found:
        if source.contents:  # what is in it
            result.append((source, target._replace(contents=False)))
        elif into or (is_directory and not _is_directory(source)):
            name = keys.name(source.path) or keys.name(source.text.rstrip("/"))
            result.append((source, target.member(name)))
        else:
            result.append((source, target))
    for source, place in list(result):
        if source.fs is place.fs and source.path.strip("/") == place.path.strip("/"):
            transfer.error(ValueError(f"source and target are one: {source.shown}"))
            result.remove((source, place))
    return result


def _is_directory(found: ResolvedPath) -> bool:
    return found.fs.capabilities.read and found.is_directory()


def _pipe(invocation: Invocation, sources: tuple[str, ...], target: str) -> int:
    """Copy from the standard input, or to the standard output."""
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
