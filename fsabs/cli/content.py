"""`fsabs cat`, `head` and `tail`: contents of files, or their first or last lines or bytes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from ..core.readahead import pieces
from .paths import each_path, path_argument
from .program import Invocation, raw

if TYPE_CHECKING:
    from ..core.blobs import Blob
    from ..core.fs import FS

_BLOCK = 64 * 1024


def _amount(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say how much of each file is written."""
    count = click.IntRange(min=0)
    lines = click.option("-n", "--lines", type=count, default=10, show_default=True, help="How many lines.")
    size = click.option("-c", "--bytes", "size", type=count, help="How many bytes, in place of lines.")
    return lines(size(command))


@click.command()
@path_argument("paths", count=-1)
@raw
def cat(invocation: Invocation, paths: tuple[str, ...]) -> int:
    """Write files to the standard output. `-` is the standard input.

    \b
    Example: fsabs cat s3://bucket/logs/*.txt.zip/events.csv
    """
    return _write_each(invocation, paths, write_content, _write_pipe)


@click.command()
@path_argument("paths", count=-1)
@_amount
@raw
def head(invocation: Invocation, paths: tuple[str, ...], lines: int, size: int | None) -> int:
    """Write the first lines of files to the standard output; only what is needed is read.

    \b
    Example: fsabs head -n 5 s3://bucket/train.zip/labels.csv
    """
    return _write_each(invocation, paths, lambda fs, path: _write_first(fs, path, lines, size))


@click.command()
@path_argument("paths", count=-1)
@_amount
@raw
def tail(invocation: Invocation, paths: tuple[str, ...], lines: int, size: int | None) -> int:
    """Write the last lines of files to the standard output; only what is needed is read.

    \b
    Example: fsabs tail -n 5 s3://bucket/train.zip/labels.csv
    """
    return _write_each(invocation, paths, lambda fs, path: _write_last(fs, path, lines, size))


def _write_each(
    invocation: Invocation,
    paths: tuple[str, ...],
    write: Callable[[FS, str], None],
    write_pipe: Callable[[], None] | None = None,
) -> int:
    """Call `write` for each file that paths name, and return the exit code."""
    code = each_path(invocation, paths, lambda found: write(found.fs, found.path), pipe=write_pipe)
    sys.stdout.buffer.flush()
    return code


def _write_pipe() -> None:
    shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)


def write_content(fs: FS, path: str) -> None:
    """Write a whole file."""
    with fs.open(path, "rb") as file, closing(pieces(file.raw.blob)) as found:
        for piece in found:
            sys.stdout.buffer.write(piece)


def _write_first(fs: FS, path: str, lines: int, size: int | None) -> None:
    """Write the first lines, or the first `size` bytes, and read no more than that takes."""
    with fs.open(path, "rb") as file:
        for block in _forward(file.raw.blob, file.raw.blob.size if size is None else min(size, file.raw.blob.size)):
            if size is not None:
                sys.stdout.buffer.write(block)
                continue
            end = _end_of_lines(block, lines)
            sys.stdout.buffer.write(block[:end])
            lines -= block.count(b"\n", 0, end)
            if lines <= 0:
                return


def _write_last(fs: FS, path: str, lines: int, size: int | None) -> None:
    """Write the last lines, or the last `size` bytes, and read no more than that takes."""
    with fs.open(path, "rb") as file:
        blob = file.raw.blob
        start = max(0, blob.size - size) if size is not None else _start_of_lines(blob, lines)
        with closing(pieces(blob, start)) as found:
            for piece in found:
                sys.stdout.buffer.write(piece)


def _forward(blob: Blob, end: int) -> Iterator[bytes]:
    """Yield the bytes before `end`, in blocks that grow."""
    offset, size = 0, _BLOCK
    while offset < end:
        yield blob.pread(min(size, end - offset), offset)
        offset += min(size, end - offset)
        size = min(2 * size, 1 << 23)


def _end_of_lines(block: bytes, lines: int) -> int:
    """Return where the first `lines` lines of a block end."""
    end = 0
    for _ in range(lines):
        end = block.find(b"\n", end) + 1
        if not end:
            return len(block)
    return end


def _start_of_lines(blob: Blob, lines: int) -> int:
    """Return where the last `lines` lines begin."""
    end, size = blob.size, _BLOCK
    if not lines:
        return end
    wanted = lines + 1 if end and blob.pread(1, end - 1) == b"\n" else lines
    while end > 0:
        start = max(0, end - size)
        block = blob.pread(end - start, start)
        found = block.count(b"\n")
        if found >= wanted:
            at = len(block)
            for _ in range(wanted):
                at = block.rfind(b"\n", 0, at)
            return start + at + 1
        wanted -= found
        end, size = start, min(2 * size, 1 << 23)
    return 0
