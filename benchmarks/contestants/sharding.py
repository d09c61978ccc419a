"""Epochs of sharded data sets, one process and no DataLoader; every contestant makes its own shards of `source`."""

from __future__ import annotations

import io
import os
import random
import tarfile
from collections.abc import Callable, Iterable
from typing import Any

from . import Run, library, whole
from .records import records

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
    recordio, fs = library("fsabs.readers.recordio"), library("fsabs").from_url(folder, create=True)
    split = _split(source, shards)
    for number, some in enumerate(split):
        if not fs.exists(f"{number:03}"):
            with recordio.RecordWriter(fs, f"{number:03}", compressor="none", max_chunk_bytes=CHUNK) as file:
                for record in some:
                    file.write(record)
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


def state(source: str, folder: str, shards: int, restarts: int) -> Run:
    """1,000 states of an epoch that was restarted so many times, with other numbers of workers."""
    _ours(source, folder, shards)
    module, tags = library("fsabs.adapters.torch"), library("fsabs.adapters.torch.tags")
    dataset = module.ShardedDataset(folder, seed=1, buffer_size=1000, block_size=256)
    rng = random.Random(restarts)
    for restart in range(restarts + 1):
        if restart:
            dataset.load_state_dict([dataset.state_dict()])
        workers = rng.randint(4, 16)
        running = dataset.epochs.begin(workers, 50)
        for _ in range(workers):
            tag, _ = running.draw()
            running.consumed(tags.Tag(tag.serial, tag.part, tag.first, tag.count))

    def run() -> None:
        for _ in range(1000):
            dataset.state_dict()

    return run


def webdataset(source: str, folder: str, shards: int, buffer: int = 0) -> Run:
    """`WebDataset`, with its shuffles of shards and samples where there is a buffer."""
    wds = library("webdataset")
    os.makedirs(folder, exist_ok=True)
    count = 0
    for number, some in enumerate(_split(source, shards)):
        with tarfile.open(f"{folder}/{number:03}.tar", "w") as archive:
            for record in some:
                member = tarfile.TarInfo(f"{count:08}.txt")
                member.size = len(record)
                archive.addfile(member, io.BytesIO(record))
                count += 1
    urls = [f"{folder}/{number:03}.tar" for number in range(shards)]
    dataset = wds.WebDataset(urls, shardshuffle=shards if buffer else False)
    if buffer:
        dataset = dataset.shuffle(buffer)
    return _counting(lambda: dataset, count)
