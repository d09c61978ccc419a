"""The cache itself: hit rates, and what a cold epoch takes."""

from __future__ import annotations

import heapq
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from typing import Any

from . import Run, all_whole, library, whole
from .stores import ours
from .worker import cpu_seconds

EPOCHS = 20


def _disk(limit: int) -> Any:
    base = os.environ["FSABS_CACHE_DIR"]
    os.makedirs(base, exist_ok=True)
    limits = library("fsabs.cache.eviction").DiskLimits(limit, 0)
    return library("fsabs.cache.disk").open_disk(tempfile.mkdtemp(dir=base), limits)


def _entry(number: int) -> Any:
    url = f"s3://bucket/images/{number:08}"
    name = library("fsabs.core.identity").encode("store", url, f"version of {number}")
    return library("fsabs.cache.disk").EntryKey.of(name, url)


def hit_rates(files: int, share: float, ordered: bool) -> Run:
    """Shuffled epochs over `files` through a cache of a share of them: hits to what is the most that there can be.

    With the epochs' order the most is Belady's.
    """
    policy, room = library("fsabs.cache.policy"), 4096

    def run() -> dict[str, float]:
        dice = random.Random(7)
        epochs = [dice.sample(range(files), files) for _ in range(EPOCHS)]
        kept = round(files * share)
        data, disk, found = bytes(3000), _disk(kept * room), 0
        for at, epoch in enumerate(epochs):
            ahead = [number for one in epochs[at : at + 2] for number in one] if ordered else []
            order = policy.ReadOrder(_entry(number).url for number in ahead)
            for number in epoch:
                entry = _entry(number)
                if ordered:
                    order.reached(entry.url)
                if disk.get(entry) is not None:
                    found += at > 0
                else:
                    disk.put(entry, data, order)
        shutil.rmtree(disk.folder)
        rate = found / (files * (EPOCHS - 1))
        return {"of_best": rate / (belady(epochs, kept) if ordered else kept / files)}

    return run


def belady(epochs: list[list[int]], room: int) -> float:
    """Return the hit rate, after the first epoch, of a cache that knows all of the future."""
    reads = [number for epoch in epochs for number in epoch]
    following: list[int] = [0] * len(reads)
    last: dict[int, int] = {}
    for at in range(len(reads) - 1, -1, -1):
        following[at] = last.get(reads[at], len(reads))
        last[reads[at]] = at
    needed: dict[int, int] = {}
    heap: list[tuple[int, int]] = []
    found, first = 0, len(epochs[0])
    for at, number in enumerate(reads):
        if number in needed:
            found += at >= first
        elif len(needed) >= room:
            while needed.get(heap[0][1]) != -heap[0][0]:
                heapq.heappop(heap)
            if -heap[0][0] < following[at]:
                continue
            del needed[heapq.heappop(heap)[1]]
        needed[number] = following[at]
        heapq.heappush(heap, (-following[at], number))
    return found / (len(reads) - first)


def cold_uncached(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of all names, and nothing kept."""
    fs = ours(endpoint)
    return lambda: all_whole(fs.read_many(names), len(names), size)


def cold_written(endpoint: str, names: list[str], size: int) -> Run:
    """The same, each checksummed and written to a file of its own: what any cache on disk has to do."""
    fs, checksum = ours(endpoint), library("fsabs.cache.frames").checksum

    def read(folder: str) -> None:
        for number, data in enumerate(fs.read_many(names)):
            whole(data, size)
            checksum(data)
            with open(f"{folder}/.{number}", "xb", buffering=0) as file:
                file.write(data)
            os.rename(f"{folder}/.{number}", f"{folder}/{number}")

    return _in_new_folder(read)


def cold_cached(endpoint: str, names: list[str], size: int) -> Run:
    """The same through a new `CachedFS`."""
    inner, cached = ours(endpoint), library("fsabs.cache").CachedFS

    def read(folder: str) -> None:
        all_whole(cached(inner, folder, memory_bytes=0).read_many(names), len(names), size)

    return _in_new_folder(read)


def shuffled_epoch(endpoint: str, count: int, size: int, share: float) -> Run:
    """A shuffled epoch of a zip's members by two workers, which are forked for it, in batches; through a cache of a
    share of them, which the first ones have filled; without one for a share of 0.
    """
    base = os.environ["FSABS_CACHE_DIR"]
    os.makedirs(base, exist_ok=True)
    cache = {"dir": tempfile.mkdtemp(dir=base), "max_bytes": int(share * size * count), "min_free": 0}
    url = "s3://bucket/train.zip"
    fs = library("fsabs").from_url(url, endpoint=endpoint, region="us-east-1", cache=cache if share else None)
    dataset = library("fsabs.adapters.torch").FileDataset(fs, transform=len)

    def run() -> None:
        loader = library("torch.utils.data").DataLoader(
            dataset, 64, shuffle=True, num_workers=2, multiprocessing_context="fork"
        )
        whole(range(sum(int(sizes.sum()) for sizes in loader)), count * size)

    return run


def _in_new_folder(read: Callable[[str], None]) -> Run:
    """Return `read` of a new folder each time.

    None is removed before the process ends: ext4 without a journal looks for inodes that were not freed lately, one by
    one, which takes longer than all that is measured.
    """
    base = os.environ["FSABS_CACHE_DIR"]
    os.makedirs(base, exist_ok=True)

    def run() -> dict[str, float]:
        folder = tempfile.mkdtemp(dir=base)
        cpu, begin = cpu_seconds(), time.perf_counter()
        read(folder)
        return {"cpu": cpu_seconds() - cpu, "seconds": time.perf_counter() - begin}

    return run
