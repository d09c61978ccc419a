"""Spans of a dispatcher's work, for traces."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from ..core import hooks


@contextlib.contextmanager
def recorded(name: str, url: str) -> Iterator[None]:
    """Record a `request` span for the block, if an instrument is installed."""
    instrument = hooks.active
    if instrument is None:
        yield
        return
    begin, error = time.monotonic_ns(), ""
    try:
        yield
    except BaseException as exc:
        error = type(exc).__name__
        raise
    finally:
        instrument.record_span("request", name, begin, 0, url, error)
