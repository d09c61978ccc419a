"""Processes that share a cache: the limit under many writers, and a cold epoch that several begin at once."""

from __future__ import annotations

import mmap
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fsabs import Memory
from fsabs.cache import CachedFS
from fsabs.cache.disk import open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import ReadOrder
from fsabs.core.blobs import Blob
from fsabs.core.fs import FileStat, ListPage
from fsabs.testing.children import Child
from tests import soak
from tests.cache.stores import entry, noise
from tests.cache.test_freshness import Paged

FILES = 600
NAMES = [f"train/{number:04}" for number in range(FILES)]


class Counting(Paged):
    """Counts the requests of all processes, each of which takes a moment."""

    requested = memoryview(mmap.mmap(-1, 8 * 1024)).cast("Q")

    def _note(self) -> None:
        self.requested[os.getpid() % 1024] += 1
        time.sleep(0.0005)

    def _stat(self, key: str) -> FileStat:
        self._note()
        return super()._stat(key)

    def _open_blob(self, key: str) -> Blob:
        self._note()
        return super()._open_blob(key)

    def _list_page(self, key: str, after: str) -> ListPage | None:
        self._note()
        return super()._list_page(key, after)


@pytest.fixture
def store() -> Counting:
    memory = Memory()
    memory.mkdir("train")
    for number, name in enumerate(NAMES):
        memory.write_bytes(name, noise(500, number))
    Counting.requested[:] = memoryview(bytes(8 * 1024)).cast("Q")
    return Counting(memory)


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_cold_epoch_of_four_processes_costs_the_requests_of_one(
    store: Counting, folder: str, many: bool, stopped: bool
) -> None:
    fs = CachedFS(store, folder, min_free=0, memory_bytes=0)

    def epoch() -> int:
        found = 0
        for start in range(0, FILES, 50):
            names = NAMES[start : start + 50]
            found += len(list(fs.read_many(names)) if many else [fs.read_bytes(name) for name in names])
        return found

    children = [Child(f"process {number}", epoch, 60) for number in range(4)]
    if stopped:
        time.sleep(0.05)
        os.kill(children[0].pid, signal.SIGSTOP)
    assert [child.result() for child in children[stopped:]] == [FILES] * (4 - stopped)
    # What the stopped one had claimed is fetched by others, too: far from the 4 * FILES of those that share nothing.
    assert sum(store.requested) <= (1.5 if stopped else 1.1) * FILES + 20
    children[0].kill()


def _write(folder: str, limit: int, seed: int) -> None:
    disk, rng, number = open_disk(folder, DiskLimits(limit, 0)), random.Random(seed), 0
    data = rng.randbytes(200_000)
    while True:
        urls = [f"{seed}/{number + at}" for at in range(16)]
        number += len(urls)
        size, order = rng.choice([2000, 20_000, 200_000]), ReadOrder(urls)
        disk.put_many([(entry(url.encode(), url), data[:size]) for url in urls], order)


def _verify(folder: str, limit: int) -> None:
    while True:
        open_disk(folder, DiskLimits(limit, 0)).verify()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_eight_writers_stay_within_the_limit_whoever_is_killed(tmp_path: Path) -> None:
    limit, writers, rng = 40_000_000, 8, random.Random(soak.seed(9))
    folder, number = str(tmp_path / "cache"), 0

    def start(function: Any, *arguments: Any) -> int:
        pid = os.fork()
        if not pid:
            try:
                function(folder, limit, *arguments)
            finally:
                os._exit(1)
        return pid

    def stop(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def taken() -> int:
        for pid in running:  # else what is evicted while it is counted would count
            os.kill(pid, signal.SIGSTOP)
        try:
            return sum(path.lstat().st_blocks * 512 for path in Path(folder).glob("entries-1/??/*"))
        except FileNotFoundError:  # by the process that verifies
            return 0
        finally:
            for pid in running:
                os.kill(pid, signal.SIGCONT)

    running = [start(_write, number := number + 1) for _ in range(writers)]
    verifying, most = start(_verify), 0
    end = time.monotonic() + 3 * soak.rounds(1)
    try:
        while time.monotonic() < end:
            most = max(most, taken())
            time.sleep(0.02)
            if rng.random() < 0.1:
                stop(running.pop(rng.randrange(writers)))
                running.append(start(_write, number := number + 1))
    finally:
        for pid in (*running, verifying):
            stop(pid)
    assert 0.5 * limit < most <= 1.05 * limit + writers * 4 * 1024 * 1024
    disk = open_disk(folder, DiskLimits(limit, 0))
    assert disk.verify() == []
    assert disk.put(entry(b"last", "last"), bytes(1000), ReadOrder(["last"]))
    assert disk.status()["bytes"] <= 1.05 * limit
