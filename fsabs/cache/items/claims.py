"""The claims of item caches: which process is making which item, in a small table of a file.

A claim is written into the slot of its token's hash, and read again: of two processes that claim a token at one moment,
the one that was overwritten knows. Nothing is locked. A claim whose process is gone doesn't count.
"""

from __future__ import annotations

import math
import os
import struct
import time
from collections.abc import Callable

from ..single_flight import TIMEOUT

_SLOT = struct.Struct("=IId")  # the process; a check of the token; when it was claimed, in seconds since 1970


class SlotClaims:
    """The claims in the file of a descriptor, from `offset` on; one object for each process.

    It closes the descriptor when it is freed, and not before: a thread that still fetches would write into the file
    that has reused its number. A file that fails, or is none (-1), gives every claim.
    """

    def __init__(self, fd: int, offset: int, slots: int) -> None:
        self._fd = fd
        self._offset = offset
        self._slots = slots
        self._owner = os.getpid()
        self._stuck: dict[int, float] = {}

    # What a finalizer needs is bound: when the interpreter ends, the names of the module may be gone before.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._fd >= 0:
            close(self._fd)

    def claim(self, token: int) -> bool:
        """Claim a token, a hash of 64 bits; False if another process has claimed it."""
        at, check = self._place(token)
        try:
            if self._is_held(at, check):
                return False
            os.pwrite(self._fd, _SLOT.pack(self._owner, check, time.time()), at)
            return self._read(at)[:2] == (self._owner, check)
        except OSError:
            return True

    def release(self, token: int) -> None:
        """Give a claim back."""
        try:
            os.pwrite(self._fd, bytes(_SLOT.size), self._place(token)[0])
        except OSError:  # it ends with its time
            pass

    def give_up(self, token: int) -> None:
        """Ignore all that the owner of a claim has claimed until now: it was waited for in vain."""
        try:
            self._stuck[self._read(self._place(token)[0])[0]] = time.time()
        except OSError:
            pass

    def _place(self, token: int) -> tuple[int, int]:
        return self._offset + token % self._slots * _SLOT.size, token >> 32 & 0xFFFFFFFF

    def _read(self, at: int) -> tuple[int, int, float]:
        data = os.pread(self._fd, _SLOT.size, at)
        return _SLOT.unpack(data) if len(data) == _SLOT.size else (0, 0, 0.0)

    def _is_held(self, at: int, check: int) -> bool:
        """Return whether another process has claimed the token."""
        owner, claimed, since = self._read(at)
        if owner in (0, self._owner) or claimed != check:
            return False
        if not (self._stuck.get(owner, -math.inf) < since and -1 < time.time() - since < TIMEOUT):
            return False
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's by now
            pass
        return True
