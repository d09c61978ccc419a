"""`fsabs pfs`: `ls`, `cp`, `rm` and `mkdir` on the files of datacenters, as the client of the Paddle cloud has them."""

from __future__ import annotations

import click

from ..urls import locations
from .changing import make_all, remove_all
from .copying import existing_of
from .filters import Filters
from .listing import is_listed, listed_stats, stat_values, time_column
from .paths import Paths, ResolvedPath, each_path, path_argument
from .program import Invocation, common
from .progress import ProgressMode, progress_option
from .transfers import Transfer, TransferOptions


@click.group()
def command() -> None:
    """List, copy, make and remove files of datacenters: /pfs/DATACENTER/home/USER/...

    A datacenter is a section of pfio.ini with pfs= and username=. Other commands take these paths, too.

    \b
    Example: fsabs pfs cp images-*-of-* /pfs/datacenter_1/home/me/images/
    """


@command.command("ls")
@path_argument("paths", count=-1)
@click.option("-r", "-R", "--recursive", is_flag=True, help="Show what is in directories, too.")
@common
def listing(invocation: Invocation, paths: tuple[str, ...], recursive: bool) -> int:
    """List files and directories with their times; what is not there is an error.

    \b
    Example: fsabs pfs ls /pfs/datacenter_1/home/me/
    """
    _check_pfs(paths)
    return each_path(invocation, paths, lambda found: _list(invocation, found, recursive))


@command.command("cp")
@path_argument("sources", count=-1)
@path_argument("target")
@click.option("-r", "--recursive", is_flag=True, help="Copy directories.")
@click.option("-f", "existing", flag_value="force", help="Copy every file; the last of -f and -n counts.")
@click.option("-n", "existing", flag_value="no-clobber", help="Leave files that are at the target.")
@click.option("-v", "--verbose", is_flag=True, help="Write a line for each file that was copied.")
@click.option("--dry-run", is_flag=True, help="Show what would be copied.")
@progress_option
@common
def copy(
    invocation: Invocation,
    sources: tuple[str, ...],
    target: str,
    recursive: bool,
    existing: str | None,
    verbose: bool,
    dry_run: bool,
    progress: ProgressMode,
) -> int:
    """Copy files to a datacenter, from one, or within one. Several sources need a directory as the target.

    Run the command again after an interrupt: files that are there are skipped, and large ones continued.

    \b
    Example: fsabs pfs cp -r data/ /pfs/datacenter_1/home/me/data
    """
    if not _is_pfs(target):
        _check_pfs(sources)
    options = TransferOptions(verbose, None, Filters(()), progress, dry_run)
    with Paths() as paths, _PfsTransfer(invocation, options, "copied") as transfer:
        plan = options.plan(paths, existing=existing_of(existing == "force", existing == "no-clobber"))
        into = paths.resolve(target, "a")
        pairs = transfer.places(paths, sources, into)
        if (len(sources) > 1 or len(pairs) > 1) and not (into.contents or into.is_directory()):
            raise NotADirectoryError(f"{into.shown} is no directory: several sources need one")
        for source, place in pairs:
            transfer.copy(source, place, plan, recursive)
        return transfer.finish(paths)


@command.command("rm")
@path_argument("paths", count=-1)
@click.option("-r", "--recursive", is_flag=True, help="Remove directories with all that is in them.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
@click.option("-v", "--verbose", is_flag=True, help="Write a line for each path.")
@common
def remove(invocation: Invocation, paths: tuple[str, ...], recursive: bool, dry_run: bool, verbose: bool) -> int:
    """Remove files, and with -r directories; what is not there is an error.

    \b
    Example: fsabs pfs rm -r /pfs/datacenter_1/home/me/old
    """
    _check_pfs(paths)
    return remove_all(invocation, paths, recursive, False, False, dry_run, verbose)


@command.command("mkdir")
@path_argument("paths", count=-1)
@click.option("--dry-run", is_flag=True, help="Show what would be made.")
@common
def make(invocation: Invocation, paths: tuple[str, ...], dry_run: bool) -> int:
    """Make directories, and what is missing above them; one that is there is fine.

    \b
    Example: fsabs pfs mkdir /pfs/datacenter_1/home/me/data
    """
    _check_pfs(paths)
    return make_all(invocation, paths, True, dry_run)


class _PfsTransfer(Transfer):
    """Copies to and from datacenters."""

    def line(self, action: str, source: ResolvedPath, target: ResolvedPath) -> str:
        """Return the line of a file: whether it was uploaded, downloaded or copied, and from where to where."""
        if action == "copied":
            action = "download" if not _is_pfs(target.text) else "copy" if _is_pfs(source.text) else "upload"
        name = self.invocation.output.name
        return f"{action} {name(source.shown)} to {name(target.shown)}"


def _list(invocation: Invocation, found: ResolvedPath, recursive: bool) -> None:
    output = invocation.output
    directory = is_listed(found)
    for stat in listed_stats(found.fs, found.path, recursive) if directory else [found.stat()]:
        if output.json:
            one = found.member(stat.filename) if directory else found
            output.record(stat_values(stat, stat.filename, one.url), "")
        else:
            when = time_column(stat.last_modified)
            name = stat.filename if stat.filename.endswith("/") else stat.listed()
            output.line(f"{when:<19} {output.name(name, stat.directory)}")


def _is_pfs(text: str) -> bool:
    return locations.parsed(text).scheme == locations.PFS


def _check_pfs(paths: tuple[str, ...]) -> None:
    """Refuse paths that are in no datacenter; a section that is missing is named."""
    from ..urls import config

    for text in paths:
        if _is_pfs(text):
            continue
        parts = text.split("/")
        if text.startswith("/pfs/") and parts[2]:
            config.datacenter(parts[2])  # raises
        raise click.UsageError(f"{text} should be a pfs path: /pfs/DATACENTER/home/USER/...")
