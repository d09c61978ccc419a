"""The rate of requests to an endpoint that throttles, shared by all processes of a user on a host.

While the store answers, there is no limit, and each request costs a look at shared memory. When more than a few
responses say "slow down" (503, 429), the rate is halved; each further second without one raises it again, until there
is no limit.
The rate is in a small file that all processes map. Nothing locks it: two processes that write at the same moment lose
one update, which the next response makes up for. Without a file (no writable directory) each process has a rate of its
own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import mmap
import os
import stat
import struct
import tempfile
import time

from ...disk.descriptors import allocate

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
    """The rate of one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._memory = _shared_memory(endpoint)
        self._interval = memoryview(self._memory).cast("d")
        self._window = time.monotonic()
        self._sent = 0
        self._refused = 0

    def delay(self) -> float:
        """Return how many seconds the next request has to wait; its turn is then taken."""
        self._sent += 1
        if not self._interval[0]:
            return 0.0
        interval, changed, turn, pause = _STATE.unpack_from(self._memory)
        now = time.monotonic()
        if changed > now:  # a file from before the machine was started
            self._write(0.0, 0.0, 0.0, 0.0)
            return 0.0
        if now - changed > RECOVERY_SECONDS and now > pause:
            interval, changed = interval * 0.5 ** int((now - changed) / RECOVERY_SECONDS), now
            if interval < MIN_INTERVAL:
                self._write(0.0, 0.0, 0.0, 0.0)
                return 0.0
        turn = min(max(turn + interval, now, pause), max(now, pause) + _MAX_AHEAD)
        self._write(interval, changed, turn, pause)
        return max(0.0, float(turn - now))

    def slow_down(self, retry_after: float) -> None:
        """Take note of a "slow down", and of the pause that came with it."""
        now = time.monotonic()
        elapsed = now - self._window
        self._refused += 1
        mean = elapsed / max(1, self._sent)
        much = self._refused > TOLERATED * self._sent
        if elapsed > WINDOW_SECONDS:
            self._window, self._sent, self._refused = now, 0, 0
        if not much and not retry_after:
            return
        interval, changed, turn, pause = _STATE.unpack_from(self._memory)
        pause = max(pause, now + min(retry_after, 60.0))
        if not 0 <= now - changed < SETTLE_SECONDS or not interval:
            interval, changed = min(max(2 * (interval or mean), MIN_INTERVAL), MAX_INTERVAL), now
        self._write(interval, changed, max(turn, now), pause)

    def _write(self, *state: float) -> None:
        with contextlib.suppress(ValueError):  # closed, at the end of the interpreter
            _STATE.pack_into(self._memory, 0, *state)


@functools.lru_cache(maxsize=64)
def _shared_memory(endpoint: str) -> mmap.mmap | bytearray:
    name = hashlib.sha256(endpoint.encode()).hexdigest()[:24]
    try:
        folder = os.path.join(tempfile.gettempdir(), f"fsabs-{os.getuid()}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise PermissionError  # another user could cut the file short
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(os.path.join(folder, f"throttle-{name}"), flags, 0o600)
        try:
            allocate(descriptor, _STATE.size)
            return mmap.mmap(descriptor, _STATE.size)
        finally:
            os.close(descriptor)
    except OSError:
        return bytearray(_STATE.size)
