"""`fsabs cache`, `config` and `trace`: what a cache holds, sections of `pfio.ini`, and what a trace has recorded."""

from __future__ import annotations

import argparse
import errno
import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..core import redaction
from ..core.errors import ConfigWarning
from ..core.limits import Limits
from ..urls import config as configuration
from ..urls import locations, opening
from ..urls.caching import cache_options
from .output import confirmed, size_text
from .paths import path_argument
from .program import FAILED, Group, Invocation, argument, at_least, flag
from .progress import PROGRESS, ProgressDisplay

if TYPE_CHECKING:
    from ..cache import CachedFS

cache = Group(
    """Show, fill, empty and check the cache of from_url(url, cache=True).

    Example: fsabs cache status"""
)
config = Group(
    """Show and check the configuration: custom schemes in pfio.ini.

    Example: fsabs config list"""
)
trace = Group(
    """Show what a trace has recorded; FSABS_TRACE=folder records one.

    Example: fsabs trace summary trace-folder"""
)
_DIR = argument("--dir", metavar="FOLDER", help="The cache's folder, if it is not the default one.")
_SIZES = ("max_bytes", "min_free", "bytes", "free")


def _cache(folder: str | None) -> CachedFS:
    """Return a cached FS on the folder, of which nothing but the cache is used."""
    from .. import Memory
    from ..cache import CachedFS

    if folder is not None and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no cache", folder)
    return CachedFS(Memory("fsabs-cache-command"), folder)


def _on_disk(fs: CachedFS) -> dict[str, Any]:
    """Return the contents of a cache on the disk."""
    found: dict[str, Any] | None = fs.status()["disk"]
    if found is None:
        raise ValueError("there is no cache: FSABS_CACHE_DIR is set to nothing, or the folder can't be used")
    return found


@cache.command("status", _DIR)
def _status(invocation: Invocation, given: Namespace) -> None:
    """Show what the cache holds on the disk, and what it may.

    Example: fsabs cache status --dir /scratch/cache
    """
    with _cache(given.dir) as fs:
        found = _on_disk(fs)
    width = max(map(len, found))
    lines = (f"{name.replace('_', ' '):<{width}}  {_shown(name, value)}" for name, value in found.items())
    invocation.output.record(found, "\n".join(lines))


def _shown(name: str, value: Any) -> str:
    return size_text(value) if name in _SIZES and isinstance(value, int) else "-" if value is None else str(value)


@cache.command(
    "warm",
    path_argument("url"),
    _DIR,
    argument("--max-bytes", metavar="SIZE", help="What the cache may take of its disk, as 50GB."),
    argument("--min-free", metavar="SIZE", help="What is left free of the disk; by default a tenth, at most 50 GB."),
    argument("--jobs", type=at_least(1), help="Files that are fetched at once."),
    PROGRESS,
)
def _warm(invocation: Invocation, given: Namespace) -> None:
    """Fetch all files of the data set at URL that are not cached.

    Example: fsabs cache warm s3://bucket/train.zip --dir /scratch/cache
    """
    invocation.how_to_go_on = "what was fetched stays; run the same command again to go on"
    options = {"dir": given.dir, "max_bytes": given.max_bytes, "min_free": given.min_free}
    with opening.from_url(given.url, cache=options) as fs, ProgressDisplay(given.progress) as shown:
        done = fs.warm(progress=shown.update, concurrency=given.jobs)
    text = f"{given.url}: {done.files:,} files ({size_text(done.bytes)}), fetched {size_text(done.fetched)}"
    invocation.output.record(
        {"url": given.url, "files": done.files, "bytes": done.bytes, "fetched": done.fetched}, text
    )


@cache.command("clear", _DIR, flag("--yes", help="Do not ask."))
def _clear(invocation: Invocation, given: Namespace) -> None:
    """Remove all that is in the cache, for all that share it.

    Example: fsabs cache clear --yes
    """
    with _cache(given.dir) as fs:
        size = _on_disk(fs)["bytes"]
        if not given.yes and not confirmed(f"Remove {size_text(size)} from the cache?"):
            raise ValueError("nothing was removed")
        fs.clear()
    invocation.output.record({"removed": size}, f"removed {size_text(size)}")


@cache.command("verify", _DIR)
def _verify(invocation: Invocation, given: Namespace) -> int:
    """Read all that is in the cache; what is damaged is removed and shown, and the exit code is 1.

    Example: fsabs cache verify
    """
    with _cache(given.dir) as fs:
        damaged = fs.verify()
    for name in damaged:
        invocation.output.record({"damaged": name}, f"damaged, and removed: {name}")
    if not damaged:
        invocation.output.record({"damaged": None}, "nothing is damaged")
    return FAILED if damaged else 0


@config.command("list")
def _list(invocation: Invocation, given: Namespace) -> None:
    """Show the sections and their keys, as they are written; what may be secret is not shown.

    Example: fsabs config list --json
    """
    path = configuration.config_path()
    there = os.path.exists(path)
    invocation.output.record({"file": path, "exists": there}, path if there else f"{path} (not there)")
    for name in configuration.sections():
        section = configuration.get_custom_scheme(name) or {}
        shown = {key: redaction.shown(key, value) for key, value in section.items()}
        text = "\n".join([f"\n[{name}]", *(f"{key} = {value}" for key, value in shown.items())])
        invocation.output.record({"section": name, "keys": shown}, text)


@config.command("check")
def _check(invocation: Invocation, given: Namespace) -> int:
    """Show what is wrong: unreadable lines, unknown schemes and keys, values of a wrong type, missing variables.

    The exit code is 1 if anything is wrong.

    Example: fsabs config check
    """
    found = list(_problems())
    for section, problem in found:
        invocation.output.record({"section": section, "problem": problem}, problem)
    if not found:
        text = f"{configuration.config_path()}: {len(configuration.sections())} sections, nothing is wrong"
        invocation.output.record({"section": None, "problem": None}, text)
    return FAILED if found else 0


def _problems() -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        for problem in configuration.problems():
            yield "", problem
        reported = set[str]()
        for name in configuration.sections():
            for fault in _faults(name):
                if str(fault) not in reported:  # as one of the section that this one builds on
                    reported.add(str(fault))
                    yield name, str(fault)


def _faults(name: str) -> list[Exception]:
    """Return the faults of a section."""
    found: list[Exception] = []
    url = f"pfs://{name}/home" if configuration.is_datacenter(name) else f"{name}://authority/path"
    try:
        settings = opening.find_backend(locations.parse(url), {}, strict=True, report=found.append)[3]
    except (ValueError, ImportError, TypeError) as exc:
        return [*found, exc]
    for check in (
        lambda: configuration.convert(settings.get("limits"), Limits, f"[{name}] limits"),
        lambda: cache_options(settings.get("cache")),
    ):
        try:
            check()
        except (ValueError, TypeError) as exc:
            found.append(exc)
    return found


def _folder(text: str) -> str:
    """Return the folder of a trace, which is there."""
    if not os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"the directory {text!r} does not exist")
    return text


_TRACE = path_argument("folder", type=_folder)


@trace.command("summary", _TRACE)
def _summary(invocation: Invocation, given: Namespace) -> None:
    """Show headline figures, findings, operations and the slowest files.

    Example: fsabs trace summary trace-folder
    """
    from ..trace import analyze, summary

    found = analyze(given.folder)
    if not invocation.output.json:
        sys.stdout.write(summary(found))
        return
    operation = ("layer", "operation", "kind", "calls", "seconds", "p50", "p99")
    for kind, names, rows in (
        ("finding", ("severity", "code", "title", "advice", "seconds"), found.findings),
        ("time", ("epoch", "seconds", "steps", "processes", "workers", "causes"), found.breakdown),
        ("operation", operation, found.operations),
    ):
        for row in rows:
            invocation.output.record({kind: {name: getattr(row, name) for name in names}}, "")


@trace.command("export", _TRACE, path_argument("file", "?"))
def _export(invocation: Invocation, given: Namespace) -> None:
    """Write one timeline of all processes, as JSON for Perfetto (https://ui.perfetto.dev) and Chrome.

    FILE is merged.json.gz in the folder if it is not given.

    Example: fsabs trace export trace-folder timeline.json.gz
    """
    from ..trace import merge

    path = merge(given.folder, given.file)
    invocation.output.record({"file": path}, path)


@trace.command("report", _TRACE, path_argument("file", "?"))
def _report(invocation: Invocation, given: Namespace) -> None:
    """Write the analysis as one HTML page with plots.

    FILE is report.html in the folder if it is not given.

    Example: fsabs trace report trace-folder report.html
    """
    from ..trace import report

    path = given.file or os.path.join(given.folder, "report.html")
    report(given.folder, path)
    invocation.output.record({"file": path}, path)
