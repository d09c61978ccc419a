"""The type of the filesystem that a folder is on, from the kernel's table of mounts, and whether it is on a network."""

from __future__ import annotations

import os

from ..core import errors

NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "9p", "afs", "glusterfs", "orangefs", "ncp")
"""What the names of network filesystems begin with, behind a `fuse.`, too."""
LOCAL_FUSE = ("fuse-overlayfs", "bindfs", "mergerfs", "lxcfs", "ntfs", "exfat")


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
