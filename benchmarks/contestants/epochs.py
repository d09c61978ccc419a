"""Epochs of shuffled data sets from a store: what processes hold in memory meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import Run, library, whole
from .stores import ours

_EVERY = 0.05  # seconds between two looks at the processes


def fsabs_epoch(endpoint: str, folder: str, samples: int, workers: int) -> Run:
    """An epoch of `Loader` over the shards of a folder of the bucket, with the default shuffle; a new order a round."""
    torch = library("fsabs.adapters.torch")
    data = torch.ShardedDataset(ours(endpoint, path=f"/{folder}"), _size, seed=1)
    loader = torch.Loader(data, 64, num_workers=workers)

    def run() -> dict[str, float]:
        with _peak() as peak:
            whole(range(sum(len(batch) for batch in loader)), samples)
        return {"peak": max(peak)}

    return run


def _size(record: Any) -> int:
    return sum(map(len, record.values())) if isinstance(record, dict) else len(record)


@contextlib.contextmanager
def _peak() -> Iterator[list[float]]:
    """The proportional set sizes of this process and its children together, taken now and then in the block."""
    found, ended = [_held()], threading.Event()

    def look() -> None:
        while not ended.wait(_EVERY):
            found.append(_held())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def _held() -> float:
    return sum(map(_pss, [os.getpid(), *_below(os.getpid())]))


def _below(process: int) -> Iterator[int]:
    """Yield the children of a process, and theirs."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (thread / "children").read_text().split()):
                yield child
                yield from _below(child)


def _pss(process: int) -> float:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        return 1024.0 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    return 0.0
