"""`fsabs sync`: a directory made equal to another one."""

from __future__ import annotations

import click

from ..copying.trees import TreePlan
from .paths import Paths, path_argument
from .program import FAILED, Invocation, common
from .transfers import Transfer, TransferOptions, transfer_options


@click.command()
@path_argument("source")
@path_argument("target")
@click.option("--delete", is_flag=True, help="Remove what is at the target and not in the source.")
@click.option("--dry-run", is_flag=True, help="Show what would be done.")
@click.option("--checksum", is_flag=True, help="Compare contents, not times.")
@transfer_options
@common
def command(
    invocation: Invocation,
    source: str,
    target: str,
    delete: bool,
    dry_run: bool,
    checksum: bool,
    options: TransferOptions,
) -> int:
    """Copy what is new or changed in a directory to another one.

    Both are directories, with or without a / at their ends; a container as a source needs the /. Files are removed,
    with --delete, when all others have arrived. What --exclude names is neither copied nor removed.

    \b
    Example: fsabs sync --delete --dry-run /data/train s3://bucket/train
    """
    plan = TreePlan("compare", checksum, dry_run=dry_run, wanted=options.wanted)
    with Paths() as paths, Transfer(invocation, options, "copied") as transfer:
        transfer.tree(paths.resolve(source), paths.resolve(target, "a"), plan, delete)
        return FAILED if transfer.failed else 0
