"""`fsabs pack`, `convert` and `unpack`: directories become containers, and members of containers files."""

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
@path_argument("source")
@path_argument("archive")
@click.option("-n", "keep", is_flag=True, help="Refuse to replace ARCHIVE.")
@click.option("--type", "kind", type=click.Choice(["zip", "tar", "hdf5"]), help="The format, whatever the suffix.")
@click.option("--jobs", type=click.IntRange(min=1), help="Small files that are read at once.")
@click.option("--dry-run", is_flag=True, help="Show what would be packed.")
@progress_option
@common
def pack(
    invocation: Invocation,
    source: str,
    archive: str,
    keep: bool,
    kind: str | None,
    jobs: int | None,
    dry_run: bool,
    progress: ProgressMode,
) -> None:
    """Pack all that is in the directory SOURCE into the new container ARCHIVE: a zip, tar or HDF5 file.

    ARCHIVE appears when it is complete, and the same tree gives the same bytes. A SOURCE with / at its end may be a
    container, which is converted.

    \b
    Example: fsabs pack images/ s3://bucket/images.zip
    """
    _pack(invocation, source, archive, "x" if keep else "w", kind, jobs, progress, dry_run)


def _pack(
    invocation: Invocation,
    source: str,
    archive: str,
    mode: str,
    kind: str | None,
    jobs: int | None,
    progress: ProgressMode,
    dry_run: bool,
) -> None:
    """Pack a directory, or the members of a container."""
    from ..transfer.pack import pack as pack_tree

    invocation.how_to_go_on = f"{archive} is as it was; run the same command again"
    with Paths() as paths, ProgressDisplay(progress) as shown:
        found, target = paths.resolve(source), paths.resolve(archive)
        tree = found.fs.subfs(found.path) if found.path else found.fs
        if dry_run:
            usage = tree.usage()
            text = f"would pack {usage.files:,} files ({size_text(usage.bytes)}) into {target.shown}"
            invocation.output.record(
                {"archive": target.shown, "files": usage.files, "bytes": usage.bytes, "dry_run": True}, text
            )
            return
        done = pack_tree(
            tree, target.fs, target.path, mode=mode, force_type=kind, progress=shown.update, concurrency=jobs
        )
    text = f"{target.shown}: {done.files:,} files ({size_text(done.bytes)})"
    values = {"archive": target.shown, "files": done.files, "directories": done.directories, "bytes": done.bytes}
    invocation.output.record(values, text)


@click.command()
@path_argument("source")
@path_argument("target")
@click.option("-n", "keep", is_flag=True, help="Refuse to replace TARGET.")
@click.option("--type", "kind", type=click.Choice(["zip", "tar", "hdf5"]), help="The format, whatever the suffix.")
@click.option("--dry-run", is_flag=True, help="Show what would be packed.")
@progress_option
@common
def convert(
    invocation: Invocation,
    source: str,
    target: str,
    keep: bool,
    kind: str | None,
    dry_run: bool,
    progress: ProgressMode,
) -> None:
    """Write the members of the container SOURCE as the container TARGET, of the format of its suffix.

    \b
    Example: fsabs convert s3://bucket/train.tar.gz s3://bucket/train.zip
    """
    members = source and source.rstrip("/") + "/"
    _pack(invocation, members, target, "x" if keep else "w", kind, None, progress, dry_run)


@click.command()
@path_argument("archive")
@path_argument("target")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes that write to the local disk.")
@click.option("--dry-run", is_flag=True, help="Show what would be unpacked.")
@progress_option
@common
def unpack(
    invocation: Invocation, archive: str, target: str, jobs: int | None, dry_run: bool, progress: ProgressMode
) -> int:
    """Write the members of the container ARCHIVE, or of a directory in it, to the directory TARGET.

    Files that are there are replaced, each whole or not at all. Nothing is written outside of TARGET. The exit code is
    1 if the container has members that can't be files, which are left out: devices, links, names that lead out of it.

    \b
    Example: fsabs unpack s3://bucket/images.zip images/
    """
    from ..transfer.unpack import unpack as unpack_tree

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
            return _show_unpacked(invocation, tree, place)
        done = unpack_tree(tree, place.fs, place.path, workers=jobs, progress=shown.update, failed=failed)
        left += _left_out(invocation, found.fs)
    text = f"{place.shown}: {done.files:,} files ({size_text(done.bytes)})" + (f", left out {left}" if left else "")
    counts = {"files": done.files, "directories": done.directories, "bytes": done.bytes, "left_out": left}
    invocation.output.record({"target": place.shown, **counts}, text)
    return FAILED if left else 0


def _show_unpacked(invocation: Invocation, tree: FS, place: ResolvedPath) -> int:
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
