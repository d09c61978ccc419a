"""`fsabs pfs`: `ls`, `cp`, `rm` and `mkdir` on the files of datacenters, as the client of the Paddle cloud has them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from ..urls import config, locations
from .changing import EXISTING, RECURSIVE, REMOVAL, SOURCES, TARGET, TRANSFER, Transfer, copy_all, make_all, remove_all
from .listing import is_listed, listed_stats, stat_values, time_column, write_entry
from .paths import PATHS, ResolvedPath, each_path
from .program import Group, Invocation, UsageError, dry_run, flag

pfs = Group(
    """List, copy, make and remove files of datacenters: /pfs/DATACENTER/home/USER/...

    A datacenter is a section of pfio.ini with username=, and endpoint= or pfs=. Other commands take these paths, too.

    Example: fsabs pfs cp images-*-of-* /pfs/datacenter_1/home/me/images/"""
)


@pfs.command("ls", PATHS, flag("-r", "-R", "--recursive", help="Show what is in directories, too."))
def _list(invocation: Invocation, given: Namespace) -> int:
    """List files and directories with their times; what is not there is an error.

    Example: fsabs pfs ls /pfs/datacenter_1/home/me/
    """
    output = invocation.output

    def show(found: ResolvedPath) -> None:
        directory = is_listed(found)
        for stat in listed_stats(found.fs, found.path, given.recursive) if directory else [found.stat()]:
            name = stat.filename if stat.filename.endswith("/") else stat.listed()
            text = f"{time_column(stat.last_modified):<19} {output.name(name, stat.directory)}"
            if directory:
                write_entry(output, found, stat, text)
            else:
                output.record(stat_values(stat, stat.filename, found.url), text)

    _check_pfs(given.paths)
    return each_path(invocation, given.paths, show)


@pfs.command("cp", SOURCES, TARGET, RECURSIVE, *EXISTING, *TRANSFER)
def _copy(invocation: Invocation, given: Namespace) -> int:
    """Copy files to a datacenter, from one, or within one. Several sources need a directory as the target.

    Run the command again after an interrupt: files that are there are skipped. Of -f and -n the last one counts.

    Example: fsabs pfs cp -r data/ /pfs/datacenter_1/home/me/data
    """
    if not _is_pfs(given.target):
        _check_pfs(given.sources)
    return copy_all(_PfsTransfer(invocation, given, "copied"), given, into_directory=True)


@pfs.command("rm", *REMOVAL)
def _remove(invocation: Invocation, given: Namespace) -> int:
    """Remove files, and with -r directories; what is not there is an error.

    Example: fsabs pfs rm -r /pfs/datacenter_1/home/me/old
    """
    _check_pfs(given.paths)
    return remove_all(invocation, given)


@pfs.command("mkdir", PATHS, dry_run("made"))
def _make(invocation: Invocation, given: Namespace) -> int:
    """Make directories, and what is missing above them; one that is there is fine.

    Example: fsabs pfs mkdir /pfs/datacenter_1/home/me/data
    """
    _check_pfs(given.paths)
    return make_all(invocation, given, parents=True)


class _PfsTransfer(Transfer):
    """Copies to and from datacenters."""

    def line(self, action: str, source: ResolvedPath, target: ResolvedPath) -> str:
        """Return the line of a file: whether it was uploaded, downloaded or copied, and from where to where."""
        if action == "copied":
            action = "download" if not _is_pfs(target.text) else "copy" if _is_pfs(source.text) else "upload"
        name = self.invocation.output.name
        return f"{action} {name(source.shown)} to {name(target.shown)}"


def _is_pfs(text: str) -> bool:
    return locations.parse(text).scheme == locations.PFS


def _check_pfs(paths: Sequence[str]) -> None:
    """Refuse paths that are in no datacenter; a section that is missing is named."""
    for text in paths:
        if _is_pfs(text):
            continue
        parts = text.split("/")
        if text.startswith("/pfs/") and parts[2]:
            config.datacenter(parts[2])  # raises
        raise UsageError(f"{text} should be a pfs path: /pfs/DATACENTER/home/USER/...")
