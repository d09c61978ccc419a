"""Backoff of requests to a server that has failed."""

from __future__ import annotations

import math
import time

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds."""


class Backoff:
    """Exponential backoff: no requests for a second after a failure, then twice as long after each, up to a minute."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._until = 0.0
        self._length = 0.0

    @property
    def over(self) -> bool:
        """Return whether a request may be sent now; changes nothing."""
        return time.monotonic() >= self._until

    def begin(self) -> bool:
        """Return whether to send a request now.

        After a failure one caller may try, and the others wait for its result.
        """
        now = time.monotonic()
        if now < self._until:
            return False
        if self._length:
            self._until = now + self._length
        return True

    def failed(self, began: float) -> None:
        """A request that began at `began` (`time.monotonic()`) has failed; a failure from before a pause does not
        lengthen it.
        """
        if began > self._since:
            self._length = min(LONGEST_PAUSE, max(FIRST_PAUSE, 2 * self._length))
        self._since = time.monotonic()
        self._until = self._since + self._length

    def worked(self) -> None:
        """Reset the backoff, after a request that succeeded."""
        self._since, self._until, self._length = -math.inf, 0.0, 0.0

    def __reduce__(self) -> tuple[type[Backoff], tuple[()]]:
        return Backoff, ()  # another machine has another clock
