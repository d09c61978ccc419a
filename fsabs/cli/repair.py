"""`fsabs repair`: damaged RecordIO files are replaced by what is good in them."""

from __future__ import annotations

import click

from .paths import path_argument
from .program import Invocation, common
from .summary import Summary


@click.command()
@path_argument("paths", count=-1)
@common
def command(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Replace each damaged file of RecordIO data sets by one with its good chunks, and show what was lost.

    A file is replaced whole or not at all; one that is not damaged is not touched. `fsabs verify` shows what would be
    lost before.

    \b
    Example: fsabs repair s3://bucket/shards/
    """
    from ..core import registry
    from ..readers import shards

    summary = Summary("checked", "repaired")
    for path in paths:
        if registry.container_of(path.rstrip("/")):
            raise ValueError(f"{path}: only RecordIO files are repaired; unpack what is good of a container")
        report = shards.repair(path)
        for shard in report.shards:
            summary.add("checked")
            summary.add("repaired", not shard.ok)
            for skipped in shard.damage:
                values = {"url": shard.url, "kept_records": shard.records, "lost": str(skipped)}
                invocation.output.record(values, f"lost: {skipped}")
    summary.write(invocation.output)
