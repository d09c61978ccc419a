"""`fsabs pack`, `convert` and `unpack` containers; `verify` and `repair`: what is damaged in them, and in RecordIO."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core import registry
from .output import coloured, printable, redacted, size_text
from .paths import PATHS, Paths, ResolvedPath, path_argument
from .program import FAILED, Invocation, argument, at_least, command, dry_run, flag
from .progress import PROGRESS, ProgressDisplay, Summary

if TYPE_CHECKING:
    from ..core.fs import FS

_PACKING = (
    flag("-n", dest="keep", help="Refuse to replace the target."),
    argument("--type", choices=["zip", "tar", "hdf5"], help="The format, whatever the suffix."),
    argument("--jobs", type=at_least(1), help="Small files that are read at once."),
    dry_run("packed"),
    PROGRESS,
)


@command(path_argument("source"), path_argument("archive"), *_PACKING)
def pack(invocation: Invocation, given: Namespace) -> None:
    """Pack all that is in the directory SOURCE into the new container ARCHIVE: a zip, tar or HDF5 file.

    ARCHIVE appears when it is complete, and the same tree gives the same bytes. A SOURCE with / at its end may be a
    container, which is converted.

    Example: fsabs pack images/ s3://bucket/images.zip
    """
    _pack(invocation, given, given.source)


@command(path_argument("source"), path_argument("archive", metavar="TARGET"), *_PACKING)
def convert(invocation: Invocation, given: Namespace) -> None:
    """Write the members of the container SOURCE as the container TARGET, of the format of its suffix.

    Example: fsabs convert s3://bucket/train.tar.gz s3://bucket/train.zip
    """
    _pack(invocation, given, given.source and given.source.rstrip("/") + "/")


def _pack(invocation: Invocation, given: Namespace, source: str) -> None:
    """Pack a directory, or the members of a container."""
    from ..transfer.pack import pack as pack_tree

    invocation.how_to_go_on = f"{given.archive} is as it was; run the same command again"
    with Paths() as paths, ProgressDisplay(given.progress) as shown:
        found, target = paths.resolve(source), paths.resolve(given.archive)
        if not (given.type or registry.container_of(target.path)):
            raise ValueError(f"{target.shown} has the suffix of no container: --type names one")
        tree = found.fs.subfs(found.path) if found.path else found.fs
        if given.dry_run:
            usage = tree.usage()
            text = f"would pack {usage.files:,} files ({size_text(usage.bytes)}) into {target.shown}"
            values = {"archive": target.shown, "files": usage.files, "bytes": usage.bytes, "dry_run": True}
            invocation.output.record(values, text)
            return
        done = pack_tree(
            tree,
            target.fs,
            target.path,
            mode="x" if given.keep else "w",
            force_type=given.type,
            progress=shown.update,
            concurrency=given.jobs,
        )
    text = f"{target.shown}: {done.files:,} files ({size_text(done.bytes)})"
    values = {"archive": target.shown, "files": done.files, "directories": done.directories, "bytes": done.bytes}
    invocation.output.record(values, text)


@command(
    path_argument("archive"),
    path_argument("target"),
    argument("--jobs", type=at_least(1), help="Processes that write to the local disk."),
    dry_run("unpacked"),
    PROGRESS,
)
def unpack(invocation: Invocation, given: Namespace) -> int:
    """Write the members of the container ARCHIVE, or of a directory in it, to the directory TARGET.

    Files that are there are replaced, each whole or not at all. Nothing is written outside of TARGET. The exit code is
    1 if the container has members that can't be files, which are left out: devices, links, names that lead out of it.

    Example: fsabs unpack s3://bucket/images.zip images/
    """
    from ..transfer.unpack import unpack as unpack_tree

    invocation.how_to_go_on = "files are whole or not there; run the same command again to go on"
    with Paths() as paths, ProgressDisplay(given.progress) as shown:
        found, place = paths.members(given.archive), paths.resolve(given.target)
        left = 0

        def failed(exc: OSError | ValueError) -> None:
            nonlocal left
            left += 1
            shown.clear()
            invocation.error(exc)

        tree = found.fs.subfs(found.path) if found.path else found.fs
        if given.dry_run:
            return _show_unpacked(invocation, tree, place)
        done = unpack_tree(tree, place.fs, place.path, workers=given.jobs, progress=shown.update, failed=failed)
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


@command(
    PATHS, argument("--jobs", type=at_least(1), default=4, help="Shards that are read at once (default: %(default)s).")
)
def verify(invocation: Invocation, given: Namespace) -> int:
    """Read all of containers (zip, tar, HDF5) and of sharded RecordIO data sets, and show what is wrong with them.

    A path is a container, a RecordIO file, or a directory of them, in which other files are skipped, and shown. The
    exit code is 1 if anything is wrong.

    Example: fsabs verify s3://bucket/train.zip s3://bucket/shards/
    """
    summary = Summary("verified", "damaged")
    with Paths() as resolver:
        for found in resolver.expand_all(given.paths):
            damaged = False
            try:
                for values, text in _problems(found, given.jobs, summary):
                    damaged = damaged or values["kind"] != "skipped"
                    invocation.output.record(values, text)
            except OSError as exc:
                damaged = True
                invocation.error(exc)
            summary.add("damaged", damaged)
    summary.write(invocation.output)
    return FAILED if summary.counts["damaged"] else 0


def _problems(found: ResolvedPath, jobs: int, summary: Summary) -> Iterator[tuple[dict[str, Any], str]]:
    if registry.container_of(found.path) and not found.is_directory():
        with found.fs.open_container(found.path) as container:
            verify = getattr(container, "verify", None)
            if verify is None:
                raise ValueError(f"{found.shown}: containers of this kind can't be verified")
            summary.add("verified")
            for problem in verify():
                where = f"{found.shown}/{problem.path}" if problem.path else found.shown
                yield {"url": found.url, **problem._asdict()}, f"{where}: {problem.kind}: {problem.detail}"
        return
    from ..readers import sharded

    directory = found.stat().directory
    for stat in found.fs.list(found.path, detail=True) if directory else ():
        if registry.container_of(stat.filename) and not stat.directory:
            yield from _problems(found.member(stat.filename), jobs, summary)
    report = sharded.verify(found.url, workers=jobs)
    summary.add("verified", len(report.shards))
    for shard in report.shards:
        for skipped in shard.damage:
            yield {"url": shard.url, "kind": "damaged", "detail": str(skipped)}, str(skipped)
    for kind, urls in (("missing", report.missing), ("stale", report.stale)):
        for url in urls:
            yield {"url": url, "kind": kind, "detail": ""}, f"{url}: {kind}"
    for url in report.skipped:
        if not registry.container_of(url):
            summary.add("skipped")
            yield {"url": url, "kind": "skipped", "detail": ""}, f"{url}: skipped: no container, and no RecordIO file"


@command(PATHS)
def repair(invocation: Invocation, given: Namespace) -> None:
    """Replace each damaged file of RecordIO data sets by one with its good chunks, and show what was lost.

    A file is replaced whole or not at all; one that is not damaged is not touched. `fsabs verify` shows what would be
    lost before.

    Example: fsabs repair s3://bucket/shards/
    """
    from ..readers import sharded

    summary = Summary("checked", "repaired")
    for path in given.paths:
        if registry.container_of(path.rstrip("/")):
            raise ValueError(f"{path}: only RecordIO files are repaired; unpack what is good of a container")
        report = sharded.repair(path)
        for shard in report.shards:
            summary.add("checked")
            summary.add("repaired", not shard.ok)
            for skipped in shard.damage:
                values = {"url": shard.url, "kept_records": shard.records, "lost": str(skipped)}
                invocation.output.record(values, f"lost: {skipped}")
    summary.write(invocation.output)
