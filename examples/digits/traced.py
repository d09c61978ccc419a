"""What the trace of a training tells: who read what in each epoch, and where the time went."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

from fsabs import trace

DECODING = "decode"
"""The name of the span around the decoding of an image; all other spans are parts of the training."""


class Part(NamedTuple):
    """What all processes did during one part of the training: an epoch, or the test."""

    name: str
    seconds: float
    files: int
    """Read by the workers."""
    hits: int
    """How many of them the cache had."""
    misses: int
    """How many of them it had not."""
    requests: int
    """To the store."""
    fetched: int
    """Bytes that the store sent."""


def parts(folder: Path) -> list[Part]:
    """The parts of the training that was traced into `folder`, one after the other."""
    events = list(trace.events(folder))
    spans = [event for event in events if event.kind == "span" and event.operation != DECODING]
    found = []
    for span in sorted(spans):
        inside = [event for event in events if span.begin <= event.begin < span.end]
        files = sum(event.kind == "fs" and event.operation == "read_many" for event in inside)
        hits = sum(event.kind == "hit" and event.layer == "cache" for event in inside)
        misses = sum(event.kind == "miss" and event.layer == "cache" for event in inside)
        sizes = [event.size for event in inside if event.kind == "request"]
        found.append(Part(span.operation, span.duration / 1e9, files, hits, misses, len(sizes), sum(sizes)))
    return found


def print_parts(found: list[Part]) -> None:
    """One line for each part."""
    line = "{:<8} {:>8} {:>7} {:>11} {:>13} {:>13} {:>13}"
    print(line.format("S3", "seconds", "files", "cache: hits", "cache: misses", "S3: requests", "S3: bytes"))
    for name, seconds, *counts in found:
        print(line.format(name, f"{seconds:.2f}", *counts))


def print_summary(analysis: trace.Analysis) -> None:
    """Where the time went: a few of the figures that an analysis has."""

    def seconds(kind: str, operation: str) -> float:
        return sum(row.seconds for row in analysis.operations if (row.kind, row.operation) == (kind, operation))

    requests = [row for row in analysis.operations if row.kind == "request"]
    print("Where the time of the training on S3 went:")
    if analysis.stall is not None:
        wait, compute = analysis.stall.wait, analysis.stall.compute
        print(f"  training  {wait:6.2f} s waiting for batches, {compute:.2f} s computing")
    reading, decoding = seconds("fs", "read_many"), seconds("span", DECODING)
    print(f"  workers   {reading:6.2f} s reading, {decoding:.2f} s decoding images; all workers together")
    busy, count = sum(row.busy for row in requests), sum(row.calls for row in requests)
    print(f"  S3        {busy:6.2f} s in {count} requests; {analysis.retries} retries")
    for finding in analysis.findings[:1]:  # the gravest
        print(textwrap.fill(f"finding: {finding.title}", 80, initial_indent="  ", subsequent_indent="    "))
