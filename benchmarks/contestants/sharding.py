"""Epochs of sharded data sets, one process and no DataLoader; every contestant makes its own shards of `source`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from . import Run, library, whole
from .records import records, write_recordio, write_tar

CHUNK = 256 * 1300  # bytes: some 256 records


def _counting(read: Callable[[], Iterable[Any]], count: int) -> Run:
    def run() -> None:
        whole(range(sum(1 for _ in read())), count)

    return run


def _split(source: str, shards: int) -> list[list[bytes]]:
    everything = list(records(source))
    size = -(-len(everything) // shards)
    return [everything[at : at + size] for at in range(0, len(everything), size)]


def _ours(source: str, folder: str, shards: int) -> int:
    """Write the shards, if they aren't there; how many records there are."""
    os.makedirs(folder, exist_ok=True)
    split = _split(source, shards)
    for number, some in enumerate(split):
        write_recordio(f"{folder}/{number:03}", some, CHUNK)
    return sum(map(len, split))


def fsabs(source: str, folder: str, shards: int, **shuffle: Any) -> Run:
    """`ShardedDataset`, iterated."""
    count = _ours(source, folder, shards)
    dataset = library("fsabs.adapters.torch").ShardedDataset(folder, **shuffle)
    return _counting(lambda: dataset, count)


def fsabs_bare(source: str, folder: str, shards: int) -> Run:
    """The readers of the shards, one after the other."""
    count = _ours(source, folder, shards)
    fs, reader = library("fsabs").from_url(folder), library("fsabs.readers.recordio").RecordReader

    def read() -> Iterable[bytes]:
        for number in range(shards):
            with reader(fs, f"{number:03}") as opened:
                yield from opened

    return _counting(read, count)


def webdataset(source: str, folder: str, shards: int, buffer: int = 0) -> Run:
    """`WebDataset`, with its shuffles of shards and samples where there is a buffer."""
    wds = library("webdataset")
    os.makedirs(folder, exist_ok=True)
    count = 0
    for number, some in enumerate(_split(source, shards)):
        write_tar(f"{folder}/{number:03}.tar", some, count)
        count += len(some)
    urls = [f"{folder}/{number:03}.tar" for number in range(shards)]
    dataset = wds.WebDataset(urls, shardshuffle=shards if buffer else False)
    if buffer:
        dataset = dataset.shuffle(buffer)
    return _counting(lambda: dataset, count)
