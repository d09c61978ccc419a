"""The parts that `cp`, `mv` and `sync` share: options, one transfer, its progress, events and errors, the summary."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from .. import keys
from ..copying.copier import Copier, CopyResult, FileCopy
from ..copying.trees import TreeEvent, TreePlan, TreeTransfer
from .progress import ProgressDisplay, ProgressMode, progress_option
from .summary import Retries, Summary

if TYPE_CHECKING:
    from ..stats import FileStat
    from .paths import ResolvedPath
    from .program import Invocation

Wanted = Callable[["FileStat"], bool]
_WOULD = {"copied": "would copy", "skipped": "would skip", "removed": "would remove", "failed": "failed"}


class TransferOptions(NamedTuple):
    """The options that `cp`, `mv` and `sync` share."""

    verbose: bool
    jobs: int | None
    wanted: Wanted | None
    """Whether a file or directory is to be copied; None for all."""
    progress: ProgressMode


def transfer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `-v`, `--jobs`, `--include`, `--exclude` and `--progress` to a command, as its parameter `options`."""

    @functools.wraps(command)
    def with_options(
        *args: Any,
        verbose: bool,
        jobs: int | None,
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        progress: ProgressMode,
        **others: Any,
    ) -> Any:
        options = TransferOptions(verbose, jobs, wanted(include, exclude), progress)
        return command(*args, options=options, **others)

    found: Callable[..., Any] = with_options
    for option in (
        progress_option,
        click.option("-v", "--verbose", is_flag=True, help="Write a line for each file."),
        click.option("--jobs", type=click.IntRange(min=1), help="Files under way at once; by default what suits."),
        click.option("--include", multiple=True, help="Only files that match a pattern; one with / is of the path."),
        click.option("--exclude", multiple=True, help="No files, and no directories, that match a pattern."),
    ):
        found = option(found)
    return found


class Transfer:
    """Copies of one command; a context manager, which writes the summary at its end."""

    def __init__(self, invocation: Invocation, options: TransferOptions, verb: str) -> None:
        self.invocation = invocation
        self._output = invocation.output
        self._verbose = options.verbose
        self._jobs = options.jobs
        self._dry = False
        self.summary = Summary(verb, "skipped", "failed", "retried")
        self._verb = verb
        self._files = self._size = self._skipped = 0
        self._totals: tuple[int | None, int | None] = (None, None)
        self._progress = ProgressDisplay(options.progress)
        self._exits = contextlib.ExitStack()
        self._retries = Retries()

    @property
    def failed(self) -> bool:
        """True if anything failed."""
        return self.summary.counts["failed"] > 0

    def copy(self, source: ResolvedPath, target: ResolvedPath, plan: TreePlan, recursive: bool) -> None:
        """Copy a file or, if `recursive`, a directory; report what goes wrong."""
        try:
            stat = source.stat()
            if not (stat.directory or source.contents):
                self.file(source, stat, target, plan)
            elif recursive:
                self.tree(source, target, plan)
            else:
                raise IsADirectoryError(f"{source.shown} is a directory; -r copies it")
        except (OSError, ValueError) as exc:
            self.error(exc)

    def line(self, action: str, source: ResolvedPath, target: ResolvedPath) -> str:
        """Return the line of `-v` for a file."""
        return f"{action} {self._output.name(target.shown)}"

    def tree(self, source: ResolvedPath, target: ResolvedPath, plan: TreePlan, delete: bool = False) -> None:
        """Copy what is in a directory."""
        src, dst = source.fs._key(source.path, "copy"), target.fs._key(target.path, "copy")
        self._dry = plan.dry_run
        if self._progress.shown and self._totals == (None, None):
            self._count_in_background(source, plan.wanted)

        def report(event: TreeEvent) -> None:
            name = keys.relative(event.key, dst) if event.key != dst else ""
            self._report(event, source.member(name) if name else source, target.member(name) if name else target)

        target.fs._require("write", "copy", dst)
        transfer = TreeTransfer(source.fs, src, target.fs, dst, plan, report, self._count, self._jobs)
        transfer.run()
        if delete and not transfer.failed:
            transfer.remove_others()

    def file(self, source: ResolvedPath, stat: FileStat, target: ResolvedPath, plan: TreePlan) -> None:
        """Copy a file."""
        src, dst = source.fs._key(source.path, "copy"), target.fs._file_key(target.path, "copy")
        target.fs._require("write", "copy", dst)
        if self._totals == (None, None):
            self._totals = (1, stat.size)
        if plan.existing != "replace" and target.fs.capabilities.read and self._is_there(source, stat, target, plan):
            if plan.move and plan.existing != "skip":
                source.fs.remove(source.path)
            self._report(TreeEvent("skipped", dst, stat.size), source, target)
            return

        if not target.fs.capabilities.implied_directories and keys.parent(dst):
            target.fs.makedirs("/" + keys.parent(dst), exist_ok=True)

        def ended(result: CopyResult) -> None:
            action = "failed" if result.error is not None else "copied"
            self._report(TreeEvent(action, dst, result.size, result.error), source, target)  # type: ignore[arg-type]

        with Copier(source.fs, target.fs, ended, self._count, self._jobs, plan.move) as copier:
            copier.add(FileCopy(src, dst, stat))
            copier.finish()

    def moved(self, source: ResolvedPath, target: ResolvedPath) -> None:
        """Report what was moved by the store."""
        self._report(TreeEvent("copied", "", 0), source, target)

    def error(self, exc: Exception) -> None:
        """Report an error; the command goes on."""
        self._progress.clear()
        self.invocation.error(exc)
        self.summary.add("failed")

    def _is_there(self, source: ResolvedPath, stat: FileStat, target: ResolvedPath, plan: TreePlan) -> bool:
        from ..copying.comparing import Comparison

        try:
            there = target.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if there.directory:
            return False
        if plan.existing == "skip":
            return True
        comparison = Comparison(source.fs, target.fs, plan.content or plan.move)
        src, dst = source.fs._key(source.path, "copy"), target.fs._key(target.path, "copy")
        return comparison.are_equal(src, stat, dst, there)

    def _report(self, event: TreeEvent, source: ResolvedPath, target: ResolvedPath) -> None:
        if event.error is not None:
            self.error(event.error)
            return
        name = self._verb if event.action == "copied" else event.action
        self.summary.add(name)
        if event.action != "removed":
            self._files += 1
        if event.action == "skipped":
            self._size += event.size
            self._skipped += event.size
        if self._output.json:
            self._output.record({"action": name, "url": target.url, "size": event.size, "dry_run": self._dry}, "")
        elif self._dry or (self._verbose and event.action != "skipped"):
            self._progress.clear()
            what = _WOULD[event.action] if self._dry else name
            if not (self._dry and event.action == "skipped"):
                self._output.line(self.line(what, source, target))
        self._show()

    def _count(self, size: int) -> None:
        self._size += size
        self.summary.bytes += size
        self._show()

    def _show(self) -> None:
        self._progress.update(self._files, self._size, *self._totals, skipped=self._skipped)

    def _count_in_background(self, source: ResolvedPath, wanted: Wanted | None) -> None:
        """Count the files of the source while they are copied, for the time that is left."""

        def count() -> None:
            files = size = 0
            with contextlib.suppress(OSError):  # the copy reports it
                for stat in source.fs.list(source.path, recursive=True, detail=True):
                    if not stat.directory and (wanted is None or wanted(stat)):
                        files += 1
                        size += stat.size
                self._totals = (files, size)

        threading.Thread(target=count, daemon=True, name="fsabs-count").start()

    def __enter__(self) -> Transfer:
        self._exits.enter_context(self._retries)
        self._exits.enter_context(self._progress)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: Any) -> None:
        if kind is KeyboardInterrupt:
            self.invocation.how_to_go_on = (
                f"{self.summary.text()}; no file is half-written, run the same command again to go on"
            )
        self._exits.__exit__(kind, exc, trace)
        if kind is None or issubclass(kind, OSError | ValueError):
            self.summary.add("retried", self._retries.count)
            self.summary.write(self._output, "dry run: " if self._dry else "")


def wanted(include: tuple[str, ...], exclude: tuple[str, ...]) -> Wanted | None:
    """Return whether a file or directory is to be copied, by patterns; None for all."""
    if not include and not exclude:
        return None
    included, excluded = list(_matchers(include)), list(_matchers(exclude))

    def test(stat: FileStat) -> bool:
        path = stat.filename.rstrip("/")
        if any(match(part) for part in [*keys.ancestors(path), path] for match in excluded):
            return False
        return not included or (not stat.directory and any(match(path) for match in included))

    return test


def _matchers(patterns: tuple[str, ...]) -> Iterator[Callable[[str], bool]]:
    import fnmatch
    import re

    for pattern in patterns:
        matches = re.compile(fnmatch.translate(pattern.strip("/"))).match
        if "/" in pattern.rstrip("/"):
            yield lambda path, matches=matches: matches(path) is not None  # type: ignore[misc]
        else:
            yield lambda path, matches=matches: matches(keys.name(path)) is not None  # type: ignore[misc]
