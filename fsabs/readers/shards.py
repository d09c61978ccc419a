"""Checking and repairing sharded data sets: every byte of every shard, and the set as its names tell of it."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ..core import errors
from ..core.errors import CorruptFileError
from ..core.fs import FS, Path
from ..core.threads import in_threads
from .locate import find
from .recordio import RecordReader, Skipped
from .recordio.codecs import decompress
from .recordio.format import HEADER, MAGIC, Chunk, Damage, count, crc32

Paths = Path | Sequence[Path]

_OF = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})")
_PLAIN = re.compile(r"(.*)-(\d{5,})")
_PIECE = 8 << 20


class ShardReport(NamedTuple):
    """The content and the faults of one file."""

    url: str
    size: int
    """In bytes."""
    chunks: int
    """That are good."""
    records: int
    """In good chunks."""
    damage: tuple[Skipped, ...]
    """What is not good, in the order of the file."""

    @property
    def ok(self) -> bool:
        """True if the whole file is good."""
        return not self.damage


class DataSetReport(NamedTuple):
    """The content and the faults of a data set."""

    shards: tuple[ShardReport, ...]
    missing: tuple[str, ...]
    """URLs of shards that the names of the others tell of, and that are not there."""
    stale: tuple[str, ...]
    """URLs of shards of an earlier run with another number of shards."""

    @property
    def ok(self) -> bool:
        """True if nothing is damaged, missing or stale."""
        return not self.missing and not self.stale and all(shard.ok for shard in self.shards)

    @property
    def records(self) -> int:
        """The records in good chunks, of all shards that were looked at."""
        return sum(shard.records for shard in self.shards)

    def __str__(self) -> str:
        lines = [str(skipped) for shard in self.shards for skipped in shard.damage]
        lines += [f"{url}: missing" for url in self.missing]
        lines += [f"{url}: of an earlier run with another number of shards" for url in self.stale]
        damaged = sum(not shard.ok for shard in self.shards)
        lines.append(f"{len(self.shards)} shards, {damaged} of them damaged; {self.records} good records")
        return "\n".join(lines)


def verify(paths: Paths | FS, *, workers: int = 4) -> DataSetReport:
    """Read all of a data set, and tell what is damaged, missing or stale.

    Args:
        paths: a directory (all files in it whose names don't begin with a dot), a file, a glob pattern, a list of them,
            as URLs or local paths; or an FS, whose directory is meant.
        workers: shards that are read at once.

    Every header, CRC, frame and length is checked. Raises what the store raises, `FileNotFoundError` where nothing is,
    and nothing for damage: that is what the report is for.
    """
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(one) for one in find(paths)]
        files = [(one.fs, path) for one in found for path in one.paths]
        shards = tuple(_in_threads(files, workers))
        missing, stale = [], []
        for one in found:
            gone, old = _set_of(one.fs, one.paths)
            missing += [one.fs.url(path) for path in gone]
            stale += [one.fs.url(path) for path in old]
    return DataSetReport(shards, tuple(missing), tuple(stale))


def repair(paths: Paths | FS) -> DataSetReport:
    """Replace each damaged shard by one with its good chunks, and tell what was lost: what `verify` said before.

    A chunk whose payload is good, and whose header tells a wrong number of records, is saved with the right one. A
    shard is replaced whole or not at all, and one that is not damaged is not touched; nothing is done about those that
    are missing or stale. A file of which nothing is good is left as it is, and raised as a `CorruptFileError` when the
    others are repaired.
    """
    report = verify(paths)
    damaged = {shard.url for shard in report.shards if not shard.ok}
    hopeless: CorruptFileError | None = None
    for found in find(paths):
        with found:
            for path in found.paths:
                if found.fs.url(path) in damaged:
                    try:
                        _repair(found.fs, path)
                    except CorruptFileError as exc:
                        hopeless = hopeless or exc
    if hopeless is not None:
        raise hopeless
    return report


# ---- one file


def _in_threads(files: list[tuple[FS, str]], workers: int) -> Iterable[ShardReport]:
    if workers <= 1 or len(files) <= 1:
        return [_checked(fs, path) for fs, path in files]
    return in_threads(lambda file: _checked(*file), files, min(workers, len(files)))


def _checked(fs: FS, path: str) -> ShardReport:
    try:
        reader = RecordReader(fs, path, on_error="skip")
    except io.UnsupportedOperation as exc:  # another layout under the same magic number
        url, size = fs.url(path), fs.stat(path).size
        return ShardReport(url, size, 0, 0, (Skipped(url, 0, 0, size, None, str(exc.strerror)),))
    with reader:
        for _ in reader:
            pass
        damage, index = tuple(reader.skipped), reader.index
        bad = {one.offset for one in damage}
        good = [chunk for chunk in map(index.chunk, range(index.chunks)) if chunk.offset not in bad]
        return ShardReport(index.url, index.size, len(good), sum(chunk.records for chunk in good), damage)


def _repair(fs: FS, path: str) -> None:
    with RecordReader(fs, path, on_error="skip") as reader:
        blob, index = reader._blob, reader.index
        saved = (
            _saved(chunk, blob.pread(chunk.size, chunk.payload)) for chunk in map(index.chunk, range(index.chunks))
        )
        good = (part for part in saved if part is not None)
        first = next(good, None)
        if first is None:
            raise errors.corrupt(index.url, "there is no good chunk in it", "repair")
        with fs.open(path, "wb") as target:
            for header, stored in itertools.chain([first], good):
                target.write(header)
                for at in range(0, len(stored), _PIECE):
                    target.write(stored[at : at + _PIECE])


def _saved(chunk: Chunk, stored: bytes) -> tuple[bytes, bytes] | None:
    """The header and payload of a chunk, if its payload is good."""
    if crc32(stored) != chunk.crc:
        return None
    try:
        payload = decompress(chunk.compressor, stored)
        records = count(payload)
    except Damage:
        return None
    if not records:
        return None
    return HEADER.pack(MAGIC, chunk.crc, chunk.compressor, len(stored), records), stored


# ---- the set


def _set_of(fs: FS, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths that are missing from, and that are stale in, the data sets that `paths` are the shards of."""
    sets: dict[str, dict[int, list[str]]] = {}
    plain: dict[str, dict[int, str]] = {}
    for path in paths:
        if match := _OF.fullmatch(path):
            sets.setdefault(match[1], {}).setdefault(int(match[3]), []).append(path)
        elif match := _PLAIN.fullmatch(path):
            plain.setdefault(match[1], {})[int(match[2])] = path
    missing: list[str] = []
    stale: list[str] = []
    for prefix, by_last in sets.items():
        last = _current(fs, by_last)
        expected = (f"{prefix}-{number:05}-of-{last:05}" for number in range(last + 1))
        present = set(by_last[last])
        missing += itertools.islice((path for path in expected if path not in present), _MOST_MISSING)
        stale += [path for other in sorted(by_last) if other != last for path in by_last[other]]
    for prefix, numbers in plain.items():
        every = range(max(numbers) + 1)
        gone = (f"{prefix}-{number:05}" for number in every if number not in numbers)
        missing += itertools.islice(gone, _MOST_MISSING)
    return missing, stale


_MOST_MISSING = 100_000  # missing shards of one set; a name may claim a set of any size


def _current(fs: FS, by_last: dict[int, list[str]]) -> int:
    """Return the valid one of several runs of one prefix: the most complete, and of those the newest if the store has
    times.
    """
    if len(by_last) == 1:
        return next(iter(by_last))

    def rank(last: int) -> tuple[float, float, int]:
        newest = max(fs.stat(path).last_modified or 0.0 for path in by_last[last])
        return len(by_last[last]) / (last + 1), newest, last

    return max(by_last, key=rank)
