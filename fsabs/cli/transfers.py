"""The parts that `cp`, `mv` and `sync` share: options, one transfer, its progress, events and errors, the summary."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from ..core import identity, keys
from ..core.stats import FileStat
from ..transfer.trees import TreeEvent, TreePlan, TreeTransfer
from ..transfer.walks import entry
from .filters import Filters, ordered
from .paths import Paths, ResolvedPath
from .program import FAILED, Invocation
from .progress import ProgressDisplay, ProgressMode, progress_option
from .summary import Retries, Summary

_Pair = tuple[ResolvedPath, ResolvedPath]
_WOULD = {"copied": "would copy", "moved": "would move", "removed": "would remove"}


class TransferOptions(NamedTuple):
    """The options that `cp`, `mv` and `sync` share."""

    verbose: bool
    jobs: int | None
    filters: Filters
    progress: ProgressMode
    dry_run: bool = False
    links: bool = False
    backup_dir: str | None = None

    def plan(self, paths: Paths, **more: Any) -> TreePlan:
        """Return the plan of a transfer with these options."""
        backup = paths.resolve(self.backup_dir) if self.backup_dir is not None else None
        return TreePlan(
            dry_run=self.dry_run,
            keep_links=self.links,
            wanted=self.filters.wants if self.filters else None,
            only_files=self.filters.only_files,
            backup=None if backup is None else (backup.fs, backup.key),
            **more,
        )


def transfer_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `cp`, `mv` and `sync` share to a command, as its parameter `options`."""

    @functools.wraps(command)
    def with_options(
        *args: Any,
        verbose: bool,
        jobs: int | None,
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        progress: ProgressMode,
        dry_run: bool,
        links: bool,
        backup_dir: str | None,
        **others: Any,
    ) -> Any:
        invocation = click.get_current_context().find_object(Invocation)
        assert invocation is not None
        filters = Filters(ordered(invocation.arguments) if include or exclude else ())
        options = TransferOptions(verbose, jobs, filters, progress, dry_run, links, backup_dir)
        return command(*args, options=options, **others)

    found: Callable[..., Any] = with_options
    for option in (
        progress_option,
        click.option("-v", "--verbose", is_flag=True, help="Write a line for each file."),
        click.option("--jobs", type=click.IntRange(min=1), help="Files under way at once; by default what suits."),
        click.option("--backup-dir", metavar="DIR", help="Keep there what is replaced or removed at the target."),
        click.option("--links", is_flag=True, help="Copy symbolic links as links; else what they lead to is copied."),
        click.option("--dry-run", is_flag=True, help="Show what would be done."),
        click.option("--include", multiple=True, help="Files that match a pattern; the first filter that fits counts."),
        click.option("--exclude", multiple=True, help="No files, and no directories, that match a pattern."),
    ):
        found = option(found)
    return found


class Transfer:
    """Copies of one command; a context manager, which writes the summary at its end."""

    def __init__(self, invocation: Invocation, options: TransferOptions, verb: str) -> None:
        self.invocation = invocation
        self._output = invocation.output
        self._options = options
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

    def places(self, paths: Paths, sources: tuple[str, ...], target: ResolvedPath) -> list[_Pair]:
        """Return each source that filters leave with the place that it goes to; report those that can't go there."""
        found: list[tuple[ResolvedPath, bool]] = []  # and whether a pattern has found it
        for text in sources:
            try:
                found += ((source, source.text != text) for source in paths.expand(text))
            except (OSError, ValueError) as exc:
                self.error(exc)
        into = target.contents or len(found) > 1 or len(sources) > 1
        is_directory = not into and target.fs.capabilities.read and target.is_directory()
        pairs = []
        for source, matched in found:
            name = keys.name(source.path) or keys.name(source.text.rstrip("/"))
            directory = source.contents or source.fs.isdir(source.path)
            stat = FileStat.of_directory(name) if directory else FileStat(name, 0)
            if (matched or not directory) and self._options.filters and not self._options.filters.wants(stat):
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
            else:
                good.append((source, place))
        return good

    def finish(self, paths: Paths) -> int:
        """Return the exit code; a container that nothing was put into for errors is not made, or stays as it is."""
        if self.failed and not self._files:
            paths.discard()
        return FAILED if self.failed else 0

    def copy(self, source: ResolvedPath, target: ResolvedPath, plan: TreePlan, recursive: bool = True) -> None:
        """Copy or move a file or, if `recursive`, a directory; report what goes wrong."""
        try:
            link = plan.move and source.is_link()
            if not link and (source.contents or source.stat().directory):
                if not recursive:
                    raise IsADirectoryError(f"{source.shown} is a directory; -r copies it")
                self.tree(source, target, plan)
            else:
                self._new(source, target, plan, target.fs._file_key(target.path, "copy")).run_file()
        except (OSError, ValueError) as exc:
            self.error(exc)

    def line(self, action: str, source: ResolvedPath, target: ResolvedPath) -> str:
        """Return the line of `-v` for a file."""
        return f"{action} {self._output.name(target.shown)}"

    def tree(self, source: ResolvedPath, target: ResolvedPath, plan: TreePlan, delete: bool = False) -> None:
        """Copy what is in a directory, and with `delete` remove what is not in it."""
        if self._progress.shown and self._totals == (None, None):
            self._count_in_background(source, plan)
        self._new(source, target, plan, target.key).run(delete)

    def _new(self, source: ResolvedPath, target: ResolvedPath, plan: TreePlan, dst: str) -> TreeTransfer:
        target.fs._require("write", "copy", dst)
        if plan.move:
            source.fs._require("remove", "move", source.key)

        def report(event: TreeEvent) -> None:
            name = keys.relative(event.key, dst) if event.key != dst else ""
            self._report(event, source.member(name) if name else source, target.member(name) if name else target)

        return TreeTransfer(source.fs, source.key, target.fs, dst, plan, report, self._count, self._options.jobs)

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
        dry = self._options.dry_run
        name = self._verb if event.action == "copied" else event.action
        self.summary.add(name)
        if event.action != "removed":
            self._files += 1
        if event.action == "skipped":
            self._size += event.size
            self._skipped += event.size
        if self._output.json:
            self._output.record({"action": name, "url": target.url, "size": event.size, "dry_run": dry}, "")
        elif event.action != "skipped" and (dry or self._options.verbose):
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
            with contextlib.suppress(OSError):  # the copy reports it
                for stat in source.fs.list(source.path, recursive=True, detail=True):
                    if not stat.directory and (plan.wanted is None or plan.wanted(stat)):
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
            self.summary.write(self._output, "dry run: " if self._options.dry_run else "")


def _member_at(spread: list[tuple[ResolvedPath, str]], key: str) -> ResolvedPath | None:
    """Return what becomes `key` as a member of one of some directories, whose members go to the keys beside them."""
    for directory, top in spread:
        if key != top and keys.inside(key, top):
            member = directory.member(keys.relative(key, top))
            if entry(member.fs, member.key) is not None:
                return member
    return None
