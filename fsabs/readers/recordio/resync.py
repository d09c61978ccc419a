"""Finding the next good chunk behind damage: the magic number, a header that fits, a payload whose CRC is right."""

from __future__ import annotations

from ...core.blobs import Blob
from .format import HEADER, MAGIC_BYTES, Chunk, Damage, crc32, parse

_PIECE = 8 << 20
_FIRST, _MOST = 4096, 1 << 20  # bytes that are searched at once: at first, and after doubling


def payload_crc(blob: Blob, chunk: Chunk) -> int:
    """The CRC-32 of a chunk's payload as stored, read in pieces."""
    value = 0
    for offset in range(chunk.payload, chunk.end, _PIECE):
        value = crc32(blob.pread(min(_PIECE, chunk.end - offset), offset), value)
    return value


def next_chunk(blob: Blob, start: int, budget: int) -> tuple[int, int]:
    """The offset of the first good chunk from `start` on (or the file's end), and what is left of `budget`.

    A chunk counts as good if its CRC is right and the file ends behind it, or goes on with another's magic number: so
    much is needed because a record may hold a RecordIO file itself. No more than `budget` bytes of payloads are read.
    """
    offset, window = start, _FIRST
    while offset < blob.size:
        data = blob.pread(window + HEADER.size, offset)
        place = data.find(MAGIC_BYTES)
        while 0 <= place < window:
            try:
                chunk = parse(data, place, 0, offset + place, 0, blob.size)
            except Damage:
                if len(data) - place < HEADER.size and offset + len(data) < blob.size:
                    break
            else:
                if chunk.size > budget:
                    return blob.size, 0
                budget -= chunk.size
                if _is_good(blob, chunk):
                    return chunk.offset, budget
            place = data.find(MAGIC_BYTES, place + 1)
        offset += window
        window = min(2 * window, _MOST)
    return blob.size, budget


def _is_good(blob: Blob, chunk: Chunk) -> bool:
    return blob.pread(4, chunk.end) in (b"", MAGIC_BYTES) and payload_crc(blob, chunk) == chunk.crc
