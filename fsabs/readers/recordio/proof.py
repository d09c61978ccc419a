"""Proof that chunks hold as many records as their headers say, before a record behind them is read by its number.

No checksum covers a header, and a wrong count would give every later record another's number. So the chunks before the
one that is read are counted first, once for each version of a file: `Index.proved` says how far that is done, and is
kept in the index cache. What is read in order is proved in passing. Data sets, all of whose records are read by one
index, need no proof (`Index.assume_counts`).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...core.blobs import Blob
from .format import LENGTH, NONE, Chunk, Damage, wrong_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from .index import Index

_WINDOW = 16 << 20  # bytes of neighbouring chunks that are read at once
_WORTH_KEEPING = 0.02  # seconds


def prove(
    index: Index,
    blob: Blob,
    number: int,
    counted: Callable[[Chunk, bytes], int],
    failed: Callable[[list[Chunk], OSError], object],
    skip: bool,
) -> tuple[Chunk, str] | None:
    """Prove the counts of all chunks before chunk `number`; return the first that is wrong, and what is wrong with it.

    `counted(chunk, stored)` returns the number of records in a chunk, or raises `Damage`; `failed(chunks, error)` is
    called where a read of chunks fails. With `skip`, the count of a chunk whose payload is damaged is taken as its
    header has it: nothing better is known.
    """
    began = time.monotonic()
    index.take_proof(blob)
    while index.proved < number:
        chunks = _window(index, index.proved, number)
        for chunk, stored in zip(chunks, _stored(blob, chunks, failed), strict=True):
            try:
                records = _length_of_single(chunk, stored) if _is_single(chunk) else counted(chunk, stored)
            except Damage as exc:
                if not skip:
                    return chunk, str(exc)
                records = chunk.records
            if records != chunk.records:
                return chunk, wrong_count(chunk.records, records)
            index.proved = max(index.proved, chunk.number + 1)
    if time.monotonic() - began > _WORTH_KEEPING and not skip:
        index.keep_proof(blob)
    return None


def _window(index: Index, first: int, end: int) -> list[Chunk]:
    chunks = [index.chunk(first)]
    for number in range(first + 1, end):
        chunk = index.chunk(number)
        if chunk.end - chunks[0].offset > _WINDOW:
            break
        chunks.append(chunk)
    return chunks


def _is_single(chunk: Chunk) -> bool:
    """Return whether a record's length is enough to count: there is one record, and it is not compressed."""
    return chunk.compressor == NONE and chunk.records == 1


def _stored(blob: Blob, chunks: list[Chunk], failed: Callable[[list[Chunk], OSError], object]) -> list[bytes]:
    sizes = [min(chunk.size, LENGTH.size) if _is_single(chunk) else chunk.size for chunk in chunks]
    try:
        return blob.pread_many([(size, chunk.payload) for size, chunk in zip(sizes, chunks, strict=True)])
    except OSError as exc:
        failed(chunks, exc)
        raise


def _length_of_single(chunk: Chunk, stored: bytes) -> int:
    size = LENGTH.unpack(stored)[0] if len(stored) == LENGTH.size else -1
    if size + LENGTH.size != chunk.size:
        raise Damage(f"a record of {size} bytes in a payload of {chunk.size}")
    return 1
