"""Traces of where the time goes: a recorder of low overhead, and an analysis of the records of all processes.

    with fsabs.trace.trace("trace-folder"):
        fs = fsabs.from_url("s3://bucket/train.zip")
        for batch in fsabs.trace.steps(loader):
            ...
    fsabs.trace.analyse("trace-folder").findings

`FSABS_TRACE=folder` in the environment does the same for a program that isn't changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .analysis import analyse
    from .html import report
    from .layer import TracedFS, traced
    from .merge import merge
    from .reading import events
    from .results import Analysis
    from .schema import Event
    from .session import span, start, step, steps, stop, trace
    from .terminal import summary

_HOMES = {
    "Analysis": "results",
    "Event": "schema",
    "TracedFS": "layer",
    "analyse": "analysis",
    "events": "reading",
    "merge": "merge",
    "report": "html",
    "span": "session",
    "start": "session",
    "step": "session",
    "steps": "session",
    "stop": "session",
    "summary": "terminal",
    "trace": "session",
    "traced": "layer",
}

__all__ = [
    "Analysis",
    "Event",
    "TracedFS",
    "analyse",
    "events",
    "merge",
    "report",
    "span",
    "start",
    "step",
    "steps",
    "stop",
    "summary",
    "trace",
    "traced",
]

__getattr__, __dir__ = exports(__name__, _HOMES)
