"""`fsabs doctor`: checks of this machine and of a store, each ok, a warning or a fault, with what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from ..core.fs import FS
from .checking import CheckFinding, address_of, credentials, guarded, hadoop, network, permissions, within
from .machine import findings
from .output import coloured
from .paths import path_argument
from .program import FAILED, Invocation, common
from .speed import speed

_COLOURS = {"ok": "good", "warning": "warning", "fault": "error"}


@click.command()
@path_argument("url", required=False)
@common
def command(invocation: Invocation, url: str | None) -> int:
    """Check this machine and, given URL, its store: network, TLS, clock, credentials, permissions, speed.

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
    from ..urls import opening
    from .resolution import backend_of

    with within(_outermost, url) as store:
        bottom = backend_of(store)
        facts = within(bottom._describe_store)
        yield from credentials(facts)
        if bottom.scheme in ("hdfs", "viewfs"):
            yield from hadoop(facts)
        elif (address := address_of(facts)) is not None:
            yield from network(address)
    with within(opening.from_url, url) as fs:
        yield from permissions(fs, bottom)
        if bottom._notes.records_requests:
            yield from speed(fs)


def _outermost(url: str) -> FS:
    """Return the FS of the store that a URL is in, of which nothing is asked."""
    from ..urls import locations, schemes

    opener, location, options, _ = schemes.backend(locations.parsed(url)._replace(path="/"), {}, strict=False)
    return opener(location.authority, location.path, options)
