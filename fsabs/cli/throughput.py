"""The measurements of `fsabs bench`: reads of a sample of a data set, by one and more processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

from ..core import process
from ..core.fs import FS, FileStat
from ..disk import mounts
from ..disk.folders import cache_directory
from .measuring import RequestLog
from .output import size_text
from .resolution import backend_of

LISTED = 100_000
"""Files that a sample is drawn from at most."""
MOST_IN_FLIGHT = 256
GAIN = 1.1
"""What more has to bring to be worth trying still more."""
REFUSED = 0.01
"""This share of requests that are refused is throttling."""
_WARM_UP = 0.2  # of the seconds of a step


class ThroughputStep(NamedTuple):
    """One measurement: `workers` processes, each with `concurrency` files in flight."""

    workers: int
    concurrency: int
    files_per_second: float
    requests_per_second: float
    """0 where the store does not count requests."""
    megabytes_per_second: float
    p50_milliseconds: float
    """Of requests; where they are not counted, of files that are read one after the other."""
    p99_milliseconds: float
    cpu_milliseconds: float
    """CPU time of the processes for a file."""
    busy: float
    """The share of the time for which a process used a CPU."""
    refused: float
    """The share of the requests that the store refused (slow down), or that failed by chance."""
    transfer: float
    """The share of the requests' time in which bodies were received."""


class Sample(NamedTuple):
    """Files of a data set, and its size as far as it was listed."""

    names: list[str]
    files: int
    bytes: int
    complete: bool


class _Counts(NamedTuple):
    files: int
    bytes: int
    requests: int
    seconds: float
    cpu: float
    milliseconds: list[float]
    retries: int
    transfer: float


def sample_of(fs: FS, count: int, seed: int = 0) -> Sample:
    """Return `count` files of a data set, drawn by chance."""
    stats = fs.list("", recursive=True, detail=True)
    files: list[FileStat] = list(itertools.islice((stat for stat in stats if not stat.directory), LISTED))
    chosen = random.Random(seed).sample(files, min(count, len(files)))
    size = sum(stat.size for stat in files)
    return Sample([stat.filename for stat in chosen], len(files), size, len(files) < LISTED)


def measure(fs: FS, names: Sequence[str], workers: int, concurrency: int, seconds: float) -> ThroughputStep:
    """Return what `workers` forked processes reach, each of which reads files of its own part of `names`."""
    context = multiprocessing.get_context("fork")
    children, connections = [], []
    try:
        for number in range(workers):
            receiver, sender = context.Pipe(duplex=False)
            part = list(names[number::workers]) or list(names)
            child = context.Process(target=_child, args=(fs, part, concurrency, seconds, sender), daemon=True)
            child.start()
            sender.close()
            children.append(child)
            connections.append(receiver)
        counts = [_received(connection) for connection in connections]
    except BaseException:
        for child in children:
            child.terminate()
        raise
    finally:
        for child in children:
            child.join()
    return _step(counts, workers, concurrency)


def _received(connection: Connection) -> _Counts:
    try:
        found = connection.recv()
    except EOFError:
        raise OSError("a process that measures was killed") from None
    if isinstance(found, BaseException):
        raise found
    assert isinstance(found, _Counts)
    return found


def _child(fs: FS, names: list[str], concurrency: int, seconds: float, sender: Connection) -> None:
    try:
        sender.send(_read(fs, names, concurrency, seconds))
    except (OSError, ValueError) as exc:
        sender.send(exc)


def _read(fs: FS, names: list[str], concurrency: int, seconds: float) -> _Counts:
    """Read files again and again; the first moments, in which connections are made and indexes read, do not count."""
    with RequestLog() as log:
        end = time.monotonic() + _WARM_UP * seconds
        for _ in _contents(fs, names, concurrency, end):
            pass
        before, at, retries, log.transfer = log.requests, len(log.milliseconds), log.retries, 0.0
        usage, begin = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        files = size = 0
        took: list[float] = []
        last = begin
        for content in _contents(fs, names, concurrency, begin + seconds):
            files, size = files + 1, size + len(content)
            took.append((time.monotonic() - last) * 1e3)
            last = time.monotonic()
        used = resource.getrusage(resource.RUSAGE_SELF)
        cpu = used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime
        milliseconds = log.milliseconds[at:] or (took if concurrency == 1 else [])
        made, seconds = log.requests - before, time.monotonic() - begin
        return _Counts(files, size, made, seconds, cpu, milliseconds[:20_000], log.retries - retries, log.transfer)


def _contents(fs: FS, names: list[str], concurrency: int, end: float) -> Iterator[bytes]:
    size = max(4 * concurrency, 16)
    for start in itertools.cycle(range(0, len(names), size)):
        yield from fs.read_many(names[start : start + size], concurrency=concurrency)
        if time.monotonic() >= end:
            return


def _step(counts: list[_Counts], workers: int, concurrency: int) -> ThroughputStep:
    files = sum(one.files for one in counts)
    milliseconds = sorted(itertools.chain.from_iterable(one.milliseconds for one in counts))
    return ThroughputStep(
        workers,
        concurrency,
        sum(one.files / one.seconds for one in counts),
        sum(one.requests / one.seconds for one in counts),
        sum(one.bytes / one.seconds for one in counts) / 1e6,
        statistics.median(milliseconds) if milliseconds else 0.0,
        milliseconds[int(0.99 * (len(milliseconds) - 1))] if milliseconds else 0.0,
        sum(one.cpu for one in counts) / max(1, files) * 1e3,
        sum(one.cpu / one.seconds for one in counts) / len(counts),
        sum(one.retries for one in counts) / max(1, sum(one.requests for one in counts)),
        sum(one.transfer for one in counts) / max(1e-9, sum(milliseconds) / 1e3),
    )


def explore(run: Callable[[int, int], ThroughputStep], most_workers: int | None) -> Iterator[ThroughputStep]:
    """Yield measurements with more and more in flight, then with more and more workers, until more doesn't help.

    `run(workers, concurrency)` measures. Workers go on to `most_workers`, if that is given, and to eight for each CPU.
    """
    tried = []
    for concurrency in _doubled(1, MOST_IN_FLIGHT):
        tried.append(run(1, concurrency))
        yield tried[-1]
        if _plateau(tried):
            break
    concurrency = best(tried).concurrency
    tried = [best(tried)]
    for workers in _doubled(2, most_workers or 8 * process.cpu_count()):
        tried.append(run(workers, concurrency))
        yield tried[-1]
        if _plateau(tried):
            break


def _doubled(first: int, most: int) -> list[int]:
    """Return `first`, twice as much, and so on up to `most`."""
    found = [first << power for power in range(32) if first << power < most]
    return [*found, most] if most >= first else []


def _plateau(tried: Sequence[ThroughputStep]) -> bool:
    """Return whether the last two steps brought less than `GAIN`: one may be an accident."""
    rates = [step.files_per_second for step in tried]
    return len(rates) > 2 and max(rates[-2:]) < GAIN * max(rates[:-2])


def best(steps: Sequence[ThroughputStep]) -> ThroughputStep:
    """Return the fastest step; of those that are nearly as fast, the one with the least in flight."""
    most = max(step.files_per_second for step in steps)
    near = [step for step in steps if step.files_per_second >= 0.93 * most]
    return min(near, key=lambda step: step.workers * step.concurrency)


def bottleneck(steps: Sequence[ThroughputStep]) -> str:
    """Return what keeps the fastest step from being faster: CPU, throttling, latency or bandwidth."""
    cpus = process.cpu_count()
    fastest = max(steps, key=lambda step: step.files_per_second)
    if fastest.busy * fastest.workers > 0.8 * cpus:
        return f"CPU: {fastest.busy * fastest.workers:.1f} of {cpus} are used by reading alone"
    if max(step.refused for step in steps) > REFUSED:
        return f"throttling: the store refuses {max(step.refused for step in steps):.0%} of the requests (slow down)"
    last = max(steps, key=lambda step: step.workers * step.concurrency)
    if fastest is last and fastest.files_per_second > GAIN * best([*steps[:-1], *steps[:1]]).files_per_second:
        return "latency: more in flight is still faster at the most that was tried"
    if fastest.transfer > 0.5:
        return f"bandwidth: {fastest.megabytes_per_second:.3g} MB/s, and more in flight is not faster"
    return "latency: of the store, which answers no more requests at once"


def cache_advice(fs: FS, sample: Sample) -> str:
    """Return whether a cache on the local disk pays."""
    if backend_of(fs).scheme in ("file", "memory"):
        return "none: the files are local"
    folder = cache_directory()
    if folder is None:
        return "none: FSABS_CACHE_DIR is set to nothing"
    at = str(folder)
    while not os.path.isdir(at):
        at = os.path.dirname(at)
    if mounts.is_network(mounts.filesystem_of(at)):
        return f"none: {folder} is on a network; set FSABS_CACHE_DIR to a local disk"
    free = shutil.disk_usage(at).free
    share = min(1.0, 0.8 * free / sample.bytes) if sample.bytes else 1.0
    if share < 1:
        return f"cache=True, which has room for {share:.0%} of the data set"
    return f"cache=True: {size_text(sample.bytes)} of {size_text(free)} free; epochs from the second on are local"
