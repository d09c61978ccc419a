"""`fsabs sync`: a directory made equal to another one."""

from __future__ import annotations

import click

from .paths import Paths, path_argument
from .program import Invocation, common
from .transfers import Transfer, TransferOptions, transfer_options


@click.command()
@path_argument("source")
@path_argument("target")
@click.option("--delete", is_flag=True, help="Remove what is at the target and not in the source.")
@click.option("--max-delete", type=click.IntRange(min=0), help="Remove nothing if it would be more than this.")
@click.option("--force", is_flag=True, help="--delete also in the working directory, a home, a root, and above them.")
@click.option("--checksum", is_flag=True, help="Compare contents, not times.")
@transfer_options
@common
def command(
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
