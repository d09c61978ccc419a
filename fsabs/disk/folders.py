"""Folders of ours: the cache directory, and directories whose files are this user's alone.

A folder is opened once, and what is in it is opened, made and removed relative to its descriptor: no link that another
user plants on the way, or in it, leads anywhere else. And the type of the filesystem that a folder is on, from the
kernel's table of mounts.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_bits
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..core import errors
from .descriptors import open_ours
from .files import Replacement

if TYPE_CHECKING:
    from typing import Self


def cache_directory() -> Path | None:
    """Return the cache directory: `$FSABS_CACHE_DIR`, else `$XDG_CACHE_HOME/fsabs`, else `~/.cache/fsabs`.

    None where `$FSABS_CACHE_DIR` is set to nothing, or there is no home: nothing is kept then.
    """
    chosen = os.environ.get("FSABS_CACHE_DIR")
    if chosen is not None:
        return Path(chosen).absolute() if chosen else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "fsabs") if os.path.isabs(home) else None


class Folder:
    """A directory of this user's, open until `close()`; a context manager.

    Args:
        path: the directory; its last segment is no link.
        create: it is made, private, with what is missing above it.
        private: others may not write to it.

    Raises `PermissionError` if it belongs to another user, `NotADirectoryError` if it is a link or no directory.
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False, private: bool = False) -> None:
        self.path: str = os.fspath(path)
        if create:
            os.makedirs(self.path, 0o700, exist_ok=True)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor: int = os.open(self.path, flags)
        """The descriptor of the directory."""
        try:
            self.status: os.stat_result = os.fstat(self.descriptor)
            """Its status as it was opened."""
            if self.status.st_uid != os.geteuid():
                raise PermissionError(errno.EACCES, "the folder belongs to another user", self.path)
            if private and self.status.st_mode & 0o022:
                raise PermissionError(
                    errno.EACCES, "others may write to the folder (chmod go-w makes it private)", self.path
                )
        except BaseException:
            self.close()
            raise

    @property
    def is_at_its_path(self) -> bool:
        """Whether its path still leads to this directory, and not to another one or to nothing."""
        try:
            return os.path.samestat(self.status, os.lstat(self.path))
        except OSError:
            return False

    def make_folder(self, name: str) -> None:
        """Make a private directory in it, unless there is one."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self.descriptor)

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """Open a file of this user's, as `open_ours`; the caller closes the descriptor."""
        return open_ours(name, flags, dir_fd=self.descriptor)

    def replace(self, name: str) -> Replacement:
        """Return what writes the file `name`, private, whole or not at all."""
        return Replacement(name, dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file, or a link."""
        os.unlink(name, dir_fd=self.descriptor)

    def entries(self, folder: str = ".", *, hidden: bool = False) -> Iterator[tuple[str, os.stat_result]]:
        """Yield names and statuses of the regular files of this user's in the folder, or in one in it.

        Hidden ones are left out unless they are asked for; a `folder` that is a link is an `OSError`.
        """
        # A descriptor of its own: a position in the directory is shared with forked processes.
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(folder, flags, dir_fd=self.descriptor)
        user = os.geteuid()
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    if not hidden and entry.name[0] == ".":
                        continue
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # gone since
                        continue
                    if stat_bits.S_ISREG(status.st_mode) and status.st_uid == user:
                        yield entry.name, status
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptor; closing twice is no error."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


# ---- filesystems

NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "glusterfs", "orangefs", "ncp")
"""What the names of network filesystems begin with, behind a `fuse.`, too."""
LOCAL_FUSE = ("fuse-overlayfs", "bindfs", "mergerfs", "lxcfs", "ntfs", "exfat")
LOCAL = (
    *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "nilfs2", "reiserfs"),
    *("tmpfs", "ramfs", "overlay", "vfat", "exfat", "ntfs3"),
)
"""The names of filesystems of this machine's own disks and memory."""
_MOST_FOLDERS = 10_000
_local: dict[tuple[int, str], bool] = {}  # by device and folder: the table of mounts takes long to read


def existing(path: str | os.PathLike[str]) -> str:
    """Return the folder at an absolute path, or the nearest above it that is there: the disk that it will be on."""
    folder = os.fspath(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def is_network(kind: str) -> bool:
    """Return whether a filesystem of this type is another machine's."""
    name = kind.removeprefix("fuse.")
    if kind.startswith("fuse"):
        return not name.startswith(LOCAL_FUSE) and kind != "fuseblk"
    return name.startswith(NETWORK)


def filesystem_of(path: str, table: str | None = None) -> str:
    """The type of the filesystem that holds `path`, `ext4` say; an empty string where it can't be known.

    Args:
        path: need not exist.
        table: what proc(5) says of `/proc/self/mountinfo`; by default that file of this process.
    """
    if table is None:
        try:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
                table = file.read()
        except OSError:  # no /proc: nothing to know
            return ""
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in table.splitlines():
        before, dash, after = line.partition(" - ")
        fields, types = before.split(" "), after.split(" ")
        if not dash or len(fields) < 5:
            continue
        point = _unescaped(fields[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # of two mounts on one point the later one is seen
            best, kind = point, types[0]
    return kind


def is_local(path: str) -> bool:
    """Return whether a file, which need not exist yet, is on a filesystem that is known to be this machine's."""
    folder = os.path.dirname(path)
    try:
        place = os.stat(path).st_dev, folder
    except FileNotFoundError:
        if os.path.islink(path):
            return is_local(os.path.realpath(path))
        place = os.stat(folder).st_dev, folder
    found = _local.get(place)
    if found is None:
        if len(_local) >= _MOST_FOLDERS:
            _local.clear()
        found = _local[place] = filesystem_of(path) in LOCAL
    return found


def refuse_network(path: str, table: str | None = None) -> None:
    """Raise `io.UnsupportedOperation` (an `OSError` and a `ValueError`) if `path` is on a network filesystem."""
    kind = filesystem_of(path, table)
    if is_network(kind):
        raise errors.unsupported(
            "cache",
            path,
            f"the folder is on a network filesystem ({kind}), where the locks and mappings of an item cache do not "
            "hold: choose a folder on a local disk (dir=, or FSABS_CACHE_DIR)",
        )


def _unescaped(point: str) -> str:
    for octal, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(octal, char)
    return point
