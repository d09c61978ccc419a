"""What changes files: `fsabs cp`, `mv` and `sync` between any two places, `mkdir` and `rm`."""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import re
import shutil
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any

from ..core import identity, keys, registry
from ..core.fs import FS
from ..core.stats import FileStat
from ..transfer.trees import Backups, TreeEvent, TreePlan, TreeTransfer
from ..transfer.walks import entry
from .content import write_content
from .paths import PATHS, PIPE, Paths, ResolvedPath, each_path, path_argument
from .program import FAILED, Invocation, UsageError, argument, at_least, command, dry_run, flag
from .progress import PROGRESS, ProgressDisplay, RequestLog, Summary

_PIECE = 1 << 20
_Pair = tuple[ResolvedPath, ResolvedPath]
_WOULD = {"copied": "would copy", "moved": "would move", "removed": "would remove", "made": "would make"}

SOURCES, TARGET = path_argument("sources", "+"), path_argument("target")
TRANSFER = (
    argument(
        "--exclude",
        dest="filters",
        action="append",
        type=lambda pattern: (False, pattern),
        metavar="PATTERN",
        help="No files, and no directories, that match a pattern.",
    ),
    argument(
        "--include",
        dest="filters",
        action="append",
        type=lambda pattern: (True, pattern),
        metavar="PATTERN",
        help="Files that match a pattern; the first filter that fits counts.",
    ),
    dry_run("done"),
    flag("--links", help="Copy symbolic links as links; else what they lead to is copied."),
    argument("--backup-dir", metavar="DIR", help="Keep there what is replaced or removed at the target."),
    argument("--jobs", type=at_least(1), help="Files under way at once; by default what suits."),
    flag("-v", "--verbose", help="Write a line for each file."),
    PROGRESS,
)
"""The options of a `Transfer`."""
RECURSIVE = flag("-r", "--recursive", help="Copy directories, and the members of containers.")
EXISTING = tuple(
    argument(*names, dest="existing", action="append_const", const=plan, default=[], help=text)
    for names, plan, text in (
        (("-f", "--force"), "replace", "Copy every file, also if it is at the target already."),
        (("-n", "--no-clobber"), "skip", "Leave files that are at the target, also if they differ."),
    )
)
"""What becomes of files that are at the target already: a list of plans."""
_CHECKSUM = flag("--checksum", help="Compare contents to know what is at the target already, not times.")


def _forced(what: str) -> Any:
    """Return what adds `--force`, without which some directories are left alone."""
    return flag("--force", help=f"{what} also the working directory, a home, a root, and what these are in.")


@command(SOURCES, TARGET, RECURSIVE, *EXISTING, _CHECKSUM, *TRANSFER)
def cp(invocation: Invocation, given: Namespace) -> int:
    """Copy files, directories and the members of containers.

    TARGET gets the sources under their names if it ends in /, is an existing directory and they are files, or if they
    are several; else it is the copy. A source that ends in / stands for what is in it. `-` is the standard input or
    output. Files that are at the target already, unchanged, are skipped: run the command again after an interrupt.
    What symbolic links in a source lead to is copied, unless --links is given. Permissions are kept.

    Example: fsabs cp -r s3://bucket/train.zip/images/ /data/images
    """
    if len(set(given.existing)) > 1:
        raise UsageError("-f and -n exclude each other")
    if PIPE in (*given.sources, given.target):
        return _pipe(given)
    return copy_all(Transfer(invocation, given, "copied"), given, content=given.checksum)


def copy_all(copies: Transfer, given: Namespace, content: bool = False, into_directory: bool = False) -> int:
    """Copy what arguments name; with `into_directory` several sources need a directory. Return the exit code."""
    with Paths() as paths, copies as transfer:
        plan = transfer.plan(paths, existing=given.existing[-1] if given.existing else "compare", content=content)
        target = paths.resolve(given.target, "a")
        pairs = transfer.places(paths, given.sources, target, plan)
        several = len(given.sources) > 1 or len(pairs) > 1
        if into_directory and several and not (target.contents or target.is_directory()):
            raise NotADirectoryError(f"{target.shown} is no directory: several sources need one")
        transfer.copy(pairs, plan, given.recursive)
        return transfer.finish(paths)


def _pipe(given: Namespace) -> int:
    """Copy from the standard input, or to the standard output."""
    if given.dry_run or given.filters:
        raise UsageError("- is copied as it comes: without --dry-run, --include and --exclude")
    with Paths() as paths:
        if given.target == PIPE:
            for found in paths.expand_all(given.sources):
                write_content(found)
            sys.stdout.buffer.flush()
            return 0
        if len(given.sources) > 1:
            raise UsageError("- can't be copied together with other sources")
        place = paths.resolve(given.target, "a")
        if place.contents:
            raise UsageError("- has no name: name the file that it becomes")
        with place.fs.open(place.path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, _PIECE)
    return 0


@command(SOURCES, TARGET, _forced("Move"), *TRANSFER)
def mv(invocation: Invocation, given: Namespace) -> int:
    """Move files and directories; TARGET means what it means to cp.

    Where the store can, a directory is moved in one step. Else each file is copied whole, and then removed at the
    source: run the command again after an interrupt. Symbolic links are moved as links.

    Example: fsabs mv /scratch/run-7 s3://bucket/runs/
    """
    with Paths() as paths, Transfer(invocation, given, "moved") as transfer:
        plan = transfer.plan(paths, move=True, replace_links=True)
        pairs = []
        for source, place in transfer.places(paths, given.sources, paths.resolve(given.target, "a"), plan):
            try:
                if not given.force:
                    source.refuse_removal()
                if plan.wanted is None and plan.backups is None and _is_renamed(source, place, plan.dry_run):
                    transfer.moved(source, place)
                    continue
            except (OSError, ValueError) as exc:
                transfer.error(exc)
                continue
            pairs.append((source, place))
        transfer.copy(pairs, plan)
        return transfer.finish(paths)


def _is_renamed(source: ResolvedPath, target: ResolvedPath, dry_run: bool) -> bool:
    """Move in one step, and return True, where the store can and no directory is at the target."""
    can = source.fs.capabilities
    if source.fs is not target.fs or source.contents or not can.rename or can.implied_directories:
        return False
    if target.fs.isdir(target.path) or (dry_run and source.is_directory()):
        return False
    if not source.is_link() and identity.inside(target.fs, target.key, source.fs, source.key):
        raise ValueError(f"can't move {source.shown} into itself: {target.shown}")
    if dry_run:
        return False
    above = target.path.rpartition("/")[0]
    if above:
        target.fs.makedirs(above, exist_ok=True)
    try:
        source.fs.rename(source.path, target.path)
    except OSError as exc:
        if exc.errno != errno.EXDEV:  # another disk, or another nameservice
            raise
        return False
    return True


@command(
    path_argument("source"),
    TARGET,
    flag("--delete", help="Remove what is at the target and not in the source."),
    argument("--max-delete", type=at_least(0), help="Remove nothing if it would be more than this."),
    _forced("--delete"),
    _CHECKSUM,
    *TRANSFER,
)
def sync(invocation: Invocation, given: Namespace) -> int:
    """Copy what is new or changed in a directory to another one.

    Both are directories, with or without a / at their ends; a container as a source needs the /. Files are removed,
    with --delete, when all others have arrived and nothing has failed. What --exclude names is neither copied nor
    removed, and a symbolic link at the target is replaced, and never followed.

    Example: fsabs sync --delete --dry-run /data/train s3://bucket/train
    """
    with Paths() as paths, Transfer(invocation, given, "copied") as transfer:
        plan = transfer.plan(paths, content=given.checksum, replace_links=True, max_delete=given.max_delete)
        found, place = paths.resolve(given.source), paths.resolve(given.target, "a")
        if not found.contents and registry.container_of(found.path) and not found.is_directory():
            raise NotADirectoryError(f"{found.shown} is a file: {found.shown}/ stands for its members")
        listed = place.fs
        if given.delete:  # a container that is not there yet has nothing that could be removed
            place.fs._require("remove", "remove what the source does not have", place.key)
            if not given.force:
                place._replace(contents=True).refuse_removal(emptied=True)  # through a link, too
            if not listed.capabilities.read:
                try:
                    listed = paths.resolve(given.target).fs
                except FileNotFoundError:
                    given.delete = False
        transfer.tree(found, place, plan, given.delete, listed)
        return transfer.finish(paths)


@command(
    PATHS,
    flag("-p", "--parents", help="Make what is missing above, too; a directory that is there is fine."),
    dry_run("made"),
)
def mkdir(invocation: Invocation, given: Namespace) -> int:
    """Make directories.

    Example: fsabs mkdir -p hdfs:///user/me/runs/7
    """
    return make_all(invocation, given, given.parents)


def make_all(invocation: Invocation, given: Namespace, parents: bool) -> int:
    """Make directories, and return the exit code."""

    def make(found: ResolvedPath) -> None:
        if given.dry_run:
            _show(invocation, "made", found, dry=True)
        elif parents:
            found.fs.makedirs(found.path, exist_ok=True)
        else:
            found.fs.mkdir(found.path)

    return each_path(invocation, given.paths, make, patterns=False)


REMOVAL = (
    PATHS,
    flag("-r", "--recursive", help="Remove directories with all that is in them."),
    flag("-f", dest="ignore_missing", help="Ignore paths that are missing."),
    _forced("Remove"),
    dry_run("removed"),
    flag("-v", "--verbose", help="Write a line for each path."),
)


@command(*REMOVAL)
def rm(invocation: Invocation, given: Namespace) -> int:
    """Remove files, and with -r directories; members of zip, tar and HDF5 files, too.

    A symbolic link is removed, and what it leads to stays.

    Example: fsabs rm -r s3://bucket/runs/old/ '/scratch/*.tmp'
    """
    return remove_all(invocation, given)


def remove_all(invocation: Invocation, given: Namespace) -> int:
    """Remove what paths name, and return the exit code.

    Members of a container are removed together, when all paths are done: it is written anew once.
    """
    members: list[ResolvedPath] = []
    shown = given.dry_run or given.verbose or invocation.output.json

    with Paths() as containers:

        def remove(found: ResolvedPath) -> None:
            if not given.force:
                found.refuse_removal()
            directory = not found.is_link() and found.stat().directory
            if directory and not given.recursive:
                raise IsADirectoryError(f"{found.shown} is a directory; -r removes it")
            if not (given.dry_run or found.fs.capabilities.remove):
                member = containers.resolve(found.text, "a")
                member.fs.remove(member.spelled, given.recursive)
                members.append(found)
                return
            if not given.dry_run:
                found.fs.remove(found.spelled or ".", given.recursive)
            if shown:
                _show(invocation, "removed", found, given.dry_run)

        code = each_path(invocation, given.paths, remove, ignore_missing=given.ignore_missing)
    for found in members if shown else ():
        _show(invocation, "removed", found, dry=False)
    return code


def _show(invocation: Invocation, action: str, found: ResolvedPath, dry: bool) -> None:
    values = {"action": action, "url": found.url, "dry_run": dry}
    invocation.output.record(values, f"{_WOULD[action] if dry else action} {invocation.output.name(found.shown)}")


class Filters:
    """Patterns in the order in which they were given: the first that matches a file, or a directory above it, decides.

    What none matches is taken if the last one excludes. A pattern with a `/` is for the whole path below the source,
    others are for a name at any depth; `*` matches `/`, too, and a pattern that ends in `/` directories alone. What is
    in an excluded directory is not looked at.
    """

    def __init__(self, rules: Sequence[tuple[bool, str]]) -> None:
        """Take the rules, as pairs of whether it includes and the pattern."""
        for at, (included, pattern) in enumerate(rules[:-1]):
            if pattern in ("*", "**") and not included:
                after = "--include" if rules[at + 1][0] else "--exclude"
                raise UsageError(f"{after} {rules[at + 1][1]!r} never counts behind --exclude {pattern!r}: go first")
        self._rules = [(included, *_compile_pattern(pattern)) for included, pattern in rules]
        self.only_files: bool = bool(rules) and rules[-1][0]
        """Directories are not taken by themselves."""

    def __bool__(self) -> bool:
        return bool(self._rules)

    def wants(self, stat: FileStat) -> bool:
        """Return whether a file is taken; of a directory, whether what is in it is looked at."""
        path = stat.filename.rstrip("/")
        taken = not self.only_files or stat.directory
        for part in [*keys.ancestors(path), path]:
            verdict = self._verdict(part, stat.directory or part != path)
            if verdict is False:
                return False
            taken = taken or verdict is True
        return taken

    def _verdict(self, path: str, directory: bool) -> bool | None:
        for included, pattern, whole, only_directories in self._rules:
            if (directory or not only_directories) and pattern.match(path if whole else keys.name(path)):
                return included
        return None


def _compile_pattern(pattern: str) -> tuple[re.Pattern[str], bool, bool]:
    """Return what a path is matched with; whether it is the whole path; and whether it is a directory's."""
    return (
        re.compile(fnmatch.translate(pattern.strip("/"))),
        "/" in pattern.rstrip("/"),
        pattern.endswith("/"),
    )


def _may_be_directory(target: ResolvedPath) -> bool:
    """Return whether there is a directory; False where a store takes objects that nobody may look at."""
    try:
        return target.is_directory()
    except PermissionError:
        if not target.fs.capabilities.implied_directories:
            raise
        return False


class Transfer:
    """Copies of one command, with the options `TRANSFER`; a context manager, which writes the summary at its end."""

    def __init__(self, invocation: Invocation, given: Namespace, verb: str) -> None:
        self.invocation = invocation
        self._output = invocation.output
        self._given = given
        self._filters = Filters(given.filters or ())
        self.summary = Summary(verb, "skipped", "failed", "retried")
        self._verb = verb
        self._files = self._size = self._skipped = 0
        self._totals: tuple[int | None, int | None] = (None, None)
        self._progress = ProgressDisplay(given.progress)
        self._exits = contextlib.ExitStack()
        self._requests = RequestLog()
        self._into_archives: list[TreeTransfer] = []  # moves
        self._names: dict[int, identity.DistinctNames] = {}  # by the id of the target's FS, which is open to the end

    def plan(self, paths: Paths, **more: Any) -> TreePlan:
        """Return the plan of a transfer with these options."""
        backup = paths.resolve(self._given.backup_dir) if self._given.backup_dir is not None else None
        return TreePlan(
            dry_run=self._given.dry_run,
            keep_links=self._given.links,
            wanted=self._filters.wants if self._filters else None,
            only_files=self._filters.only_files,
            backups=None if backup is None else Backups(backup.fs, backup.key),
            **more,
        )

    @property
    def failed(self) -> bool:
        """True if anything failed."""
        return self.summary.counts["failed"] > 0

    def places(self, paths: Paths, sources: Sequence[str], target: ResolvedPath, plan: TreePlan) -> list[_Pair]:
        """Return each source that filters leave with the place that it goes to; report those that can't go there."""
        found: list[tuple[ResolvedPath, bool]] = []  # and whether a pattern has found it
        for text in sources:
            try:
                found += ((source, source.text != text) for source in paths.expand(text))
            except (OSError, ValueError) as exc:
                self.error(exc)
        into = target.contents or len(found) > 1 or len(sources) > 1
        is_directory = not into and target.fs.capabilities.read and _may_be_directory(target)
        pairs = []
        for source, matched in found:
            name = keys.name(source.path) or keys.name(source.text.rstrip("/"))
            directory = self._is_tree(source, plan)
            stat = FileStat.of_directory(name) if directory else FileStat(name, 0)
            if (matched or not directory) and self._filters and not self._filters.wants(stat):
                continue
            if source.contents:  # what is in it
                pairs.append((source, target._replace(contents=False)))
            elif into or (is_directory and not directory):
                pairs.append((source, target.member(name)))
            else:
                pairs.append((source, target))
        return self._distinct(pairs)

    def _distinct(self, pairs: list[_Pair]) -> list[_Pair]:
        """Leave out, with an error, what would be copied onto itself, and targets that several sources have."""
        sources: dict[tuple[int, str], list[ResolvedPath]] = {}
        for source, place in pairs:
            sources.setdefault((id(place.fs), place.key), []).append(source)
        spread = [(source, place.key) for source, place in pairs if source.contents] if len(pairs) > 1 else []
        good = []
        for source, place in pairs:
            others = sources[id(place.fs), place.key]
            if (member := _member_at(spread, place.key)) is not None:
                reason = f"{member.shown} becomes {place.shown}: {source.shown} is not copied there"
                self.error(ValueError(reason))
            elif len(others) > 1:
                if source is others[0]:
                    names = " and ".join(one.shown for one in others)
                    self.error(ValueError(f"{names} would all become {place.shown}: nothing is copied there"))
            elif identity.same(source.fs, source.key, place.fs, place.key):
                self.error(ValueError(f"source and target are one: {source.shown} and {place.shown}"))
            elif _is_around(source, place):
                self.error(ValueError(f"{source.shown} can't be copied into itself: {place.shown}"))
            else:
                try:
                    if not self._given.dry_run:
                        self._names_at(place).check(place.key)
                    good.append((source, place))
                except OSError as exc:
                    self.error(exc)
        return good

    def _names_at(self, place: ResolvedPath) -> identity.DistinctNames:
        return self._names.setdefault(id(place.fs), identity.DistinctNames(place.fs, "copy"))

    def finish(self, paths: Paths) -> int:
        """Close what was opened, and return the exit code.

        A container that nothing was put into for errors is not made, or stays as it is. What was moved into a container
        is removed when that is closed. Where it can't be closed, nothing has arrived.
        """
        if self._given.dry_run or (self.failed and not self._files):
            paths.discard()
        try:
            for move in self._into_archives:
                move.finish_move()
            paths.close()
        except (OSError, ValueError) as exc:
            self.summary.counts[self._verb] = self.summary.bytes = 0
            self.error(exc)
        return FAILED if self.failed else 0

    def copy(self, pairs: Sequence[_Pair], plan: TreePlan, recursive: bool = True) -> None:
        """Copy or move files, those that go to one directory together, and if `recursive` directories.

        What goes wrong is reported.
        """
        together: list[_Pair] = []
        for source, target in pairs:
            try:
                is_tree = self._is_tree(source, plan)
                if is_tree and not recursive:
                    raise IsADirectoryError(f"{source.shown} is a directory; -r copies it")
                if not is_tree:
                    target.fs._file_key(target.path, "copy")
                if together and (is_tree or _group(together[0]) != _group((source, target))):
                    self._copy_files(together, plan)
                    together = []
                if is_tree:
                    self.tree(source, target, plan)
                else:
                    together.append((source, target))
            except (OSError, ValueError) as exc:
                self.error(exc)
        if together:
            self._copy_files(together, plan)

    @staticmethod
    def _is_tree(source: ResolvedPath, plan: TreePlan) -> bool:
        """Return whether a source is copied with what is in it, and not as a file or a link."""
        link = (plan.keep_links or plan.move) and source.is_link()
        return not link and (source.contents or source.is_directory())

    def line(self, action: str, source: ResolvedPath, target: ResolvedPath) -> str:
        """Return the line of `-v` for a file."""
        return f"{action} {self._output.name(target.shown)}"

    def tree(
        self,
        source: ResolvedPath,
        target: ResolvedPath,
        plan: TreePlan,
        delete: bool = False,
        listed: FS | None = None,
    ) -> None:
        """Copy what is in a directory, and with `delete` remove what is not in it; see `TreeTransfer.run`."""
        if self._progress.shown and self._totals == (None, None):
            self._count_in_background(source, plan)
        dst = target.key

        def report(event: TreeEvent) -> None:
            name = keys.relative(event.key, dst) if event.key != dst else ""
            self._report(event, source.member(name) if name else source, target.member(name) if name else target)

        done, size = self.summary.counts[self._verb], self.summary.bytes
        try:
            self._new(source, target, plan, dst, report).run(delete, listed)
        except (OSError, ValueError):
            if target.fs.capabilities.commits and not plan.move:  # all of it or nothing
                self.summary.counts[self._verb], self.summary.bytes = done, size
            raise

    def _copy_files(self, pairs: Sequence[_Pair], plan: TreePlan) -> None:
        """Copy or move files of one FS to one directory."""
        by_key = {target.key: (source, target) for source, target in pairs}
        folder = keys.parent(pairs[0][1].key)
        try:
            found = self._new(*pairs[0], plan, folder, lambda event: self._report(event, *by_key[event.key]))
            found.run_files([(source.key, key) for key, (source, _) in by_key.items()])
        except (OSError, ValueError) as exc:
            self.error(exc)

    def _new(
        self,
        source: ResolvedPath,
        target: ResolvedPath,
        plan: TreePlan,
        dst: str,
        report: Callable[[TreeEvent], None],
    ) -> TreeTransfer:
        target.fs._require("write", "copy", dst)
        if plan.move:
            source.fs._require("remove", "move", source.key)
        jobs, names = self._given.jobs, self._names_at(target)
        found = TreeTransfer(source.fs, source.key, target.fs, dst, plan, report, self._count, jobs, names)
        if plan.move and not (plan.dry_run or target.fs.capabilities.read):
            self._into_archives.append(found)
        return found

    def moved(self, source: ResolvedPath, target: ResolvedPath) -> None:
        """Report what was moved by the store."""
        self._report(TreeEvent("copied", "", 0), source, target)

    def error(self, exc: Exception) -> None:
        """Report an error; the command goes on."""
        self._progress.clear()
        self.invocation.error(exc)
        self.summary.add("failed")

    def _report(self, event: TreeEvent, source: ResolvedPath, target: ResolvedPath) -> None:
        if event.error is not None:
            self.error(event.error)
            return
        dry = self._given.dry_run
        name = self._verb if event.action == "copied" else event.action
        self.summary.add(name)
        if event.action != "removed":
            self._files += 1
        if event.action == "skipped":
            self._size += event.size
            self._skipped += event.size
        if self._output.json:
            self._output.record({"action": name, "url": target.url, "size": event.size, "dry_run": dry}, "")
        elif event.action != "skipped" and (dry or self._given.verbose):
            self._progress.clear()
            self._output.line(self.line(_WOULD[name] if dry else name, source, target))
        self._show()

    def _count(self, size: int) -> None:
        self._size += size
        self.summary.bytes += size
        self._show()

    def _show(self) -> None:
        self._progress.update(self._files, self._size, *self._totals, skipped=self._skipped)

    def _count_in_background(self, source: ResolvedPath, plan: TreePlan) -> None:
        """Count the files of the source while they are copied, for the time that is left."""

        def count() -> None:
            files = size = 0
            with contextlib.suppress(OSError, ValueError):  # the copy reports it, or is over, and the source closed
                for stat in source.fs.list(source.path, recursive=True, detail=True):
                    if not stat.directory and (plan.wanted is None or plan.wanted(stat)):
                        files += 1
                        size += stat.size
                self._totals = (files, size)

        threading.Thread(target=count, daemon=True, name="fsabs-count").start()

    def __enter__(self) -> Transfer:
        self._exits.enter_context(self._requests)
        self._exits.enter_context(self._progress)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: Any) -> None:
        if kind is KeyboardInterrupt:
            self.invocation.how_to_go_on = (
                f"{self.summary.text()}; no file is half-written, run the same command again to go on"
            )
        self._exits.__exit__(kind, exc, trace)
        if kind is None or issubclass(kind, OSError | ValueError):
            self.summary.add("retried", self._requests.retries)
            self.summary.write(self._output, "dry run: " if self._given.dry_run else "")


def _group(pair: _Pair) -> tuple[int, int, str]:
    """Return what files have in common that are copied together."""
    source, target = pair
    return id(source.fs), id(target.fs), keys.parent(target.key)


def _is_around(source: ResolvedPath, place: ResolvedPath) -> bool:
    """Return whether the source is a container, as a file, that the place is in."""
    if place.fs is source.fs or source.contents:
        return False
    return identity.inside(place.fs, place.key, source.fs, source.key) and not source.is_directory()


def _member_at(spread: list[tuple[ResolvedPath, str]], key: str) -> ResolvedPath | None:
    """Return what becomes `key` as a member of one of some directories, whose members go to the keys beside them."""
    for directory, top in spread:
        if key != top and keys.inside(key, top):
            member = directory.member(keys.relative(key, top))
            if entry(member.fs, member.key) is not None:
                return member
    return None
