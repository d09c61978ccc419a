"""Trees in one order, so that two of them can be compared side by side without either being in memory; and files of the
two: by size, and by checksum, time or content.
"""

from __future__ import annotations

import errno
import os
import stat as stat_bits
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import errors, keys
from ..core.limits import LinkedEntries
from ..core.listing import names_of
from ..core.readahead import pieces
from ..core.stats import FileStat

if TYPE_CHECKING:
    from ..core.blobs import Blob
    from ..core.fs import FS

T = TypeVar("T")
Failed = Callable[[str, OSError], None]
"""Takes what could not be listed: its name, relative to the walk's directory, and the error."""
_MOST_PASSED = 10_000
"""Files of a target that are passed over before its files are asked for one by one."""


def is_link(stat: FileStat) -> bool:
    """Return whether a stat is that of a symbolic link itself, as walks with `keep_links` yield it."""
    return stat_bits.S_ISLNK(stat.mode)


_ORDINARY = (0, stat_bits.S_IFREG, stat_bits.S_IFLNK, stat_bits.S_IFDIR)


def is_special(stat: FileStat) -> bool:
    """Return whether a stat is that of a pipe, a socket or a device: to open one may take for ever."""
    return stat_bits.S_IFMT(stat.mode) not in _ORDINARY


def refuse_special(fs: FS, key: str, stat: FileStat, done: str = "copied", operation: str = "copy") -> None:
    """Raise `OSError` (EINVAL) for a pipe, a socket or a device."""
    if is_special(stat):
        raise errors.error(errno.EINVAL, operation, fs._url(key), f"a pipe, a socket or a device is not {done}")


def ordered_walk(
    fs: FS,
    key: str,
    *,
    keep_links: bool = False,
    enters: Callable[[FileStat], bool] | None = None,
    failed: Failed | None = None,
) -> Iterator[FileStat]:
    """Yield what is below a directory, names relative to it, in the order of the names with a directory's `/`.

    Args:
        fs, key: the directory.
        keep_links: a symbolic link is yielded as itself (`is_link`), and not followed.
        enters: whether what is in a directory is wanted; asked where that saves a listing.
        failed: called with what can't be listed, which is left out; by default its error is raised. What is wrong with
            the directory `key` itself is always raised, and a listing out of order, too (`CorruptFileError`).

    Where a store has no order, the names of one directory at a time are in memory.
    """
    can = fs.capabilities
    if can.ordered and can.implied_directories:
        yield from fs._in_order(key, fs._walk(key))
    else:
        yield from _Walk(fs, key, keep_links, enters, failed).run()


class _Walk:
    """A walk that lists one directory after another."""

    def __init__(
        self, fs: FS, key: str, keep_links: bool, enters: Callable[[FileStat], bool] | None, failed: Failed | None
    ) -> None:
        self._fs = fs
        self._key = key
        self._keep_links = keep_links and fs.capabilities.links
        self._enters = enters
        self._failed = failed
        self._entries = LinkedEntries(fs.limits)

    def run(self) -> Iterator[FileStat]:
        """Yield what is in it."""
        stack = [("", self._members(self._key), False, False)]  # and whether a link leads there, again
        while stack:
            base, members, linked, repeated = stack[-1]
            try:
                member = next(members, None)
                if member is None:
                    stack.pop()
                    continue
                self._entries.count(repeated)
            except OSError as exc:
                stack.pop()
                if not base:
                    raise
                self._fail(base[:-1], exc)
                continue
            stat = self._found(base, member)
            if stat is None:
                continue
            yield stat
            if stat.directory and (self._enters is None or self._enters(stat)):
                path = keys.join(self._key, stat.filename)
                linked = linked or _leads_elsewhere(self._fs, path)
                repeated = linked and self._entries.enter(self._fs._listed_by._directory_identity(path))
                stack.append((stat.filename + "/", self._members(path), linked, repeated))

    def _members(self, key: str) -> Iterator[FileStat | str]:
        """Yield the members of a directory, in order: stats, or names where stats would be many at once."""
        if self._fs.capabilities.ordered:
            yield from self._fs._in_order(key, self._fs._list(key))
            return
        names = list(names_of(self._fs._list(key, False)))
        if self._keep_links:
            names = [self._as_link(key, name) if name.endswith("/") else name for name in names]
        yield from sorted(names)

    def _as_link(self, key: str, name: str) -> str:
        return name[:-1] if _leads_elsewhere(self._fs, keys.join(key, name[:-1])) else name

    def _found(self, base: str, member: FileStat | str) -> FileStat | None:
        """Return the stat of a member; None if it is gone since, or has failed."""
        name = base + (member.removesuffix("/") if isinstance(member, str) else member.filename)
        path = keys.join(self._key, name)
        try:
            if self._keep_links:
                return self._fs._lstat(path)._replace(filename=name)
            stat = self._fs._stat(path) if isinstance(member, str) else member
            if stat.directory and self._fs._listed_by._leads_back(path):
                raise OSError(errno.ELOOP, f"{os.strerror(errno.ELOOP)}: it leads to a directory that it is in")
            return stat._replace(filename=name)
        except OSError as exc:
            if not isinstance(exc, FileNotFoundError) or _leads_elsewhere(self._fs, path):
                self._fail(name, exc)
            return None

    def _fail(self, name: str, exc: OSError) -> None:
        if self._failed is None:
            self._fs._named(exc, "list", keys.join(self._key, name))
            raise exc
        self._failed(name, exc)


class Existing:
    """What is below a directory of a target already, asked for in the order of `ordered_walk`.

    The directory is listed beside the walk of the source. If much more is in it than is asked for, it is no longer
    listed: each file is asked for.
    """

    def __init__(self, fs: FS, key: str, failed: Failed | None = None) -> None:
        self._fs = fs
        self._key = key
        self._walk = existing(fs, key, failed)
        self._next: FileStat | None = next(self._walk, None)
        self._empty = self._next is None
        self._listed = True
        self._passed = self._asked = 0

    def find(self, name: str) -> FileStat | None:
        """Return the stat of the file or link `name`, which follows those that were asked for before, or None.

        A link's is its own. A directory is not found: it is listed behind other names.
        """
        if self._empty:
            return None
        self._asked += 1
        while self._listed and self._next is not None and self._next.listed() < name:
            self._next = next(self._walk, None)
            self._passed += 1
            self._listed = self._passed <= _MOST_PASSED + 10 * self._asked
        if not self._listed:
            stat = entry(self._fs, keys.join(self._key, name))
            return None if stat is None or stat.directory else stat._replace(filename=name)
        found = self._next
        return found if found is not None and found.filename == name and not found.directory else None


def entry(fs: FS, key: str) -> FileStat | None:
    """Return the stat of what is at `key`, a link's its own; None if nothing is there."""
    try:
        return fs._lstat(key)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _leads_elsewhere(fs: FS, key: str) -> bool:
    """Return whether `key` is a symbolic link, which may lead to nothing."""
    try:
        return fs._is_link(key)
    except (FileNotFoundError, NotADirectoryError):
        return False


def existing(fs: FS, key: str, failed: Failed | None = None) -> Iterator[FileStat]:
    """Yield what is below a directory, links as themselves, as `ordered_walk` does; nothing if it is missing."""
    if not fs.capabilities.read:
        return
    walk = ordered_walk(fs, key, keep_links=True, failed=failed)
    try:
        first = next(walk, None)
    except FileNotFoundError:
        return
    except OSError as exc:
        fs._named(exc, "list", key)
        raise
    if first is not None:
        yield first
        yield from walk


def side_by_side(
    left: Iterator[T], right: Iterator[T], *, name: Callable[[Any], str] = FileStat.listed
) -> Iterator[tuple[T | None, T | None]]:
    """Yield the entries of two walks that are ordered by `name`, those of one name together."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and name(one) < name(other)):
            yield one, None
            one = next(left, None)
        elif one is None or name(other) < name(one):
            yield None, other
            other = next(right, None)
        else:
            yield one, other
            one, other = next(left, None), next(right, None)


# ---- files

_MILLISECOND = 1e-3
_MICROSECOND = 1e-6  # what a float of seconds since 1970 can hold today


class Comparison:
    """Compares files of a source with those of a target.

    Files of unequal size differ. Of equal size they are taken for equal

    - if both have plain checksums of their content in their versions: if these are equal;
    - if the target keeps times: if their times of modification are equal, as a copy makes them;
    - if the target was written after the last change of the source, where that has a time that can't be set;
    - if the target's version has a checksum, and the source is near: if the source's content has that checksum;
    - else if the target was written after the source, by the clocks of their stores.

    With `content`, only contents count: by checksums that are equal, else by reading both.
    """

    def __init__(self, source: FS, target: FS, content: bool = False) -> None:
        self._source = source
        self._target = target
        self._content = content

    def are_equal(self, src: str, stat: FileStat, dst: str, there: FileStat) -> bool:
        """Return whether the file `dst` need not be copied."""
        if there.directory or stat.size != there.size:
            return False
        if is_special(stat) or is_special(there):  # to read one may never end: they are equal if they are of one kind
            return stat_bits.S_IFMT(stat.mode) == stat_bits.S_IFMT(there.mode)
        if self._content:
            return self._by_content(src, stat, dst, there)
        written, time = there.last_modified, stat.last_modified
        if self._target.capabilities.settable_times and written is not None and time is not None:
            whole = any(abs(when * 1000 - round(when * 1000)) < _MILLISECOND for when in (written, time))
            return abs(written - time) < (_MILLISECOND if whole else _MICROSECOND)
        if written is not None and self._source.backing._unchanged_since(stat, written):
            return True
        if self._source.default_concurrency == 1:  # it is read as fast as anything
            with self._source._open_blob(src) as blob:
                verdict = self._target.backing._has_content(there, blob)
            if verdict is False and not self._target.backing._has_digest(dst):
                verdict = None
            if verdict is not None:
                return verdict
        elif (same := self._by_versions(src, stat, dst, there)) is not None:
            return same
        if written is not None and time is not None:
            return written > time
        return self._by_content(src, stat, dst, there)

    def _by_versions(self, src: str, stat: FileStat, dst: str, there: FileStat) -> bool | None:
        """Return whether two versions of stores of one kind are of equal contents; None if they don't tell."""
        if stat.version is None or there.version is None or self._source.scheme != self._target.scheme:
            return None
        same = self._source.backing._same_content(stat.version, there.version)
        if same is False and not (self._source.backing._has_digest(src) and self._target.backing._has_digest(dst)):
            return None
        return same

    def _by_content(self, src: str, stat: FileStat, dst: str, there: FileStat) -> bool:
        with self._source._open_blob(src) as one, self._target._open_blob(dst) as other:
            verdict = self._target.backing._has_content(there, one)
            if verdict is None:
                verdict = self._source.backing._has_content(stat, other)
            return verdict or _equal(one, other)


def _equal(one: Blob, other: Blob) -> bool:
    if one.size != other.size:
        return False
    return all(left == right for left, right in zip(pieces(one), pieces(other), strict=True))
