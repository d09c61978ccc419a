"""Claims: hints by which the processes of a machine fetch a thing once, in a small table of a file.

A claim is written into the slot of its token's hash, and read again: of two processes that claim a token at one moment,
the one that was overwritten knows. Nothing is locked, and nothing rests on a claim but the number of fetches. One whose
process is gone doesn't count; one that was waited for in vain (its process is stopped) is given up: what its process
had claimed until then holds no one up any more.

A slot: the process, 4 bytes; a check of the token, 4 bytes; when it was claimed, in seconds since 1970, 8 bytes.
"""

from __future__ import annotations

import math
import os
import struct
import time

_SLOT = struct.Struct("=IId")
_FREE = bytes(_SLOT.size)
SLOTS = 1 << 14
OLDEST = 60.0
"""Seconds after which a claim doesn't count."""


class Claims:
    """The claims in the file of a descriptor, from `offset` on; one object for each process. `OSError` if it fails."""

    def __init__(self, fd: int, offset: int = 0, slots: int = SLOTS) -> None:
        self._fd = fd
        self._offset = offset
        self._slots = slots
        self._owner = os.getpid()
        self._stuck: dict[int, float] = {}

    def claim(self, token: int) -> bool:
        """Claim a token, a hash of 64 bits; False if another process has claimed it."""
        at, check = self._place(token)
        if self._holder(at, check):
            return False
        os.pwrite(self._fd, _SLOT.pack(self._owner, check, time.time()), at)
        return self._read(at)[:2] == (self._owner, check)

    def release(self, token: int) -> None:
        """Give a claim back."""
        os.pwrite(self._fd, _FREE, self._place(token)[0])

    def is_held(self, token: int) -> bool:
        """Return whether another process has claimed a token."""
        return self._holder(*self._place(token))

    def give_up(self, token: int) -> None:
        """Ignore all that the owner of a claim has claimed until now: it was waited for in vain."""
        self._stuck[self._read(self._place(token)[0])[0]] = time.time()

    def _place(self, token: int) -> tuple[int, int]:
        return self._offset + token % self._slots * _SLOT.size, token >> 32 & 0xFFFFFFFF

    def _read(self, at: int) -> tuple[int, int, float]:
        data = os.pread(self._fd, _SLOT.size, at)
        return _SLOT.unpack(data) if len(data) == _SLOT.size else (0, 0, 0.0)

    def _holder(self, at: int, check: int) -> bool:
        owner, claimed, since = self._read(at)
        if owner in (0, self._owner) or claimed != check:
            return False
        if not (self._stuck.get(owner, -math.inf) < since and -1 < time.time() - since < OLDEST):
            return False
        try:
            os.kill(owner, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's by now
            pass
        return True
