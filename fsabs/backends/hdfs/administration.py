"""The operations of HDFS that other FS don't have: trash, owners, permissions, replication, content summaries, leases,
snapshots.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from ... import errors
from ...fs import FS, Path
from .access import HdfsAccess
from .status import ContentSummary, HdfsStatus


class Administration(HdfsAccess, FS):
    """The operations of HDFS that only it has; `Hdfs` is built on it."""

    def remove(self, file_path: Path, recursive: bool = False, *, trash: bool = False) -> None:
        """Remove a file, or with `recursive` a directory and all that is in it.

        With `trash` it is moved into the trash of the user (`/user/NAME/.Trash/Current`), from where the NameNode
        deletes it later; `OSError` (EOPNOTSUPP) if the NameNode keeps no trash. What lies there already is removed.
        """
        if not trash:
            super().remove(file_path, recursive)
            return
        with self._named_call("remove", file_path) as path:
            if not recursive and self.driver.stat(path).directory:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if self.driver.trash(path) is None:
                self.driver.delete(path)

    def status(self, path: Path) -> HdfsStatus:
        """Return owner, group, permissions, replication and block size."""
        with self._named_call("status", path) as found:
            return self.driver.status(found)

    def chmod(self, path: Path, mode: int) -> None:
        """Set the permission bits of a file or directory."""
        with self._named_call("chmod", path) as found:
            self.driver.set_permission(found, mode & 0o1777)

    def chown(self, path: Path, owner: str | None = None, group: str | None = None) -> None:
        """Set the owner, the group or both, by name; the owner only as HDFS's superuser."""
        with self._named_call("chown", path) as found:
            self.driver.set_owner(found, owner, group)

    def set_replication(self, path: Path, replication: int) -> None:
        """Set how many copies of each block of a file there are to be; the NameNode makes or removes them later."""
        with self._named_call("set_replication", path) as found:
            self.driver.set_replication(found, replication)

    def content_summary(self, path: Path = "") -> ContentSummary:
        """Return how much lies below `path`, in one request: bytes, files, directories, and the quotas."""
        with self._named_call("content_summary", path) as found:
            return self.driver.content_summary(found)

    def recover_lease(self, path: Path) -> bool:
        """Take a file away from the client that writes it, so that it can be read or appended to.

        Returns True once the file is closed; False while the recovery is under way: ask again.
        """
        with self._named_call("recover_lease", path) as found:
            return self.driver.recover_lease(found)

    def snapshots(self, path: Path = "") -> list[str]:
        """Return the names of the snapshots of a directory; the files of one lie in `path/.snapshot/NAME`."""
        with self._named_call("snapshots", path) as found:
            return [stat.filename for stat in self.driver.list_directory(found.rstrip("/") + "/.snapshot")]

    @contextlib.contextmanager
    def _named_call(self, operation: str, path: Path) -> Iterator[str]:
        """Yield the absolute path; what is raised gets the URL and the operation."""
        key = self._key(path, operation)
        try:
            yield "/" + key
        except OSError as exc:
            raise errors.named(exc, operation, self._url(key)) from exc.__cause__
