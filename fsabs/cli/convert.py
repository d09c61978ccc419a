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
@progress_option
@common
def command(
    invocation: Invocation, source: str, target: str, keep: bool, kind: str | None, progress: ProgressMode
) -> None:
    """Write the members of the container SOURCE as the container TARGET, of the format of its suffix.

    \b
    Example: fsabs convert s3://bucket/train.tar.gz s3://bucket/train.zip
    """
    pack.run(invocation, source.rstrip("/") + "/", target, "x" if keep else "w", kind, None, progress)
