"""A synthetic trace, for tests, documentation and the design of reports: the same for the same arguments."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from fsabs.trace import chunks
from fsabs.trace.results import (
    CAUSES,
    Amplification,
    Analysis,
    Breakdown,
    CacheUse,
    FileRow,
    Finding,
    HeatMap,
    Histogram,
    Row,
    Stall,
    Step,
    Timeline,
)
from fsabs.trace.schema import (
    SCHEMA,
    Event,
    ProcessInfo,
)

BEGIN = 1_790_000_000_000_000_000
Tuple = TypeVar("Tuple", bound=NamedTuple)


def altered(row: Tuple, **fields: Any) -> Tuple:
    """A row, a step, an event or a whole analysis with other values of some fields."""
    return row._replace(**fields)


def example_analysis(workers: int = 4, slices: int = 120, seed: int = 1) -> Analysis:
    """An analysis of a minute's training with `workers` DataLoader workers, that has something of everything."""
    made = random.Random(seed)
    processes = _processes(workers)
    operations = _operations()
    busy = [[_wave(made, row, at, slices) if row else 0.02 for at in range(slices)] for row in range(workers + 1)]
    asked = [sum(row[at] for row in busy[1:]) * 9e6 for at in range(slices)]
    steps = [_step(made, number) for number in range(600)]
    wait = sum(step.wait for step in steps)
    return Analysis(
        folder="example-trace",
        begin=BEGIN,
        seconds=60.0,
        processes=processes,
        events=sum(one.events for one in processes),
        dropped=7,
        operations=operations,
        amplification=Amplification(60_000 * 20_480, 1_600_000_000),
        cache=CacheUse(46_000, 14_000, 1_200),
        retries=41,
        retry_seconds=3.2,
        timeline=_timeline(busy, asked, slices),
        heat=HeatMap(60 / slices, [one.label for one in processes], busy),
        read_sizes=Histogram("bytes", [0] * 10 + [200, 900, 2_400, 9_000, 30_000, 16_000, 1_500]),
        request_sizes=Histogram("bytes", [0] * 13 + [100, 400, 2_500, 8_000, 3_000]),
        latencies={f"{row.kind} {row.layer}.{row.operation}": _latency(row) for row in operations},
        files=[_file(made, number) for number in range(300)],
        files_seen=60_000,
        slowest=[_slow(number) for number in range(20)],
        failures={("fs", "OSError 503"): 3, ("request", "TimeoutError"): 41},
        steps=steps,
        stall=Stall(len(steps), wait, sum(step.seconds for step in steps) - wait),
        breakdown=_breakdown(steps),
        findings=_findings(),
        notes=["7 events of node-1:4002 were dropped", "node-1:4003 did not end in an orderly way"],
    )


def _processes(workers: int) -> list[ProcessInfo]:
    return [
        ProcessInfo(
            index,
            "node-1",
            4000 + index,
            0,
            index - 1 if index else None,
            "train.py",
            BEGIN,
            BEGIN + 60_000_000_000,
            20_000,
            7 if index == 2 else 0,
            index != 3,
        )
        for index in range(workers + 1)
    ]


def _operations() -> list[Row]:
    return [
        _row("fs", "zip", "read", 60_000, 60_000 * 20_480, 3, 0, 0.0006),
        _row("fs", "zip", "open", 60_000, 0, 0, 0, 0.00004),
        _row("fs", "zip", "stat", 58_000, 0, 0, 0, 0.00002),
        _row("request", "s3", "get", 14_000, 1_600_000_000, 41, 41, 0.004),
        _row("connect", "s3", "connect", 24, 0, 0, 0, 0.012),
        _row("wait", "s3", "connection", 900, 0, 0, 0, 0.0021),
        _row("wait", "steps", "next", 600, 0, 0, 0, 0.031),
        _row("decompress", "zip", "inflate", 60_000, 60_000 * 20_480, 0, 0, 0.00008),
        _row("cache", "cache", "fill", 14_000, 1_600_000_000, 0, 0, 0.005),
        _row("span", "user", "decode", 60_000, 0, 0, 0, 0.0007),
    ]


def _timeline(busy: list[list[float]], asked: list[float], slices: int) -> Timeline:
    return Timeline(
        60 / slices,
        asked,
        [one * 1.3 for one in asked],
        [sum(row[at] for row in busy[1:]) for at in range(slices)],
        [2.4 * sum(row[at] for row in busy[1:]) for at in range(slices)],
        [3 if at == slices // 2 else 0 for at in range(slices)],
    )


def _row(
    kind: str, layer: str, operation: str, count: int, size: int, errors: int, retries: int, typical: float
) -> Row:
    seconds = count * typical * 1.4
    return Row(
        kind, layer, operation, count, size, errors, retries, seconds, min(seconds, 50.0),
        typical / 3, typical, typical * 3, typical * 9, typical * 60,
    )  # fmt: skip


def _wave(made: random.Random, row: int, at: int, slices: int) -> float:
    slow = 0.35 if row == 2 else 0.0
    return min(1.0, max(0.0, 0.45 + slow + 0.25 * math.sin(at / slices * 12 + row) + made.uniform(-0.1, 0.1)))


def _step(made: random.Random, number: int) -> Step:
    wait = max(0.0, made.gauss(0.03, 0.015))
    return Step(0, number, BEGIN + number * 100_000_000, wait + 0.068, {"first_byte": wait, "step": 0.068})


def _latency(row: Row) -> Histogram:
    middle = int(row.p50 * 1e9).bit_length()
    counts = [int(row.calls * math.exp(-0.9 * abs(bucket - middle)) / 2.5) for bucket in range(middle + 8)]
    return Histogram("ns", counts)


def _file(made: random.Random, number: int) -> FileRow:
    reads = made.randint(1, 400)
    where = f"s3://bucket/imagenet-{number % 12:04}.zip/train/n{number:08}/a quite long name {number}.JPEG"
    return FileRow(where, reads, reads, reads * 20_480, reads * 0.0006, 0.02 + number % 7 / 50, int(number == 5))


def _slow(number: int) -> Event:
    error = "TimeoutError" if number == 3 else ""
    where = f"s3://bucket/imagenet-{number % 12:04}.zip"
    return Event(
        BEGIN + number * 10**9, 900_000_000 - number * 10**7, "request", "s3.get", 65_536, -1, where, error, 1, 4001
    )


def _breakdown(steps: Sequence[Step]) -> list[Breakdown]:
    wait, seconds = sum(step.wait for step in steps), sum(step.seconds for step in steps)
    shares = {"first_byte": 0.4, "transfer": 0.15, "disk": 0.05, "decompress": 0.1, "decode": 0.2, "startup": 0.07}
    causes = {cause: wait * shares.get(cause, 0.0) for cause in CAUSES} | {
        "step": seconds - wait,
        "read_ahead": 0.03 * wait,
    }
    halves = {cause: value / 2 for cause, value in causes.items()}
    return [
        Breakdown(0, len(steps), seconds + 1.5, 1, 4, 0, causes | {"outside": 1.5}),
        *(Breakdown(epoch, len(steps) // 2, seconds / 2, 1, 4, 0, halves) for epoch in (1, 2)),
    ]


def _findings() -> list[Finding]:
    return [
        Finding(
            "F015", "high", "small random reads dominate: 84 % of 60,000 reads are under 64 KiB",
            {"reads": 60_000, "small reads": 50_400, "share of small reads": 0.84, "threshold": 0.5},
            "Pack the files into a zip (`fsabs.pack`), or read many at once with read_many.", 12.5,
        ),
        Finding(
            "F014", "medium", "97 % of opens stat first: 58,000 stats for 60,000 opens",
            {"opens": 60_000, "stats": 58_000, "threshold": 0.8},
            "Open the file and handle FileNotFoundError; list() gives names, sizes and times at once.",
        ),
        Finding(
            "F006", "note", "retries cost 3.2 s: 41 attempts were made again",
            {"retries": 41, "seconds": 3.2, "threshold": 0.01},
            "Look at the errors of the slowest requests; fewer connections may get more.",
        ),
    ]  # fmt: skip


def write_process(
    folder: str | os.PathLike[str],
    events: Sequence[Event],
    *,
    begin: int = 0,
    pid: int = 4000,
    parent: int = 1,
    host: str = "node-1",
    boot: str = "",
    rank: int | None = None,
    worker: int | None = None,
    footer: bool = True,
    cores: int = 8,
    skew: int = 0,
) -> str:
    """Write the trace file of one made-up process, as a process would; returns its path.

    `begin`, the process's and an event's, is nanoseconds since `BEGIN`, and `skew` is what the host's clock is wrong
    by; an event's `process` is ignored. Without `footer` the process looks as if it had been killed.
    """
    os.makedirs(folder, exist_ok=True)
    header = {
        "schema": SCHEMA, "host": host, "boot": boot or host, "pid": pid, "parent": parent, "main": 1, "cores": cores,
        "rank": rank, "worker": worker, "program": "train.py", "monotonic_ns": begin, "wall_ns": BEGIN + begin + skew,
    }  # fmt: skip
    path = os.path.join(folder, f"trace-{host}-{pid}-{BEGIN:x}.fstrace")
    rows = [
        (event.begin, event.duration, event.size, event.offset, event.thread, event.where, event.kind, event.name,
         event.error)
        for event in events
    ]  # fmt: skip
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(chunks.framed(chunks.content({}, process=header)).ljust(chunks.RESERVED, b"\0"))
        for at in range(0, len(rows), 1000):
            file.write(chunks.framed(chunks.content(chunks.grouped(rows[at : at + 1000]))))
        if footer:
            tally = {"recorded": len(rows)}
            file.write(chunks.framed(chunks.content({}, tally=tally, end=max([begin, *(one.end for one in events)]))))
    return path


def event(
    begin: int,
    duration: int,
    kind: str,
    name: str,
    size: int = 0,
    *,
    where: str = "",
    error: str = "",
    thread: int = 1,
    offset: int = -1,
) -> Event:
    """An event for `write_process`."""
    return Event(begin, duration, kind, name, size, offset, where, error, 0, thread)
