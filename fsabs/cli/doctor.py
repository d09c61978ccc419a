"""`fsabs doctor`: checks of this machine and of a store, each ok, a warning or a fault, with what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from ..fs import FS
from .checking import CheckFinding, address_of, credentials, guarded, hadoop, network, permissions
from .machine import findings
from .output import coloured
from .paths import path_argument
from .program import FAILED, Invocation, common

_COLOURS = {"ok": "good", "warning": "warning", "fault": "error"}


@click.command()
@path_argument("url", required=False)
@common
def command(invocation: Invocation, url: str | None) -> int:
    """Check this machine and, given URL, its store: network, TLS, clock, credentials, permissions.

    A scratch file is written at URL and removed. The exit code is 1 if there is a fault.

    \b
    Example: fsabs doctor s3://bucket/train
    """
    output = invocation.output
    worst = 0
    for found in _findings(url):
        text = f"{found.status:<7}  {found.check}: {found.detail}" + (f"; {found.advice}" if found.advice else "")
        status = coloured(text[:7], _COLOURS[found.status], sys.stdout)
        output.record(found._asdict(), status + text[7:])
        worst = FAILED if found.status == "fault" else worst
    return worst


def _findings(url: str | None) -> Iterator[CheckFinding]:
    yield from findings()
    if url is not None:
        yield from guarded("url", lambda: _of_url(url), "`fsabs explain` shows how the URL resolves")


def _of_url(url: str) -> Iterator[CheckFinding]:
    from .. import urls
    from .resolution import backend_of

    with _outermost(url) as store:
        bottom = backend_of(store)
        facts = bottom._describe_store()
        yield from credentials(facts)
        if bottom.scheme in ("hdfs", "viewfs"):
            yield from hadoop(facts)
        elif (address := address_of(bottom)) is not None:
            yield from network(address)
    with urls.from_url(url) as fs:
        yield from permissions(fs)


def _outermost(url: str) -> FS:
    """Return the FS of the store that a URL is in, of which nothing is asked."""
    from .. import locations, urls

    location = locations.parsed(url)
    return urls.open_location(location._replace(path="/", query=(), object=""))
