"""Contents of files on the standard output: all of it, its first or its last lines or bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from ..core.readahead import pieces
from .paths import PIPE, Paths
from .program import FAILED, Invocation

if TYPE_CHECKING:
    from ..core.blobs import Blob
    from ..core.fs import FS

_BLOCK = 64 * 1024


def write_each(
    invocation: Invocation,
    paths: tuple[str, ...],
    write: Callable[[FS, str], None],
    write_pipe: Callable[[], None] | None = None,
) -> int:
    """Call `write` for each file that paths name, and return the exit code; an error does not stop the others.

    `write_pipe`, if given, is called for the path `-`.
    """
    code = 0
    with Paths() as resolver:
        for text in paths:
            if write_pipe is not None and text == PIPE:
                write_pipe()
                continue
            try:
                for found in resolver.expand(text):
                    write(found.fs, found.path)
            except (OSError, ValueError) as exc:
                if isinstance(exc, BrokenPipeError) and exc.filename is None:
                    raise
                invocation.error(exc)
                code = FAILED
        sys.stdout.buffer.flush()
    return code


def write_content(fs: FS, path: str) -> None:
    """Write a whole file."""
    with fs.open(path, "rb") as file, closing(pieces(file.raw.blob)) as found:
        for piece in found:
            sys.stdout.buffer.write(piece)


def write_first(fs: FS, path: str, lines: int | None, size: int | None) -> None:
    """Write the first lines, or the first bytes, and read no more than that takes."""
    with fs.open(path, "rb") as file:
        for block in _forward(file.raw.blob, file.raw.blob.size if size is None else min(size, file.raw.blob.size)):
            if lines is None:
                sys.stdout.buffer.write(block)
                continue
            end = _end_of_lines(block, lines)
            sys.stdout.buffer.write(block[:end])
            lines -= block.count(b"\n", 0, end)
            if lines <= 0:
                return


def write_last(fs: FS, path: str, lines: int | None, size: int | None) -> None:
    """Write the last lines, or the last bytes, and read no more than that takes."""
    with fs.open(path, "rb") as file:
        blob = file.raw.blob
        start = max(0, blob.size - size) if size is not None else _start_of_lines(blob, lines or 0)
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
