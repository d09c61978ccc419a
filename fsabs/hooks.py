"""What the library tells of its work, to whoever installed an instrument; nothing is told, and nothing done, before.

Code that does something worth knowing (a request to a store, a decompression, a hit of a cache) tells it when the work
is done. It reads `hooks.active` once, since another thread may take the instrument away at any moment::

    watch = hooks.active
    if watch is not None:
        watch.done("request", "s3.get", begin, size)

There is one instrument in a process; a forked child inherits it. The trace installs one; so may anyone, as with the
instruments of trio (trio.readthedocs.io/en/stable/reference-lowlevel.html).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import monotonic_ns


class Instrument:
    """Base of instruments: every method is called where something happened, and does nothing.

    A method must be quick, must not raise, and must not use the library.
    """

    calls: bool = False
    """Whether it wants to know of the user's calls, too: `from_url` then wraps an FS in a `TracedFS`, which tells."""

    def done(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        """A piece of work that began at `begin` (`time.monotonic_ns()`) has ended now.

        Args:
            kind: `request` (one attempt at a store), `connect` (a new connection), `wait` (for a lock, for the turn),
                `decompress`, `batch` (ranges that are read together), `cache` (filling or validating one), `span` (a
                user's own), `step` (a step of training), `fs` (a user's call, told by `TracedFS`).
            name: what it was, `backend.operation`: `s3.get`, `zip.inflate`.
            begin: when it began; 0 where nobody watched then: it is told without a duration.
            size: bytes that it moved.
            where: a URL with no secret and no query in it, or an empty string.
            error: the name of the exception it ended by, or an empty string.
            offset: where in the file a read began; for a `batch`, how many ranges; -1 where neither is known.
        """

    def happened(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """Something with no duration: `kind` is `retry`, `hit`, `miss`, `evict`; `size` is how many, or how large."""


class Deferred(Instrument):
    """Stands for an instrument that is dear to make, until something happens: it is made then, and takes its place.

    `make()` may return None: nothing is told from then on.
    """

    calls = True

    def __init__(self, make: Callable[[], Instrument | None]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self._made: Instrument | None = None
        self._busy = False

    def done(
        self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "", offset: int = -1
    ) -> None:
        """Make the instrument, if that has not been done, and tell it; the time that this takes doesn't count."""
        ended = monotonic_ns()
        if (made := self._instrument()) is not None:
            made.done(kind, name, begin and begin + monotonic_ns() - ended, size, where, error, offset)

    def happened(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """As `done`."""
        if (made := self._instrument()) is not None:
            made.happened(kind, name, size, where)

    def _instrument(self) -> Instrument | None:
        global active
        with self._lock:
            if active is self and not self._busy:
                self._busy = True  # what is told by `make` itself is lost, in place of making a second one
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
