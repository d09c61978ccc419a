"""`fsabs explain`: how a URL resolves, and what opening, listing and reading it cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from .paths import path_argument
from .program import FAILED, Invocation, common

if TYPE_CHECKING:
    from .measuring import Cost

_CONTAINER = "opening: the end and the index of the file, and its index again only if the cache directory has none"
_RULES = {
    "file": ("opening: nothing", "listing: a scan of each directory", "an epoch: an open and a read for each file"),
    "memory": ("opening: nothing", "listing: nothing", "an epoch: nothing"),
    "s3": (
        "opening: no request",
        "listing: a request for every 1000 names",
        "an epoch: a request for each file, more for large ones",
    ),
    "hdfs": (
        "opening: no request",
        "listing: a request for each directory, and for every 1000 names in it",
        "an epoch: a request of the NameNode and one of a DataNode for each file",
    ),
}


@click.command()
@path_argument("url")
@click.option("--measure", is_flag=True, help="Make a few requests, and show what operations cost.")
@common
def command(invocation: Invocation, url: str, measure: bool) -> int:
    """Show how URL resolves: configuration, store, credentials' source, containers, layers, options, and their costs.

    The URL is opened as from_url does: a container at its end is opened. Secrets are not shown.

    \b
    Example: fsabs explain s3://bucket/train.zip --measure
    """
    from ..urls import opening
    from . import resolution

    output = invocation.output
    facts = list(resolution.of_url(url))
    code = 0
    try:
        with opening.from_url(url) as fs:
            facts += resolution.of_fs(fs)
            facts += [resolution.Fact("cost", rule) for rule in _rules(resolution.backend_of(fs).scheme, facts)]
    except OSError as exc:
        invocation.error(exc)
        code = FAILED
    columns = ("fact", "value", "from")
    rows = [tuple(value or None for value in fact) for fact in facts]
    if output.json:
        output.table(columns, rows)
    else:
        width = max(len(fact.name) for fact in facts)
        for fact in facts:
            source = f"  ({fact.source})" if fact.source else ""
            output.record({}, f"{fact.name:<{width}}  {fact.value}{source}")
    if measure and not code:
        from .measuring import costs

        _write_costs(invocation, costs(url))
    return code


def _rules(scheme: str, facts: Sequence[tuple[str, str, str]]) -> tuple[str, ...]:
    rules = _RULES.get(scheme, ("opening, listing, an epoch: as the store has it; --measure shows it",))
    if any(fact[0] == "container" for fact in facts):
        return (
            _CONTAINER,
            "listing: nothing",
            "an epoch: small gaps between members are read with them, in one request",
        )
    return rules


def _write_costs(invocation: Invocation, costs: list[Cost]) -> None:
    columns = ("operation", "requests", "bytes", "round trips", "seconds", "note")
    rows = [(*cost[:4], None if cost.seconds is None else f"{cost.seconds:.3g}", cost.note) for cost in costs]
    if invocation.output.json:
        for cost in costs:
            invocation.output.record(cost._asdict(), "")
        return
    invocation.output.record({}, "")
    invocation.output.table(columns, rows)
