"""`fsabs mv`: files and trees moved between any two places."""

from __future__ import annotations

import errno

import click

from ..core import identity
from .paths import Paths, ResolvedPath, path_argument
from .program import Invocation, common
from .transfers import Transfer, TransferOptions, transfer_options


@click.command()
@path_argument("sources", count=-1)
@path_argument("target")
@click.option("--force", is_flag=True, help="Move also the working directory, a home, a root, and what these are in.")
@transfer_options
@common
def command(
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
