"""DataLoader workers without processes: copies of a data set, which fetch ahead likewise. And what they read."""

from __future__ import annotations

import copy
import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from fsabs.adapters.torch import ShardedDataset, resumable
from fsabs.readers.data import AbstractDataReader, Shard, Task


def saved(dataset: Any) -> Any:
    """Return a state after a round trip through a file."""
    return json.loads(json.dumps(dataset.state_dict()))


def samples(batches: Any) -> list[int]:
    """Return the samples of batches, which are numbers."""
    return [int(sample) for batch in batches for sample in batch]


def forked(workers: int) -> dict[str, Any]:
    """Return the options of a loader with so many workers."""
    return {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}


def threads() -> int:
    """Return the number of threads of this process."""
    return len(os.listdir("/proc/self/task"))


def wait_for(what: Callable[[], bool]) -> None:
    """Wait until something is so that other threads do."""
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.001)


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
