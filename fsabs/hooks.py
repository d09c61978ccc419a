"""The instrument that records spans and events of the library's work; without one, nothing is recorded.

Code that does something worth recording (a request to a store, a decompression, a cache hit) records it when the work
has ended. It reads `hooks.active` once, since another thread may remove the instrument at any moment::

    instrument = hooks.active
    if instrument is not None:
        instrument.record_span("request", "s3.get", begin, size)

A process has one instrument; a forked child inherits it. The trace installs one; users may install their own, as with
the instruments of trio (trio.readthedocs.io/en/stable/reference-lowlevel.html).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import monotonic_ns


class Instrument:
    """Base of instruments; every method is a no-op.

    A method must be quick, must not raise, and must not use the library.
    """

    calls: bool = False
    """True if the user's calls are recorded too: `from_url` then wraps an FS in a `TracedFS`, which records them."""

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        """Record a span that began at `begin` (`time.monotonic_ns()`) and ends now.

        Args:
            kind: `request` (one attempt at a store), `connect` (a new connection), `wait` (for a lock, for the turn),
                `decompress`, `batch` (ranges that are read together), `cache` (filling or validating one), `span` (a
                user's own), `step` (a step of training), `fs` (a user's call, recorded by `TracedFS`).
            name: what it was, `backend.operation`: `s3.get`, `zip.inflate`.
            begin: when it began; 0 if no instrument was installed then: the span has no duration.
            size: bytes that it moved.
            where: a URL with no secret and no query in it, or an empty string.
            error: the name of the exception it ended by, or an empty string.
            offset: where in the file a read began; for a `batch`, how many ranges; -1 where neither is known.
        """

    def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """Record an event, which has no duration.

        `kind` is `retry`, `hit`, `miss` or `evict`; `size` counts items or bytes.
        """


class Deferred(Instrument):
    """An instrument that is expensive to make: `make()` is called at the first span or event, and its result installed.

    `make()` may return None: nothing is recorded from then on.
    """

    calls = True

    def __init__(self, make: Callable[[], Instrument | None]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._made: Instrument | None = None
        self._busy = False

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        """Make the instrument if it has not been made, and record the span there, without the time that making took."""
        ended = monotonic_ns()
        if (made := self._instrument()) is not None:
            made.record_span(kind, name, begin and begin + monotonic_ns() - ended, size, where, error, offset)

    def record_event(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """Make the instrument if it has not been made, and record the event there."""
        if (made := self._instrument()) is not None:
            made.record_event(kind, name, size, where)

    def _instrument(self) -> Instrument | None:
        global active
        with self._lock:
            if active is self and not self._busy:
                self._busy = True  # what `make` itself records is lost; a second instrument is not made
                self._made = self._make()
                if active is self:
                    active = self._made
            return self._made


def _from_environment() -> Instrument | None:
    """The recorder of `$FSABS_TRACE`, which is loaded when something happens; None where that isn't set."""
    return Deferred(_environments_recorder) if os.environ.get("FSABS_TRACE") else None


def _environments_recorder() -> Instrument | None:
    import importlib

    made: Instrument | None = importlib.import_module("fsabs.trace.session").from_environment()
    return made


active: Instrument | None = _from_environment()
"""The process's instrument."""


def _in_child() -> None:
    """A thread of the parent's may have been making the instrument, holding the lock: a child begins anew."""
    global active
    if isinstance(active, Deferred):
        active = Deferred(active._make)


os.register_at_fork(after_in_child=_in_child)


def install(instrument: Instrument | None) -> Instrument | None:
    """Make `instrument` the process's, or take it away with None; returns the one before."""
    global active
    before, active = active, instrument
    return before
