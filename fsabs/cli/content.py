"""`fsabs cat`, `head`, `tail` and `diff`: contents of files, their first or last lines or bytes, and what differs."""

from __future__ import annotations

import functools
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ..core.readahead import pieces
from ..transfer.walks import Comparison, ordered_walk, side_by_side
from .paths import PATHS, Paths, ResolvedPath, each_path, path_argument
from .program import FAILED, Invocation, argument, at_least, command, flag

if TYPE_CHECKING:
    from ..core.blobs import Blob

_BLOCK = 64 * 1024
_LARGEST_BLOCK = 8 * 1024 * 1024
_LINES = argument("-n", "--lines", type=at_least(0), default=10, help="How many lines (default: %(default)s).")
_BYTES = argument("-c", "--bytes", type=at_least(0), help="How many bytes, in place of lines.")


@command(PATHS, json=False)
def cat(invocation: Invocation, given: Namespace) -> int:
    """Write files to the standard output. `-` is the standard input.

    Example: fsabs cat s3://bucket/logs/*.txt.zip/events.csv
    """
    return _write_each(invocation, given, pieces, _write_pipe)


@command(PATHS, _LINES, _BYTES, json=False)
def head(invocation: Invocation, given: Namespace) -> int:
    """Write the first lines of files to the standard output; only what is needed is read.

    Example: fsabs head -n 5 s3://bucket/train.zip/labels.csv
    """
    return _write_each(invocation, given, lambda blob: _first(blob, given.lines, given.bytes))


@command(PATHS, _LINES, _BYTES, json=False)
def tail(invocation: Invocation, given: Namespace) -> int:
    """Write the last lines of files to the standard output; only what is needed is read.

    Example: fsabs tail -n 5 s3://bucket/train.zip/labels.csv
    """

    def last(blob: Blob) -> Generator[bytes, None, None]:
        return pieces(blob, _start(blob, given.lines) if given.bytes is None else max(0, blob.size - given.bytes))

    return _write_each(invocation, given, last)


Part = Callable[["Blob"], Generator[bytes, None, None]]
"""Yields what is written of a file."""


def _write_each(invocation: Invocation, given: Namespace, part: Part, pipe: Callable[[], None] | None = None) -> int:
    """Write a part of each file that paths name, and return the exit code."""
    code = each_path(invocation, given.paths, lambda found: write_content(found, part), pipe=pipe)
    sys.stdout.buffer.flush()
    return code


def _write_pipe() -> None:
    shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)


def write_content(found: ResolvedPath, part: Part = pieces) -> None:
    """Write a file, or a part of it, to the standard output."""
    with found.fs.open(found.path, "rb") as file, closing(part(file.raw.blob)) as content:
        for piece in content:
            sys.stdout.buffer.write(piece)


def _first(blob: Blob, lines: int, size: int | None) -> Generator[bytes, None, None]:
    """Yield the first lines, or the first `size` bytes, in blocks that grow."""
    offset, block_size = 0, _BLOCK
    end = blob.size if size is None else min(size, blob.size)
    while offset < end and (lines > 0 or size is not None):
        block = blob.pread(min(block_size, end - offset), offset)
        offset, block_size = offset + len(block), min(2 * block_size, _LARGEST_BLOCK)
        at = len(block)
        if size is None and (found := block.count(b"\n")) >= lines:
            at = 0
            for _ in range(lines):
                at = block.find(b"\n", at) + 1
            lines = 0
        elif size is None:
            lines -= found
        yield block[:at]


def _start(blob: Blob, lines: int) -> int:
    """Return where the last lines begin."""
    end, block_size = blob.size, _BLOCK
    if not lines:
        return end
    wanted = lines + 1 if end and blob.pread(1, end - 1) == b"\n" else lines
    while end > 0:
        start = max(0, end - block_size)
        block = blob.pread(end - start, start)
        found = block.count(b"\n")
        if found >= wanted:
            at = len(block)
            for _ in range(wanted):
                at = block.rfind(b"\n", 0, at)
            return start + at + 1
        wanted -= found
        end, block_size = start, min(2 * block_size, _LARGEST_BLOCK)
    return 0


@command(
    path_argument("left"),
    path_argument("right"),
    flag("--size-only", help="Compare names and sizes, and no contents."),
)
def diff(invocation: Invocation, given: Namespace) -> int:
    """Compare two files, or all that is in two directories or containers: names, sizes and contents.

    Contents are compared by the checksums of the stores where these have them, else both are read. Lines: `-` is
    only in LEFT, `+` only in RIGHT, `!` differs. The exit code is 1 if anything differs.

    Example: fsabs diff /data/train/ s3://bucket/train.zip/
    """
    with Paths() as paths:
        left, right = paths.resolve(given.left), paths.resolve(given.right)
        comparison = Comparison(left.fs, right.fs, content=True)
        trees = left.contents or left.is_directory()
        count = 0

        def failed(side: ResolvedPath, name: str, exc: OSError) -> None:
            nonlocal count
            side.fs._named(exc, "diff", side.member(name).key)
            count += 1
            invocation.error(exc)

        def are_equal(one: ResolvedPath, other: ResolvedPath) -> bool:
            stats = one.stat(), other.stat()
            if given.size_only or any(stat.directory for stat in stats):
                return (stats[0].size, stats[0].directory) == (stats[1].size, stats[1].directory)
            return comparison.are_equal(one.key, stats[0], other.key, stats[1])

        def of_trees() -> Iterator[tuple[str, str]]:
            sides = (ordered_walk(one.fs, one.key, failed=functools.partial(failed, one)) for one in (left, right))
            for one, other in side_by_side(*sides):
                if other is None and one is not None:
                    yield "-", one.listed()
                elif one is None and other is not None:
                    yield "+", other.listed()
                elif one is not None and not one.directory:
                    if not are_equal(left.member(one.filename), right.member(one.filename)):
                        yield "!", one.filename

        def of_files() -> Iterator[tuple[str, str]]:
            if not are_equal(left, right):
                yield "!", right.shown

        for sign, name in of_trees() if trees else of_files():
            count += 1
            kind = {"-": "only left", "+": "only right", "!": "differs"}[sign]
            invocation.output.record({"name": name, "difference": kind}, f"{sign} {invocation.output.name(name)}")
        return FAILED if count else 0
