"""Data readers of numbers, and what the tests of loaders ask of them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

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
