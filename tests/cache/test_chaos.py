"""Chaos: processes of several threads put, get, evict and are killed at random, the disk full half of the time.

Never a wrong byte, never a hang. The disk is a small tmpfs where one may mount; elsewhere a limit on the size of files
takes its place. Each round has eight processes.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from fsabs.cache import FileCache
from fsabs.cache.disk import DiskCache, open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import ReadOrder
from fsabs.cache.single_flight import token_of
from fsabs.testing.children import started
from tests import soak
from tests.cache.stores import entry

BATCHES, BATCH = 2, 15
"""So many caches, each for so many rounds."""
PROCESSES, THREADS = 8, 4
ITEMS = 400
DISK = 3 * 1024 * 1024
LONGEST_READ = 5.0


def value_of(key: int | str) -> bytes | None:
    """What stands under a key, and under no other: None, empty, small, or large enough for the mapping."""
    number = int(key)
    if number % 50 < 2:
        return (None, b"")[number % 50]
    size = 40_000 if number % 97 == 7 else 20 + number * 37 % 6000
    return (b"%s %d|" % (type(key).__name__.encode(), number)) * (size // 8)


class Disk:
    """A small disk that can be filled and emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
        try:
            self.mounted = not subprocess.run(command, stderr=subprocess.DEVNULL).returncode
        except FileNotFoundError:  # no such program
            self.mounted = False
        self.full = False

    def fill(self, full: bool) -> None:
        """Leave no space but a few pages, or all of it."""
        self.full = full
        ballast = self.folder / "ballast"
        if self.mounted and full:
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        elif self.mounted:
            ballast.unlink(missing_ok=True)

    def enter(self) -> None:
        """In a child: the limit in place of a full disk."""
        if self.full and not self.mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    yield made
    made.close()


def items_work(cache: FileCache, dice: random.Random) -> None:
    """One use of an item cache."""
    key = dice.randrange(ITEMS)
    what, right = dice.random(), value_of(key)
    if what < 0.4:
        found = cache.get(key, right)
    elif what < 0.8:
        cache.put(key, right)
        found = cache.get(key, right)
    else:
        found = cache.get_and_cache(key, lambda i: value_of(i))
    assert found == right, f"{key!r}: {found!r}"


def open_files(folder: Path) -> DiskCache:
    """What `CachedFS` is on, as this process has it."""
    return open_disk(str(folder), DiskLimits(DISK // 2, 0))


def files_work(cache: DiskCache, dice: random.Random) -> None:
    """One use of what `CachedFS` is on: puts, hits, removes and evictions, and a fork now and then."""
    number = dice.randrange(ITEMS)
    name, what = b"%d" % number, dice.random()
    key = entry(name, f"url {number}")
    right = value_of(number) or b""
    if what < 0.45:
        found = cache.get(key)
        assert found in (None, right), f"{name!r}: {found!r}"
    elif what < 0.9:
        order = ReadOrder(f"url {dice.randrange(ITEMS)}" for _ in range(50)) if what < 0.6 else ReadOrder()
        claims = cache.claims()
        if claims.claim(token_of(name)):
            cache.put(key, right, order)
            claims.release(token_of(name))
    elif what < 0.97:
        cache.remove(key)
    elif what < 0.9995:
        cache.status()
    else:
        cache.clear()


def child(work: Callable[[random.Random], None], disk: Disk, seed: int, complaints: int) -> NoReturn:
    """A process that works until it is killed; what is wrong it writes to a pipe."""
    disk.enter()
    warnings.simplefilter("ignore")

    def thread(number: int) -> None:
        dice = random.Random(seed * THREADS + number)
        try:
            while True:
                began = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    work(dice)
                assert time.monotonic() - began < LONGEST_READ, "it hung"
        except BaseException as exc:  # whatever it is: the parent tells of it
            os.write(complaints, f"{type(exc).__name__}: {exc}"[:300].encode() + b"\n")

    try:
        for number in range(1, THREADS):
            threading.Thread(target=thread, args=(number,), daemon=True).start()
        thread(0)
    finally:
        os._exit(1)


def run_rounds(count: int, work: Callable[[random.Random], None], disk: Disk, dice: random.Random) -> None:
    """Rounds on one cache, the disk full in every other one."""
    reading, complaints = os.pipe()
    for _ in range(count):
        disk.fill(dice.random() < 0.5)
        children = []
        for _ in range(PROCESSES):
            seed = dice.getrandbits(40)
            pid = os.fork()
            if not pid:
                child(work, disk, seed, complaints)
            children.append(pid)
        dice.shuffle(children)
        stopped = children[: dice.randrange(3)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        for pid in (*children[len(stopped) :], *stopped):
            time.sleep(dice.random() * 0.002)
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    os.close(complaints)
    with open(reading, "rb") as file:
        assert file.read() == b""


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_items_survive_kills_and_full_disks(disk: Disk) -> None:
    _in_a_small_process(_items_survive, disk)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_files_survive_kills_and_full_disks(disk: Disk) -> None:
    _in_a_small_process(_files_survive, disk)


def _in_a_small_process(function: Callable[[Disk], None], disk: Disk) -> None:
    """A fork takes as long as the process is large, and each test forks hundreds of times."""
    started("spawn", function.__name__, function, (disk,), 290.0)


def _items_survive(disk: Disk) -> None:
    dice = random.Random(soak.seed(1))
    stored, batches = 0, soak.rounds(BATCHES)
    for _ in range(batches):
        disk.fill(False)
        with FileCache(ITEMS, dir=disk.folder) as cache, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run_rounds(BATCH, lambda dice, cache=cache: items_work(cache, dice), disk, dice)  # type: ignore[misc]
            disk.fill(False)
            table: Any = cache._table
            for key in range(ITEMS):
                found = cache.get(key, "nothing")
                stored += found != "nothing"
                assert found in ("nothing", value_of(key))
            assert table.damaged == 0, "no entry without its bytes"
            cache.put(0, None)
            assert cache.get_and_cache(5, value_of) == value_of(5)
        assert os.listdir(disk.folder) == []
    assert stored > ITEMS // 4
    soak.count("item caches: rounds of kills", batches * BATCH)


def _files_survive(disk: Disk) -> None:
    dice, batches = random.Random(soak.seed(2)), soak.rounds(BATCHES)
    for batch in range(batches):
        disk.fill(False)
        folder = disk.folder / f"files{batch}"
        cache = open_files(folder)
        run_rounds(BATCH, lambda dice, folder=folder: files_work(open_files(folder), dice), disk, dice)  # type: ignore[misc]
        disk.fill(False)
        assert cache.verify() == [], "no entry without its bytes"
        status = cache.status()
        files = [path for path in folder.glob("entries-1/??/*") if not path.name.startswith(".")]
        assert status["entries"] == len(files)
        assert status["bytes"] >= sum(path.stat().st_blocks * 512 for path in files)
        for number in range(ITEMS):
            assert cache.get(entry(b"%d" % number, f"url {number}")) in (None, value_of(number) or b"")
        cache.clear()
        assert cache.put(entry(b"x", "x"), b"1", ReadOrder())
        cache.close()
        shutil.rmtree(folder)
    soak.count("entries of the cache: rounds of kills", batches * BATCH)
