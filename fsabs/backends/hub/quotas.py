"""The hub's quotas of requests, kept by all processes of a user on this machine.

The hub counts requests in fixed windows of 5 minutes, for each account, or address without one: some hundreds for its
API, some thousands for files (`resolvers`), and tells with each response how many are left and when the window ends
(`RateLimit: "resolvers";r=4998;t=123`). A request is counted before it is sent; where none is left, it waits for the
end of the window. The counts are in a small file, so that a new process knows them.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import struct
import time
import warnings
from collections.abc import Callable, Iterator

from ...core import process
from ...disk.folders import Folder
from ..objects.http1 import ResponseHead
from ..objects.messages import Request

LONGEST = 900.0
"""Seconds from now on after which no window ends."""
WARNED_SECONDS = 5.0
"""A wait that is longer than so many seconds is reported to the user."""
_KINDS = ("api", "resolvers")
_STATE = struct.Struct("=dddd")
"""Requests that are left, the end of the window in seconds since 1970 (0: not known), its requests, its seconds."""
_LEFT = re.compile(r'"(\w+)"\s*;\s*r\s*=\s*(\d+)\s*;\s*t\s*=\s*(\d+)')
_POLICY = re.compile(r'"(\w+)"\s*;\s*q\s*=\s*(\d+)\s*;\s*w\s*=\s*(\d+)')
_LOCK_TRIES = 20
_LOCK_PAUSE = 0.001


class _QuotaFile:
    """The open file of an account's quotas; `fd` is -1 for one that can't be opened, or has failed."""

    def __init__(self, folder: str | None, name: str) -> None:
        self.fd = -1
        if folder is not None:
            with contextlib.suppress(OSError), Folder(folder, create=True, private=True) as there:
                self.fd = there.open(name, os.O_RDWR | os.O_CREAT)

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.fd >= 0:
            close(self.fd)

    def lock(self) -> bool:
        """Lock the file, unless that takes too long: one that is stopped must not stop others."""
        import fcntl

        for _ in range(_LOCK_TRIES if self.fd >= 0 else 0):
            with contextlib.suppress(OSError):
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(_LOCK_PAUSE)
        return False

    def unlock(self) -> None:
        """Unlock the file."""
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.lockf(self.fd, fcntl.LOCK_UN)


class HubQuotas:
    """The quotas of an account: in `folder`, in a file of this `name`; without one, of this process alone."""

    def __init__(self, endpoint: str, folder: str | None, name: str) -> None:
        self._endpoint = endpoint
        self._lock = process.Lock()
        self._memory = bytearray(len(_KINDS) * _STATE.size)
        self._warned = 0.0
        # A child opens it anew: a daemon closes all that it has inherited, and would write into another file then.
        self._file = process.PerProcess(functools.partial(_QuotaFile, folder, name))

    def delay(self, request: Request) -> float:
        """Return the seconds until a request may be sent; 0 if it may be now, and is then counted."""
        kind = _kind(request)
        with self._state() as memory:
            left, end, limit, window = _STATE.unpack_from(memory, kind * _STATE.size)
            now = time.time()
            if not 0 < end <= now + LONGEST:
                return 0.0
            if end <= now:  # the next window has begun
                left, end = limit, end + window * (1 + (now - end) // window) if window else 0.0
            if left >= 1 or not end:
                _STATE.pack_into(memory, kind * _STATE.size, left - 1, end, limit, window)
                return 0.0
        self._warn(end, end - now)
        return float(end - now)

    def learn(self, request: Request, head: ResponseHead) -> None:
        """Take note of what a response of the hub says is left."""
        field = head.header(b"ratelimit")
        if not field or request.location:
            return
        policy = {name: (float(limit), float(window)) for name, limit, window in _POLICY.findall(_policy(head))}
        with self._state() as memory:
            for name, remaining, seconds in _LEFT.findall(field):
                if name not in _KINDS:
                    continue
                at = _KINDS.index(name) * _STATE.size
                left, end, limit, window = _STATE.unpack_from(memory, at)
                now = time.time()
                told_end = now + int(seconds)
                same = 0 < end <= now + LONGEST and now < end and abs(told_end - end) < 2
                left = min(left, int(remaining)) if same else float(remaining)
                end = max(end, told_end) if same else told_end
                limit, window = policy.get(name, (limit, window))
                _STATE.pack_into(memory, at, left, end, limit, window)

    @contextlib.contextmanager
    def _state(self) -> Iterator[bytearray]:
        """Give the counts, which are written back at the end of the block."""
        with self._lock:
            file = self._file.get()
            locked = file.lock()
            try:
                if file.fd >= 0:
                    data = os.pread(file.fd, len(self._memory), 0)
                    self._memory[: len(data)] = data
                before = bytes(self._memory)
                yield self._memory
                if file.fd >= 0 and self._memory != before:
                    os.pwrite(file.fd, self._memory, 0)
            except OSError:  # of the file: each process then counts for itself
                self._file.adopt(_QuotaFile(None, ""))
            finally:
                if locked:
                    file.unlock()

    def _warn(self, end: float, seconds: float) -> None:
        if seconds > WARNED_SECONDS and end > self._warned:
            self._warned = end + 1
            warnings.warn(
                f"the quota of requests to {self._endpoint} is used up: the next one is sent in {seconds:.0f} s. "
                "A token has a larger quota (HF_TOKEN), cache= needs fewer requests, and files in archives fewer still",
                RuntimeWarning,
                stacklevel=2,
            )


def _policy(head: ResponseHead) -> str:
    return head.header(b"ratelimit-policy") or ""


def _kind(request: Request) -> int:
    """Return the index of the quota that a request is counted in."""
    return 1 if "/resolve/" in request.path else 0
