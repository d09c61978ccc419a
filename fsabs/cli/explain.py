"""`fsabs explain`: how a URL resolves (sections of `pfio.ini`, backend, store, containers, layers), and what reading it
costs; and `fsabs bench`: how fast more and more readers read it, and the settings that are best.

Each fact has its source, and no secrets in it: of an option that isn't known to be harmless, only the source is a fact.
Requests, bytes and times are measured by a `RequestLog`, over a sample of the files.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import statistics
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple

from ..containers.base import Container
from ..core import process, redaction, registry
from ..core.fs import FS, FileStat
from ..core.layers import LayerFS
from ..disk import folders
from ..disk.folders import cache_directory
from ..urls import config, locations, opening
from .output import size_text
from .paths import path_argument
from .program import FAILED, Invocation, argument, at_least, command, flag
from .progress import TIMED, RequestLog

_COSTS_IN_CONTAINERS = (
    "opening: the end and the index of the file, and its index again only if the cache directory has none",
    "listing: nothing",
    "an epoch: small gaps between members are read with them, in one request",
)


class Fact(NamedTuple):
    """Something about how a URL resolves."""

    name: str
    value: str
    source: str = ""
    """Where it was configured, if that is not in the value."""


@command(
    path_argument("url"),
    flag("--measure", help="Make a few requests, and show what operations cost."),
)
def explain(invocation: Invocation, given: Namespace) -> int:
    """Show how URL resolves: configuration, store, credentials' source, containers, layers, options, and their costs.

    The URL is opened as from_url does: a container at its end is opened. Secrets are not shown.

    Example: fsabs explain s3://bucket/train.zip --measure
    """
    output = invocation.output
    facts = list(_of_url(given.url))
    code = 0
    try:
        with opening.from_url(given.url) as fs:
            facts += facts_of(fs)
    except OSError as exc:
        invocation.error(exc)
        code = FAILED
    if output.json:
        output.table(("fact", "value", "from"), [tuple(value or None for value in fact) for fact in facts])
    else:
        width = max(len(fact.name) for fact in facts)
        for fact in facts:
            source = f"  ({fact.source})" if fact.source else ""
            output.record({}, f"{fact.name:<{width}}  {fact.value}{source}")
    if given.measure and not code:
        _measure(invocation, given.url)
    return code


def _measure(invocation: Invocation, url: str) -> None:
    """Write what a few requests have cost."""
    found = costs(url)
    if invocation.output.json:
        invocation.output.table(Cost._fields, found)
        return
    rows = [(*cost[:4], None if cost.seconds is None else f"{cost.seconds:.3g}", cost.note) for cost in found]
    invocation.output.record({}, "")
    invocation.output.table([name.replace("_", " ") for name in Cost._fields], rows)


def _of_url(url: str) -> Iterator[Fact]:
    """Yield what is known of a URL before it is opened."""
    location = locations.parse(url)
    yield Fact("url", location.text)
    path = config.config_path()
    yield Fact("configuration", path if os.path.exists(path) else f"{path} (not there)", _source_of_path())
    scheme = location.scheme
    center = config.datacenter(location.authority) if scheme == locations.PFS else None
    custom = None if center or registry.backend(scheme) else config.resolve(scheme)
    if center is not None:
        yield Fact("section", f"[{location.authority}]", path)
        yield Fact("datacenter", locations.parse(center.url).text, f"only the home of {center.username} is written to")
    if custom is not None:
        yield Fact("section", " -> ".join([*(f"[{name}]" for name in _chain(scheme)), custom.scheme]), path)
        if custom.prefix:
            yield Fact("prefix", custom.prefix)
    opener, resolved, options, settings = opening.find_backend(location, {}, strict=False)
    yield Fact("backend", opener.name, f"scheme {custom.scheme if custom else scheme}")
    if resolved.authority:
        yield Fact("authority", resolved.authority.rpartition("@")[2])  # without user and password
    shown = redaction.without_secrets(f"{scheme}://{resolved.path or '/'}")  # a slash too many puts a login there
    yield Fact("path", shown.removeprefix(f"{scheme}://"))
    section = location.authority if center is not None else scheme
    configured = center or custom
    for name, value in {**options, **settings}.items():
        source = configured.origins.get(name) or f"[{section}]" if configured is not None else "query"
        yield _option(section, name, value, source)


def facts_of(fs: FS) -> Iterator[Fact]:
    """Yield what is known of an open FS: layers, containers, and how its store is reached; no secret is in it."""
    while isinstance(fs, LayerFS):
        yield Fact("layer", type(fs).__name__)
        fs = fs.inner
    containers = [
        Fact("container", one.file_url, type(one).__name__) for one in _nested(fs) if isinstance(one, Container)
    ]
    yield from reversed(containers)
    for name, value in fs._describe_store().items():
        text, mark, source = value.rpartition(" (")
        yield Fact(name, text, source.rstrip(")")) if mark else Fact(name, value)
    can = [name for name, value in fs.capabilities._asdict().items() if value is True]
    yield Fact("capabilities", ", ".join(can))
    yield Fact("concurrency", str(fs.default_concurrency), "of read_many, by default")
    for cost in _COSTS_IN_CONTAINERS if containers else backend_of(fs)._notes.costs:
        yield Fact("cost", cost)


def backend_of(fs: FS) -> FS:
    """Return the FS of the store that an FS is in, through its layers and containers."""
    *_, store = _nested(fs)
    return store


def _nested(fs: FS) -> Iterator[FS]:
    """Yield an FS and those that it is in, as layers and containers are, to that of the store."""
    yield fs
    if isinstance(fs, LayerFS | Container):
        yield from _nested(fs.inner if isinstance(fs, LayerFS) else fs.parent)


def _chain(name: str) -> Iterator[str]:
    """Yield the names of the sections that a custom scheme builds on."""
    while (section := config.get_custom_scheme(name)) is not None:
        yield name
        name = str(section.get("scheme", ""))


def _option(scheme: str, name: str, value: Any, source: str) -> Fact:
    written = _written(scheme, name)
    if "$" in written and "$$" not in written:
        source = f"{source}, from {written}"
    shown = redaction.shown(name, value)
    return Fact(f"option {name}", "(not shown)" if shown == redaction.HIDDEN else shown, source)


def _written(scheme: str, name: str) -> str:
    """Return a variable that an option is written as; an empty string if it is written otherwise."""
    for section in _chain(scheme):
        text = str((config.get_custom_scheme(section) or {}).get(name, ""))
        if text:
            return text if text.startswith("$") and text.strip("${}").replace("_", "").isalnum() else ""
    return ""


def _source_of_path() -> str:
    for name in ("PFIO_CONFIG_PATH", "XDG_CONFIG_HOME"):
        if os.environ.get(name) and config.config_path().startswith(os.environ[name]):
            return f"${name}"
    return "default"


LISTED = 1000
"""Entries that are listed at most to learn what a data set costs."""
SAMPLED = 16
"""Files that are read at most for that."""
SAMPLED_BYTES = 64 * 1024 * 1024
BENCH_LISTED = 100_000
"""Entries that the sample of `bench` is drawn from at most."""
MOST_IN_FLIGHT = 256
GAIN = 1.1
"""The least speedup of a larger setting for which the next one is tried, too."""
REFUSED = 0.01
"""This share of requests that are refused is throttling."""
_WARM_UP = 0.2  # of the seconds of a step


class Sample(NamedTuple):
    """Some files of a data set, and its size as far as it was listed."""

    stats: list[FileStat]
    files: int
    bytes: int
    complete: bool

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [stat.filename for stat in self.stats]


def sample_of(fs: FS, listed: int, count: int, most_bytes: int | None = None) -> Sample:
    """Return `count` files, drawn by chance from the first `listed` entries of a data set.

    With `most_bytes` they are fewer, if they were more bytes together; there is one, if there are any files.
    """
    entries = list(itertools.islice(fs.list("", recursive=True, detail=True), listed))
    files = [stat for stat in entries if not stat.directory]
    chosen = random.Random(0).sample(files, min(count, len(files)))
    if most_bytes is not None:
        sizes = itertools.accumulate(stat.size for stat in chosen)
        chosen = chosen[: max(1, sum(size <= most_bytes for size in sizes))]
    return Sample(chosen, len(files), sum(stat.size for stat in files), len(entries) < listed)


class Cost(NamedTuple):
    """The cost of an operation."""

    operation: str
    requests: int | None
    """Requests of the store; None if it does not count them."""
    bytes: int | None
    round_trips: int | None
    """Requests that wait for one another."""
    seconds: float | None
    note: str = ""


def costs(url: str) -> list[Cost]:
    """Return what opening, listing and one epoch over the data set at a URL cost."""
    logs = [RequestLog() for _ in range(3)]
    with logs[0]:
        fs = opening.from_url(url)
    with fs:
        with logs[1]:
            sample = sample_of(fs, LISTED, SAMPLED, SAMPLED_BYTES)
        with logs[2]:
            read = sum(map(len, fs.read_many(sample.names)))
        counted = backend_of(fs)._notes.records_requests
    listed = f"{sample.files:,} files" if sample.complete else f"of the first {LISTED:,} entries"
    notes = {"opening": "", "listing": listed, "reading": f"{len(sample.stats)} files of {read:,} bytes"}
    found = [
        Cost(operation, log.requests, log.bytes, log.round_trips, log.seconds, note)
        if counted
        else Cost(operation, None, None, None, log.seconds, note)
        for log, (operation, note) in zip(logs, notes.items(), strict=True)
    ]
    if sample.stats:
        found.append(_epoch(fs, sample, found[-1]))
    if times := [time for log in logs for time in log.milliseconds]:
        connections, retries = sum(log.connections for log in logs), sum(log.retries for log in logs)
        note = f"median of {len(times)} requests; {connections} connections, {retries} retries"
        found.append(Cost("round trip", None, None, 1, statistics.median(times) / 1e3, note))
    return found


def _epoch(fs: FS, sample: Sample, reading: Cost) -> Cost:
    """Return what an epoch over all files costs, extrapolated from reading a sample of them."""
    factor = sample.files / len(sample.stats)
    read = sum(stat.size for stat in sample.stats)
    weight = sample.bytes / read if read else factor
    requests = None if reading.requests is None else round(reading.requests * factor)
    moved = None if reading.bytes is None else round(reading.bytes * weight)
    trips = None if requests is None else -(-requests // fs.default_concurrency)
    once = reading.seconds or 0.0
    seconds = once * max(factor, weight)
    if trips and reading.round_trips:  # as many in flight as there are, not as in the sample
        seconds = min(seconds, trips * once / reading.round_trips * max(1.0, weight / factor))
    of_what = f"{sample.files:,} files of {sample.bytes:,} bytes"
    of_what += "" if sample.complete else ", as far as they were listed"
    return Cost("an epoch", requests, moved, trips, seconds, f"estimate for {of_what}, by read_many in one process")


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


class _Reads(NamedTuple):
    """The files and bytes that a process has read in a step."""

    files: int
    bytes: int
    milliseconds: list[float]
    log: RequestLog


def measure(fs: FS, names: Sequence[str], workers: int, concurrency: int, seconds: float) -> ThroughputStep:
    """Return what `workers` forked processes reach, each of which reads files of its own part of `names`."""
    parts = [list(names[number::workers]) or list(names) for number in range(workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork"), _inherit, (fs,)) as pool:
        try:
            with _uninterrupted():
                reading = pool.map(_read, parts, itertools.repeat(concurrency), itertools.repeat(seconds))
            reads = list(reading)
        except BrokenProcessPool:
            raise OSError("a process that measures was killed") from None
        except KeyboardInterrupt:  # of this process alone: the pool would wait for the end of the step
            for child in multiprocessing.active_children():
                child.kill()
            raise
    return _step(reads, workers, concurrency)


_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Have an interrupt wait: in the middle of a fork it would leave a child that is never waited for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _inherit(fs: FS) -> None:
    global _inherited
    _inherited = fs
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent does: one that is killed leaves its pool to wait for work without end."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_inherited: FS
"""Of a process that measures: the FS that it reads, as it was when the process was forked."""


def _read(names: list[str], concurrency: int, seconds: float) -> _Reads:
    """Read files again and again; the first moments, in which connections are made and indexes read, do not count."""
    for _ in _contents(names, concurrency, _WARM_UP * seconds):
        pass
    files = size = 0
    took: list[float] = []
    with RequestLog() as log:
        last = time.monotonic()
        for content in _contents(names, concurrency, seconds):
            files, size = files + 1, size + len(content)
            took.append((time.monotonic() - last) * 1e3)
            last = time.monotonic()
    return _Reads(files, size, log.milliseconds or (took[:TIMED] if concurrency == 1 else []), log)


def _contents(names: list[str], concurrency: int, seconds: float) -> Iterator[bytes]:
    end = time.monotonic() + seconds
    size = max(4 * concurrency, 16)
    for start in itertools.cycle(range(0, len(names), size)):
        yield from _inherited.read_many(names[start : start + size], concurrency=concurrency)
        if time.monotonic() >= end:
            return


def _step(reads: list[_Reads], workers: int, concurrency: int) -> ThroughputStep:
    files = sum(one.files for one in reads)
    milliseconds = sorted(itertools.chain.from_iterable(one.milliseconds for one in reads))
    logs = [one.log for one in reads]
    return ThroughputStep(
        workers,
        concurrency,
        sum(one.files / one.log.seconds for one in reads),
        sum(log.requests / log.seconds for log in logs),
        sum(one.bytes / one.log.seconds for one in reads) / 1e6,
        statistics.median(milliseconds) if milliseconds else 0.0,
        milliseconds[int(0.99 * (len(milliseconds) - 1))] if milliseconds else 0.0,
        sum(log.cpu for log in logs) / max(1, files) * 1e3,
        sum(log.cpu / log.seconds for log in logs) / len(logs),
        sum(log.retries for log in logs) / max(1, sum(log.requests for log in logs)),
        sum(log.transfer for log in logs) / max(1e-9, sum(milliseconds) / 1e3),
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
    at = folders.existing(folder)
    if folders.is_network(folders.filesystem_of(at)):
        return f"none: {folder} is on a network; set FSABS_CACHE_DIR to a local disk"
    free = shutil.disk_usage(at).free
    share = min(1.0, 0.8 * free / sample.bytes) if sample.bytes else 1.0
    if share < 1:
        return f"cache=True, which has room for {share:.0%} of the data set"
    return f"cache=True: {size_text(sample.bytes)} of {size_text(free)} free; epochs from the second on are local"


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


@command(
    path_argument("url"),
    argument("--workers", type=at_least(1), help="Processes at most; by default until more are not faster."),
    argument("--seconds", type=at_least(0.05), default=3.0, help="Of each measurement (default: %(default)s)."),
    argument("--files", type=at_least(1), default=2000, help="The size of the sample (default: %(default)s)."),
)
def bench(invocation: Invocation, given: Namespace) -> None:
    """Read a sample of the data set at URL with more and more in flight, until more doesn't help; say what limits.

    The URL is opened as from_url does: a container at its end is opened. The sample is drawn by chance from the first
    100,000 entries.

    Example: fsabs bench s3://bucket/train.zip --workers 4
    """
    output = invocation.output
    with opening.from_url(given.url) as fs:
        sample = sample_of(fs, BENCH_LISTED, given.files)
        if not sample.stats:
            raise ValueError(f"{given.url}: there are no files")
        steps = list(explore(functools.partial(measure, fs, sample.names, seconds=given.seconds), given.workers))
        chosen = best(steps)
        of_what = f"{len(sample.stats):,} of {sample.files:,} files of {sample.bytes:,} bytes"
        advice = {
            "sample": of_what if sample.complete else f"{of_what}, as far as they were listed",
            "bottleneck": bottleneck(steps),
            "concurrency": chosen.concurrency,
            "workers": chosen.workers,
            "cache": cache_advice(fs, sample),
        }
    if output.json:
        output.table(ThroughputStep._fields, steps)
        output.record(advice, "")
        return
    output.table(_COLUMNS, [[f"{value:.4g}" for value in step] for step in steps])
    output.record({}, "")
    for name, value in advice.items():
        output.record({}, f"{name:<11}  {value}")
