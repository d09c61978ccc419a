"""`fsabs bench`: how fast a data set can be read from here, and the settings that are best for it."""

from __future__ import annotations

import functools

import click

from .paths import path_argument
from .program import Invocation, common

_COLUMNS = (
    "workers",
    "concurrency",
    "files/s",
    "requests/s",
    "MB/s",
    "p50 ms",
    "p99 ms",
    "CPU ms/file",
    "CPU",
    "refused",
    "transfer",
)


@click.command()
@path_argument("url")
@click.option("--workers", type=click.IntRange(min=1), help="Processes at most; by default until more are not faster.")
@click.option("--seconds", type=click.FloatRange(min=0.05), default=3.0, show_default=True, help="Of each measurement.")
@click.option("--files", type=click.IntRange(min=1), default=2000, show_default=True, help="The size of the sample.")
@common
def command(invocation: Invocation, url: str, workers: int | None, seconds: float, files: int) -> None:
    """Read a sample of the data set at URL with more and more in flight, until more doesn't help; say what limits.

    The URL is opened as from_url does: a container at its end is opened. The sample is drawn by chance from the first
    100,000 files.

    \b
    Example: fsabs bench s3://bucket/train.zip --workers 4
    """
    from ..urls import opening
    from . import throughput

    output = invocation.output
    with opening.from_url(url) as fs:
        sample = throughput.sample_of(fs, files)
        if not sample.names:
            raise ValueError(f"{url}: there are no files")
        run = functools.partial(throughput.measure, fs, sample.names, seconds=seconds)
        steps = list(throughput.explore(run, workers))
        chosen = throughput.best(steps)
        of_what = f"{len(sample.names):,} of {sample.files:,} files of {sample.bytes:,} bytes"
        advice = {
            "sample": of_what if sample.complete else f"{of_what}, as far as they were listed",
            "bottleneck": throughput.bottleneck(steps),
            "concurrency": chosen.concurrency,
            "workers": chosen.workers,
            "cache": throughput.cache_advice(fs, sample),
        }
    if output.json:
        for step in steps:
            output.record(step._asdict(), "")
        output.record(advice, "")
        return
    output.table(_COLUMNS, [[f"{value:.4g}" for value in step] for step in steps])
    output.record({}, "")
    for name, value in advice.items():
        output.record({}, f"{name:<11}  {value}")
