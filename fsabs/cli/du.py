"""`fsabs du`: how many bytes and files are below a path."""

from __future__ import annotations

import click

from .entries import is_listed
from .output import size_text
from .paths import Paths, path_argument
from .program import FAILED, Invocation, common


@click.command(context_settings={"help_option_names": ["--help"]})
@path_argument("paths", count=-1, required=False)
@click.option("-h", "--human", is_flag=True, help="Show sizes for people: 1.5 MB.")
@common
def command(invocation: Invocation, paths: tuple[str, ...], human: bool) -> int:
    """Sum up the bytes and the files below each path.

    A container at the end of a path counts as a file; with a / behind it, its members count, with their sizes when
    they are read.

    \b
    Example: fsabs du -h s3://bucket/train.zip/ s3://bucket/val/
    """
    code = 0
    with Paths() as resolver:
        for text in paths or (".",):
            try:
                for found in resolver.expand(text):
                    files, size = 1, 0
                    if is_listed(found):
                        usage = found.fs.usage(found.path)
                        files, size = usage.files, usage.bytes
                    else:
                        size = found.stat().size
                    counts = {"url": found.url, "files": files, "bytes": size}
                    shown = size_text(size) if human else str(size)
                    invocation.output.record(counts, f"{shown:>15}  {files:>12,} files  {found.shown}")
            except (OSError, ValueError) as exc:
                invocation.error(exc)
                code = FAILED
    return code
