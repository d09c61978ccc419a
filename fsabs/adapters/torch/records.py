"""RecordIODataset: the records of many RecordIO files as one map-style data set."""

from __future__ import annotations

import itertools
import operator
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...core import errors, process
from ...core.threads import in_threads
from ...readers.data import RecordIODataReader, Shard, shards_of
from ...readers.data.base import LOST, OnError, ShardContent
from ...readers.data.files import Location
from ...readers.prefetch import MAX_BYTES, read_batches_ahead
from .ahead import ReadAheadDataset
from .files import Transform
from .shared import WorkerCounts

if TYPE_CHECKING:
    from .sampler import EpochBatches, Numbers

_LARGEST_BATCH = 4096  # records that are read ahead together: many of one chunk
_SHARDS_AT_ONCE = 8


class RecordIODataset(ReadAheadDataset):
    """The records of the RecordIO files at `location` (a directory or file, as a URL, a path or an FS), in their order.

    A sample is a record's bytes, or `transform` of them. A batch (`__getitems__`) reads each shard's records together,
    and each chunk of a file once. Where it is known which batches come (docs/datasets.md), they are read
    ahead, within `max_bytes` bytes in each worker, unless the files are on a local disk.

    With `on_error="skip"`, damaged records are left out of their batch, and `skipped` counts them in all workers; more
    than `max_skipped` of them, or a batch of nothing else, raise.
    """

    def __init__(
        self,
        location: Location,
        transform: Transform | None = None,
        *,
        on_error: OnError = "raise",
        max_skipped: int | None = None,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self.reader = RecordIODataReader(location, on_error=on_error)
        super().__init__(max_bytes, predicts=self.reader.reads_ahead)
        self._skips = on_error == "skip"
        self.max_skipped = max_skipped
        self._counts = WorkerCounts()
        self.shards = [shard for shard in shards_of(self.reader) if shard.count]
        self.transform = transform
        self._records = _Records(self.reader, self.shards, self._skips)

    def __getitem__(self, index: int) -> Any:
        return self._samples([self._records.record(operator.index(index))])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch of samples, in the order of `indices`."""
        return self._samples(self.read_batch(indices))

    def _samples(self, found: list[Any]) -> list[Any]:
        transform = self.transform
        if transform is not None:
            found = [record if record is LOST else transform(record) for record in found]
        return self._without_lost(found) if self._skips else found

    def _total(self) -> int:
        return self._records.total

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        return self._records.fetch(indices)

    def _prefetch(self, batches: EpochBatches, own: Numbers) -> process.Resumable[Any] | None:
        if not self._predicts:
            return None  # on a local disk, a thread costs more than it gains
        read = self._records.fetch  # not a method of this: the thread must not hold the data set
        return read_batches_ahead(read, own, _weight, max_bytes=self._max_bytes, largest_batch=_LARGEST_BATCH)

    def _without_lost(self, found: list[Any]) -> list[Any]:
        left = [sample for sample in found if sample is not LOST]
        if len(left) < len(found):
            self._counts.add(len(found) - len(left))
            skipped = self.skipped
            if self.max_skipped is not None and skipped > self.max_skipped:
                reason = f"{skipped} damaged records were skipped, and {self.max_skipped} may be (max_skipped)"
                raise errors.corrupt(self.shards[0].name, reason, "read_records")
            if not left:
                raise errors.corrupt(self.shards[0].name, "all records of a batch are damaged", "read_records")
        return left

    @property
    def skipped(self) -> int:
        """The number of damaged records that were skipped so far, in all workers."""
        return self._counts.total

    def contents(self) -> list[tuple[int, int, ShardContent]]:
        """Return what tells this data set from others, for states: its shards."""
        return [(shard.start, shard.count, self.reader.content_of(shard.name)) for shard in self.shards]


class _Records:
    """The records of all shards by number, read in batches."""

    def __init__(self, reader: RecordIODataReader, shards: list[Shard], skips: bool) -> None:
        self._reader = reader
        self._shards = shards
        self._skips = skips
        self._at_once = _SHARDS_AT_ONCE if reader.reads_ahead else 1
        self._ends = list(itertools.accumulate(shard.count for shard in shards))
        self._starts = [0, *self._ends][: len(shards)]
        self.total = self._ends[-1] if self._ends else 0

    def record(self, index: int) -> Any:
        """Return one record, or `LOST`."""
        at = index + self.total if index < 0 else index
        if not 0 <= at < self.total:
            raise self._missing(index)
        number = bisect_right(self._ends, at)
        found = self._read_shard((number, [at - self._starts[number]]))
        self._reader.trim()
        return found[0]

    def fetch(self, indices: Sequence[int] | Numbers) -> list[Any]:
        """Return the records of these numbers, in their order; `LOST` for a damaged one that is skipped."""
        import numpy as np

        wanted = np.asarray(indices, np.int64)
        wanted = np.where(wanted < 0, wanted + self.total, wanted)
        if not ((wanted >= 0) & (wanted < self.total)).all():
            raise self._missing(next(index for index in indices if not -self.total <= index < self.total))
        order = np.argsort(wanted, kind="stable")  # by shards, and within them by records
        ascending = wanted[order]
        parts: list[tuple[int, list[int]]] = []
        at = 0
        while at < len(order):
            number = bisect_right(self._ends, ascending[at])
            end = int(ascending.searchsorted(self._ends[number]))
            parts.append((number, (ascending[at:end] - self._starts[number]).tolist()))
            at = end
        contents = in_threads(self._read_shard, parts, min(self._at_once, len(parts)))
        found: list[Any] = [None] * len(order)
        for place, record in zip(order.tolist(), itertools.chain.from_iterable(contents), strict=True):
            found[place] = record
        self._reader.trim()
        return found

    def _missing(self, index: int) -> IndexError:
        return IndexError(f"record {index} of {self.total}")

    def _read_shard(self, wanted: tuple[int, list[int]]) -> list[Any]:
        number, records = wanted
        name = self._shards[number].name
        if self._skips:
            return list(self._reader.read_available(name, records))
        return self._reader.reader(name).read_many(records)


def _weight(record: Any) -> int:
    return len(record) if isinstance(record, bytes) else 0
