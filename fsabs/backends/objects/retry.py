"""What follows a failure: how often a request is sent, how long to wait before the next attempt, and when to give up.

Waits are random up to a bound that doubles with each failure (full jitter), and at least as long as the store asks for
(`Retry-After`). An attempt ends at its deadline, whatever happens. A store that asks for fewer requests (503, 429) is
waited for until the deadline, unless the number of attempts was set; all requests of a host to that endpoint then share
a rate, see `throttle.py`. One that says when its quota is renewed is asked again then. Redirects are no failures.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from .failures import OutOfQuota, Throttled, Transient
from .messages import Request
from .throttle import Throttle

DEFAULT_ATTEMPTS = 5
"""How often a request is sent at most, unless that is set."""
BACKOFF = 0.1
"""Seconds that the second attempt waits at most; each further one twice as long."""
MAX_BACKOFF = 5.0
MIN_RATE = 64 * 1024
"""A body that comes by fewer bytes a second than these is given up."""
THROTTLE_SECONDS = 60.0
"""How long an operation waits for a store that throttles, at least."""
QUOTA_SECONDS = 900.0
"""How long an operation waits for a quota: several times as long as it takes to be renewed."""
REFUSAL_SECONDS = 2.0
"""How long the body of a refusal is waited for: its status has said what matters."""
SLOW_TIMES = 10
"""How many times as long a store is waited for that copies, or puts an object together."""
MAX_EXCUSES = 3
"""How often a request may fail for a reason that is not the store's, without an attempt being counted."""
MAX_TURNS = 3
"""How often a request follows its bucket to another place, or is sent with newer credentials."""
MAX_REDIRECTS = 8
"""How often a request follows a redirect."""
_random = random.SystemRandom()  # a forked child has numbers of its own, and the user's seed is left alone


class RetryPolicy(NamedTuple):
    """The settings of an endpoint."""

    attempts: int
    attempts_set: bool
    """Whether the number is the user's own: throttled attempts then count."""
    read_timeout: float
    throttle: Throttle

    def patience(self, request: Request) -> float:
        """Return for how many seconds the store may be silent."""
        return self.read_timeout * SLOW_TIMES if request.slow else self.read_timeout

    def limits(self, request: Request) -> tuple[float, float]:
        """Return how long one attempt may take, from its first byte sent to the last one received, and `patience`.

        For a body of unknown size `body_seconds` is added when its size is known.
        """
        if not (request.body or request.slow):
            return self.read_timeout, self.read_timeout
        patience = self.patience(request)
        return patience + body_seconds(len(request.body)), patience


def body_seconds(size: int | None) -> float:
    """Return how much longer an attempt may take for a body of `size` bytes."""
    return (size or 0) / MIN_RATE


class Attempts:
    """The attempts of one request, of which the first has failed."""

    __slots__ = ("_begin", "_excuses", "_failures", "_policy", "_redirects", "_throttled", "_turns", "since")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._begin = time.monotonic()
        self._failures = self._throttled = self._excuses = self._turns = self._redirects = 0
        self.since = 0
        """When the request began to wait for its next attempt, in ns; for the instrument."""

    def may_turn(self) -> bool:
        """Return whether the request may go elsewhere, or with other credentials."""
        self._turns += 1
        return self._turns <= MAX_TURNS

    def may_redirect(self) -> bool:
        """Return whether the request may follow one more redirect."""
        self._redirects += 1
        return self._redirects <= MAX_REDIRECTS

    def may_excuse(self) -> bool:
        """Return whether a failure that is not the store's is forgiven."""
        self._excuses += 1
        return self._excuses <= MAX_EXCUSES

    def wait_after(self, failure: Transient) -> float:
        """Return the seconds to wait before the next attempt; raises the failure's error if there is none."""
        policy, elapsed = self._policy, time.monotonic() - self._begin
        if isinstance(failure, OutOfQuota):
            wait = failure.retry_after or BACKOFF
            exhausted = policy.attempts == 1 or elapsed + wait > QUOTA_SECONDS
        elif isinstance(failure, Throttled):
            self._throttled += 1
            policy.throttle.slow_down(failure.retry_after)
            wait = max(failure.retry_after, backoff(self._throttled + 1))
            exhausted = policy.attempts == 1 or elapsed + wait > max(policy.read_timeout, THROTTLE_SECONDS)
        else:
            self._failures += 1
            wait, exhausted = backoff(self._failures), False
        counted = self._failures + (self._throttled if policy.attempts_set else 0)
        if exhausted or counted >= policy.attempts:
            raise failure.error from failure
        return wait


def backoff(failures: int) -> float:
    """Return seconds to wait after so many failures: random, within a bound that doubles."""
    return min(MAX_BACKOFF, BACKOFF * 2.0 ** min(failures - 1, 16)) * _random.random()
