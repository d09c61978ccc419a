"""`fsabs cache`: what a cache holds; fill, empty and check it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import click

from .output import size_text
from .paths import path_argument
from .program import FAILED, Invocation, common
from .progress import ProgressDisplay, ProgressMode, progress_option

if TYPE_CHECKING:
    from ..cache import CachedFS

_folder = click.option("--dir", "folder", metavar="FOLDER", help="The cache's folder, if it is not the default one.")
_SIZES = ("max_bytes", "min_free", "bytes", "free")


@click.group()
def command() -> None:
    """Show, fill, empty and check the cache of from_url(url, cache=True).

    \b
    Example: fsabs cache status
    """


def _cache(folder: str | None) -> CachedFS:
    """Return a cached FS on the folder, of which nothing but the cache is used."""
    from .. import Memory
    from ..cache import CachedFS

    if folder is not None and not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no cache", folder)
    return CachedFS(Memory("fsabs-cache-command"), folder)


@command.command()
@_folder
@common
def status(invocation: Invocation, folder: str | None) -> None:
    """Show what the cache holds on the disk, and what it may.

    \b
    Example: fsabs cache status --dir /scratch/cache
    """
    with _cache(folder) as fs:
        found: dict[str, Any] | None = fs.status()["disk"]
    if found is None:
        raise ValueError("there is no cache: FSABS_CACHE_DIR is set to nothing, or the folder can't be used")
    width = max(map(len, found))
    lines = (f"{name.replace('_', ' '):<{width}}  {_shown(name, value)}" for name, value in found.items())
    invocation.output.record(found, "\n".join(lines))


@command.command()
@path_argument("url")
@_folder
@click.option("--max-bytes", metavar="SIZE", help="What the cache may take of its disk, as 50GB.")
@click.option("--min-free", metavar="SIZE", help="What is left free of the disk; without it, a tenth, at most 50 GB.")
@click.option("--jobs", type=click.IntRange(min=1), help="Files that are fetched at once.")
@progress_option
@common
def warm(
    invocation: Invocation,
    url: str,
    folder: str | None,
    max_bytes: str | None,
    min_free: str | None,
    jobs: int | None,
    progress: ProgressMode,
) -> None:
    """Fetch all files of the data set at URL that are not cached.

    \b
    Example: fsabs cache warm s3://bucket/train.zip --dir /scratch/cache
    """
    from ..urls import opening

    invocation.how_to_go_on = "what was fetched stays; run the same command again to go on"
    options = {"dir": folder, "max_bytes": max_bytes, "min_free": min_free}
    with opening.from_url(url, cache=options) as fs, ProgressDisplay(progress) as shown:
        done = fs.warm(progress=shown.update, concurrency=jobs)
    text = f"{url}: {done.files:,} files ({size_text(done.bytes)}), fetched {size_text(done.fetched)}"
    invocation.output.record({"url": url, "files": done.files, "bytes": done.bytes, "fetched": done.fetched}, text)


@command.command()
@_folder
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def clear(invocation: Invocation, folder: str | None, yes: bool) -> None:
    """Remove all that is in the cache, for all that share it.

    \b
    Example: fsabs cache clear --yes
    """
    with _cache(folder) as fs:
        before = fs.status()["disk"]
        if before is None:
            raise ValueError("there is no cache")
        if not yes and not click.confirm(f"Remove {size_text(before['bytes'])} from the cache?", err=True):
            raise click.ClickException("nothing was removed")
        fs.clear()
    invocation.output.record({"removed": before["bytes"]}, f"removed {size_text(before['bytes'])}")


@command.command()
@_folder
@common
def verify(invocation: Invocation, folder: str | None) -> int:
    """Read all that is in the cache; what is damaged is removed and shown, and the exit code is 1.

    \b
    Example: fsabs cache verify
    """
    with _cache(folder) as fs:
        damaged = fs.verify()
    for name in damaged:
        invocation.output.record({"damaged": name}, f"damaged, and removed: {name}")
    if not damaged:
        invocation.output.record({"damaged": None}, "nothing is damaged")
    return FAILED if damaged else 0


def _shown(name: str, value: Any) -> str:
    return size_text(value) if name in _SIZES and isinstance(value, int) else "-" if value is None else str(value)
