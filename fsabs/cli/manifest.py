"""`fsabs manifest`: write, check and merge manifests, which pin data sets."""

from __future__ import annotations

import click

from .output import size_text
from .paths import path_argument
from .program import FAILED, Invocation, common
from .progress import ProgressDisplay, ProgressMode, Summary, progress_option


@click.group()
def command() -> None:
    """Write, check and merge manifests: lists of a data set's files, which pin it.

    A URL is that of a data set, as from_url takes it: a container at its end is opened.

    \b
    Example: fsabs manifest create s3://bucket/flowers flowers.jsonl
    """


@command.command()
@path_argument("url")
@path_argument("manifest")
@click.option("--only", multiple=True, metavar="DIRECTORY", help="List this directory of it; may be repeated.")
@click.option(
    "--digest",
    type=click.Choice(["sha256", "md5", "none"]),
    default="sha256",
    show_default=True,
    help="The digest of every file, which is read for it.",
)
@click.option("--versions/--no-versions", default=True, help="Leave versions out, for copies in other places.")
@click.option("--jobs", type=click.IntRange(min=1), help="Small files that are read at once.")
@progress_option
@common
def create(
    invocation: Invocation,
    url: str,
    manifest: str,
    only: tuple[str, ...],
    digest: str,
    versions: bool,
    jobs: int | None,
    progress: ProgressMode,
) -> None:
    """Write the manifest of the data set at URL; the suffix of MANIFEST is its format.

    .jsonl is JSON lines, .parquet is Parquet, .json is MLCommons Croissant.

    \b
    Example: fsabs manifest create s3://bucket/flowers flowers.parquet
    """
    from .. import manifest as manifests
    from ..urls import opening

    invocation.how_to_go_on = "nothing was written; run the same command again"
    algorithm = None if digest == "none" else digest
    with opening.from_url(url) as fs, ProgressDisplay(progress) as shown:
        done = manifests.create(
            fs,
            manifest,
            only=only or ("",),
            digest=algorithm,
            versions=versions,
            progress=shown.update,
            concurrency=jobs,
        )
    _written(invocation, manifest, done)


@command.command()
@path_argument("url")
@path_argument("manifest")
@click.option("--digests", is_flag=True, help="Read every file, and compare its digest.")
@progress_option
@common
def check(invocation: Invocation, url: str, manifest: str, digests: bool, progress: ProgressMode) -> int:
    """Show all that differs between the data set at URL and its manifest.

    The exit code is 1 if anything differs.

    \b
    Example: fsabs manifest check s3://bucket/flowers flowers.parquet --digests
    """
    from .. import manifest as manifests
    from ..urls import opening

    summary = Summary("checked", "missing", "added", "changed")
    output = invocation.output

    def count(files: int) -> None:
        summary.counts["checked"] = files
        shown.update(files, 0, len(pinned))

    with (
        opening.from_url(url) as fs,
        manifests.Manifest(manifest, fs.url()) as pinned,
        ProgressDisplay(progress) as shown,
    ):
        for drift in manifests.check(fs, pinned, digests=digests, progress=count):
            shown.clear()
            summary.add(drift.kind)
            reason = f"  ({drift.reason})" if drift.reason else ""
            output.record(drift._asdict(), f"{drift.kind:<7}  {drift.name}{reason}")
    summary.write(output)
    return FAILED if any(summary.counts[kind] for kind in ("missing", "added", "changed")) else 0


@command.command()
@path_argument("manifests", count=-1)
@path_argument("target")
@common
def merge(invocation: Invocation, manifests: tuple[str, ...], target: str) -> None:
    """Write the entries of several manifests as one, TARGET; one manifest is converted to TARGET's format.

    \b
    Example: fsabs manifest merge train.jsonl test.jsonl flowers.parquet
    """
    from .. import manifest as library

    _written(invocation, target, library.merge(manifests, target))


def _written(invocation: Invocation, manifest: str, done: tuple[int, int]) -> None:
    entries, size = done
    values = {"manifest": manifest, "entries": entries, "bytes": size}
    invocation.output.record(values, f"{manifest}: {entries:,} entries, {size_text(size)}")
