"""`fsabs explain`: how a URL resolves (sections of `pfio.ini`, backend, store, containers, layers), and what it costs.

Each fact has its source, and no secrets in it: of an option that isn't known to be harmless, only the source is a fact.
"""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..containers.base import Container
from ..core import redaction, registry
from ..core.fs import FS
from ..core.layers import LayerFS
from ..urls import config, locations, opening
from .paths import path_argument
from .program import FAILED, Invocation, command, flag

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
            facts += _of_fs(fs)
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
    from .measuring import costs

    found = costs(url)
    if invocation.output.json:
        for cost in found:
            invocation.output.record(cost._asdict(), "")
        return
    columns = ("operation", "requests", "bytes", "round trips", "seconds", "note")
    rows = [(*cost[:4], None if cost.seconds is None else f"{cost.seconds:.3g}", cost.note) for cost in found]
    invocation.output.record({}, "")
    invocation.output.table(columns, rows)


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


def _of_fs(fs: FS) -> Iterator[Fact]:
    """Yield what is known of an open FS: layers, containers, and how its store is reached."""
    while isinstance(fs, LayerFS):
        yield Fact("layer", type(fs).__name__)
        fs = fs.inner
    containers = [Fact("container", found.file_url, type(found).__name__) for found in _containers(fs)]
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
    while isinstance(fs, LayerFS | Container):
        fs = fs.inner if isinstance(fs, LayerFS) else fs.parent
    return fs


def _containers(fs: FS) -> Iterator[Container]:
    """Yield the containers that an FS is in, the innermost first."""
    while isinstance(fs, LayerFS | Container):
        if isinstance(fs, Container):
            yield fs
            fs = fs.parent
        else:
            fs = fs.inner


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
