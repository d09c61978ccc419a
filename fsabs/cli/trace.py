"""`fsabs trace`: summary, timeline and report of a recorded trace."""

from __future__ import annotations

import sys

import click

from .program import Invocation, common


@click.group()
def command() -> None:
    """Show what a trace has recorded; FSABS_TRACE=folder records one.

    \b
    Example: fsabs trace summary trace-folder
    """


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@common
def summary(invocation: Invocation, folder: str) -> None:
    """Show headline figures, findings, operations and the slowest files.

    \b
    Example: fsabs trace summary trace-folder
    """
    from ..trace import analyze, summary

    found = analyze(folder)
    if invocation.output.json:
        for finding in found.findings:
            values = {name: getattr(finding, name) for name in ("severity", "code", "title", "advice")}
            invocation.output.record({"finding": values}, "")
        for row in found.operations:
            values = {
                name: getattr(row, name) for name in ("layer", "operation", "kind", "calls", "seconds", "p50", "p99")
            }
            invocation.output.record({"operation": values}, "")
        return
    sys.stdout.write(summary(found))


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("file", type=click.Path(), required=False)
@common
def export(invocation: Invocation, folder: str, file: str | None) -> None:
    """Write one timeline of all processes, as JSON for Perfetto (https://ui.perfetto.dev) and Chrome.

    FILE is merged.json.gz in the folder if it is not given.

    \b
    Example: fsabs trace export trace-folder timeline.json.gz
    """
    from ..trace import merge

    path = merge(folder, file)
    invocation.output.record({"file": path}, path)


@command.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.argument("file", type=click.Path(), required=False)
@common
def report(invocation: Invocation, folder: str, file: str | None) -> None:
    """Write the analysis as one HTML page with plots.

    FILE is report.html in the folder if it is not given.

    \b
    Example: fsabs trace report trace-folder report.html
    """
    import os

    from ..trace import report as write

    path = file or os.path.join(folder, "report.html")
    write(folder, path)
    invocation.output.record({"file": path}, path)
