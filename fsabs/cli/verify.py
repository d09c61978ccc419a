"""`fsabs verify`: read containers and RecordIO files to their ends, and show all that is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from .paths import Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common
from .summary import Summary


@click.command()
@path_argument("paths", count=-1)
@click.option("--jobs", type=click.IntRange(min=1), default=4, show_default=True, help="Shards that are read at once.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], jobs: int) -> int:
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
    from ..core import registry

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
    from ..readers import shards

    found.stat()
    report = shards.verify(found.url, workers=jobs)
    summary.add("verified", len(report.shards))
    for shard in report.shards:
        for skipped in shard.damage:
            yield {"url": shard.url, "kind": "damaged", "detail": str(skipped)}, str(skipped)
    for kind, urls in (("missing", report.missing), ("stale", report.stale)):
        for url in urls:
            yield {"url": url, "kind": kind, "detail": ""}, f"{url}: {kind}"
