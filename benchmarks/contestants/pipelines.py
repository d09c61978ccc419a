"""Epochs of data sets that are read while a step of training runs, and the pipeline that would be ideal.

The step is a sleep, as a step on an accelerator is. Seconds count from the first batch to the last one, so that the
start of workers is left out. `ideal` is the longer of fetching everything by one call and of all the steps.
"""

from __future__ import annotations

import time
from typing import Any

from . import Run, library, whole
from .stores import ours

STEP = 0.002
"""Seconds."""


def _dataset(kind: str, fs: Any) -> Any:
    torch = library("fsabs.adapters.torch")
    if kind == "files":
        return torch.FileDataset(fs, transform=len)
    if kind == "records":
        return torch.RecordIODataset(fs, len)
    return torch.ShardedDataset(fs, len, seed=1, buffer_size=1000)


def _epoch(batches: Any, count: int) -> dict[str, float]:
    """Step through batches of `count` samples; return the seconds after the first one."""
    samples, start = 0, 0.0
    for batch in batches:
        start = start or time.perf_counter()
        samples += len(batch)
        time.sleep(STEP)
    whole(range(samples), count)
    return {"seconds": time.perf_counter() - start}


def _workers(number: int) -> dict[str, Any]:
    """Return the options of a loader with so many workers."""
    return {"num_workers": number, **({"multiprocessing_context": "fork"} if number else {})}


def fsabs(kind: str, loader: str, workers: int, endpoint: str, folder: str, count: int, size: int, batch: int) -> Run:
    """One epoch a round, under a plain `DataLoader` with `EpochBatches` or under our `Loader`."""
    dataset, more = _dataset(kind, ours(endpoint, path=f"/{folder}")), _workers(workers)
    if loader == "ours":
        seed = {} if kind == "sharded" else {"seed": 1}
        batches = library("fsabs.adapters.torch").Loader(dataset, batch, **seed, **more)
    else:
        batches = library("torch.utils.data").DataLoader(dataset, **_shuffled(kind, dataset, batch, workers), **more)
    return lambda: _epoch(batches, count)


def _shuffled(kind: str, dataset: Any, batch: int, workers: int) -> dict[str, Any]:
    """Return what a plain `DataLoader` is given to shuffle, so that the data set knows the epoch."""
    seed = {} if kind == "sharded" else {"seed": 1}  # which shuffles by itself
    return {"batch_sampler": library("fsabs.adapters.torch").EpochBatches(dataset, batch, workers=workers, **seed)}


class _InMemory:
    """A map-style data set whose records are in memory."""

    def __init__(self, count: int, size: int) -> None:
        self.records = [bytes(size) for _ in range(count)]

    def __len__(self) -> int:
        return len(self.records)

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [len(self.records[index]) for index in indices]


def _in_turn(count: int, size: int) -> Any:
    """Return an iterable data set whose records are in memory, the same number in each worker."""
    data = library("torch.utils.data")

    records = [bytes(size) for _ in range(count)]

    class InTurn(data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            info = data.get_worker_info()
            worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
            return map(len, records[count * worker // workers : count * (worker + 1) // workers])

    return InTurn()


def in_memory(kind: str, workers: int, folder: str, count: int, size: int, batch: int) -> Run:
    """The same epoch of torch's own loader over records in memory: the least that it costs without any reading."""
    dataset = _in_turn(count, size) if kind == "sharded" else _InMemory(count, size)
    shuffle = {} if kind == "sharded" else {"shuffle": True}
    batches = library("torch.utils.data").DataLoader(dataset, batch, **shuffle, **_workers(workers))
    return lambda: _epoch(batches, count)


def ideal(endpoint: str, folder: str, count: int, size: int, batch: int) -> Run:
    """The longer of the two: everything by one `read_many`, and the steps alone."""
    fs = ours(endpoint, path=f"/{folder}")
    names = list(fs.list())

    def run() -> dict[str, float]:
        start = time.perf_counter()
        for content in fs.read_many(names):
            del content
        fetching = time.perf_counter() - start
        return {"seconds": max(fetching, _epoch([range(batch)] * (count // batch), count // batch * batch)["seconds"])}

    return run
