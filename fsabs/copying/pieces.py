"""One file in pieces: read ahead from its blob, and written while the next pieces come."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING

from ..files import committing
from ..readahead import ReadAhead

if TYPE_CHECKING:
    import io

    from ..blobs import Blob
    from ..core import Core

PIECE = 8 * 1024 * 1024
"""Bytes of a large file that are read at once."""


def pieces(blob: Blob, start: int = 0) -> Generator[bytes, None, None]:
    """Yield the bytes of `blob` from `start` on, from front to back."""
    with closing(ReadAhead(blob)) as source:
        for offset in range(start, blob.size, PIECE):
            yield source.pread(PIECE, offset)


def pump(blob: Blob, target: Core, key: str, count: Callable[[int], None] | None = None) -> None:
    """Write the whole of `blob` to the file `key` of `target`, whose errors name it."""
    try:
        with committing(target._create(key, False)) as writer:
            for piece in pieces(blob):
                writer.write(piece)
                if count is not None:
                    count(len(piece))
    except OSError as exc:
        target._named(exc, "copy", key)
        raise


def write_all(file: io.FileIO, data: bytes) -> None:
    """Write all of `data` to an unbuffered file, which may take less at once."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
