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
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from fsabs.core.fs import FileStat, ListPage
from fsabs.core.layers import LayerFS, lazify
from fsabs.testing.children import Child, forked, started
from tests import soak
from tests.cache.stores import CONTENTS, NAMES, Far, Paged, Store, cached, entry, noise

FILES = 600


# ---- one fetch for all


class Slow(LayerFS):
    """Opening a file is noted in a file, says so, and takes a while: for ever, if nothing ends it."""

    def __init__(self, inner: FS, noted: Path, seconds: float) -> None:
        super().__init__(inner)
        self.noted = noted
        self.seconds = seconds
        self.opened, self._opening = os.pipe()

    def _open_blob(self, key: str, *how: Any) -> Blob:
        with self.noted.open("ab") as file:
            file.write(b".")
        os.write(self._opening, b".")
        time.sleep(self.seconds)
        return super()._open_blob(key, *how)


def test_processes_that_miss_one_file_fetch_it_once(shared: Local, tmp_path: Path, folder: str) -> None:
    fs = cached(Slow(shared, tmp_path / "noted", 0.2), folder)
    read = functools.partial(fs.read_bytes, "00.bin")
    assert forked("reading", [read] * 6, 30) == [CONTENTS[0]] * 6
    assert (tmp_path / "noted").read_bytes() == b"."
    assert fs.status()["misses"] == 1, "who waited has neither missed nor hit"


@pytest.mark.parametrize("kill", [True, False])
def test_a_claim_of_a_process_that_was_killed_or_hangs_is_not_waited_for_for_ever(
    shared: Local, tmp_path: Path, folder: str, kill: bool
) -> None:
    slow = Slow(shared, tmp_path / "noted", 100)
    child = Child("hanging", lambda: cached(slow, folder).read_bytes("00.bin"), 60)
    os.read(slow.opened, 1)
    if kill:
        child.kill()
    assert forked("reading", [lambda: cached(shared, folder).read_bytes("00.bin")], 30) == [CONTENTS[0]]
    child.kill()


def test_a_stopped_worker_costs_the_others_one_wait(store: Store, folder: str) -> None:
    """And not a second for each file that it was about to fetch."""
    names = [f"x{number:03}" for number in range(100)]
    for number, name in enumerate(names):
        store.inner.write_bytes(name, noise(500, number))

    class Stopping(Store):
        def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
            os.kill(os.getpid(), signal.SIGSTOP)
            yield from super()._read_many(wanted, *how)

    stopped = Child("stopped", lambda: list(cached(Stopping(store.inner), folder).read_many(names)), 60)
    assert os.WIFSTOPPED(os.waitpid(stopped.pid, os.WUNTRACED)[1])
    fs = cached(store, folder)
    began = time.monotonic()
    for number, name in enumerate(names):
        assert fs.read_bytes(name) == noise(500, number)
    assert time.monotonic() - began < 10, "100 seconds, if it waits for each"
    stopped.kill()


class Counting(Paged):
    """Counts the requests of all processes, each of which takes a moment."""

    requested = memoryview(mmap.mmap(-1, 8 * 1024)).cast("Q")

    def _note(self) -> None:
        self.requested[os.getpid() % 1024] += 1
        time.sleep(0.0005)

    def _stat(self, key: str, *how: Any) -> FileStat:
        self._note()
        return super()._stat(key, *how)

    def _open_blob(self, key: str, *how: Any) -> Blob:
        self._note()
        return super()._open_blob(key, *how)

    def _list_page(self, key: str, after: str) -> ListPage | None:
        self._note()
        return super()._list_page(key, after)


@pytest.mark.parametrize(("many", "stopped"), [(True, True), (False, False)])
def test_a_cold_epoch_of_four_processes_costs_the_requests_of_one(folder: str, many: bool, stopped: bool) -> None:
    memory = Memory()
    memory.mkdir("train")
    names = [f"train/{number:04}" for number in range(FILES)]
    for number, name in enumerate(names):
        memory.write_bytes(name, noise(500, number))
    Counting.requested[:] = memoryview(bytes(8 * 1024)).cast("Q")
    fs = CachedFS(Counting(memory), folder, min_free=0, memory_bytes=0)

    def epoch() -> int:
        found = 0
        for start in range(0, FILES, 50):
            some = names[start : start + 50]
            found += len(list(fs.read_many(some)) if many else [fs.read_bytes(name) for name in some])
        return found

    children = [Child(f"process {number}", epoch, 60) for number in range(4)]
    if stopped:
        time.sleep(0.05)
        os.kill(children[0].pid, signal.SIGSTOP)
    assert [child.result() for child in children[stopped:]] == [FILES] * (4 - stopped)
    # What the stopped one had claimed is fetched by others, too: far from the 4 * FILES of those that share nothing.
    assert sum(Counting.requested) <= (1.5 if stopped else 1.1) * FILES + 20
    children[0].kill()


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
