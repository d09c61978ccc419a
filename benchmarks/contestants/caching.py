"""The cache itself: hits, puts and evictions by the number of entries, hit rates, and what a cold epoch takes."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

from . import Run, library, whole
from .stores import ours
from .worker import cpu_seconds

EPOCHS = 20


def _disk(limit: int | None) -> Any:
    base = os.environ["FSABS_CACHE_DIR"]
    os.makedirs(base, exist_ok=True)
    limits = library("fsabs.cache.eviction").DiskLimits(limit, 0)
    return library("fsabs.cache.disk").open_disk(tempfile.mkdtemp(dir=base), limits)


def _entry(number: int) -> Any:
    url = f"s3://bucket/images/{number:08}"
    name = library("fsabs.core.identity").encode("store", url, f"version of {number}")
    return library("fsabs.cache.disk").EntryKey.of(name, url)


def _filled(count: int, size: int) -> Any:
    disk = _disk(None)
    data, order = os.urandom(size), library("fsabs.cache.policy").ReadOrder()
    for number in range(count):
        disk.put(_entry(number), data, order)
    return disk


def hits(count: int, size: int, lookups: int) -> Run:
    """Hits of entries at random, of a cache of `count`."""
    disk = _filled(count, size)
    entries = [_entry(number) for number in random.Random(1).choices(range(count), k=lookups)]

    def run() -> None:
        for entry in entries:
            whole(disk.get(entry), size)

    return run


def opening(count: int) -> Run:
    """Open a cache of `count` entries as a new process does, look one up and put another one."""
    disk = _filled(count, 100)
    kind, order = type(disk), library("fsabs.cache.policy").ReadOrder()
    numbers = itertools.count(count)

    def run() -> None:
        opened = kind(disk.folder, disk.limits)
        whole(opened.get(_entry(0)), 100)
        assert opened.put(_entry(next(numbers)), bytes(100), order)
        opened.close()

    return run


def puts(count: int, size: int, full: bool) -> Run:
    """Put what is not there yet; where the cache is `full`, each evicts another."""
    policy = library("fsabs.cache.policy")
    room = -(-(size + 200) // 4096) * 4096
    disk = _disk(count * room if full else None)
    data, done = os.urandom(size), [0]

    def run() -> None:
        numbers = range(done[0], done[0] + count)
        done[0] += count
        order = policy.ReadOrder(_entry(number).url for number in numbers)
        admitted = sum(disk.put(_entry(number), data, order) for number in numbers)
        if admitted < 0.95 * count:  # the last ones may be: an eviction looks at a sample of what may go
            raise RuntimeError(f"{count - admitted} of {count} puts were refused")

    if full:
        run()
    return run


def refused(count: int, size: int) -> Run:
    """Puts that a full cache refuses, whose entries are read as often as what is new."""
    disk = _disk(count * -(-(size + 200) // 4096) * 4096)
    data, order = os.urandom(size), library("fsabs.cache.policy").ReadOrder()
    for number in range(count):
        disk.put(_entry(number), data, order)

    def run() -> None:
        for number in range(count, 2 * count):
            disk.put(_entry(number), data, order)

    return run


def writers(count: int, size: int, processes: int) -> Run:
    """Processes that put at once, each its own entries; returns the share that is there then."""

    def run() -> dict[str, float]:
        disk = _disk(None)
        data, order = os.urandom(size), library("fsabs.cache.policy").ReadOrder()
        children = []
        for process in range(processes):
            pid = os.fork()
            if not pid:
                for number in range(process * count, (process + 1) * count):
                    disk.put(_entry(number), data, order)
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
        kept = sum(disk.get(_entry(number)) == data for number in range(processes * count))
        shutil.rmtree(disk.folder)
        return {"kept": kept / (processes * count)}

    return run


def hit_rates(files: int, share: float, ordered: bool, real: bool) -> Run:
    """Shuffled epochs over `files` through a cache of a share of them: hits to what is the most that there can be.

    `real` is the cache on disk, else its policy in memory. With the epochs' order the most is Belady's.
    """
    policy, room = library("fsabs.cache.policy"), 4096

    def run() -> dict[str, float]:
        dice = random.Random(7)
        epochs = [dice.sample(range(files), files) for _ in range(EPOCHS)]
        kept = round(files * share)
        data, empty = bytes(3000), policy.ReadOrder()
        disk = _disk(kept * room) if real else None
        memory = library("fsabs.cache.content").MemoryCache(kept * len(data), policy.Passes())
        found = 0
        for at, epoch in enumerate(epochs):
            ahead = [number for one in epochs[at : at + 2] for number in one]
            order = policy.ReadOrder(_entry(number).url for number in ahead) if ordered else empty
            for number in epoch:
                entry = _entry(number)
                if ordered:
                    order.reached(entry.url)
                if (disk.get(entry) if disk is not None else memory.get(entry.name)) is not None:
                    found += at > 0
                elif disk is not None:
                    disk.put(entry, data, order)
                else:
                    memory.put(entry.name, entry.url, data, order)
        if disk is not None:
            shutil.rmtree(disk.folder)
        rate = found / (files * (EPOCHS - 1))
        return {"rate": rate, "of_best": rate / (belady(epochs, kept) if ordered else kept / files)}

    return run


def belady(epochs: list[list[int]], room: int) -> float:
    """Return the hit rate, after the first epoch, of a cache that knows all of the future."""
    import heapq

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


def _read(contents: Iterable[bytes], count: int, size: int) -> None:
    seen = 0
    for data in contents:
        whole(data, size)
        seen += 1
    whole(range(seen), count)


def cold_uncached(endpoint: str, names: list[str], size: int) -> Run:
    """`fs.read_many` of all names, and nothing kept."""
    fs = ours(endpoint)
    return lambda: _read(fs.read_many(names), len(names), size)


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
        _read(cached(inner, folder, memory_bytes=0).read_many(names), len(names), size)

    return _in_new_folder(read)


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
