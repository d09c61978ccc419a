"""`fsabs verify` and `repair`: what is damaged in containers and RecordIO files, and what is good in the latter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ..core import registry
from .paths import Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common
from .progress import Summary


@click.command()
@path_argument("paths", count=-1)
@click.option("--jobs", type=click.IntRange(min=1), default=4, show_default=True, help="Shards that are read at once.")
@common
def verify(invocation: Invocation, paths: tuple[str, ...], jobs: int) -> int:
    """Read all of containers (zip, tar, HDF5) and of sharded RecordIO data sets, and show what is wrong with them.

    A path is a container, a RecordIO file, or a directory of them. The exit code is 1 if anything is wrong.

    \b
    Example: fsabs verify s3://bucket/train.zip s3://bucket/shards/
    """
    summary = Summary("verified", "damaged")
    with Paths() as resolver:
        for found in resolver.expand_all(paths):
            try:
                damaged = False
                for values, text in _problems(found, jobs, summary):
                    damaged = True
                    invocation.output.record(values, text)
            except OSError as exc:
                damaged = True
                invocation.error(exc)
            summary.add("damaged", damaged)
    summary.write(invocation.output)
    return FAILED if summary.counts["damaged"] else 0


def _problems(found: ResolvedPath, jobs: int, summary: Summary) -> Iterator[tuple[dict[str, Any], str]]:

    if registry.container_of(found.path) and not found.is_directory():
        with found.fs.open_container(found.path) as container:
            verify = getattr(container, "verify", None)
            if verify is None:
                raise ValueError(f"{found.shown}: containers of this kind can't be verified")
            summary.add("verified")
            for problem in verify():
                where = f"{found.shown}/{problem.path}" if problem.path else found.shown
                yield {"url": found.url, **problem._asdict()}, f"{where}: {problem.kind}: {problem.detail}"
        return
    from ..readers import sharded

    found.stat()
    report = sharded.verify(found.url, workers=jobs)
    summary.add("verified", len(report.shards))
    for shard in report.shards:
        for skipped in shard.damage:
            yield {"url": shard.url, "kind": "damaged", "detail": str(skipped)}, str(skipped)
    for kind, urls in (("missing", report.missing), ("stale", report.stale)):
        for url in urls:
            yield {"url": url, "kind": kind, "detail": ""}, f"{url}: {kind}"


@click.command()
@path_argument("paths", count=-1)
@common
def repair(invocation: Invocation, paths: tuple[str, ...]) -> None:
    """Replace each damaged file of RecordIO data sets by one with its good chunks, and show what was lost.

    A file is replaced whole or not at all; one that is not damaged is not touched. `fsabs verify` shows what would be
    lost before.

    \b
    Example: fsabs repair s3://bucket/shards/
    """
    from ..readers import sharded

    summary = Summary("checked", "repaired")
    for path in paths:
        if registry.container_of(path.rstrip("/")):
            raise ValueError(f"{path}: only RecordIO files are repaired; unpack what is good of a container")
        report = sharded.repair(path)
        for shard in report.shards:
            summary.add("checked")
            summary.add("repaired", not shard.ok)
            for skipped in shard.damage:
                values = {"url": shard.url, "kept_records": shard.records, "lost": str(skipped)}
                invocation.output.record(values, f"lost: {skipped}")
    summary.write(invocation.output)
