"""One large file: read in pieces, written whole or not at all, continued where an interrupted copy ended, and verified.

What was written is compared with what was read: by the store, where it checks a checksum of what arrives; by the
writer, where that says so (`Writer.checks`); else by reading the file again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from .. import errors, process
from .pieces import pieces, streamed, write_behind

if TYPE_CHECKING:
    from ..blobs import Blob
    from ..core import Core
    from ..files import Writer

RESUMED_FROM = 64 * 1024 * 1024
"""Bytes from which on a copy that is interrupted is continued by the next one."""


def copy_large(source: Core, src: str, target: Core, dst: str, count: Callable[[int], None]) -> int:
    """Copy a file, and return its size; `count(size)` is called after each piece, and may raise to give the copy up."""
    try:
        with source._open_from_start(src) as blob:
            try:
                _copy_blob(blob, target, dst, count)
            except OSError as exc:
                target._named(exc, "copy", dst)
                raise
            return blob.size
    except OSError as exc:
        source._named(exc, "copy", src)
        raise


def _copy_blob(blob: Blob, target: Core, dst: str, count: Callable[[int], None]) -> None:
    writer, start = target._resume(dst, blob) if blob.size >= RESUMED_FROM else (target._create(dst, False), 0)
    check = not (target.checks_writes or writer.checks) and target.capabilities.read
    made_in = process.generation()
    process.register(writer, writer)
    try:
        count(start)
        crc = 0

        def write(piece: bytes) -> None:
            nonlocal crc
            writer.write(piece)
            if check:
                crc = _extend()(crc, piece)

        with closing(streamed(blob, start)) as source, closing(write_behind(source, write)) as written:
            for size in written:
                count(size)
        if not process.inherited(made_in):
            writer.commit()
    except BaseException as exc:
        if not process.inherited(made_in):
            _give_up(writer, exc)
        raise
    finally:
        process.release(writer)
    if check:
        _check(target, dst, blob.size, crc)


def _give_up(writer: Writer, exc: BaseException) -> None:
    """Leave what was written for the next copy, unless it is of a content that is gone or wrong."""
    if isinstance(exc, errors.StaleFileError | errors.CorruptFileError):
        writer.abort()
    else:
        writer.leave()


def _check(target: Core, dst: str, size: int, crc: int) -> None:
    """Read a file that was written, and compare it."""
    with target._open_from_start(dst) as blob:
        found = 0
        for piece in pieces(blob):
            found = _extend()(found, piece)
        if (blob.size, found) != (size, crc):
            raise errors.corrupt(target._url(dst), f"{size} bytes were written, and others are read", "copy")


@functools.cache
def _extend() -> Callable[[int, bytes], int]:
    """Return the function that continues a CRC32C."""
    import google_crc32c

    found: Callable[[int, bytes], int] = google_crc32c.extend
    return found
