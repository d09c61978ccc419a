"""`fsabs mv`: files and trees moved between any two places."""

from __future__ import annotations

import errno

import click

from ..copying.trees import TreePlan
from .cp import places
from .paths import Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common
from .transfers import Transfer, TransferOptions, transfer_options


@click.command()
@path_argument("sources", count=-1)
@path_argument("target")
@transfer_options
@common
def command(
    invocation: Invocation,
    sources: tuple[str, ...],
    target: str,
    options: TransferOptions,
) -> int:
    """Move files and directories; TARGET means what it means to cp.

    Where the store can, a directory is moved in one step. Else each file is copied, verified, and then removed at the
    source: run the command again after an interrupt.

    \b
    Example: fsabs mv /scratch/run-7 s3://bucket/runs/
    """
    plan = TreePlan("compare", move=True, wanted=options.wanted)
    with Paths() as paths, Transfer(invocation, options, "moved") as transfer:
        into = paths.resolve(target, "a")
        for source, place in places(paths, sources, into, transfer):
            try:
                stat = source.stat()
                source.fs._require("remove", "move", source.path)
                if plan.wanted is None and _is_renamed(source, place):
                    transfer.moved(source, place)
                elif stat.directory or source.contents:
                    transfer.tree(source, place, plan)
                else:
                    transfer.file(source, stat, place, plan)
            except (OSError, ValueError) as exc:
                transfer.error(exc)
        return FAILED if transfer.failed else 0


def _is_renamed(source: ResolvedPath, target: ResolvedPath) -> bool:
    """Move in one step, and return True, where the store can and nothing is at the target."""
    can = source.fs.capabilities
    if source.fs is not target.fs or source.contents or not can.rename or can.implied_directories:
        return False
    if target.fs.isdir(target.path):
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
