"""One file in pieces: read ahead from its blob, and written by a thread while the next pieces come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from .. import errors
from ..readahead import ReadAhead, joined
from ..threads import TaskOutcome, Threads

if TYPE_CHECKING:
    from ..blobs import Blob

PIECE = 8 * 1024 * 1024
"""Bytes of a large file that are read at once."""
_WAITING = 3
"""Pieces that have been read and not yet written."""


def pieces(blob: Blob, start: int = 0) -> Generator[bytes, None, None]:
    """Yield the bytes of `blob` from `start` on, from front to back."""
    with closing(ReadAhead(blob)) as source:
        for offset in range(start, blob.size, PIECE):
            yield source.pread(PIECE, offset)


def streamed(blob: Blob, start: int = 0) -> Generator[bytes, None, None]:
    """As `pieces`, in the pieces in which a stream of the store comes, if it has one."""
    stream = blob._stream(start) if blob.size - start > PIECE else None
    if stream is None:
        yield from pieces(blob, start)
        return
    at = start
    try:
        for piece in stream:
            at += len(piece)
            yield joined([piece])
    except OSError as exc:
        errors.named(exc, "read", blob.url)
        raise
    finally:
        if hasattr(stream, "close"):
            stream.close()
    if at != blob.size:
        raise errors.corrupt(blob.url, f"no more than {at} of {blob.size} bytes")


def write_behind(pieces: Iterator[bytes], write: Callable[[bytes], None]) -> Generator[int, None, None]:
    """Write pieces, in order, in a thread, while the next ones are read; yield the size of each when it is written.

    Nothing is written after a write that failed.
    """
    failed = False

    def written(piece: bytes) -> int:
        nonlocal failed
        if failed:
            return 0
        failed = True
        write(piece)
        failed = False
        return len(piece)

    outcomes: SimpleQueue[TaskOutcome[int]] = SimpleQueue()
    waiting = 0
    with Threads[int](1, wait=True) as threads:
        for piece in pieces:
            threads.submit(partial(written, piece), outcomes.put)
            waiting += 1
            if waiting > _WAITING:
                yield outcomes.get().result()
                waiting -= 1
        for _ in range(waiting):
            yield outcomes.get().result()
