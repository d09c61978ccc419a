"""The operations on HDFS that the FS is built on, on absolute paths, with Python's own errors.

`native.py` has them for one nameservice, `viewfs.py` for a mount table.
"""

from __future__ import annotations

from typing import Protocol

from ...stats import FileStat
from .status import ContentSummary, HdfsStatus

SMALL = 16 * 1024 * 1024
"""Bytes of a file that is read in one call."""


class DriverReader(Protocol):
    """An open file; its blocks are located, and stay this version's."""

    size: int

    def read_range(self, offset: int, size: int, seconds: float) -> bytes:
        """Return exactly `size` bytes from `offset`, both inside of the file; from any thread."""


class DriverOutput(Protocol):
    """A file being written."""

    def write(self, data: bytes, seconds: float) -> None:
        """Send all of `data`."""

    def close(self, seconds: float) -> None:
        """Send what is left, and complete the file."""


class Driver(Protocol):
    """One process's connection to a nameservice."""

    timeout: float
    """Seconds that an operation may take."""

    def read_small(self, path: str, seconds: float, limit: int = SMALL) -> bytes | None:
        """Return the content of a file, None if it has more than `limit` bytes.

        It is repeated if NameNodes fail, and not if DataNodes do.
        """

    def read_small_once(self, path: str) -> bytes | None:
        """As `read_small`, but not repeated, and with no time limit."""

    def stat(self, path: str, seconds: float | None = None) -> FileStat:
        """Return what is at `path`; `FileNotFoundError`."""

    def list_directory(self, path: str) -> list[FileStat]:
        """Return the members of a directory, with bare names; of a file nothing, or the file itself."""

    def list_first(self, path: str) -> list[FileStat]:
        """Return the first thousand or so members of a directory, by name."""

    def open(self, path: str, seconds: float) -> tuple[DriverReader, FileStat]:
        """Open a file, and return what it is a version of; `FileNotFoundError`, `IsADirectoryError`."""

    def create(self, path: str, seconds: float) -> DriverOutput:
        """Create a file under a name that nothing else has, in a directory that is there.

        It is not repeated after a lost response: the caller tries another name.
        """

    def append(self, path: str, seconds: float) -> DriverOutput:
        """Open an existing file to write at its end."""

    def recover_lease(self, path: str) -> bool:
        """Take a file away from the client that writes it; True once it is closed, else ask again."""

    def mkdir(self, path: str, mode: int) -> None:
        """Make one directory in a directory that is there; one that is there is no error."""

    def rename(self, src: str, dst: str, *, overwrite: bool, seconds: float | None = None) -> None:
        """Move in one step; without `overwrite`, `FileExistsError` if there is something at `dst`."""

    def delete(self, path: str, seconds: float | None = None) -> None:
        """Remove a file, or a directory with all that is in it; what is missing is no error."""

    def status(self, path: str) -> HdfsStatus:
        """Return owner, permissions and replication."""

    def set_permission(self, path: str, mode: int) -> None:
        """Set the permission bits."""

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """Set the owner, the group or both."""

    def set_modified(self, path: str, when: float) -> None:
        """Set the time of modification of a file, to milliseconds."""

    def set_replication(self, path: str, replication: int) -> None:
        """Set how many copies of each block of a file there are to be."""

    def content_summary(self, path: str) -> ContentSummary:
        """Return how much lies below a path."""

    def trash(self, path: str) -> str | None:
        """Move into the user's trash; returns the new path, None if it lies there already."""
