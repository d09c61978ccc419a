"""RecordIODataReader: a directory of RecordIO files, each of them a shard."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

from ...backends.memory import Memory
from ...core import errors
from ...core.errors import CorruptFileError
from ...core.fs import FS
from .. import recordio
from ..locate import check_one_run
from ..recordio.format import MAGIC_BYTES
from ..recordio.reader import FIRST_WINDOW, LARGEST_WINDOW
from .base import (
    LOST,
    Mode,
    OnError,
    Shard,
    ShardContent,
    Task,
    check_numbers,
    check_on_error,
    numbers_of,
    runs,
    shard_name_of,
)
from .files import FileShardsReader, Location

KEPT_BYTES = 256 << 20  # of decompressed chunks, of all that are open
BATCH = 1024  # records of one read_many


class RecordIODataReader(FileShardsReader[recordio.RecordReader, recordio.Index]):
    """The RecordIO files below the directory `data_dir` (a URL, a path, an FS), or the one file that it names.

    A record is its bytes; an empty one is a record like others. Every file is a shard, called by its path; they are
    sorted, and files that begin with a dot are left out. Where there is none, or `data_dir` is empty, `create_shards`
    gives no shards and warns. Raises what `fsabs.readers.recordio.RecordReader` raises, and
    `StaleFileError` for a file that changed since `create_shards`. Records are numbered as the headers of chunks count
    them: a chunk that has another number of records is damaged, and raises when it is read.

    With `on_error="skip"`, damage is skipped, and `skipped` lists it.
    """

    open_at_once = 64

    def __init__(self, data_dir: Location, *, on_error: OnError = "raise") -> None:
        self._given = isinstance(data_dir, FS) or bool(data_dir)
        super().__init__(data_dir if self._given else Memory())
        check_on_error(on_error)
        self.on_error = on_error

    def create_shards(self, mode: str = Mode.TRAINING) -> list[Shard]:
        """A shard for each file."""
        stats = self._files.list()
        check_one_run([stat.filename for stat in stats], self._files.fs.url())
        if not stats:
            where = f"no files below {self._files.fs.url()}" if self._given else "no data_dir is given"
            warnings.warn(f"there are no shards: {where}", stacklevel=2)
        self._stats = {self._files.name(stat.filename): stat for stat in stats}
        return [Shard(name, 0, index.records) for name, index in self._index_all().items()]

    def _index_of(self, name: str) -> recordio.Index:
        with self._open_listed(name) as blob:
            try:
                return recordio.Index.of(blob, on_error=self.on_error)
            except CorruptFileError as exc:
                if self._files.is_chosen or blob.pread(len(MAGIC_BYTES), 0) == MAGIC_BYTES:
                    raise
                known = str(exc.strerror).removesuffix(" [read]")
                reason = f"{known}; all files of a directory are read, and a pattern (train-*) chooses some"
                raise errors.corrupt(blob.url, reason, "create_shards") from exc

    def content_of(self, shard_name: str) -> ShardContent:
        """Return the path below the directory, the size, and a digest of the headers of all chunks."""
        index = self._index(shard_name)
        return ShardContent(self._files.path(shard_name), index.size, index.digest())

    def read_records(self, task: Task) -> Iterator[bytes]:
        """The records of a task."""
        name, numbers = shard_name_of(task), numbers_of(task)
        if self.on_error == "skip" or not isinstance(numbers, range) or not numbers:
            return self.read_at(name, numbers)
        reader = self.reader(name)
        check_numbers(reader.url, numbers, len(reader))
        return reader.scan(numbers.start, numbers.stop, window=self._window)

    def read_at(self, shard_name: str, numbers: Sequence[int]) -> Iterator[bytes]:
        """The records with these numbers, in the order given; with `on_error="skip"` without those that are damaged."""
        return super().read_at(shard_name, numbers) if self.on_error == "skip" else self._read(shard_name, numbers)

    def read_available(self, shard_name: str, numbers: Sequence[int]) -> Iterator[Any]:
        """The records with these numbers, in the order given, and `LOST` for those of a damaged chunk."""
        return self._read(shard_name, numbers, _scan_available, _read_available)

    def _read(
        self,
        shard_name: str,
        numbers: Sequence[int],
        scan: Callable[..., Any] = recordio.RecordReader.scan,
        read_many: Callable[..., Any] = recordio.RecordReader.read_many,
    ) -> Iterator[Any]:
        """Yield records: a run of them by `scan`, others in batches by `read_many`."""
        reader = self.reader(shard_name)
        check_numbers(reader.url, numbers, len(reader))
        spans = list(runs(numbers))
        if len(spans) == 1:
            yield from scan(reader, *spans[0], window=self._window)
            return
        for at in range(0, len(numbers), BATCH):
            yield from read_many(reader, numbers[at : at + BATCH])
            self.trim()

    @property
    def skipped(self) -> list[recordio.Skipped]:
        """The damage that was skipped in the files that are open in this process."""
        return [one for reader in self._open_shards() for one in reader.skipped]

    def reader(self, shard_name: str) -> recordio.RecordReader:
        """The open file of a shard; it stays open for a while, and is not to be closed."""
        return self._shard(shard_name)

    def _open_shard(self, shard_name: str) -> recordio.RecordReader:
        reader = recordio.RecordReader(
            self._files.fs, self._files.path(shard_name), index=self._indexes.get(shard_name), on_error=self.on_error
        )
        seen = self._stats.get(shard_name)
        if seen is not None and (seen.size, seen.version or reader.index.version) != (
            reader.index.size,
            reader.index.version,
        ):
            reader.close()
            raise errors.stale(reader.url, "the file changed since its records were counted", "read_records")
        reader.index.assume_counts()
        self._indexes[shard_name] = reader.index
        return reader

    def trim(self) -> None:
        """Free what was kept for reads by number where it is more than 256 MiB, of what was not used for longest."""
        readers = self._open_shards()
        kept = sum(reader.kept_bytes for reader in readers)
        for reader in readers[:-1]:  # the last one is in use, and has a bound of its own
            if kept <= KEPT_BYTES:
                break
            kept -= reader.kept_bytes
            reader.free_cached()

    @property
    def _window(self) -> int:
        """The bytes that a scan reads at first: many, where each request waits for a store."""
        return LARGEST_WINDOW if self.reads_ahead else FIRST_WINDOW

    @property
    def records_output_types(self) -> str:
        """The type of a record: bytes."""
        return "string"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_indexes": {}}


def _scan_available(reader: recordio.RecordReader, start: int, stop: int, window: int) -> Iterator[Any]:
    while start < stop:
        scan = reader.scan(start, stop, window=window)
        try:
            for record in scan:
                number = scan.position - 1  # a reader that skips has left out those before it
                yield from repeat(LOST, number - start)
                yield record
                start = number + 1
            end = stop
        except CorruptFileError:
            chunk = reader.index.chunk(reader.index.find(start))
            end = min(stop, chunk.first + chunk.records)
        yield from repeat(LOST, end - start)
        start = end


def _read_available(reader: recordio.RecordReader, numbers: Sequence[int]) -> list[Any]:
    """Read the records together, or chunk by chunk where one is damaged."""
    with contextlib.suppress(CorruptFileError):
        return reader.read_many(numbers)
    found: list[Any] = [LOST] * len(numbers)
    by_chunk: dict[int, list[int]] = {}
    for at, number in enumerate(numbers):
        by_chunk.setdefault(reader.index.find(number), []).append(at)
    for places in by_chunk.values():
        with contextlib.suppress(CorruptFileError):
            for at, record in zip(places, reader.read_many([numbers[at] for at in places]), strict=True):
                found[at] = record
    return found
