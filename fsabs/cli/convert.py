"""`fsabs convert`: a container becomes one of another format."""

from __future__ import annotations

import click

from . import pack
from .paths import path_argument
from .program import Invocation, common
from .progress import ProgressMode, progress_option


@click.command()
@path_argument("source")
@path_argument("target")
@click.option("-n", "keep", is_flag=True, help="Refuse to replace TARGET.")
@click.option("--type", "kind", type=click.Choice(["zip", "tar", "hdf5"]), help="The format, whatever the suffix.")
@click.option("--dry-run", is_flag=True, help="Show what would be packed.")
@progress_option
@common
def command(
    invocation: Invocation,
    source: str,
    target: str,
    keep: bool,
    kind: str | None,
    dry_run: bool,
    progress: ProgressMode,
) -> None:
    """Write the members of the container SOURCE as the container TARGET, of the format of its suffix.

    \b
    Example: fsabs convert s3://bucket/train.tar.gz s3://bucket/train.zip
    """
    members = source and source.rstrip("/") + "/"
    pack.run(invocation, members, target, "x" if keep else "w", kind, None, progress, dry_run)
