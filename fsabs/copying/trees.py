"""Copying, synchronizing and moving whole trees between any two FS.

The source is walked once, in order, beside the files that are at the target already; directories are made on the way,
and files are given to the `Copier`. What is removed is removed at the end, when every file has arrived.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import errors, keys
from ..stats import FileStat
from .comparing import Comparison
from .copier import Copier, CopyResult, FileCopy
from .walks import Existing, existing, ordered_walk, side_by_side

if TYPE_CHECKING:
    from ..core import Core


class CopiedTree(NamedTuple):
    """The number of files and bytes that `FS.copy_tree` has copied."""

    files: int
    directories: int
    """Those that were there to be made; a store with implied directories is given the empty ones alone."""
    bytes: int
    """The sizes of the files, added up."""


class SyncedTree(NamedTuple):
    """The number of files that `FS.sync_tree` has copied, skipped and removed."""

    copied: int
    skipped: int
    """Files that were the same already."""
    removed: int
    """Files that were not in the source."""
    bytes: int
    """The sizes of the copied files, added up."""


class TreeEvent(NamedTuple):
    """The end of the work on one file."""

    action: Literal["copied", "skipped", "removed", "failed"]
    key: str
    """At the target; of a removed one, too."""
    size: int
    error: OSError | ValueError | None = None


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
    wanted: Callable[[FileStat], bool] | None = None
    """Whether a file, or an empty directory, is to be copied; None for all."""


class TreeTransfer:
    """One run over a tree.

    Args:
        source, src: the directory.
        target, dst: the directory that gets its members, made if it is missing.
        plan: what is to be done.
        report: called with what became of each file.
        count: called with the size of each piece that was copied.
        concurrency: how many files are under way at once; by default, what suits the two FS.
    """

    def __init__(
        self,
        source: Core,
        src: str,
        target: Core,
        dst: str,
        plan: TreePlan,
        report: Callable[[TreeEvent], None],
        count: Callable[[int], None],
        concurrency: int | None = None,
    ) -> None:
        self._source = source
        self._src = src
        self._target = target
        self._dst = dst
        self._plan = plan
        self._report = report
        self._count = count
        self._concurrency = concurrency
        self.directories: int = 0
        """Those that were made."""
        self.failed: int = 0
        """Files that were not copied, for an error."""

    def run(self) -> None:
        """Copy the files; a move removes those that have arrived."""
        self._check()
        there = Existing(self._target, self._dst) if self._plan.existing != "replace" else None
        comparison = Comparison(self._source, self._target, self._plan.content or self._plan.move)
        with Copier(self._source, self._target, self._ended, self._count, self._concurrency, self._plan.move) as copier:
            for stat in self._files():
                src, dst = keys.join(self._src, stat.filename), keys.join(self._dst, stat.filename)
                found = there.find(stat.filename) if there is not None else None
                if found is not None and (
                    self._plan.existing == "skip" or self._is_same(comparison, src, stat, dst, found)
                ):
                    self._skip(src, dst, stat, copier)
                elif self._plan.dry_run:
                    self._report(TreeEvent("copied", dst, stat.size))
                elif self._plan.move and self._can_rename():
                    self._rename(src, dst, stat, copier)
                else:
                    copier.add(FileCopy(src, dst, stat))
            copier.finish()
        if self._plan.move and not self._plan.dry_run:
            self._remove_emptied()

    def remove_others(self) -> None:
        """Remove the files and directories of the target that the source does not have."""
        empty: list[str] = []
        left, right = ordered_walk(self._source, self._src), existing(self._target, self._dst)
        for ours, theirs in side_by_side(left, right):
            if ours is None and theirs is not None and self._wants(theirs):
                key = keys.join(self._dst, theirs.filename)
                empty.append(key) if theirs.directory else self._remove(key, theirs.size)
        for key in [] if self._plan.dry_run else reversed(empty):
            self._remove_directory(self._target, key)

    def _check(self) -> None:
        """Refuse what is no directory, and a copy of a directory into itself, which would never end."""
        source, target = (
            fs._url(key).rstrip("/") for fs, key in ((self._source, self._src), (self._target, self._dst))
        )
        if f"{target}/".startswith(f"{source}/"):
            raise errors.error(errno.EINVAL, "copy_tree", self._source._url(self._src), "can't copy a tree into itself")
        try:
            if not self._source._stat(self._src).directory:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except OSError as exc:
            self._source._named(exc, "copy_tree", self._src)
            raise

    def _wants(self, stat: FileStat) -> bool:
        return self._plan.wanted is None or self._plan.wanted(stat)

    def _files(self) -> Iterator[FileStat]:
        """Make the directories, in their order, and yield the files between them."""
        implied = self._target.capabilities.implied_directories
        last = FileStat.of_directory("")
        made = set[str]()
        if not implied:
            self._make(last)
        for stat in self._walk():
            if not self._wants(stat):
                continue
            # A directory's members follow it: one that something else follows is empty.
            if implied and last.directory and not stat.filename.startswith(last.filename and last.listed()):
                self._make(last)
            last = stat
            if not stat.directory:
                if not implied and self._plan.wanted is not None:
                    self._make_parent(stat, made)
                yield stat
            elif not implied:
                self._make(stat)
        if implied and last.directory:
            self._make(last)

    def _walk(self) -> Iterator[FileStat]:
        # Beside the files of the target the source is in order; alone it is as the store has it, first files at once.
        in_order = self._plan.existing != "replace"
        walk = ordered_walk(self._source, self._src) if in_order else self._source._walk(self._src)
        try:
            yield from walk
        except OSError as exc:
            self._source._named(exc, "copy_tree", self._src)
            raise

    def _make_parent(self, stat: FileStat, made: set[str]) -> None:
        """Make the directory of a file, where the directories themselves are not wanted."""
        parent = keys.parent(stat.filename)
        if parent not in made:
            made.add(parent)
            self._make(FileStat.of_directory(parent))

    def _make(self, directory: FileStat) -> None:
        key = keys.join(self._dst, directory.filename)
        if not self._target.capabilities.mkdir or self._plan.dry_run:
            return
        try:
            self._target._makedirs(key, 0o777)
        except FileExistsError as exc:
            if not self._target._is(key, directory=True):
                self._target._named(exc, "copy_tree", key)
                raise
        except OSError as exc:
            self._target._named(exc, "copy_tree", key)
            raise
        self.directories += bool(directory.filename)

    def _is_same(self, comparison: Comparison, src: str, stat: FileStat, dst: str, found: FileStat) -> bool:
        if self._plan.existing != "compare":
            return False
        try:
            return comparison.are_equal(src, stat, dst, found)
        except OSError:  # the copy will show what is wrong
            return False

    def _skip(self, src: str, dst: str, stat: FileStat, copier: Copier) -> None:
        error = None
        if self._plan.move and self._plan.existing != "skip" and not self._plan.dry_run:
            error = copier.remove_source(src)
        if error is None:
            self._report(TreeEvent("skipped", dst, stat.size))
        else:
            self._fail(dst, error)

    def _can_rename(self) -> bool:
        """Return whether a file gets from source to target in one step."""
        can = self._source.capabilities
        return self._source is self._target and can.rename and not can.implied_directories

    def _rename(self, src: str, dst: str, stat: FileStat, copier: Copier) -> None:
        try:
            self._source._rename(src, dst)
        except OSError as exc:
            if exc.errno == errno.EXDEV:  # another disk
                copier.add(FileCopy(src, dst, stat))
                return
            self._source._named(exc, "rename", src)
            self._fail(dst, exc)
            return
        self._report(TreeEvent("copied", dst, stat.size))

    def _ended(self, result: CopyResult) -> None:
        if result.error is None:
            self._report(TreeEvent("copied", result.file.dst, result.size))
        else:
            self._fail(result.file.dst, result.error)

    def _fail(self, key: str, error: OSError | ValueError) -> None:
        self.failed += 1
        self._report(TreeEvent("failed", key, 0, error))

    def _remove(self, key: str, size: int) -> None:
        try:
            if not self._plan.dry_run:
                self._target._remove(key)
        except OSError as exc:
            self._target._named(exc, "remove", key)
            self._fail(key, exc)
            return
        self._report(TreeEvent("removed", key, size))

    def _remove_emptied(self) -> None:
        """Remove the directories of the source that have nothing in them any more."""
        try:
            found = [stat.filename for stat in self._source._walk(self._src) if stat.directory]
        except FileNotFoundError:  # it went with its last file
            return
        for name in ["", *found][::-1]:
            self._remove_directory(self._source, keys.join(self._src, name))

    def _remove_directory(self, fs: Core, key: str) -> None:
        try:
            if key != fs._root:
                fs._remove(key)
        except FileNotFoundError:  # it went with its last file
            pass
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return
            fs._named(exc, "remove", key)
            self._fail(key, exc)


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
        self.files += event.action == "copied"
        self.skipped += event.action == "skipped"
        self.removed += event.action == "removed"
        self._show()

    def count(self, size: int) -> None:
        """Count bytes."""
        self.bytes += size
        self._show()

    def _show(self) -> None:
        if self._progress is not None:
            self._progress(self.files, self.bytes)
