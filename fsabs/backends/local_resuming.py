"""The writer of large local files that are copied: what it has written when its process is killed is continued."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat as stat_bits

from .. import descriptors, errors, partials
from ..descriptors import HeldDescriptors
from ..files import Writer
from .local_writers import fsync_directory

_STEP = 8 * 1024 * 1024
"""A partial file is continued from a multiple of this: later bytes may not have been compared."""
_COMPARED = 1024 * 1024
"""Bytes that are written and compared at once: so many stay in the processor's cache."""


class ResumedWriter(Writer):
    """Writes a hidden file from front to back, compares each piece with what is read of it, and renames at `commit`.

    `offset` is where the next write goes: an earlier writer of the content has written and compared the bytes before.
    """

    checks = True

    def __init__(self, path: str, partial: str, held: HeldDescriptors, size: int, fsync: bool) -> None:
        self._path = path
        self._partial = partial
        self._held = held
        self._fd = held[0].fileno()
        self._fsync = fsync
        self._read = bytearray()
        there = os.fstat(self._fd).st_size
        self.offset = min(there, size) // _STEP * _STEP if there <= size else 0
        if there > self.offset:  # ext4 writes a file to the disk when it is closed, if it was truncated to nothing
            os.ftruncate(self._fd, self.offset)

    @classmethod
    def of(cls, path: str, identity: str, size: int, fsync: bool) -> ResumedWriter | None:
        """Return a writer of the content of this identity; None if another process writes it."""
        folder, _, name = path.rpartition("/")
        partial = partials.kept_path(folder, name, identity)
        held = HeldDescriptors()
        try:
            fd = descriptors.open_into(held, partial, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as exc:
                if exc.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                descriptors.close(held)
                return None
            if not _is_at(fd, partial):  # another writer has finished meanwhile
                descriptors.close(held)
                return None
            return cls(path, partial, held, size, fsync)
        except BaseException:
            descriptors.close(held)
            raise

    def write(self, data: bytes) -> None:
        """Write all of `data`, and compare it."""
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view[:_COMPARED], self.offset)
            if len(self._read) != written:
                self._read = bytearray(written)
            read = os.preadv(self._fd, [self._read], self.offset)
            # A bytearray is compared with a view at once, a view with anything byte by byte.
            if read != written or self._read != view[:written]:
                raise errors.corrupt("file://" + self._path, f"what is read at {self.offset} is not what was written")
            view = view[written:]
            self.offset += written

    def commit(self) -> None:
        """Move the file over its target."""
        with contextlib.suppress(OSError):  # keep the permissions of what is replaced, as writing into it would
            os.fchmod(self._fd, stat_bits.S_IMODE(os.stat(self._path).st_mode))
        if self._fsync:
            os.fsync(self._fd)
        descriptors.check_written(self._held)
        os.rename(self._partial, self._path)
        descriptors.close(self._held)
        if self._fsync:
            fsync_directory(os.path.dirname(self._path))

    def leave(self) -> None:
        """Close the file, which stays."""
        descriptors.close(self._held)

    def abort(self) -> None:
        """Close the file and remove it."""
        if self._held:
            with contextlib.suppress(OSError):  # while it is locked: later it may be another writer's
                os.remove(self._partial)
        self.leave()


def _is_at(fd: int, path: str) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False
