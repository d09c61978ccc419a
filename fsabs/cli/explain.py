"""`fsabs explain`: how a URL resolves, and what opening, listing and reading it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .paths import path_argument
from .program import FAILED, Invocation, common

if TYPE_CHECKING:
    from .measuring import Cost

_COSTS_IN_CONTAINERS = (
    "opening: the end and the index of the file, and its index again only if the cache directory has none",
    "listing: nothing",
    "an epoch: small gaps between members are read with them, in one request",
)


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
            in_container = any(fact.name == "container" for fact in facts)
            costs_of_fs = _COSTS_IN_CONTAINERS if in_container else resolution.backend_of(fs)._notes.costs
            facts += [resolution.Fact("cost", cost) for cost in costs_of_fs]
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


def _write_costs(invocation: Invocation, costs: list[Cost]) -> None:
    columns = ("operation", "requests", "bytes", "round trips", "seconds", "note")
    rows = [(*cost[:4], None if cost.seconds is None else f"{cost.seconds:.3g}", cost.note) for cost in costs]
    if invocation.output.json:
        for cost in costs:
            invocation.output.record(cost._asdict(), "")
        return
    invocation.output.record({}, "")
    invocation.output.table(columns, rows)
