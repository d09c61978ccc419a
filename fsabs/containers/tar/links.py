"""The members of a tar by path, through the symbolic links in it, as a kernel would follow them."""

from __future__ import annotations

import errno
import stat as stat_bits
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ...core import keys
from ...core.limits import Limits
from ..base import Problem
from .index import Member, TarIndex


class LinkTarget(NamedTuple):
    """The target of a path, after following links."""

    key: str
    """Its own, behind every link."""
    member: Member | None
    """None for a directory that only the names of others tell of."""
    directory: bool


def find(index: TarIndex, key: str, limits: Limits) -> LinkTarget:
    """Return the target of `key`, after following links.

    `FileNotFoundError`, also for a link that leads nowhere or out of the archive; `NotADirectoryError`;
    `PermissionError` for an entry whose name is not safe; `OSError` (ELOOP) for links in a circle.
    """
    resolved = key
    found = _exact(index, key)
    if found is None and index.links:
        resolved = _resolved(index, key, limits)
        found = _exact(index, resolved)
    if found is not None:
        return found
    if key in index.refused:
        raise PermissionError(
            errno.EACCES, f"the archive's entry {index.refused[key]!r} is absolute, or leads upwards: it can't be read"
        )
    missing = index.tree.missing(resolved)
    if resolved != key:
        missing.strerror = f"a link leads to {resolved!r} in the archive: {missing.strerror}"
    raise missing


def following(index: TarIndex, key: str, limits: Limits) -> Iterator[tuple[int, int, str]]:
    """As `StorageOrder.following`, as far as members are in the order of their names, as in a tar of a sorted tree."""
    try:
        first = find(index, key, limits).member
    except OSError:  # raised when it is read
        return
    if first is None:
        return
    yield first.offset, first.size, key
    offset = first.offset
    for name, member in index.tree.after(key):
        if name.endswith("/"):
            continue
        if member.offset <= offset:
            return
        offset = member.offset
        if member.extra is None:
            yield member.offset, member.size, name


def _exact(index: TarIndex, key: str) -> LinkTarget | None:
    member = index.tree.entries.get(key)
    if member is not None and not is_link(member):
        return LinkTarget(key, member, directory=False)
    if member is None and index.tree.isdir(key):
        return LinkTarget(key, index.tree.entries.get(key + "/"), directory=True)
    return None


def _resolved(index: TarIndex, key: str, limits: Limits) -> str:
    """`key` with every link on it replaced by where it leads."""
    entries = index.tree.entries
    todo = key.split("/")[::-1]
    done: list[str] = []
    target = key
    hops = steps = 0
    while todo:
        part = todo.pop()
        steps += 1
        if part in ("", "."):
            continue
        if part == "..":
            if not done:
                raise _outside(target)
            done.pop()
            continue
        if limits.beyond("max_depth", steps, len(key)):
            what = f"the links on the way to it have {steps} segments and more"
            raise OSError(errno.ELOOP, limits.reason("max_depth", what))
        member = entries.get("/".join([*done, part]))
        if member is None or not is_link(member):
            done.append(part)
            continue
        hops += 1
        target = str(member.extra)
        if limits.beyond("max_links", hops):
            raise OSError(errno.ELOOP, limits.reason("max_links", f"{hops} links and more are on the way to it"))
        if target.startswith("/"):
            raise _outside(target)
        todo += target.split("/")[::-1]
    return "/".join(done)


def _outside(target: str) -> OSError:
    return FileNotFoundError(errno.ENOENT, f"a link leads to {target!r}, which is not in the archive")


def children(index: TarIndex, key: str, limits: Limits) -> Iterator[tuple[str, LinkTarget]]:
    """The members of the directory `key` (of no link): name and what it leads to; a lost link is itself."""
    found: Iterable[tuple[str, LinkTarget]] = (
        (name, _child(index, keys.join(key, name.rstrip("/")), member, limits))
        for name, member in index.tree.children(key)
    )
    if index.links:  # a link to a directory is listed as one, which changes the order
        found = sorted(found, key=_listed_name)
    return ((name.rstrip("/"), child) for name, child in found)


def _child(index: TarIndex, key: str, member: Member | None, limits: Limits) -> LinkTarget:
    if member is None or not is_link(member):
        directory = member is None or stat_bits.S_ISDIR(member.mode)
        return LinkTarget(key, member, directory)
    try:
        return find(index, key, limits)
    except OSError:  # leads nowhere: listed as the link that it is
        return LinkTarget(key, member, directory=False)


def _listed_name(item: tuple[str, LinkTarget]) -> str:
    name, found = item
    return name.rstrip("/") + "/" if found.directory else name


def is_link(member: Member) -> bool:
    """Return whether a member is a symbolic link, or a hard link without a target."""
    return stat_bits.S_ISLNK(member.mode)


def later_problems(index: TarIndex, limits: Limits) -> Iterator[Problem]:
    """The conflicts of names, and the links that lead nowhere."""
    entries = index.tree.entries
    directories: set[str] = set()
    for name in entries:
        path = keys.parent(name)
        while path and path not in directories:
            directories.add(path)
            path = keys.parent(path)
    for path in sorted(directories):
        if path in entries:
            yield Problem(path, "conflict", "it is a file, and a directory with members, at once")
    for name, member in entries.items() if index.links else ():
        if is_link(member):
            try:
                find(index, name, limits)
            except OSError as exc:
                yield Problem(name, "lost link", f"to {str(member.extra)!r}: {exc.strerror}")
