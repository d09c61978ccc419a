"""Threads and processes that share a cache: one fetch for all, forks at any moment, kills, and the limit."""

from __future__ import annotations

import functools
import mmap
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fsabs import FS, Local, Memory
from fsabs.cache import CachedFS
from fsabs.cache.content import ContentCache
from fsabs.cache.disk import open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import ReadOrder
from fsabs.core.blobs import Blob
from fsabs.core.fs import FileStat
from fsabs.core.layers import LayerFS, lazify
from fsabs.testing.children import Child, forked, started
from tests import soak
from tests.cache.stores import CONTENTS, NAMES, Far, Store, cached, entry

FILES = 600


# ---- one fetch of a large file for all


LARGE = 66 * 1024 * 1024


class SlowRanges(LayerFS):
    """A file of zeros on a slow store; the bytes that all processes have read of it are counted."""

    read = memoryview(mmap.mmap(-1, 8 * 1024)).cast("Q")

    def __init__(self, seconds: float) -> None:
        super().__init__(Memory())
        self.seconds = seconds
        self.begun, self._beginning = os.pipe()
        SlowRanges.read[:] = memoryview(bytes(8 * 1024)).cast("Q")

    def _stat(self, key: str, *how: Any) -> FileStat:
        return FileStat(key, LARGE, version="1")

    def _open_blob(self, key: str, *how: Any) -> Blob:
        return SlowBlob(self, key, LARGE, "1")


class SlowBlob(Blob):
    """Takes a while for each range."""

    _origin: SlowRanges

    def _pread(self, size: int, offset: int) -> bytes:
        os.write(self._origin._beginning, b".")
        time.sleep(self._origin.seconds)
        self._origin.read[os.getpid() % 1024] += size
        return bytes(size)


def test_processes_that_read_one_checkpoint_fetch_it_about_once(folder: str) -> None:
    fs = CachedFS(SlowRanges(0.05), folder, min_free=0)
    assert forked("reading", [lambda: len(fs.read_bytes("checkpoint"))] * 4, 60) == [LARGE] * 4
    assert sum(SlowRanges.read) < 2 * LARGE, "four times as much where each fetches for itself"
    assert not list(Path(folder).rglob("*.partial"))


@pytest.mark.parametrize("kill", [True, False])
def test_a_process_that_was_killed_or_hangs_is_not_waited_for_for_ever(folder: str, kill: bool) -> None:
    slow = SlowRanges(100)
    child = Child("hanging", lambda: CachedFS(slow, folder, min_free=0).read_bytes("checkpoint"), 60)
    os.read(slow.begun, 1)
    if kill:
        child.kill()
    slow.seconds = 0
    assert len(CachedFS(slow, folder, min_free=0).read_bytes("checkpoint")) == LARGE
    child.kill()


# ---- what is here is shared


def _read_all(store: FS, folder: str, seed: int) -> int:
    fs = cached(store, folder)
    names = NAMES * 3
    random.Random(seed).shuffle(names)
    return sum(fs.read_bytes(name) == CONTENTS[NAMES.index(name)] for name in names)


def test_forked_and_spawned_processes_share_what_is_here(shared: Local, folder: str) -> None:
    right = forked("reading", [functools.partial(_read_all, shared, folder, seed) for seed in range(4)], 30)
    assert [*right, started("spawn", "reading", _read_all, (shared, folder, 5), 60)] == [60] * 5
    fs = cached(shared, folder)
    assert fs.status()["disk"]["entries"] == 20
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert fs.status()["misses"] == 0


def test_hits_of_forked_workers_are_figures_of_the_run(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert forked("workers", [lambda: len(list(fs.read_many(NAMES)))] * 4, 20) == [20] * 4
    status = fs.status()
    assert (status["hits"], status["misses"]) == (80, 20)


class Resolving(Far):
    """Counts how often its store is resolved."""

    backing = FS.backing
    resolved = 0

    def _resolved_store(self) -> str:
        self.resolved += 1
        return self.inner.backing._resolved_store()


def test_each_process_resolves_the_store(store: Store, folder: str) -> None:
    """Another one may have another environment."""
    resolving = Resolving(store.inner)
    for inner in (resolving, lazify(lambda: resolving)):
        resolving.resolved = 0
        fs = cached(inner, folder)

        def resolved(fs: CachedFS = fs) -> int:
            assert fs.read_bytes("00.bin") == CONTENTS[0]
            return resolving.resolved

        assert forked("children", [resolved] * 2, 10) == [1, 1]
        assert resolved() == 1
    again = pickle.loads(pickle.dumps(cached(resolving, folder)))
    assert again.read_bytes("00.bin") == CONTENTS[0]
    assert again.inner.resolved == 2


# ---- forks


def test_a_fork_while_a_thread_fetches_leaves_the_child_nothing_to_wait_for() -> None:
    """Its parent's thread is not there to bring it."""
    contents, part = ContentCache(None, 1000), entry(b"x", "memory:x")
    started, go_on = threading.Event(), threading.Event()

    def slow(numbers: Sequence[int]) -> Iterable[bytes]:
        started.set()
        go_on.wait(30)
        return [b"parent's"]

    thread = threading.Thread(target=contents.fetch, args=([part], slow))
    thread.start()
    assert started.wait(30)
    mine = forked("a child", [lambda: contents.fetch([part], lambda numbers: [b"child's"])] * 2, 10)
    go_on.set()
    thread.join()
    assert mine == [[b"child's"]] * 2
    assert contents.lookup(part) == b"parent's"


def test_forks_while_threads_fill_the_memory(store: Store, folder: str) -> None:
    fs = cached(store, folder, memory_bytes=5000, max_bytes=100_000)
    stop = threading.Event()

    def fill() -> None:
        while not stop.is_set():
            assert list(fs.read_many(NAMES)) == CONTENTS

    threads = [threading.Thread(target=fill) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            assert forked("a child of busy threads", [lambda: list(fs.read_many(NAMES))], 20) == [CONTENTS]
    finally:
        stop.set()
        for thread in threads:
            thread.join(20)
    assert not any(thread.is_alive() for thread in threads)


# ---- kills


def killed_after(seconds: float, functions: Sequence[Callable[[], object]]) -> None:
    """Run endless functions in processes, and kill them after a while; none may end before."""
    children = [Child(f"process {number}", function, 60) for number, function in enumerate(functions)]
    time.sleep(seconds)
    for child in children:
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(AssertionError, match="died"):
            child.result()


def _read_for_ever(fs: CachedFS, seed: int) -> None:
    chance = random.Random(seed)
    while True:
        at = chance.randrange(len(NAMES))
        assert fs.read_bytes(NAMES[at]) == CONTENTS[at]


def test_killed_while_filling(shared: Local, folder: str) -> None:
    """In a process that is small, since it forks often."""
    started("spawn", "filling and killing", _fill_and_kill, (shared, folder), 55.0)


def _fill_and_kill(shared: Local, folder: str) -> None:
    """10 rounds of 3 processes in a small cache, each killed at a moment of chance."""
    chance = random.Random(1)
    for _ in range(10):
        fs = cached(shared, folder, whole_file_size=chance.choice([0, 8000]))
        assert fs.status()["disk"]["usable"]
        readers = [functools.partial(_read_for_ever, fs, chance.randrange(1 << 30)) for _ in range(3)]
        killed_after(chance.random() * 0.02, readers)
        if chance.random() < 0.2:
            fs.clear()
    fs = cached(shared, folder)
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert fs.verify() == []


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
@pytest.mark.parametrize(("writers", "seconds"), [(4, 1), pytest.param(8, 3, marks=pytest.mark.nightly)])
def test_writers_stay_within_the_limit_whoever_is_killed(tmp_path: Path, writers: int, seconds: int) -> None:
    limit, rng = 10_000_000 * seconds, random.Random(soak.seed(9))
    folder, seeds = str(tmp_path / "cache"), iter(range(10**6))

    def start() -> Child[None]:
        return Child("writing", functools.partial(_write, folder, limit, next(seeds)), 290)

    def taken() -> int:
        for child in running:  # else what is evicted while it is counted would count
            os.kill(child.pid, signal.SIGSTOP)
        try:
            return sum(path.lstat().st_blocks * 512 for path in Path(folder).glob("entries-1/??/*"))
        except FileNotFoundError:  # by the process that verifies
            return 0
        finally:
            for child in running:
                os.kill(child.pid, signal.SIGCONT)

    running, most = [start() for _ in range(writers)], 0
    verifying = Child("verifying", functools.partial(_verify, folder, limit), 290)
    end = time.monotonic() + seconds * soak.rounds(1)
    while time.monotonic() < end or most < 0.5 * limit:
        most = max(most, taken())
        time.sleep(0.02)
        if rng.random() < 0.1:
            running.pop(rng.randrange(writers)).kill()
            running.append(start())
    for child in (*running, verifying):
        child.kill()
    assert most <= 1.05 * limit + writers * 4 * 1024 * 1024
    disk = open_disk(folder, DiskLimits(limit, 0))
    assert disk.verify() == []
    assert disk.put(entry(b"last", "last"), bytes(1000), ReadOrder(["last"]))
    assert disk.status()["bytes"] <= 1.05 * limit
