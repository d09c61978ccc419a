"""The driver for a `viewfs://` URL: a mount table of the configuration, which leads to several nameservices.

Directories above the mount points have no NameNode: they can be listed, and nothing can be made in them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import NoReturn

from ... import keys
from ...stats import FileStat
from .configuration import Mount
from .driver import SMALL, Driver, DriverOutput, DriverReader
from .status import ContentSummary, HdfsStatus


class MountTable:
    """The links of a mount table as one driver; each nameservice is connected to when it is first used."""

    def __init__(self, mounts: Sequence[Mount], connect: Callable[[str], Driver], timeout: float) -> None:
        self.timeout = timeout
        self._mounts = mounts
        self._connect = connect
        self._drivers: dict[str, Driver] = {}

    def _find(self, path: str) -> tuple[Mount, str] | None:
        """Return the link that `path` lies in, and the path in its nameservice."""
        path = path.rstrip("/")
        for mount in self._mounts:
            if path == mount.path or path.startswith(mount.path + "/"):
                if not mount.path and self._below(path):
                    return None  # a directory of the table hides the fallback's
                return mount, mount.target + path[len(mount.path) :] or "/"
        return None

    def _below(self, path: str) -> list[str]:
        """Return the next segments of the mount points below a directory of the table."""
        prefix = path.rstrip("/") + "/"
        found = {m.path[len(prefix) :].partition("/")[0] for m in self._mounts if m.path.startswith(prefix)}
        return sorted(found)

    def _driver_of(self, mount: Mount) -> Driver:
        if mount.authority not in self._drivers:
            self._drivers[mount.authority] = self._connect(mount.authority)
        return self._drivers[mount.authority]

    def _resolve(self, path: str) -> tuple[Driver, str]:
        found = self._find(path)
        if found is None:
            self._refuse(path)
        return self._driver_of(found[0]), found[1]

    def _refuse(self, path: str) -> NoReturn:
        if self._below(path) or path == "/":
            raise OSError(errno.EROFS, "a directory of the mount table can only be listed")
        if self._below(os.path.dirname(path)) or os.path.dirname(path) == "/":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        raise FileNotFoundError(errno.ENOENT, "no link of the mount table leads there")

    def stat(self, path: str, seconds: float | None = None) -> FileStat:
        """As `Driver.stat`."""
        if self._find(path) is None and (self._below(path) or path == "/"):
            return FileStat.of_directory(keys.name(path.strip("/")))
        driver, target = self._resolve(path)
        return driver.stat(target, seconds)._replace(filename=keys.name(path.strip("/")))

    def list_directory(self, path: str) -> list[FileStat]:
        """As `Driver.list_directory`; with the mount points, and at the root with what the fallback has."""
        points = [FileStat.of_directory(name) for name in self._below(path)]
        found = self._find(path)
        if found is None and path == "/" and self._mounts and not self._mounts[-1].path:
            found = self._mounts[-1], self._mounts[-1].target or "/"
        if found is None:
            if not points and path != "/":
                self._refuse(path)
            return points
        names = {point.filename for point in points}
        members = self._driver_of(found[0]).list_directory(found[1])
        return points + [member for member in members if member.filename not in names]

    def list_first(self, path: str) -> list[FileStat]:
        """As `Driver.list_first`."""
        driver, target = self._resolve(path)
        return driver.list_first(target)

    def open(self, path: str, seconds: float) -> tuple[DriverReader, FileStat]:
        """As `Driver.open`."""
        driver, target = self._resolve(path)
        return driver.open(target, seconds)

    def read_small(self, path: str, seconds: float, limit: int = SMALL) -> bytes | None:
        """As `Driver.read_small`."""
        driver, target = self._resolve(path)
        return driver.read_small(target, seconds, limit)

    def read_small_once(self, path: str) -> bytes | None:
        """As `Driver.read_small_once`."""
        driver, target = self._resolve(path)
        return driver.read_small_once(target)

    def create(self, path: str, seconds: float) -> DriverOutput:
        """As `Driver.create`."""
        driver, target = self._resolve(path)
        return driver.create(target, seconds)

    def append(self, path: str, seconds: float) -> DriverOutput:
        """As `Driver.append`."""
        driver, target = self._resolve(path)
        return driver.append(target, seconds)

    def recover_lease(self, path: str) -> bool:
        """As `Driver.recover_lease`."""
        driver, target = self._resolve(path)
        return driver.recover_lease(target)

    def mkdir(self, path: str, mode: int) -> None:
        """As `Driver.mkdir`."""
        driver, target = self._resolve(path)
        driver.mkdir(target, mode)

    def rename(self, src: str, dst: str, *, overwrite: bool, seconds: float | None = None) -> None:
        """As `Driver.rename`; EXDEV between two links."""
        found, onto = self._find(src), self._find(dst)
        if found is None or onto is None:
            self._refuse(src if found is None else dst)
        if found[0] != onto[0]:
            raise OSError(errno.EXDEV, f"{src} and {dst} are in different links of the mount table")
        self._driver_of(found[0]).rename(found[1], onto[1], overwrite=overwrite, seconds=seconds)

    def delete(self, path: str, seconds: float | None = None) -> None:
        """As `Driver.delete`."""
        driver, target = self._resolve(path)
        driver.delete(target, seconds)

    def status(self, path: str) -> HdfsStatus:
        """As `Driver.status`."""
        driver, target = self._resolve(path)
        return driver.status(target)

    def set_permission(self, path: str, mode: int) -> None:
        """As `Driver.set_permission`."""
        driver, target = self._resolve(path)
        driver.set_permission(target, mode)

    def set_owner(self, path: str, owner: str | None, group: str | None) -> None:
        """As `Driver.set_owner`."""
        driver, target = self._resolve(path)
        driver.set_owner(target, owner, group)

    def set_modified(self, path: str, when: float) -> None:
        """As `Driver.set_modified`."""
        driver, target = self._resolve(path)
        driver.set_modified(target, when)

    def set_replication(self, path: str, replication: int) -> None:
        """As `Driver.set_replication`."""
        driver, target = self._resolve(path)
        driver.set_replication(target, replication)

    def content_summary(self, path: str) -> ContentSummary:
        """As `Driver.content_summary`."""
        driver, target = self._resolve(path)
        return driver.content_summary(target)

    def trash(self, path: str) -> str | None:
        """As `Driver.trash`; the trash of the link's nameservice."""
        driver, target = self._resolve(path)
        return driver.trash(target)
