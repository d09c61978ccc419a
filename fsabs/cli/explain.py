"""`fsabs explain`: how a URL resolves (sections of `pfio.ini`, backend, store, containers, layers), and what reading it
costs.

Each fact has its source, and no secrets in it: of an option that isn't known to be harmless, only the source is a fact.
Requests, bytes and times are measured by a `RequestLog`, over a sample of the files.
"""

from __future__ import annotations

import itertools
import os
import random
import re
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
    """A fact about how a URL resolves."""

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
        found = costs(given.url)
        if output.json:
            output.table(Cost._fields, found)
        else:
            output.record({}, "")
            rows = [(*cost[:4], None if cost.seconds is None else f"{cost.seconds:.3g}", cost.note) for cost in found]
            output.table([name.replace("_", " ") for name in Cost._fields], rows)
    return code


def _of_url(url: str) -> Iterator[Fact]:
    """Yield the facts about a URL that is not open."""
    location = locations.parse(url)
    yield Fact("url", location.text)
    path = config.config_path()
    variables = ("PFIO_CONFIG_PATH", "XDG_CONFIG_HOME")
    source = next((f"${name}" for name in variables if path.startswith(os.environ.get(name) or "\0")), "default")
    yield Fact("configuration", path if os.path.exists(path) else f"{path} (not there)", source)
    scheme = location.scheme
    center = config.datacenter(location.authority) if scheme == locations.PFS else None
    custom = None if center or registry.backend(scheme) else config.resolve(scheme)
    if center is not None:
        yield Fact("section", f"[{location.authority}]", path)
        yield Fact("datacenter", locations.parse(center.url).text, f"only the home of {center.username} is written to")
    if custom is not None:
        yield Fact("section", " -> ".join([*(f"[{name}]" for name in _sections(scheme)), custom.scheme]), path)
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
    """Yield the facts about an open FS: layers, containers, and how its store is reached, without secrets."""
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


def _sections(scheme: str) -> dict[str, dict[str, Any]]:
    """Return the sections that a custom scheme builds on, the nearest first."""
    found: dict[str, dict[str, Any]] = {}
    while (section := config.get_custom_scheme(scheme)) is not None:
        found[scheme] = section
        scheme = str(section.get("scheme", ""))
    return found


def _option(scheme: str, name: str, value: Any, source: str) -> Fact:
    """Return the fact of an option; one that is written as a variable has that as its source, too."""
    written = next((str(section[name]) for section in _sections(scheme).values() if section.get(name)), "")
    if re.fullmatch(r"\$(\w+|\{\w+\})", written):
        source = f"{source}, from {written}"
    shown = redaction.shown(name, value)
    return Fact(f"option {name}", "(not shown)" if shown == redaction.HIDDEN else shown, source)


LISTED = 1000
"""Entries that are listed at most to learn what a data set costs."""
SAMPLED = 16
"""Files that are read at most for that."""
SAMPLED_BYTES = 64 * 1024 * 1024


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
    """Return the costs of opening, listing and one epoch over the data set at a URL, by a sample of its files."""
    with RequestLog() as opening_log:
        fs = opening.from_url(url)
    with fs:
        with RequestLog() as listing_log:
            entries = list(itertools.islice(fs.list("", recursive=True, detail=True), LISTED))
            files = [stat for stat in entries if not stat.directory]
            sample = _sample(files)
        with RequestLog() as reading_log:
            read = sum(map(len, fs.read_many([stat.filename for stat in sample])))
        counted = backend_of(fs)._notes.records_requests
    logs = [opening_log, listing_log, reading_log]
    whole = len(entries) < LISTED
    notes = ["", f"{len(files):,} files" if whole else f"of the first {LISTED:,} entries"]
    notes += [f"{len(sample)} files of {read:,} bytes"]
    found = []
    for operation, log, note in zip(("opening", "listing", "reading"), logs, notes, strict=True):
        cost = Cost(operation, log.requests, log.bytes, log.round_trips, log.seconds, note)
        found.append(cost if counted else cost._replace(requests=None, bytes=None, round_trips=None))
    if sample:
        found.append(_epoch(files, sample, found[-1], fs.default_concurrency, whole))
    if times := [time for log in logs for time in log.milliseconds]:
        connections, retries = sum(log.connections for log in logs), sum(log.retries for log in logs)
        note = f"median of {len(times)} requests; {connections} connections, {retries} retries"
        found.append(Cost("round trip", None, None, 1, statistics.median(times) / 1e3, note))
    return found


def _sample(files: list[FileStat]) -> list[FileStat]:
    """Return some files, drawn by chance within `SAMPLED_BYTES`: one at least, if there are any."""
    chosen = random.Random(0).sample(files, min(SAMPLED, len(files)))
    sizes = itertools.accumulate(stat.size for stat in chosen)
    return chosen[: max(1, sum(size <= SAMPLED_BYTES for size in sizes))]


def _epoch(files: list[FileStat], sample: list[FileStat], reading: Cost, concurrency: int, whole: bool) -> Cost:
    """Return the cost of an epoch over all files, extrapolated from reading a sample of them."""
    total, read = (sum(stat.size for stat in stats) for stats in (files, sample))
    factor = len(files) / len(sample)
    weight = total / read if read else factor
    requests = None if reading.requests is None else round(reading.requests * factor)
    moved = None if reading.bytes is None else round(reading.bytes * weight)
    trips = None if requests is None else -(-requests // concurrency)
    once = reading.seconds or 0.0
    seconds = once * max(factor, weight)
    if trips and reading.round_trips:  # as many in flight as there are, not as in the sample
        seconds = min(seconds, trips * once / reading.round_trips * max(1.0, weight / factor))
    note = f"estimate for {len(files):,} files of {total:,} bytes" + ("" if whole else ", as far as they were listed")
    return Cost("an epoch", requests, moved, trips, seconds, f"{note}, by read_many in one process")
