"""RecordIODataset: the records of many RecordIO files as one map-style data set."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from torch.utils.data import Dataset

from ... import errors
from ...readers.data import RecordIODataReader, shards_of
from ...readers.data.base import LOST, OnError, ShardContent
from ...readers.data.files import Location
from .files import Transform
from .shared import WorkerCounts


class RecordIODataset(Dataset[Any]):
    """The records of the RecordIO files at `location` (a directory or file, as a URL, a path or an FS), in their order.

    A sample is a record's bytes, or `transform` of them. A batch (`__getitems__`) reads each shard's records together,
    and each chunk of a file once.

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
    ) -> None:
        self.reader = RecordIODataReader(location, on_error=on_error)
        self._skips = on_error == "skip"
        self.max_skipped = max_skipped
        self._counts = WorkerCounts()
        self.shards = [shard for shard in shards_of(self.reader) if shard.count]
        self.transform = transform
        self._ends = list(accumulate(shard.count for shard in self.shards))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """A batch of samples, in the order of `indices`."""
        by_shard: dict[int, list[tuple[int, int]]] = {}
        for place, index in enumerate(indices):
            number, record = self._find(index)
            by_shard.setdefault(number, []).append((record, place))
        found: list[Any] = [None] * len(indices)
        for number, wanted in by_shard.items():
            name, records = self.shards[number].name, [record for record, _ in wanted]
            if self._skips:
                contents = self.reader.read_available(name, records)
            else:
                contents = iter(self.reader.reader(name).read_many(records))
            for (_, place), data in zip(wanted, contents, strict=True):
                found[place] = data if self.transform is None or data is LOST else self.transform(data)
        self.reader.trim()
        return self._without_lost(found) if self._skips else found

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

    def _find(self, index: int) -> tuple[int, int]:
        """Shard and record of an index, which counts from the end where it is negative."""
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        number = bisect_right(self._ends, at)
        return number, at - (self._ends[number] - self.shards[number].count)
