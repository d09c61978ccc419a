"""`fsabs explain`: how a URL resolves (sections of `pfio.ini`, backend, store, containers, layers), and what reading it
costs.

Each fact has its source, and no secrets in it: of an option that isn't known to be harmless, only the source is a fact.
Requests, bytes and times are measured by a `RequestLog`, over a sample of the files.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..containers.base import Container
from ..core import redaction, registry
from ..core.fs import FS, FileStat
from ..core.layers import LayerFS
from ..urls import config, locations, opening
from .paths import path_argument
from .program import FAILED, Invocation, command, flag
from .progress import RequestLog

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
    for name, value in fs.backing._describe_store().items():
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


def sample_of(fs: FS) -> Sample:
    """Return some files, drawn by chance from the first `LISTED` entries of a data set: one, if there are any files."""
    entries = list(itertools.islice(fs.list("", recursive=True, detail=True), LISTED))
    files = [stat for stat in entries if not stat.directory]
    chosen = random.Random(0).sample(files, min(SAMPLED, len(files)))
    sizes = itertools.accumulate(stat.size for stat in chosen)
    chosen = chosen[: max(1, sum(size <= SAMPLED_BYTES for size in sizes))]
    return Sample(chosen, len(files), sum(stat.size for stat in files), len(entries) < LISTED)


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
            sample = sample_of(fs)
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
