"""What follows a failure: how often a request is sent, how long to wait before the next attempt, and when to give up.

Waits are random up to a bound that doubles with each failure (full jitter), and at least as long as the store asks for
(`Retry-After`). An attempt ends at its deadline, whatever happens.

A store that asks for fewer requests (503, 429) is waited for until the deadline, unless the number of attempts was set,
and all requests of a user on this host to that endpoint share a rate. While the store answers, there is no limit, and
each request costs a look at shared memory. When more than a few responses say "slow down", the rate is halved; each
further second without one raises it again, until there is no limit. The rate is in a small file that all processes map.
Nothing locks it: two processes that write at the same moment lose one update, which the next response makes up for.
Without a file (no writable directory) each process has a rate of its own.

A store that says when its quota is renewed is asked again then. Redirects are no failures.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import random
import struct
import tempfile
import time
from typing import NamedTuple

from ...disk.descriptors import allocate
from ...disk.folders import Folder
from .failures import OutOfQuota, Throttled, Transient

DEFAULT_ATTEMPTS = 5
"""How often a request is sent at most, unless that is set."""
BACKOFF = 0.1
"""Seconds that the second attempt waits at most; each further one twice as long."""
MAX_BACKOFF = 5.0
THROTTLE_SECONDS = 60.0
"""How long an operation waits for a store that throttles, at least."""
QUOTA_SECONDS = 900.0
"""How long an operation waits for a quota: several times as long as it takes to be renewed."""
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


# ---- the rate

MIN_INTERVAL = 0.0005
"""Seconds between two requests; less is no limit."""
MAX_INTERVAL = 0.1
TOLERATED = 0.1
"""So many of the responses of a window may say "slow down" without any consequence for other requests."""
WINDOW_SECONDS = 1.0
SETTLE_SECONDS = 0.25
"""A rate holds for so long before it is halved again: responses under way say what is known."""
RECOVERY_SECONDS = 1.0
"""The interval is halved in each such time without a "slow down"."""
_STATE = struct.Struct("=dddd")
"""The interval; when it was last changed; when the next request may be sent; until when no request may be sent."""
_MAX_AHEAD = 5.0


class Throttle:
    """The rate of one endpoint. Each request counts as `sent`, and waits for its `delay` if there is a `limit`."""

    def __init__(self, endpoint: str) -> None:
        self._memory = _shared_memory(endpoint)
        self.limit = memoryview(self._memory).cast("d")
        """The first field is not 0 while there is one."""
        self.sent = 0
        """The requests of the window."""
        self._refused = 0
        self._window = time.monotonic()

    def delay(self) -> float:
        """Return how many seconds the next request has to wait; its turn is then taken."""
        interval, changed, turn, blocked_until = _STATE.unpack_from(self._memory)
        now = time.monotonic()
        if now - changed > RECOVERY_SECONDS and now > blocked_until:
            interval, changed = interval * 0.5 ** int((now - changed) / RECOVERY_SECONDS), now
        if changed > now or interval < MIN_INTERVAL:  # a file from before the machine was started; or recovered
            self._write(0.0, 0.0, 0.0, 0.0)
            return 0.0
        turn = min(max(turn + interval, now, blocked_until), max(now, blocked_until) + _MAX_AHEAD)
        self._write(interval, changed, turn, blocked_until)
        return max(0.0, float(turn - now))

    def slow_down(self, retry_after: float) -> None:
        """Take note of a "slow down", and of the pause that came with it."""
        now = time.monotonic()
        elapsed = now - self._window
        self._refused += 1
        mean = elapsed / max(1, self.sent)
        much = self._refused > TOLERATED * self.sent
        if elapsed > WINDOW_SECONDS:
            self._window, self.sent, self._refused = now, 0, 0
        if not much and not retry_after:
            return
        interval, changed, turn, blocked_until = _STATE.unpack_from(self._memory)
        blocked_until = max(blocked_until, now + min(retry_after, 60.0))
        if not 0 <= now - changed < SETTLE_SECONDS or not interval:
            interval, changed = min(max(2 * (interval or mean), MIN_INTERVAL), MAX_INTERVAL), now
        self._write(interval, changed, max(turn, now), blocked_until)

    def _write(self, *state: float) -> None:
        with contextlib.suppress(ValueError):  # closed, at the end of the interpreter
            _STATE.pack_into(self._memory, 0, *state)


@functools.lru_cache(maxsize=64)
def _shared_memory(endpoint: str) -> mmap.mmap | bytearray:
    name = hashlib.sha256(endpoint.encode()).hexdigest()[:24]
    try:
        with Folder(f"{tempfile.gettempdir()}/fsabs-{os.getuid()}", create=True, private=True) as folder:
            fd = folder.open(f"throttle-{name}", os.O_RDWR | os.O_CREAT)
        try:
            allocate(fd, _STATE.size)
            return mmap.mmap(fd, _STATE.size)
        finally:
            os.close(fd)
    except OSError:
        return bytearray(_STATE.size)
