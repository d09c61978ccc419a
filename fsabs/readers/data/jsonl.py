"""JsonLinesDataReader: the lines of JSON Lines files of any FS, plain or compressed (gz, zst, xz, bz2).

A file is read once from front to back to find its chunks: runs of whole lines of about a MiB. That index, and in a
compressed file where its frames begin, is kept by the file's version and used by all processes of the user.
"""

from __future__ import annotations

import functools
import json
import warnings
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...containers.decoding import MAGIC_SIZE, Cursor, SeekPoint, SeekPoints
from ...containers.tar.compression import add_blocks, codec_of_content, codec_of_name
from ...core import errors
from ...core.blobs import Blob
from ...core.limits import Limits
from ...core.readahead import ReadAhead
from ...core.registry import COMPRESSIONS
from .base import LOST, Mode, OnError, Shard, ShardContent, check_numbers, check_on_error, digest_of
from .files import FileShardsReader, Location, derived
from .order import Numbers, WindowOrder

SUFFIXES = tuple(
    name + compression
    for name in (".jsonl", ".ndjson", ".json")
    for compression in (*(own for own, *_ in COMPRESSIONS.values()), "")
    if name + compression != ".json"
)
CHUNK_BYTES = 1 << 20
_KIND = "json-lines-3"
_BLANK = b" \t\r"  # what a blank line may have
_CODECS = ("", *COMPRESSIONS)


class LineIndex(NamedTuple):
    """Where the lines of a file are."""

    codec: str
    """The name of its compression; empty if there is none."""
    size: int
    """Bytes of the decoded content."""
    checksum: int
    """CRC-32 of the decoded content."""
    trailing: int
    """Whether there are bytes behind the compressed data: 1, else 0."""
    lines: Numbers
    """The number of the first line of each chunk, and the number of lines."""
    offsets: Numbers
    """Where each chunk begins in the decoded content, and where that ends."""
    frames: Numbers
    """Rows of where each frame of a compressed file begins: in the decoded content, and in the file."""

    def pack(self) -> list[bytes]:
        """Return the index as it is kept."""
        head = [_CODECS.index(self.codec), self.size, self.checksum, self.trailing, len(self.lines), len(self.frames)]
        parts = [np.array(head, "<i8"), self.lines, self.offsets, self.frames.reshape(-1)]
        return [part.astype("<i8").tobytes() for part in parts]

    @classmethod
    def unpack(cls, view: memoryview) -> LineIndex:
        """Return the index of what was kept."""
        values = np.frombuffer(view, "<i8")
        number, size, checksum, trailing, chunks, frames = values[:6].tolist()
        ends = 6 + chunks, 6 + 2 * chunks, 6 + 2 * chunks + 2 * frames
        lines, offsets, rest = values[6 : ends[0]], values[ends[0] : ends[1]], values[ends[1] : ends[2]]
        return cls(_CODECS[number], size, checksum, trailing, lines, offsets, rest.reshape(-1, 2))


class JsonLinesDataReader(FileShardsReader[Blob, LineIndex]):
    """The lines of the files at `location`: a URL, a path, a glob pattern, a directory, an FS.

    A record is the value of a line, as `json.loads` makes it; blank lines are none, and are not counted. Each file is a
    shard.

    Args:
        location: a directory means the files in it, and below, that end in `.jsonl` or `.ndjson`, or in `.json` and a
            compression: `.gz`, `.zst` (needs `fsabs[zstd]`), `.xz`, `.bz2`.
        on_error: "raise" a `CorruptFileError` for a line that is not JSON, or "skip" it.

    Compressed files are shuffled best if they have many frames, as those of zstd's `pzstd` and `t2sz`, and of `bgzip`:
    the chunks of one frame are read one after the other.

    Bytes behind the compressed data of a file, which are no data of it, are not read, with a warning.

    Raises `CorruptFileError` with the file and the line, counted from 1 without blank ones, and `StaleFileError` for a
    file that changed after `create_shards`.
    """

    open_at_once = 64

    def __init__(self, location: Location, *, on_error: OnError = "raise") -> None:
        super().__init__(location)
        check_on_error(on_error)
        self.on_error = on_error

    # ---- shards

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """A shard for each file, whose records are its lines."""
        self._list(self._is_called(*SUFFIXES), "file of JSON lines")
        for name, index in self._index_all().items():
            if index.trailing:
                url = self._files.fs.url(self._files.path(name))
                warnings.warn(f"{url}: bytes behind its {index.codec} data are not read", stacklevel=2)
        return [Shard(name, 0, int(index.lines[-1])) for name, index in self._indexes.items()]

    def _index_of(self, name: str) -> LineIndex:
        with self._open_listed(name) as blob:
            parts = functools.cache(lambda: _scan(blob, self._files.fs.limits).pack())
            return LineIndex.unpack(derived(_KIND, blob, parts))

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path, the size, and a digest of the lines' places and checksum."""
        index = self._index(shard_name)
        digest = digest_of(index.offsets.tobytes(), index.lines.tobytes(), str(index.checksum).encode())
        return ShardContent(self._files.path(shard_name), self._stat(shard_name).size, digest)

    def order(self, shards: Sequence[Shard], seed: int | None, window: int) -> WindowOrder:
        """Return the orders of the epochs over shards of this reader."""
        rows, groups = [], 0
        for number, shard in enumerate(shards):
            index = self._index(shard.name)
            chunks = len(index.lines) - 1
            own = np.arange(chunks, dtype=np.int64)
            if index.codec:  # the chunks that begin in one frame stay together
                own = index.frames[:, 0].searchsorted(index.offsets[:-1], side="right")
            counts = np.diff(index.lines)
            rows.append(np.stack([np.full(chunks, number), index.lines[:-1], counts, own + groups], axis=1))
            groups += int(own[-1]) + 1 if chunks else 0
        found = np.concatenate(rows) if rows else np.empty((0, 4), np.int64)
        return WindowOrder(shards, found.astype(np.int64), seed, window)

    # ---- lines

    def read_available(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The lines with these numbers, in the order given, and `LOST` for those that are skipped."""
        if not len(numbers):
            return
        index = self._index(shard_name)
        check_numbers(shard_name, numbers, int(index.lines[-1]))
        wanted = np.asarray(numbers, np.int64)
        chunks = index.lines.searchsorted(wanted, side="right") - 1
        used, which = np.unique(chunks, return_inverse=True)
        blob = self._shard(shard_name)
        ranges = [(int(index.offsets[one + 1] - index.offsets[one]), int(index.offsets[one])) for one in used.tolist()]
        counts = np.diff(index.lines)[used].tolist()
        lines = [_lines_of(data, count) for data, count in zip(blob.pread_many(ranges), counts, strict=True)]
        for number, slot, chunk in zip(wanted.tolist(), which.tolist(), chunks.tolist(), strict=True):
            yield self._value(blob.url, number, lines[slot][number - int(index.lines[chunk])])

    def _value(self, url: str, number: int, line: bytes) -> Any:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as exc:  # the latter of what is nested too deep
            if self.on_error == "skip":
                return LOST
            where = f"line {number + 1}, blank ones not counted,"  # the index counts the others only
            raise errors.corrupt(url, f"{where} is not JSON: {exc}", "read_records") from None

    # ---- files

    def _open_shard(self, shard_name: str) -> Blob:
        """Return the decoded content of a file."""
        blob, index = self._open_listed(shard_name), self._index(shard_name)
        if not index.codec:
            return blob
        points = SeekPoints([SeekPoint(*frame) for frame in index.frames.tolist()])
        compression = codec_of_name(index.codec)
        add_blocks(points, compression, blob, index.size)
        path = self._stat(shard_name).filename
        codec = compression.codec.within(self._files.fs.limits)
        return compression.blob(self._files.fs, path, blob, codec, index.size, blob.version, points)


def _lines_of(data: bytes, count: int) -> list[bytes]:
    """Return the lines of a chunk that has so many."""
    lines = data.removesuffix(b"\n").split(b"\n")
    return lines if len(lines) == count else [line for line in lines if line.strip(_BLANK)]


def _scan(blob: Blob, limits: Limits) -> LineIndex:
    """Return the index of a file; EFBIG for one that expands too far."""
    compression = codec_of_content(blob.pread(MAGIC_SIZE, 0), blob.url)
    points = SeekPoints()
    lines, offsets, checksum, at, count = [0], [0], 0, 0, 0
    begun = b""  # stands for the line that a piece goes on with, unless that is blank so far
    cursor = None if compression is None else Cursor(blob, compression.codec.within(limits), points)
    for piece in _pieces(blob) if cursor is None else iter(lambda: cursor.read(CHUNK_BYTES), b""):
        checksum = zlib.crc32(piece, checksum)
        at += len(piece)
        if compression is not None and limits.expands_too_far(at, blob.size):
            what = f"a decompression bomb, as it seems: {blob.size} bytes that stand for {at} or more"
            raise limits.error("max_ratio", what, "create_shards", blob.url)
        *ended, rest = (begun + piece).split(b"\n")
        count += sum(1 for line in ended if line.strip(_BLANK))
        if count > lines[-1]:
            lines.append(count)
            offsets.append(at - len(rest))
        begun = b"." if rest.strip(_BLANK) else b""
    # In the place of a frame: the rest of a line is missing, or but for one byte there is one.
    if cursor is not None and cursor.trailing and (begun or cursor.lost_frame):
        raise errors.corrupt(blob.url, cursor.trailing, "create_shards")
    if begun:  # the last line has no end
        lines.append(count + 1)
        offsets.append(at)
    frames = [(point.out, point.src) for point in points.lasting()] if compression is not None else []
    return LineIndex(
        compression.name if compression is not None else "",
        at,
        checksum,
        int(cursor is not None and cursor.trailing != ""),
        np.array(lines, np.int64),
        np.array(offsets, np.int64),
        np.array(frames, np.int64).reshape(-1, 2),
    )


def _pieces(blob: Blob) -> Iterator[bytes]:
    source = ReadAhead(blob)
    for offset in range(0, blob.size, CHUNK_BYTES):
        yield source.pread(min(CHUNK_BYTES, blob.size - offset), offset)
