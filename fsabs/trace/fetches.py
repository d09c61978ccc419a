"""Spans of the kind `fetch`: one batch being made by a DataLoader's worker, or by the DataLoader in its own process.

torch has no public hook there, so the two classes that make batches (`torch.utils.data._utils.fetch`) are wrapped,
where they have the names that they have had since torch 1.2; in a torch that has none of them there are no such spans,
and a worker is then taken to work from its first event to its last.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from ..core import hooks

FETCHERS = ("_MapDatasetFetcher", "_IterableDatasetFetcher")


def watch() -> None:
    """Record the fetches of this process from now on, where torch is loaded; twice is once."""
    module = sys.modules.get("torch.utils.data._utils.fetch")
    for name in FETCHERS:
        fetcher = getattr(module, name, None)
        fetch = getattr(fetcher, "fetch", None)
        if fetch is not None and not hasattr(fetch, "__wrapped__"):
            fetcher.fetch = _recorded(fetch)  # type: ignore[union-attr] # a class, since it has a method


def _recorded(fetch: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fetch)
    def recorded(self: object, indices: object) -> Any:
        begin = monotonic_ns()
        try:
            return fetch(self, indices)
        finally:
            if (instrument := hooks.active) is not None:
                instrument.record_span("fetch", "loader.fetch", begin)

    return recorded
