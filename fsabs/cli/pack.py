"""`fsabs pack`: a directory becomes one container."""

from __future__ import annotations

import click

from .output import size_text
from .paths import Paths, path_argument
from .program import Invocation, common
from .progress import ProgressDisplay, ProgressMode, progress_option


@click.command()
@path_argument("source")
@path_argument("archive")
@click.option("-n", "keep", is_flag=True, help="Refuse to replace ARCHIVE.")
@click.option("--type", "kind", type=click.Choice(["zip", "tar", "hdf5"]), help="The format, whatever the suffix.")
@click.option("--jobs", type=click.IntRange(min=1), help="Small files that are read at once.")
@click.option("--dry-run", is_flag=True, help="Show what would be packed.")
@progress_option
@common
def command(
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
    run(invocation, source, archive, "x" if keep else "w", kind, jobs, progress, dry_run)


def run(
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
    from ..transfer.pack import pack

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
        done = pack(tree, target.fs, target.path, mode=mode, force_type=kind, progress=shown.update, concurrency=jobs)
    text = f"{target.shown}: {done.files:,} files ({size_text(done.bytes)})"
    values = {"archive": target.shown, "files": done.files, "directories": done.directories, "bytes": done.bytes}
    invocation.output.record(values, text)
