"""What the library tells of its work, to whoever installed an instrument; nothing is told, and nothing done, before.

Code that does something worth knowing (a request to a store, a decompression, a hit of a cache) reads `hooks.active`
once, and tells it when the work is done. There is one instrument in a process; a forked child inherits it. The trace
installs one; so may anyone, as with the instruments of trio (trio.readthedocs.io/en/stable/reference-lowlevel.html).
"""

from __future__ import annotations


class Instrument:
    """Base of instruments: every method is called where something happened, and does nothing.

    A method must be quick, must not raise, and must not use the library.
    """

    def done(self, kind: str, name: str, begin: int, size: int = 0, where: str = "", error: str = "") -> None:
        """A piece of work that began at `begin` (`time.monotonic_ns()`) has ended now.

        Args:
            kind: `request` (one attempt at a store), `connect` (a new connection), `wait` (for a lock, for the turn),
                `decompress`, `batch` (ranges that are read together), `cache` (filling or validating one), `span` (a
                user's own).
            name: what it was, `backend.operation`: `s3.get`, `zip.inflate`.
            begin: when it began.
            size: bytes that it moved.
            where: a URL with no secret and no query in it, or an empty string.
            error: the name of the exception it ended by, or an empty string.
        """

    def happened(self, kind: str, name: str, size: int = 1, where: str = "") -> None:
        """Something with no duration: `kind` is `retry`, `hit`, `miss`, `evict`; `size` is how many, or how large."""


active: Instrument | None = None
"""The process's instrument."""


def install(instrument: Instrument | None) -> Instrument | None:
    """Make `instrument` the process's, or take it away with None; returns the one before."""
    global active
    before, active = active, instrument
    return before
