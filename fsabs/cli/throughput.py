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
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

from .. import mounts
from ..fs import FS, FileStat
from ..index_cache import cache_directory
from .measuring import RequestLog
from .output import size_text
from .resolution import backend_of

LISTED = 100_000
"""Files that a sample is drawn from at most."""
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
        before, at = log.requests, len(log.milliseconds)
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
        return _Counts(files, size, log.requests - before, time.monotonic() - begin, cpu, milliseconds[:20_000])


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
    )


def concurrencies(fs: FS) -> list[int]:
    """Return the numbers of files in flight that are tried."""
    return sorted({1, max(1, fs.default_concurrency // 2), fs.default_concurrency, 2 * fs.default_concurrency})


def best(steps: Sequence[ThroughputStep]) -> ThroughputStep:
    """Return the fastest step; of those that are nearly as fast, the one with the least in flight."""
    most = max(step.files_per_second for step in steps)
    near = [step for step in steps if step.files_per_second >= 0.93 * most]
    return min(near, key=lambda step: step.workers * step.concurrency)


def bottleneck(steps: Sequence[ThroughputStep]) -> str:
    """Return what keeps the fastest step from being faster."""
    cpus = len(os.sched_getaffinity(0))
    fastest = max(steps, key=lambda step: step.files_per_second)
    if fastest.busy * fastest.workers > 0.8 * cpus:
        return f"the CPUs of this machine: {fastest.busy * fastest.workers:.1f} of {cpus} are used by reading alone"
    if fastest.busy > 0.8:
        return "the CPU of each process: more workers are faster"
    single = min(steps, key=lambda step: step.workers * step.concurrency)
    if fastest.files_per_second > 0.9 * fastest.workers * fastest.concurrency * single.files_per_second:
        return "the latency of the store: more in flight is faster"
    return "the store or the network: neither more workers nor more in flight is faster"


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
