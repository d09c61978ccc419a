"""The part of `Path` that only the local disk has: the operating system's own path, links, owners, permission bits."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

from . import errors, registry, roots, urls
from .purepaths import FSBase, LocalBase, PurePath, Segment

if TYPE_CHECKING:
    from typing import Self


class DiskPath(PurePath):
    """The methods of `pathlib.Path` that are refused, with `io.UnsupportedOperation`, outside of the local disk."""

    __slots__ = ()

    @property
    def _is_local(self) -> bool:
        """Return whether the operating system knows the path: it is on the local disk, and in no container."""
        if isinstance(self._base, FSBase):
            return False
        if self._base != LocalBase():
            return False
        return not any(
            registry.container_of(above.name) and os.path.isfile(str(above))
            for above in self._pure.parents
            if above.name
        )

    def __fspath__(self) -> str:
        if self._is_local:
            return str(self)
        if isinstance(self._base, FSBase):
            url = self._base.fs.url(str(self._pure))
            fs = self._base.fs
            if fs.scheme == "file" and not hasattr(fs, "file_url"):
                return urls.parse(url).path
            raise TypeError(f"{url} has no path on the local disk; as_local() gives one")
        raise TypeError(f"{roots.shown(str(self))} has no path on the local disk; as_local() gives one")

    def _local(self, operation: str) -> pathlib.Path:
        """Return the path as pathlib's, for what only the local disk has."""
        try:
            return pathlib.Path(os.fspath(self))
        except TypeError:
            raise errors.unsupported(operation, self._shown, f"only the local disk can {operation}") from None

    @property
    def _shown(self) -> str:
        return roots.shown(str(self)) if self.drive else str(self)

    def expanduser(self) -> Self:
        """Return the path with `~` and `~user` expanded, if it is a local one."""
        return self._with(pathlib.PurePosixPath(pathlib.Path(str(self)).expanduser())) if self._is_local else self

    def owner(self, *, follow_symlinks: bool = True) -> str:
        """Return the name of the owner."""
        return self._local("owner").owner()

    def group(self, *, follow_symlinks: bool = True) -> str:
        """Return the name of the group."""
        return self._local("group").group()

    def chmod(self, mode: int, *, follow_symlinks: bool = True) -> None:
        """Set the permission bits."""
        self._local("chmod").chmod(mode, follow_symlinks=follow_symlinks)

    def lchmod(self, mode: int) -> None:
        """Set the permission bits of a link itself."""
        self._local("lchmod").lchmod(mode)

    def readlink(self) -> Self:
        """Return where the link leads to."""
        return self._with(pathlib.PurePosixPath(self._local("readlink").readlink()))

    def symlink_to(self, target: Segment, target_is_directory: bool = False) -> None:
        """Make the path a link to `target`."""
        self._local("symlink_to").symlink_to(target, target_is_directory)

    def hardlink_to(self, target: Segment) -> None:
        """Make the path another name of the file `target`."""
        self._local("hardlink_to").hardlink_to(target)
