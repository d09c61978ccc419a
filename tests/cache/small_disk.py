"""A small disk that can be filled, shrunk and made read-only: a tmpfs where one may mount.

Elsewhere a limit on the size of files takes its place.
"""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path


class SmallDisk:
    """A disk of `size` bytes at `folder`, which is made."""

    def __init__(self, folder: Path, size: int) -> None:
        self.folder = folder
        self.size = size
        self.full = False
        folder.mkdir(exist_ok=True)
        self.mounted = self._mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def _mount(self, *arguments: str) -> bool:
        with contextlib.suppress(FileNotFoundError):  # no such program
            command = ["mount", *arguments, str(self.folder)]
            return not subprocess.run(command, capture_output=True, timeout=30, check=False).returncode
        return False

    def fill(self) -> None:
        """Leave no space but a few pages."""
        self.full = True
        with contextlib.suppress(OSError), open(self.folder / "ballast", "wb", buffering=0) as file:
            for _ in range(self.size // 4096 if self.mounted else 0):
                file.write(bytes(4096))

    def shrink(self) -> None:
        """Make it half as large, if no more is used."""
        self._mount("-o", f"remount,size={self.size // 2}")

    def read_only(self) -> None:
        """Have it take no writes."""
        self._mount("-o", "remount,ro")

    def repair(self) -> None:
        """Make it a disk that works, with the space that it had."""
        if self.mounted:
            self._mount("-o", f"remount,rw,size={self.size}")
        (self.folder / "ballast").unlink(missing_ok=True)
        self.full = False

    def enter(self, limit: int) -> None:
        """Have files of this process be no longer than `limit`, in place of a disk that is full."""
        if self.full and not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    def close(self) -> None:
        """Unmount it."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True, timeout=30)


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[SmallDisk]:
    """A small disk, for a block."""
    disk = SmallDisk(folder, size)
    try:
        yield disk
    finally:
        disk.close()
