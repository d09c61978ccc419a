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

from typing import Any


class Instrument:
    """Base of instruments; every method is a no-op.

    A method must be quick, must not raise, and must not use the library.
    """

    calls: bool = False
    """True if the user's calls on any FS, and reads of files, are recorded too, as spans of the kind `fs`."""

    def record_span(
        self, kind: str, name: str, begin: int, size: int = 0, where: Any = "", error: str = "", offset: int = -1
    ) -> None:
        """Record a span that began at `begin` (`time.monotonic_ns()`) and ends now.

        Args:
            kind: `request` (one attempt at a store), `connect` (a new connection), `wait` (for the first byte, for a
                connection, for the turn, for what is read ahead), `decompress`, `batch` (ranges that are read
                together), `cache` (filling or validating one), `span` (a user's own), `step` (a step of training),
                `fs` (a user's call).
            name: what it was, `backend.operation`: `s3.get`, `zip.inflate`.
            begin: when it began; 0 if no instrument was installed then: the span has no duration.
            size: bytes that it moved.
            where: a URL with no secret and no query in it, or an FS and a path, whose URL `url_of` returns.
            error: the name of the exception it ended by, or an empty string.
            offset: where in the file a read began; for a `batch`, how many ranges; -1 where neither is known.
        """

    def record_event(self, kind: str, name: str, size: int = 1, where: Any = "") -> None:
        """Record an event, which has no duration.

        `kind` is `retry`, `hit`, `miss` or `evict`; `size` counts items or bytes.
        """


def url_of(where: Any) -> str:
    """Return the URL of what a span was recorded at; a URL takes longer to make than the span to record."""
    return where if isinstance(where, str) else str(where[0].url(where[1]))


active: Instrument | None = None
"""The process's instrument."""


def install(instrument: Instrument | None) -> Instrument | None:
    """Make `instrument` the process's, or take it away with None; returns the one before."""
    global active
    from . import calls

    before, active = active, instrument
    calls.watch(instrument is not None and instrument.calls)
    return before
