"""Epochs through a cache of half of the data set: the files that are fetched, and how few they could be (Belady)."""

from __future__ import annotations

import bisect
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import Run, library, whole

SIZE = 19_000  # bytes of a file: with its header, an entry takes five pages


def least_fetches(epochs: Sequence[Sequence[int]], entries: int) -> list[int]:
    """Return the fewest fetches of each epoch with a cache of so many entries, to which the whole order is known.

    Belady's rule: what is needed last goes, or is not admitted.
    """
    order = [index for epoch in epochs for index in epoch]
    uses: dict[int, list[int]] = {}
    for at, index in enumerate(order):
        uses.setdefault(index, []).append(at)
    cached: list[tuple[float, int]] = []  # next use and index, ascending
    found = [0] * len(epochs)
    for at, index in enumerate(order):
        later = uses[index]
        place = bisect.bisect_right(later, at)
        coming = later[place] if place < len(later) else len(order) + index
        at_hit = bisect.bisect_left(cached, (at, index))
        if at_hit < len(cached) and cached[at_hit] == (at, index):
            del cached[at_hit]
        else:
            found[at // len(epochs[0])] += 1
        bisect.insort(cached, (coming, index))
        if len(cached) > entries:
            cached.pop()
    return found


def _counting(inner: Any, log: str) -> Any:
    """Return a layer that notes each file that is opened in it, from all processes."""
    fsabs = library("fsabs")

    class Counting(fsabs.spi.LayerFS):  # type: ignore[misc, name-defined]
        def _open_blob(self, key: str) -> Any:
            with open(log, "ab", buffering=0) as file:
                file.write(b".")
            return self.inner._open_blob(key)

    return Counting(inner)


def cached(loader: str, workers: int, files: int, epochs: int, batch: int) -> Run:
    """Fetches after the first epoch against the fewest possible, by the orders that were read."""
    fsabs, ours = library("fsabs"), library("fsabs.adapters.torch")
    tree = fsabs.Memory(f"fetches-{loader}-{workers}")
    for number in range(files):
        tree.write_bytes(f"{number:05}", b"%d" % number + bytes(SIZE))
    more = {"num_workers": workers, **({"multiprocessing_context": "fork"} if workers else {})}

    def run() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            limit = files // 2 * 20_480
            inner = _counting(tree, log)
            fs = library("fsabs.cache").CachedFS(
                inner, os.path.join(folder, "cache"), max_bytes=limit, min_free=0, memory_bytes=0
            )
            dataset = ours.FileDataset(fs, transform=_number)
            if loader == "ours":
                batches: Any = ours.Loader(dataset, batch, seed=1, **more)
            else:
                batches = library("torch.utils.data").DataLoader(dataset, batch, shuffle=True, **more)
            orders, fetched, entries = [], [0], 0
            for _ in range(epochs):
                orders.append([int(sample) for one in batches for sample in one])
                whole(orders[-1], files)
                fetched.append(os.path.getsize(log))
                entries = max(entries, sum(path.stat().st_size > SIZE for path in Path(folder).rglob("*")))
            fs.close()
        least = least_fetches(orders, files // 2)
        return {
            "fetches": float(fetched[-1] - fetched[1]),
            "least": float(sum(least[1:])),
            "entries": float(entries),
        }

    return run


def _number(data: bytes) -> int:
    return int(data.rstrip(b"\0"))
