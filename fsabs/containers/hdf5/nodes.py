"""The way through an HDF5 file: groups and datasets by key, soft links followed, nothing outside of the file touched.

h5py follows links by itself, external ones to other files of this machine included; so a path is taken here one step
at a time, and h5py is only ever given a hard link.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.limits import Limits

if TYPE_CHECKING:
    import h5py


def find(file: h5py.File, key: str, limits: Limits, start: h5py.Group | None = None) -> h5py.Group | h5py.Dataset:
    """The group or dataset at `key`, which counts from `start` if that is given.

    `FileNotFoundError`, also for a soft link that leads nowhere; `NotADirectoryError`; `PermissionError` for a link to
    another file; `OSError` (ELOOP) for links in a circle.
    """
    import h5py

    node: Any = file["/"] if start is None else start
    todo = _steps(key)
    hops = 0
    while todo:
        name = todo.pop()
        if not isinstance(node, h5py.Group):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not node.id.links.exists(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        kind = node.id.links.get_info(name).type
        if kind == h5py.h5l.TYPE_HARD:
            node = node[name]
            continue
        if kind != h5py.h5l.TYPE_SOFT:
            raise PermissionError(errno.EACCES, f"the link {_text(name)!r} leads to another file: it is not followed")
        hops += 1
        if limits.beyond("max_links", hops):
            raise OSError(errno.ELOOP, limits.reason("max_links", f"{hops} links and more are on the way to it"))
        target = _text(node.id.links.get_val(name))
        if target.startswith("/"):
            node = file["/"]
        todo += _steps(target)
    if not isinstance(node, (h5py.Group, h5py.Dataset)):
        raise FileNotFoundError(errno.ENOENT, "a named datatype, which holds no data")
    return node


def children(
    file: h5py.File, group: h5py.Group, limits: Limits
) -> Iterator[tuple[str, h5py.Group | h5py.Dataset | None]]:
    """The members of `group`, in no order; None for a link that leads nowhere, or to another file.

    Named datatypes are left out, and names that no path can have.
    """
    import h5py

    read_only = file.mode == "r"
    links: list[tuple[int, int, bytes]] = []
    group.id.links.iterate(lambda raw, info: links.append((info.type, info.u, raw)), info=True)
    for kind, _, raw in sorted(links):  # hard links by their objects' addresses: the file is read from front to back
        name = _text(raw)
        if unsafe(name):
            continue
        if kind != h5py.h5l.TYPE_HARD:
            yield name, _behind_link(file, name, limits, group)
            continue
        found = h5py.h5o.open(group.id, raw)  # as `group[raw]`, which asks for the file's mode each time
        if isinstance(found, h5py.h5d.DatasetID):
            yield name, h5py.Dataset(found, readonly=read_only)
        elif isinstance(found, h5py.h5g.GroupID):
            yield name, h5py.Group(found)


def _behind_link(file: h5py.File, name: str, limits: Limits, group: h5py.Group) -> h5py.Group | h5py.Dataset | None:
    try:
        return find(file, name, limits, group)
    except OSError as exc:
        if exc.errno is None:  # HDF5's own, and not a link's fault
            raise
        return None


def is_group(node: Any) -> bool:
    """Return whether a node is a group; None is not."""
    import h5py

    return isinstance(node, h5py.Group)


def identity(node: h5py.Group | h5py.Dataset) -> tuple[int, int]:
    """Return a value that is the same for all names of one object."""
    import h5py

    info = h5py.h5o.get_info(node.id)
    return info.fileno, info.addr


def unsafe(name: str) -> bool:
    """Return whether HDF5 may have a name that no key has."""
    return name in ("", ".", "..")


def raw(name: str) -> bytes:
    """A name as HDF5 has it."""
    return name.encode("utf-8", "surrogateescape")


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _steps(path: str) -> list[bytes]:
    """The segments of a path, the last one first; to HDF5 `.` is the group itself, and `..` a name as any other."""
    return [raw(part) for part in reversed(path.split("/")) if part not in ("", ".")]
