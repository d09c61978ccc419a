"""The partial entries of a cache on disk: what processes are fetching, for those that would fetch it, too."""

from __future__ import annotations

import contextlib
import os
import time

from ..disk.folders import Folder
from .single_flight import TIMEOUT


class PartialEntries:
    """Claims of entries that are being fetched: a process has claimed what it has created exclusively.

    A partial entry that is older than `TIMEOUT` doesn't count; a folder that fails gives every claim.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def claim(self, token: int) -> bool:
        """Create a partial entry; False if another process has created it."""
        path = _path(token)
        try:
            self._folder.make_folder(path[:2])
            for _ in range(2):
                with contextlib.suppress(FileExistsError):
                    os.close(self._folder.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                    return True
                created = os.stat(path, dir_fd=self._folder.descriptor, follow_symlinks=False).st_mtime
                if 0 <= time.time() - created < TIMEOUT:
                    return False
                self.release(token)
        except FileNotFoundError:  # it ended just now
            return False
        except OSError:
            pass
        return True

    def release(self, token: int) -> None:
        """Remove a partial entry."""
        with contextlib.suppress(OSError):
            self._folder.remove(_path(token))

    def give_up(self, token: int) -> None:
        """Remove the partial entry of another process."""
        self.release(token)


def _path(token: int) -> str:
    return f"{token & 0xFF:02x}/.{token:016x}.partial"
