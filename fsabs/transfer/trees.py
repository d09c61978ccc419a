"""Copying, synchronizing and moving whole trees between any two FS.

The source is walked once, in order, beside the files that are at the target already; directories are made on the way,
and files are given to the `Copier`. What is removed is removed at the end, when every file has arrived and both trees
were listed completely. What can't be listed, made or copied is reported, and costs what is below it and no more.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import operator
import stat as stat_bits
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from ..core import errors, identity, keys
from ..core.layers import copied_by_store, stored_in
from ..core.stats import FileStat, TreeCounts
from ..core.writing import partial_name
from .copier import Copier, CopyResult, FileCopy
from .files import copy_file, refuse_same
from .walks import (
    Comparison,
    Existing,
    entry,
    existing,
    is_link,
    is_special,
    ordered_walk,
    refuse_special,
    side_by_side,
)

if TYPE_CHECKING:
    from ..core.fs import FS

T = TypeVar("T")
_FEW = 100
"""Files that are asked for one by one at a target where that takes requests: its listing may have thousands besides."""
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class TreeEvent(NamedTuple):
    """The end of the work on one file."""

    action: Literal["copied", "skipped", "removed", "failed"]
    key: str
    """At the target; of a removed one, too."""
    size: int
    error: OSError | ValueError | None = None


class Backups:
    """The directory that gets what is replaced or removed at the targets of one command."""

    def __init__(self, fs: FS, top: str) -> None:
        self.fs = fs
        self.top = top
        self._taken = set[str]()
        self._names = identity.DistinctNames(fs, "copy")

    def refuse(self, tree: FS, top: str) -> None:
        """Raise `OSError` if the directory is in a tree of which it would get files, or is that."""
        if identity.inside(self.fs, self.top, tree, top):
            reason = f"backups can't be in the tree that they are of, {tree._url(top)}"
            raise errors.error(errno.EINVAL, "copy_tree", self.fs._url(self.top), reason)

    def place(self, name: str, original: FS, key: str) -> str:
        """Return the key for a file, which is at `name` below its target; raises `OSError` where that is taken."""
        place = keys.join(self.top, name)
        if place in self._taken or identity.same(self.fs, place, original, key):
            reason = f"the backup of {original._url(key)} would take the place of another file"
            raise errors.error(errno.EEXIST, "copy", self.fs._url(place), reason)
        self._taken.add(place)
        return self._names.check(place)


class TreePlan(NamedTuple):
    """The options of a transfer of a tree."""

    existing: Literal["replace", "skip", "compare"] = "compare"
    """Files that are at the target already: replace them, leave them, or replace them if they differ."""
    content: bool = False
    """Compare contents, not times."""
    move: bool = False
    """Remove each file of the source when it has arrived, and the directories that are empty then."""
    dry_run: bool = False
    """Report what would be done."""
    keep_links: bool = False
    """Make links of links, where the target has them; else what they lead to is copied."""
    replace_links: bool = False
    """Replace a link at the target, or a file in the place of a directory; else files are written through links, and
    directories refused."""
    wanted: Callable[[FileStat], bool] | None = None
    """Whether a file is to be copied, and what is in a directory; None for all."""
    only_files: bool = False
    """Make directories for the files in them alone."""
    backups: Backups | None = None
    """The directory that gets what would be replaced or removed at the target."""
    max_delete: int | None = None
    """Nothing is removed at the target that the source does not have if it were more."""


class TreeTransfer:
    """One run over a tree.

    Args:
        source, src: the directory.
        target, dst: the directory that gets its members, made if it is missing.
        plan: what is to be done.
        report: called with what became of each file.
        count: called with the size of each piece that was copied.
        concurrency: how many files are under way at once; by default, what suits the two FS.
        names: those of all transfers of one command to the target.
    """

    def __init__(
        self,
        source: FS,
        src: str,
        target: FS,
        dst: str,
        plan: TreePlan,
        report: Callable[[TreeEvent], None],
        count: Callable[[int], None],
        concurrency: int | None = None,
        names: identity.DistinctNames | None = None,
    ) -> None:
        self._source = source
        self._src = src
        self._target = target
        self._dst = dst
        self._plan = plan
        self._report = report
        self._count = count
        self._comparison = Comparison(source, target, plan.content or plan.move)
        self._copier = Copier(source, target, self._ended, count, concurrency, move=plan.move)
        self._modes: list[tuple[str, int]] = []  # that keys at the target get in the end
        self._written: list[str] | None = None  # what is at the target since, where others are to be removed
        self._moved: list[str] = []  # directories of the source, which go if they are empty then
        self._replaced = set[str]()  # keys at the target of what a directory would take the place of, in a dry run
        self._names = names or identity.DistinctNames(target, "copy")
        self._unmade = ""  # a directory that could not be made: what is in it is left out
        self.directories: int = 0
        """Those that were made."""
        self.failed: int = 0
        """Files and directories that were not copied, for an error."""

    def run_file(self) -> None:
        """Copy or move one file: `src` and `dst` name files."""
        self.run_files([(self._src, self._dst)])

    def run_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Copy or move files, which are given by their keys on the source and at the target."""
        there: Existing | None = None
        if len(files) > _FEW and self._target.capabilities.stat_is_request and self._looks():
            files = sorted(files, key=operator.itemgetter(1))
            there = self._looked(lambda: Existing(self._target, self._dst, self._target_failed))
        with self._copier as copier:
            copier.run(file for src, dst in files for file in self._single(src, dst, there))
        self._restore_modes()

    def _single(self, src: str, dst: str, there: Existing | None) -> Iterator[FileCopy]:
        """Yield a file if it is to be copied; `there` is what is at the target, where that was listed."""
        try:
            with self._source._naming("copy", src):
                stat = entry(self._source, src) if self._keeps_links() else self._source._stat(src)
            if stat is None:
                raise errors.error(errno.ENOENT, "copy", self._source._url(src))
            self._check_name(dst)
            if there is not None:
                found = there.find(keys.relative(dst, self._dst))
            else:
                found = self._looked(lambda: entry(self._target, dst)) if self._target.capabilities.read else None
            if not self._target.capabilities.implied_directories and not self._plan.dry_run:
                with self._target._naming("copy", dst), contextlib.suppress(FileExistsError):
                    self._target._makedirs(keys.parent(dst), 0o777)
            file, written = FileCopy(src, dst, stat), self._written_to(dst, found)
            is_written = written is not None and is_special(written) and not (is_link(stat) or self._plan.move)
            event = self._write_special(file) if is_written else None
        except (OSError, ValueError) as exc:
            self._fail(dst, exc)
            return
        if event is not None:
            self._report(event)
        else:
            yield from self._copied(file, None if found is not None and found.directory else found)

    def _write_special(self, file: FileCopy) -> TreeEvent:
        """Write a file to a pipe or a device, where what was written can't be read again."""
        refuse_special(self._source, file.src, file.stat)
        size = file.stat.size
        if self._plan.existing == "skip":
            return TreeEvent("skipped", file.dst, size)
        if not self._plan.dry_run:
            size = copy_file(self._source, file.src, self._target, file.dst, self._count, stat=file.stat, verify=False)
        return TreeEvent("copied", file.dst, size)

    def run(self, delete: bool = False, listed: FS | None = None) -> None:
        """Copy the files; a move removes those that have arrived, and `delete` what the source does not have.

        `listed` is the target as it was, opened to be read: a container that is added to can't be.
        """
        if delete:
            self._check_delete(listed or self._target)
            self._written = []
        self._check()
        # What is moved is removed when it is there, and not only when all is.
        with contextlib.nullcontext() if self._plan.move else self._target._batch("Copy files"):
            self._copy()
            if delete and not self.failed:
                self._remove_others(listed or self._target)

    def _copy(self) -> None:
        with self._copier as copier:
            copier.run(self._copies())
        self._restore_modes()
        if self._target.capabilities.read:
            self._remove_moved_directories()

    def finish_move(self) -> None:
        """Remove what was moved into an archive that is written, which is closed first."""
        self._target.close()
        self._target.backing._make_durable([])
        for file in self._copier.arrived:
            if (error := self._copier.remove_source(file)) is not None:
                self._fail(file.dst, error)
        self._remove_moved_directories()

    def _remove_moved_directories(self) -> None:
        for key in reversed(self._moved):
            self._remove_directory(self._source, keys.join(self._src, key))

    def _remove_others(self, listed: FS) -> None:
        """Remove the files and directories of the target that the source does not have.

        Nothing is removed after a failure: what was not listed would look as if it were not there.
        """
        ours = ordered_walk(
            self._source, self._src, keep_links=self._keeps_links(), enters=self._wants, failed=self._source_failed
        )
        theirs = existing(listed, self._dst, self._target_failed)
        others: list[FileStat] = []
        on_disk = self._target.capabilities.links
        # Directories of the source, which links and mounts have elsewhere, too.
        kept = {identity.place(self._source, self._src)}
        renamed = set[identity.Place]()  # what a disk lists by other names than it was given: of another case or form
        for here, there in side_by_side(ours, theirs):
            if here is None and there and self._wants(there) and self._key_of(there) not in self._replaced:
                others.append(there)
            if here is not None and there is None and on_disk and self._target._is(self._key_of(here), directory=None):
                renamed.add(self._place_of(here))
            if here is not None and here.directory and self._source.capabilities.links:
                kept.add(identity.place(self._source, keys.join(self._src, here.filename)))
        if self.failed:
            return
        if renamed:
            others = [stat for stat in others if is_link(stat) or self._place_of(stat) not in renamed]
        if self._plan.max_delete is not None and len(others) > self._plan.max_delete:
            reason = f"{len(others)} files and directories would be removed, over the limit of {self._plan.max_delete}"
            raise errors.error(errno.EPERM, "sync", self._target._url(self._dst), reason)
        for stat in others:
            if stat.directory and self._place_of(stat) in kept:
                reason = "it is a directory of the source, by a link or a mount, and would be removed"
                raise errors.error(errno.EINVAL, "sync", self._target._url(self._key_of(stat)), reason)
        if others and not self._plan.dry_run:
            self._target.backing._make_durable(self._written or ())
        for stat in others:
            if not stat.directory:
                self._remove(stat)
        for stat in reversed(others):
            if stat.directory and not self._plan.dry_run:
                self._remove_directory(self._target, self._key_of(stat))

    def _key_of(self, stat: FileStat) -> str:
        """Return the key that a name of either tree has at the target."""
        return keys.join(self._dst, stat.filename)

    def _place_of(self, stat: FileStat) -> identity.Place:
        return identity.place(self._target, self._key_of(stat))

    def _check_delete(self, listed: FS) -> None:
        """Refuse to remove where the target can't remove, or the source, in the target, would be removed."""
        for fs, capability in ((self._target, "remove"), (listed, "read")):  # what can't be listed can't be compared
            fs._require(capability, "remove what the source does not have", self._dst)
        if identity.inside(self._source, self._src, self._target, self._dst):
            reason = "the source is in the target, where it would be removed"
            raise errors.error(errno.EINVAL, "sync", self._source._url(self._src), reason)

    # ---- what is copied

    def _check(self) -> None:
        """Refuse what is no directory, and a copy of a directory into itself, which would never end."""
        with self._source._naming("copy_tree", self._src):
            self._source._stat_directory(self._src)
            if identity.inside(self._target, self._dst, self._source, self._src):
                raise OSError(errno.EINVAL, "can't copy a tree into itself")
        if self._plan.backups is not None:
            self._plan.backups.refuse(self._source, self._src)
            self._plan.backups.refuse(self._target, self._dst)

    def _copies(self) -> Iterator[FileCopy]:
        """Yield the files that are to be copied; do what is not copying."""
        there: Existing | None = None
        if self._looks():
            there = self._looked(lambda: Existing(self._target, self._dst, self._target_failed))
        for stat in self._files():
            file = FileCopy(keys.join(self._src, stat.filename), keys.join(self._dst, stat.filename), stat)
            yield from self._copied(file, there.find(stat.filename) if there is not None else self._special(file.dst))

    def _copied(self, file: FileCopy, found: FileStat | None) -> Iterator[FileCopy]:
        """Yield a file if it is to be copied; `found` is what is at its target, a link as itself."""
        try:
            event = self._done_at_once(file, found)
        except (OSError, ValueError) as exc:
            if isinstance(exc, OSError):
                self._source._named(exc, "copy", file.src)
            self._fail(file.dst, exc)
            return
        if event is None:
            yield file
        else:
            self._report(event)

    def _done_at_once(self, file: FileCopy, found: FileStat | None) -> TreeEvent | None:
        """Return what became of a file; None if its content is to be copied."""
        refuse_special(self._source, file.src, file.stat)
        found = self._written_to(file.dst, found)
        if found is not None and self._plan.existing != "skip":
            refuse_special(self._target, file.dst, found, "replaced")
        if found is not None and self._is_there(file, found):
            moves = self._plan.move and self._plan.existing != "skip"
            if moves and not self._plan.dry_run:
                self._remove_moved(file)
            return TreeEvent("copied" if moves else "skipped", file.dst, file.stat.size)
        if self._plan.dry_run:
            there = found if found is not None else self._foreseen(file.dst)
            if there is not None and there.directory:
                raise errors.error(errno.EISDIR, "copy", self._target._url(file.dst))
            return TreeEvent("copied", file.dst, file.stat.size)
        return self._replaced_at_once(file, found)

    def _written_to(self, dst: str, found: FileStat | None) -> FileStat | None:
        """Return the stat of what is written to where `found` is at the target: behind a link that is not replaced."""
        if found is None or not is_link(found) or self._plan.replace_links or self._keeps_links():
            return found
        try:
            return self._target._stat(dst)
        except FileNotFoundError:
            return None

    def _special(self, dst: str) -> FileStat | None:
        """Return the stat of a pipe or a device at the target, which is not written to."""
        if not self._target.capabilities.links:
            return None
        try:
            found = self._target._stat(dst)
        except OSError:  # nothing is there, or the copy will show what is wrong
            return None
        return found if is_special(found) else None

    def _looks(self) -> bool:
        """Return whether what is at the target matters."""
        plan = self._plan
        if plan.existing != "replace" or plan.backups is not None or plan.replace_links:
            return True
        one, other = identity.place(self._source, self._src), identity.place(self._target, self._dst)
        return one.kind == other.kind  # a file there may be the one that is copied

    def _looked(self, look: Callable[[], T]) -> T | None:
        """Return what `look` finds at the target; None where it may be written to and not looked at, if that is enough
        to copy.
        """
        try:
            return look()
        except PermissionError:
            plan = self._plan
            must_know = plan.existing == "skip" or plan.backups is not None or plan.move
            if must_know or not self._target.capabilities.implied_directories:
                raise
            return None

    def _is_there(self, file: FileCopy, found: FileStat) -> bool:
        """Return whether a file need not be copied; refuse one that would be copied or moved onto itself."""
        if self._plan.existing == "skip":
            return True
        if is_link(file.stat):
            if is_link(found):
                return self._source._lstat(file.src).link == self._target._lstat(file.dst).link
            refuse_same(self._source, file.src, self._target, file.dst, "copy")  # a link that leads to what is replaced
            return False
        if is_link(found):
            return False
        if self._plan.move or self._plan.existing == "replace":
            refuse_same(self._source, file.src, self._target, file.dst, "copy", may_be=self._plan.move)
        if self._plan.existing == "replace":
            return False
        try:
            return self._comparison.are_equal(file.src, file.stat, file.dst, found)
        except OSError:  # the copy will show what is wrong
            return False

    def _replaced_at_once(self, file: FileCopy, found: FileStat | None) -> TreeEvent | None:
        """Make a link, or move a file in one step; return None if its content is to be copied, and has its place."""
        source, target, plan = self._source, self._target, self._plan
        if found is not None and plan.backups is not None:
            self._back_up(file.dst, found, removed=False)
        if plan.move and self._can_rename():
            try:
                source._rename(file.src, file.dst)
            except OSError as exc:
                if exc.errno != errno.EXDEV:  # another disk
                    raise
            else:
                return TreeEvent("copied", file.dst, file.stat.size)
        if is_link(file.stat) and self._keeps_links():
            _make_link(target, file.dst, source._lstat(file.src).link or "")
            if plan.move:
                self._remove_moved(file)
            return TreeEvent("copied", file.dst, 0)
        if found is not None and is_link(found):
            target._remove(file.dst)
        elif found is not None and plan.replace_links and not found.mode & stat_bits.S_IWUSR:
            target._set(file.dst, _with_mode(found.mode | stat_bits.S_IWUSR))
            if not plan.move:
                self._modes.append((file.dst, found.mode))
        return None

    def _remove_moved(self, file: FileCopy) -> None:
        """Remove a file of the source that is at its target already."""
        self._target.backing._make_durable([file.dst])
        if is_link(file.stat):
            self._source._remove(file.src)
        elif (error := self._copier.remove_source(file)) is not None:
            raise error

    def _wants(self, stat: FileStat) -> bool:
        return self._plan.wanted is None or self._plan.wanted(stat)

    def _keeps_links(self) -> bool:
        """Return whether a link is copied as a link: a move never follows one."""
        return (self._plan.keep_links or self._plan.move) and self._source.capabilities.links

    # ---- directories

    def _files(self) -> Iterator[FileStat]:
        """Make the directories, in their order, and yield the files between them."""
        implied, only_files = self._target.capabilities.implied_directories, self._plan.only_files
        last = self._source._stat(self._src)._replace(filename="")
        made = set[str]()
        if self._plan.move and not self._plan.dry_run:
            self._moved.append("")
        if not implied and not only_files:
            self._make(last)
        target = identity.place(self._target, self._dst)
        for stat in self._walk():
            if not self._wants(stat) or self._is_left_out(stat):
                continue
            if stat.directory and identity.place(self._source, keys.join(self._src, stat.filename)) == target:
                reason = "the tree has the target in it, by a link or a mount: that is not copied into itself"
                exc = errors.error(errno.EINVAL, "copy_tree", self._target._url(self._dst), reason)
                self._leave_out(stat.filename, exc)
                continue
            try:
                self._check_name(self._key_of(stat))
            except OSError as exc:
                self._leave_out(stat.filename, exc) if stat.directory else self._fail(self._key_of(stat), exc)
                continue
            # A directory's members follow it: one that something else follows is empty.
            is_empty = last.directory and not stat.filename.startswith(last.filename and last.listed())
            if implied and not only_files and is_empty:
                self._make(last)
            last = stat
            if not stat.directory:
                if not implied and only_files:
                    self._make_parents(stat, made)
                if not self._is_left_out(stat):
                    yield stat
                continue
            if self._plan.move and not self._plan.dry_run:
                self._moved.append(stat.filename)
            if not implied and not only_files:
                self._make(stat)
        if implied and not only_files and last.directory:
            self._make(last)

    def _check_name(self, key: str) -> None:
        """Refuse a name that is another one's file; a dry run does not ask the disk, for which it is written to."""
        if not self._plan.dry_run:
            self._names.check(key)

    def _walk(self) -> Iterator[FileStat]:
        with self._source._naming("copy_tree", self._src):
            yield from ordered_walk(
                self._source,
                self._src,
                keep_links=self._keeps_links(),
                enters=self._wants,
                failed=self._source_failed,
            )

    def _is_left_out(self, stat: FileStat) -> bool:
        return bool(self._unmade) and stat.filename.startswith(self._unmade)

    def _leave_out(self, name: str, error: OSError) -> None:
        """Report a directory that can't be copied; what is in it is left out."""
        self._unmade = name + "/"
        self._fail(keys.join(self._dst, name), error)

    def _make_parents(self, stat: FileStat, made: set[str]) -> None:
        """Make the directories of a file, where they are not wanted by themselves."""
        for parent in ("", *keys.ancestors(stat.filename)):
            if parent not in made:
                made.add(parent)
                self._make(self._source._stat(keys.join(self._src, parent))._replace(filename=parent))

    def _make(self, directory: FileStat) -> None:
        key, name = keys.join(self._dst, directory.filename), directory.filename
        if not self._target.capabilities.mkdir:
            return
        if self._plan.dry_run:
            try:
                if self._foreseen(key) is not None and self._is_replaced(key, is_top=not name):
                    self._replaced.add(key)
            except OSError as exc:
                self._target._named(exc, "copy_tree", key)
                self._leave_out(name, exc)
            return
        keeps_mode = self._source.capabilities.modes and self._target.capabilities.modes
        mode = stat_bits.S_IMODE(directory.mode) & 0o777 if keeps_mode else 0o777
        try:
            with self._target._naming("copy_tree", key):
                self._make_or_replace(key, mode | stat_bits.S_IRWXU, is_top=not name)
        except FileExistsError:
            return
        except OSError as exc:
            if not name:
                raise
            self._leave_out(name, exc)
            return
        self.directories += bool(name)
        if keeps_mode:
            self._modes.append((key, mode))

    def _make_or_replace(self, key: str, mode: int, is_top: bool) -> None:
        """Make a directory; `FileExistsError` if it is there, another error if something else is."""
        try:
            self._target._makedirs(key, mode)
            return
        except FileExistsError:
            if not self._is_replaced(key, is_top):
                raise
        if self._plan.backups is not None:
            self._back_up(key, self._target._lstat(key), removed=True)
        else:
            self._target._remove(key)
        self._target._makedirs(key, mode)

    def _is_replaced(self, key: str, is_top: bool) -> bool:
        """Return whether a directory takes the place of what is there: False if that is one; an error if it may not."""
        link = self._target._is_link(key) and not is_top
        if not link and self._target._is(key, directory=True):
            return False
        if not self._plan.replace_links or self._plan.move:
            what = "a link" if link else "a file"
            raise NotADirectoryError(errno.ENOTDIR, f"{what} is where a directory is to be made")
        return True

    def _foreseen(self, key: str) -> FileStat | None:
        """Return the stat of what will be at the target, in a dry run, where that takes no request for each file."""
        can = self._target.capabilities
        if not can.read or can.stat_is_request or not self._replaced.isdisjoint(keys.ancestors(key)):
            return None
        return entry(self._target, key)

    def _restore_modes(self) -> None:
        """Give directories that were made, and files that had to be made writable, their permissions."""
        for key, mode in reversed(self._modes):
            self._try("chmod", key, functools.partial(self._target._set, key, _with_mode(mode)))

    # ---- moving and removing

    def _can_rename(self) -> bool:
        """Return whether a file gets from source to target in one step."""
        can = self._source.capabilities
        return self._source is self._target and can.rename and not can.implied_directories

    def _back_up(self, key: str, stat: FileStat, removed: bool) -> None:
        """Copy, or move, what is at the target to the directory of backups."""
        assert self._plan.backups is not None
        refuse_special(self._target, key, stat)
        fs = self._plan.backups.fs
        name = keys.relative(key, self._dst) if key != self._dst else keys.name(key)
        place = self._plan.backups.place(name, self._target, key)
        if not fs.capabilities.implied_directories:
            fs.makedirs("/" + keys.parent(place), exist_ok=True)
        link = self._target._lstat(key).link
        if link is not None and fs.capabilities.links:
            _make_link(fs, place, link)
        elif copied_by_store(self._target, fs):
            fs._copy(stored_in(self._target), key, place)
        else:
            copy_file(self._target, key, fs, place)
        if removed:
            self._target._remove(key)

    def _remove(self, stat: FileStat) -> None:
        key = self._key_of(stat)
        if self._plan.dry_run:
            removed = True
        elif self._plan.backups is not None:
            removed = self._try("remove", key, lambda: self._back_up(key, stat, removed=True))
        else:
            removed = self._try("remove", key, lambda: self._target._remove(key))
        if removed:
            self._report(TreeEvent("removed", key, stat.size))

    def _remove_directory(self, fs: FS, key: str) -> None:
        """Remove a directory, if nothing is in it and it is no link; a store of objects may have a file of its name."""
        try:
            if key != fs._root and not fs._is_link(key) and fs._is(key, directory=True):
                fs._remove(key)
        except FileNotFoundError:  # it went with its last file
            pass
        except OSError as exc:
            if exc.errno not in _NOT_EMPTY:
                fs._named(exc, "remove", key)
                self._fail(key, exc)

    def _try(self, operation: str, key: str, change: Callable[[], None]) -> bool:
        """Change something at the target, and return True; report what goes wrong."""
        try:
            with self._target._naming(operation, key):
                change()
        except OSError as exc:
            self._fail(key, exc)
            return False
        return True

    # ---- reports

    def _ended(self, result: CopyResult) -> None:
        if result.error is None:
            if self._written is not None:
                self._written.append(result.file.dst)
            self._report(TreeEvent("copied", result.file.dst, result.size))
        else:
            self._fail(result.file.dst, result.error)

    def _source_failed(self, name: str, error: OSError) -> None:
        if not self._wants(FileStat(name, 0)):
            return
        self._source._named(error, "copy", keys.join(self._src, name))
        self._fail(keys.join(self._dst, name), error)

    def _target_failed(self, name: str, error: OSError) -> None:
        self._target._named(error, "copy", keys.join(self._dst, name))
        self._fail(keys.join(self._dst, name), error)

    def _fail(self, key: str, error: OSError | ValueError) -> None:
        self.failed += 1
        if isinstance(error, UnicodeEncodeError):
            reason = "the store takes no name that is not UTF-8 text"
            error = errors.error(errno.EILSEQ, "copy", self._target._url(key), reason)
        self._report(TreeEvent("failed", key, 0, error))


def _with_mode(mode: int) -> FileStat:
    """Return the stat of which `FS._set` takes the permissions alone."""
    return FileStat("", 0, mode=stat_bits.S_IFREG | mode)  # which is not 0, whatever the permissions are


def _make_link(fs: FS, key: str, leads_to: str) -> None:
    """Make a link in place of the file or link that is there."""
    partial = keys.join(keys.parent(key), partial_name(keys.name(key)))
    with fs._naming("copy", key):
        fs._set(partial, FileStat.of_link("", leads_to))
        try:
            fs._rename(partial, key)
        except BaseException:
            fs._remove(partial)
            raise


class TransferTotals:
    """Counts of what a transfer reports; raises the first error."""

    def __init__(self, progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress
        self.files: int = 0
        self.bytes: int = 0
        self.skipped: int = 0
        self.removed: int = 0

    def report(self, event: TreeEvent) -> None:
        """Count an event."""
        if event.error is not None:
            raise event.error
        self.skipped += event.action == "skipped"
        self.removed += event.action == "removed"
        self.count(0, files=event.action == "copied")

    def count(self, size: int, *, files: int = 0) -> None:
        """Count bytes, and files that are complete."""
        self.files += files
        self.bytes += size
        if self._progress is not None:
            self._progress(self.files, self.bytes)

    def counts(self, directories: int) -> TreeCounts:
        """Return what was done, with the number of directories that were made."""
        return TreeCounts(self.files, directories, self.bytes, self.skipped, self.removed)
