"""`fsabs unpack`: the members of a container become files."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from .output import coloured, printable, size_text
from .paths import Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, common
from .progress import ProgressDisplay, ProgressMode, progress_option
from .redaction import redacted

if TYPE_CHECKING:
    from ..core.fs import FS


@click.command()
@path_argument("archive")
@path_argument("target")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes that write to the local disk.")
@click.option("--dry-run", is_flag=True, help="Show what would be unpacked.")
@progress_option
@common
def command(
    invocation: Invocation, archive: str, target: str, jobs: int | None, dry_run: bool, progress: ProgressMode
) -> int:
    """Write the members of the container ARCHIVE, or of a directory in it, to the directory TARGET.

    Files that are there are replaced, each whole or not at all. Nothing is written outside of TARGET. The exit code is
    1 if the container has members that can't be files, which are left out: devices, links, names that lead out of it.

    \b
    Example: fsabs unpack s3://bucket/images.zip images/
    """
    from ..transfer.unpack import unpack

    invocation.how_to_go_on = "files are whole or not there; run the same command again to go on"
    with Paths() as paths, ProgressDisplay(progress) as shown:
        found = paths.members(archive)
        place = paths.resolve(target)
        left = 0

        def failed(exc: OSError | ValueError) -> None:
            nonlocal left
            left += 1
            shown.clear()
            invocation.error(exc)

        tree = found.fs.subfs(found.path) if found.path else found.fs
        if dry_run:
            return _show(invocation, tree, place)
        done = unpack(tree, place.fs, place.path, workers=jobs, progress=shown.update, failed=failed)
        left += _left_out(invocation, found.fs)
    text = f"{place.shown}: {done.files:,} files ({size_text(done.bytes)})" + (f", left out {left}" if left else "")
    counts = {"files": done.files, "directories": done.directories, "bytes": done.bytes, "left_out": left}
    invocation.output.record({"target": place.shown, **counts}, text)
    return FAILED if left else 0


def _show(invocation: Invocation, tree: FS, place: ResolvedPath) -> int:
    """Write what would be unpacked."""
    for stat in tree.list("", recursive=True, detail=True):
        if not stat.directory:
            there = place.member(stat.filename)
            values = {"action": "unpacked", "url": there.url, "size": stat.size, "dry_run": True}
            invocation.output.record(values, f"would unpack {invocation.output.name(there.shown)}")
    return 0


def _left_out(invocation: Invocation, fs: FS) -> int:
    """Write the members that no file was made of; return how many they are."""
    left_out = getattr(fs, "left_out", None)  # a container's, through layers too
    problems = left_out() if left_out is not None else ()
    for problem in problems:
        line = redacted(f"fsabs: left out {printable(problem.path)!r}: {problem.kind}, {problem.detail}")
        sys.stderr.write(coloured(line, "warning", sys.stderr) + "\n")
    return len(problems)
