"""Containment of symbolic links in a local tree: which of them `Local(links=...)` follows.

A path is checked before it is used. That keeps a tree's links from leading a program astray; against another process
that changes the tree at the same moment it is no sandbox.
"""

from __future__ import annotations

import errno
import os
from typing import Literal, get_args

from .. import keys
from ..fs import FileStat

Links = Literal["follow", "inside", "refuse"]


def parsed(links: str) -> str:
    """Return the option, checked."""
    if links not in get_args(Links):
        raise ValueError(f"links must be one of {', '.join(map(repr, get_args(Links)))}, not {links!r}")
    return links


def check(key: str, root: str, links: str, last: bool = True) -> None:
    """Raise a `PermissionError` if a link on the way to `key`, which lies in `root`, may not be followed.

    The last segment counts only if `last` is set: a link itself may be removed and renamed.
    """
    path = "/" + (key if last or key == root else keys.parent(key))
    if not allowed(path, "/" + root, links):
        led = "a link leads out of this FS's root" if links == "inside" else "a link is on the way"
        raise PermissionError(errno.EACCES, f"{led}, and links={links!r}")


def allowed(path: str, root: str, links: str) -> bool:
    """Return whether the links on the way to `path` may be followed."""
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    if links == "refuse":
        return real == os.path.normpath(os.path.join(real_root, os.path.relpath(path, root)))
    return keys.inside(real[1:], real_root[1:])


def shown(stat: FileStat, folder: str, root: str, links: str) -> FileStat:
    """Return an entry of a listing of `folder`: a link that is not followed is shown as itself."""
    path = os.path.join(folder, stat.filename)
    if not os.path.islink(path) or allowed(path, root, links):
        return stat
    status = os.lstat(path)
    return FileStat(stat.filename, status.st_size, False, status.st_mtime, status.st_mode)
