"""Data sets as numbered RecordIO files: written round-robin, as Paddle does it, checked, and repaired where possible.

`convert` writes `PREFIX-aaaaa-of-bbbbb`, where bbbbb is the largest index (100 shards end in `-of-00099`), and
`convert_lines` Paddle's later form, `PREFIX-00000` with a fixed number of records in each file. Each shard is whole or
not there; none appears before the reader has come to its end.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from ..core import errors
from ..core.errors import CorruptFileError
from ..core.fs import FS, StrPath
from ..core.registry import container_of
from ..core.threads import Threads, in_threads, most_at_once
from ..urls.opening import from_url
from . import instances
from .locate import check_one_run, find, publishing_mark, shard_name
from .recordio import RecordReader, RecordWriter, Skipped
from .recordio.format import HEADER, MAGIC, MAGIC_BYTES, Chunk, Damage, count, crc32, decompress

if TYPE_CHECKING:
    from types import TracebackType

Instances = Callable[[], Iterable[Any]]
"""A data reader: called without arguments, it gives the instances."""
Encode = Callable[[Any], bytes]

MOST_SHARDS = 100_000
"""Files that one call writes at most: the names of more of `convert_lines` would not sort by their numbers."""

_IN_HAND = 512 << 20  # bytes of unwritten chunks of all shards together, about
_SMALLEST_CHUNK, _LARGEST_CHUNK = 64 << 10, 32 << 20
_BATCH = 128  # instances that are handed to a thread at once
_WAITING = 8  # such batches that may wait for a thread


def convert(
    output_path: StrPath | FS,
    reader: Instances,
    num_shards: int,
    name_prefix: str,
    *,
    allow_pickle: bool = False,
    encode: Encode | None = None,
    compressor: str = "snappy",
    max_chunk_bytes: int | None = None,
    workers: int = 1,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Write the instances of `reader` round-robin to `num_shards` files, and return their names.

    Args:
        output_path: a URL or path of a directory, which is made if it is missing; or an FS.
        reader: called once; gives the instances.
        num_shards: 1 to 100,000. A shard that gets nothing is written, too, with 0 bytes. All are open at once, so that
            on a local disk the process must be allowed to have as many files open (`ulimit -n`).
        name_prefix: the first part of the names; no `/`.
        allow_pickle: pickle what `instances.encode` has no encoding for.
        encode: what makes bytes of an instance, in place of `instances.encode`.
        compressor: `none`, `snappy` or `gzip`.
        max_chunk_bytes: of `RecordWriter`; if None, 32 MiB, or less where the chunks of all shards would be too much.
        workers: threads that encode, compress and write; the order of the records does not depend on it.
        progress: called with the number of instances done so far, now and then, and at the end
            (`progress_bar()` gives one that shows a bar).

    Files of the same names are replaced when all are complete; if anything fails before that, none is. While they are
    replaced, and after a crash in the middle of it, readers of this package refuse them (`EBUSY`) until a run
    completes. Shards of the same prefix and another number are a `FileExistsError` before anything is read: they and
    the new ones would be read as one data set.
    """
    _check_arguments(reader, "num_shards", num_shards)
    if not 1 <= num_shards <= MOST_SHARDS:
        raise ValueError(f"num_shards must be 1 to {MOST_SHARDS}, not {num_shards}")
    names = [shard_name(_prefix(name_prefix), number, num_shards - 1) for number in range(num_shards)]
    limit = max_chunk_bytes or max(_SMALLEST_CHUNK, min(_LARGEST_CHUNK, _IN_HAND // num_shards))
    with _opened(output_path) as fs:
        _check_other_runs(fs, name_prefix, names[-1])
        with _Writers(fs, name_prefix) as writers:
            for name in names:
                writers.append(RecordWriter(fs, name, compressor=compressor, max_chunk_bytes=limit))
            jobs = ((number % num_shards, instance) for number, instance in enumerate(reader()))
            encoder = encode or partial(instances.encode, allow_pickle=allow_pickle)
            workers = min(workers, num_shards, most_at_once())
            done = 0
            for done in (_in_threads if workers > 1 else _one_by_one)(jobs, writers, encoder, workers):
                if progress is not None and done % _BATCH == 0:
                    progress(done)
            if progress is not None:
                progress(done)
    return names


def _check_other_runs(fs: FS, prefix: str, name: str) -> None:
    if not fs.capabilities.read:
        return
    with contextlib.suppress(FileNotFoundError):
        for other in fs.list():
            if other.startswith(prefix):
                try:
                    check_one_run([name, other], fs.url())
                except OSError:
                    reason = f"there are shards of another run, with another number: {other!r}; remove them first"
                    raise errors.error(errno.EEXIST, "convert", fs.url(), reason) from None


def convert_lines(
    output_path: StrPath | FS,
    reader: Instances,
    line_count: int,
    name_prefix: str,
    *,
    allow_pickle: bool = False,
    encode: Encode | None = None,
    compressor: str = "snappy",
    max_chunk_bytes: int = _LARGEST_CHUNK,
    progress: Callable[[int], object] | None = None,
) -> list[str]:
    """Write the instances of `reader` in their order to files of `line_count` records each; the last has the rest.

    They are called `PREFIX-00000`, `PREFIX-00001` and so on; no instances make one file of 0 bytes. Each appears when
    it is complete. Once there are 100,000, more instances are a `ValueError`. If a file of a longer run is there behind
    the last one, that is a `FileExistsError` at the end: both would be read as one data set. The other arguments are
    those of `convert`. Returns the names.
    """
    _check_arguments(reader, "line_count", line_count)
    if line_count < 1:
        raise ValueError(f"line_count must be at least 1, not {line_count}")
    encoder = encode or partial(instances.encode, allow_pickle=allow_pickle)
    names: list[str] = []
    done = 0
    items = iter(reader())
    with _opened(output_path) as fs:
        while True:
            first = next(items, _END) if names else None
            if first is _END:
                break
            if len(names) == MOST_SHARDS:
                raise ValueError(f"there are more than {MOST_SHARDS} files of {line_count} records: raise line_count")
            names.append(f"{_prefix(name_prefix)}-{len(names):05}")
            with RecordWriter(fs, names[-1], compressor=compressor, max_chunk_bytes=max_chunk_bytes) as writer:
                if len(names) > 1:
                    writer.write(encoder(first))
                for item in items if writer.records < line_count else ():
                    writer.write(encoder(item))
                    if writer.records == line_count:
                        break
                done += writer.records
            if progress is not None:
                progress(done)
        following = f"{name_prefix}-{len(names):05}"
        if fs.capabilities.read and fs.exists(following):
            reason = "it is of an earlier run with more shards: remove it and those behind it"
            raise errors.error(errno.EEXIST, "convert_lines", fs.url(following), reason)
    return names


def progress_bar(total: int | None = None, description: str = "instances") -> Callable[[int], object]:
    """A `progress` that shows a bar on standard error, by tqdm; `total` instances, if that is known."""
    try:
        from tqdm import tqdm
    except ImportError:
        raise errors.missing("tqdm", "cli", "a progress bar") from None
    bar = tqdm(total=total, desc=description, unit=" instances", unit_scale=True)

    def show(done: int) -> None:
        bar.update(done - bar.n)

    return show


_END = object()


def _check_arguments(reader: object, name: str, count: object) -> None:
    """Raise `TypeError` for a reader that can't be called, and for a number that is none."""
    if not callable(reader):
        kind = type(reader).__name__
        raise TypeError(f"a reader is a function that returns the instances, as lambda: iter(items), not {kind}")
    if not isinstance(count, SupportsIndex):
        raise TypeError(f"{name} is an int, not {type(count).__name__}")


def _prefix(name_prefix: str) -> str:
    if not name_prefix or "/" in name_prefix or name_prefix.startswith("."):
        raise ValueError(f"a name_prefix is the beginning of a file's name, not {name_prefix!r}")
    return name_prefix


@contextlib.contextmanager
def _opened(where: StrPath | FS) -> Iterator[FS]:
    """The FS to write to, closed again if it was opened here."""
    if isinstance(where, FS):
        yield where
        return
    with from_url(os.fspath(where), create=True) as fs:
        yield fs


class _Writers(list[RecordWriter]):
    """Shards that are completed together at the end of a `with` block, or thrown away together."""

    def __init__(self, fs: FS, prefix: str) -> None:
        super().__init__()
        self._fs, self._mark = fs, publishing_mark(prefix)

    def __enter__(self) -> _Writers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                marked = len(self) > 1 and self._fs.capabilities.remove
                if marked:
                    self._fs.write_bytes(self._mark, b"these shards are being replaced\n")
                for writer in self:
                    writer.close()
                if marked:
                    self._fs.remove(self._mark)
        finally:
            for writer in self:
                writer.abort()  # nothing happens to those that are closed


# ---- who writes what


def _one_by_one(
    jobs: Iterator[tuple[int, Any]], writers: list[RecordWriter], encode: Encode, workers: int
) -> Iterator[int]:
    """Write each instance to the shard of its number; yield how many were written."""
    for done, (shard, instance) in enumerate(jobs, 1):
        writers[shard].write(encode(instance))
        yield done


def _in_threads(
    jobs: Iterator[tuple[int, Any]], writers: list[RecordWriter], encode: Encode, workers: int
) -> Iterator[int]:
    """Have threads encode and write, each of which has its own shards; yield how many instances they were given."""
    batches: list[list[tuple[int, Any]]] = [[] for _ in range(workers)]
    waiting: list[deque[Callable[[], None]]] = [deque() for _ in range(workers)]
    with contextlib.ExitStack() as stack:
        threads = [stack.enter_context(Threads[None](1, wait=True)) for _ in range(workers)]
        for done, (shard, instance) in enumerate(jobs, 1):
            which = shard % workers
            batches[which].append((shard, instance))
            if len(batches[which]) >= _BATCH:
                if len(waiting[which]) >= _WAITING:
                    waiting[which].popleft()()  # raises what went wrong
                batch, batches[which] = batches[which], []
                waiting[which].append(threads[which].start(partial(_write, batch, writers, encode)))
            yield done
        for which, batch in enumerate(batches):
            waiting[which].append(threads[which].start(partial(_write, batch, writers, encode)))
        for outcome in itertools.chain.from_iterable(waiting):
            outcome()


def _write(batch: list[tuple[int, Any]], writers: list[RecordWriter], encode: Encode) -> None:
    for shard, instance in batch:
        writers[shard].write(encode(instance))


# ---- checking and repairing


Paths = StrPath | Sequence[StrPath]

_OF = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})")
_PLAIN = re.compile(r"(.*)-(\d{5,})")
_COPIED = 8 << 20  # bytes that are written at once


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
    """URLs of shards that are not there, by the names of the others."""
    stale: tuple[str, ...]
    """URLs of shards of an earlier run with another number of shards."""
    skipped: tuple[str, ...] = ()
    """URLs of files in a directory that are no RecordIO files, by their names and contents."""

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
        lines += [f"{url}: skipped, no RecordIO file" for url in self.skipped]
        lines.append(f"{len(self.shards)} shards, {damaged} of them damaged; {self.records} good records")
        return "\n".join(lines)


def verify(paths: Paths | FS, *, workers: int = 4) -> DataSetReport:
    """Read all of a data set, and report what is damaged, missing or stale.

    Args:
        paths: a directory (all files in it whose names don't begin with a dot), a file, a glob pattern, a list of them,
            as URLs or local paths; or an FS, whose directory is meant.
        workers: shards that are read at once.

    Every header, CRC, frame and length is checked. In a directory, and of what a pattern matches, containers are
    skipped, and files that neither have a good chunk nor a shard's name. Raises what the store raises,
    `FileNotFoundError` where nothing is, and nothing for damage: that is what the report is for.
    """
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(one) for one in find(paths)]
        files = [(one, path) for one in found for path in one.paths if not (one.listed and container_of(path))]
        reports = list(in_threads(lambda file: _checked(file[0].fs, file[1]), files, max(1, min(workers, len(files)))))
        kinds = {os.path.splitext(shard.url)[1] for shard in reports if shard.chunks}
        shards = [
            shard
            for shard, (one, path) in zip(reports, files, strict=True)
            if not (one.listed and _is_of_another_kind(one.fs, path, shard, kinds))
        ]
        read = {shard.url for shard in shards}
        missing, stale, skipped = list[str](), list[str](), list[str]()
        for one in found:
            gone, old = _set_of(one.fs, one.paths)
            missing += [one.fs.url(path) for path in gone]
            stale += [one.fs.url(path) for path in old]
            skipped += [url for url in map(one.fs.url, one.paths) if url not in read]
    return DataSetReport(tuple(shards), tuple(missing), tuple(stale), tuple(skipped))


def _is_of_another_kind(fs: FS, path: str, shard: ShardReport, kinds: set[str]) -> bool:
    """Return whether a file has nothing of RecordIO in it, nor the name of a shard or the suffix of one in `kinds`."""
    is_called = _OF.fullmatch(path) or _PLAIN.fullmatch(path) or os.path.splitext(shard.url)[1] in kinds
    if not shard.size or shard.chunks or is_called:
        return False
    with fs.open(path, "rb") as file:
        return bool(file.read(len(MAGIC_BYTES)) != MAGIC_BYTES)


def repair(paths: Paths | FS) -> DataSetReport:
    """Replace each damaged shard by one with its good chunks, and report what was lost: what `verify` reported before.

    A chunk whose payload is good, and whose header states a wrong number of records, is saved with the right one. A
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
                for at in range(0, len(stored), _COPIED):
                    target.write(stored[at : at + _COPIED])


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
        expected = (shard_name(prefix, number, last) for number in range(last + 1))
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
