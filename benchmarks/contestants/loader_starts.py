"""Data sets of a million files that a `DataLoader` begins to read: the time to its first batch, the pickled size."""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

from . import Run, library, whole

BATCH, WORKERS = 32, 2
CONTEXTS = ("fork", "spawn", "forkserver")
_FILES = 1000
"""Files that the paths of the plain data set name, each path a string of its own."""


class PlainPaths:
    """The files at local paths, one by one: the data set that everybody would write."""

    def __init__(self, folder: str, count: int) -> None:
        self.paths = [f"{folder}/{number % _FILES:07}.bin" for number in range(count)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> int:
        with open(self.paths[index], "rb") as file:
            return len(file.read())


def plain(folder: str, count: int) -> Run:
    """A data set of local paths."""
    os.makedirs(folder, exist_ok=True)
    for number in range(_FILES):
        Path(folder, f"{number:07}.bin").write_bytes(b"content\n")
    return _first_batches(PlainPaths(folder, count))


def files(path: str) -> Run:
    """`FileDataset` over an archive."""
    return _first_batches(library("fsabs.adapters.torch").FileDataset(path, transform=len))


def images(path: str) -> Run:
    """`ImageFolder` over an archive, whose files are not decoded."""
    data = library("fsabs.adapters.torch").ImageFolder(path, "train", loader=len, extensions=[".bin"])
    return _first_batches(data)


def _first_batches(dataset: Any) -> Run:
    """Start a shuffling loader's workers by each method and take one batch; the end of the workers is not timed."""
    pickled = len(pickle.dumps(dataset))

    def first(context: str) -> float:
        options = {"num_workers": WORKERS, "multiprocessing_context": context}
        loader = library("torch.utils.data").DataLoader(dataset, BATCH, shuffle=True, **options)
        start = time.perf_counter()
        batches = iter(loader)
        batch = next(batches)
        seconds = time.perf_counter() - start
        whole(range(len(batch[0] if isinstance(batch, list) else batch)), BATCH)
        return seconds

    return lambda: {"pickled": float(pickled), **{context: first(context) for context in CONTEXTS}}
