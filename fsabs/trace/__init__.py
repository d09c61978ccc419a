"""Traces of where the time goes: a recorder of low overhead, and an analysis of the records of all processes.

    with fsabs.trace.record("trace-folder"):
        fs = fsabs.from_url("s3://bucket/train.zip")
        for batch in fsabs.trace.steps(loader):
            ...
    fsabs.trace.analyze("trace-folder").findings

`FSABS_TRACE=folder` in the environment does the same for a program that isn't changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.lazy import exports

if TYPE_CHECKING:
    from .analysis import analyze
    from .merge import merge
    from .reading import events
    from .reports import report
    from .results import Analysis
    from .schema import Event
    from .session import record, span, start, step, steps, stop
    from .terminal import summary

_HOMES = {
    "Analysis": "results",
    "Event": "schema",
    "analyze": "analysis",
    "events": "reading",
    "merge": "merge",
    "record": "session",
    "report": "reports",
    "span": "session",
    "start": "session",
    "step": "session",
    "steps": "session",
    "stop": "session",
    "summary": "terminal",
    "traced": "session",
}

__all__ = [
    "Analysis",
    "Event",
    "analyze",
    "events",
    "merge",
    "record",
    "report",
    "span",
    "start",
    "step",
    "steps",
    "stop",
    "summary",
]

__getattr__, __dir__ = exports(__name__, _HOMES)
