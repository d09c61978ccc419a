"""DataLoader workers without processes: copies of a data set that think they are workers, and fetch ahead likewise."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import pytest

from fsabs.adapters.torch import ShardedDataset, resumable
from fsabs.readers.data import AbstractDataReader, Shard, Task


class WorkerInfo(NamedTuple):
    """As far as torch's is looked at."""

    id: int
    num_workers: int
    seed: int = 0


def saved(dataset: Any) -> Any:
    """Return a state after a round trip through a file."""
    return json.loads(json.dumps(dataset.state_dict()))


class Numbers(AbstractDataReader):
    """Shards of numbers, all different."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts

    def create_shards(self) -> dict[str, int]:
        return {f"s{number}": count for number, count in enumerate(self.counts)}

    def read_records(self, task: Task) -> Iterator[int]:
        base = 1000 * int(task.shard_name[1:])
        yield from range(base + task.start, base + task.end)

    @property
    def everything(self) -> list[int]:
        """All records, sorted."""
        return [1000 * number + at for number, count in enumerate(self.counts) for at in range(count)]


class ByRuns(Numbers):
    """The same in shards that are runs of files, as ElasticDL's last code has them."""

    def create_shards(self) -> Any:
        half = [(number, count // 2, count) for number, count in enumerate(self.counts)]
        first = [Shard(f"s{number}", 0, middle) for number, middle, _ in half]
        return first + [Shard(f"s{number}", middle, count - middle) for number, middle, count in half]


class Workers:
    """What a `Loader` does: batches are drawn in turn, some before they are wanted, and read by copies."""

    def __init__(
        self, dataset: ShardedDataset, workers: int, batch_size: int, drop_last: bool = False, ahead: int = 2
    ) -> None:
        self._dataset = dataset
        self._workers = workers
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._ahead = ahead

    def __iter__(self) -> Iterator[list[Any]]:
        dataset = self._dataset
        readers = [resumable.BatchReader(copy.copy(dataset)) for _ in range(self._workers)]  # as a fork does
        running = dataset.epochs.begin(self._workers, self.batch_size, self.drop_last)
        drawn = enumerate(dataset.drawn(running, self._workers))
        read = ((tag, readers[number % self._workers].read(tag, batch)) for number, (tag, batch) in drawn)
        ready = deque(islice(read, self._ahead * self._workers))
        while ready:
            tag, samples = ready.popleft()
            ready.extend(islice(read, 1))
            dataset.epochs.consumed(running, tag)
            yield samples
        dataset.epochs.end(running)


class in_worker:  # noqa: N801 - a context manager
    """In its block, the process is a worker."""

    def __init__(self, info: WorkerInfo) -> None:
        self._patch = pytest.MonkeyPatch()
        self._info = info

    def __enter__(self) -> None:
        self._patch.setattr(resumable, "get_worker_info", lambda: self._info)

    def __exit__(self, *exc: object) -> None:
        self._patch.undo()
