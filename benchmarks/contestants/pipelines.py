"""Epochs of data sets that are read while a step of training runs, and the pipeline that would be ideal.

The step is a sleep, as a step on an accelerator is. Seconds count from the first batch to the last one, so that the
start of workers is left out. `ideal` is the longer of fetching everything by one call and of all the steps.
"""

from __future__ import annotations

import time
from typing import Any

from . import Run, library, whole

STEP = 0.002
"""Seconds."""


def listed(url: str, sizes: dict[str, int], **options: Any) -> Any:
    """Return the FS at a URL of nginx, which lists nothing: its files and their sizes are given."""
    fsabs = library("fsabs")

    class Listed(fsabs.LayerFS):  # type: ignore[misc, name-defined]
        def _stat(self, key: str) -> Any:
            return fsabs.FileStat(key, sizes[key]) if key in sizes else fsabs.FileStat.of_directory(key)

        def _list(self, key: str) -> Any:
            return map(self._stat, sizes)

        _walk = _list

    return Listed(fsabs.from_url(url, **options))


def _dataset(kind: str, fs: Any) -> Any:
    torch = library("fsabs.adapters.torch")
    if kind == "files":
        return torch.FileDataset(fs, transform=len)
    if kind == "records":
        return torch.RecordIODataset(fs, len)
    return torch.ShardedDataset(fs, len, seed=1, buffer_size=1000)


def _epoch(batches: Any) -> tuple[int, int, float]:
    """Return the number of batches and samples, and the seconds after the first batch."""
    samples = number = 0
    start = 0.0
    for batch in batches:
        start = start or time.perf_counter()
        number += 1
        samples += len(batch)
        time.sleep(STEP)
    return number, samples, time.perf_counter() - start


def fsabs(kind: str, loader: str, count: int, batch: int, workers: int, **place: Any) -> Run:
    """One epoch a round, under a plain `DataLoader` that shuffles or under our `Loader`."""
    dataset = _dataset(kind, listed(**place))
    more = {"num_workers": workers, **({"multiprocessing_context": "fork"} if workers else {})}
    if loader == "ours":
        seed = {} if kind == "sharded" else {"seed": 1}
        batches = library("fsabs.adapters.torch").Loader(dataset, batch, **seed, **more)
    else:
        shuffle = {} if kind == "sharded" else {"shuffle": True}
        batches = library("torch.utils.data").DataLoader(dataset, batch, **shuffle, **more)

    def run() -> dict[str, float]:
        _, samples, seconds = _epoch(batches)
        whole(range(samples), count)
        return {"seconds": seconds}

    return run


def ideal(count: int, batch: int, **place: Any) -> Run:
    """The longer of the two: everything by one `read_many`, and the steps alone."""
    fs, paths = listed(**place), list(place["sizes"])

    def run() -> dict[str, float]:
        start = time.perf_counter()
        for content in fs.read_many(paths):
            del content
        fetching = time.perf_counter() - start
        _, _, steps = _epoch([range(batch)] * (count // batch))
        return {"seconds": max(fetching, steps), "fetching": fetching, "steps": steps}

    return run
