"""The retry policy: how often a request is sent, how long to wait before the next attempt, and when to give up.

The number of attempts is botocore's setting (`max_attempts`, `AWS_MAX_ATTEMPTS`, the configuration file). Waits are
random up to a bound that doubles with each failure (full jitter), and at least as long as the store asks for
(`Retry-After`). An operation ends at its deadline, whatever happens. A store that asks for fewer requests (503, 429) is
waited for until the deadline, unless the number of attempts was set; all requests of a host to that endpoint then share
a rate, see `throttle.py`.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

from .failures import Throttled, Transient
from .messages import Request
from .throttle import Throttle

BACKOFF = 0.1
"""Seconds that the second attempt waits at most; each further one twice as long."""
MAX_BACKOFF = 5.0
MIN_RATE = 64 * 1024
"""A body that comes by fewer bytes a second than these is given up."""
THROTTLE_SECONDS = 60.0
"""How long an operation waits for a store that throttles, at least."""
REFUSAL_SECONDS = 2.0
"""How long the body of a refusal is waited for: its status has said what matters."""
_random = random.SystemRandom()  # a forked child has numbers of its own, and the user's seed is left alone


class RetryPolicy(NamedTuple):
    """The settings of an endpoint."""

    attempts: int
    attempts_set: bool
    """Whether the number is the user's own: throttled attempts then count."""
    read_timeout: float
    throttle: Throttle

    def attempt_seconds(self, request: Request) -> float:
        """Return how long one attempt may take, from its first byte sent to the last one received.

        For a body of unknown size `body_seconds` is added when its size is known.
        """
        return self.read_timeout + len(request.body) / MIN_RATE if request.body else self.read_timeout

    def operation(self) -> Operation:
        """Return the attempts of one request."""
        return Operation(self)


def body_seconds(size: int | None) -> float:
    """Return how much longer an attempt may take for a body of `size` bytes."""
    return (size or 0) / MIN_RATE


class Operation:
    """The attempts of one request, of which the first has failed."""

    __slots__ = ("_begin", "_failures", "_policy", "_throttled")

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._begin = time.monotonic()
        self._failures = 0
        self._throttled = 0

    def wait_after(self, failure: Transient) -> float:
        """Return the seconds to wait before the next attempt; raises the failure's error if there is none."""
        policy, elapsed = self._policy, time.monotonic() - self._begin
        if isinstance(failure, Throttled):
            self._throttled += 1
            policy.throttle.slow_down(failure.retry_after)
            counted = self._failures + (self._throttled if policy.attempts_set else 0)
            wait = max(failure.retry_after, backoff(self._throttled + 1))
            limit = max(policy.read_timeout, THROTTLE_SECONDS)
            exhausted = policy.attempts == 1 or elapsed + wait > limit
        else:
            self._failures += 1
            counted = self._failures + (self._throttled if policy.attempts_set else 0)
            wait = backoff(self._failures)
            exhausted = False
        if exhausted or counted >= policy.attempts:
            raise failure.error from failure
        return wait


def backoff(failures: int) -> float:
    """Return seconds to wait after so many failures: random, within a bound that doubles."""
    return min(MAX_BACKOFF, BACKOFF * 2.0 ** min(failures - 1, 16)) * _random.random()
