"""Chaos: processes of several threads use a cache, and are killed and stopped at random; its disk is full or fails.

Never a wrong byte, never a hang. Around `CachedFS`, the files of the store change meanwhile, files of the cache are
damaged, and the disk is filled, shrunk, made read-only, emptied, moved and restored from an old copy: what is read is
what the store had when the read began, or newer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import mmap
import os
import random
import select
import shutil
import signal
import struct
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from fsabs import Local, StaleFileError
from fsabs.cache import CachedFS, FileCache
from fsabs.testing.children import started
from tests import soak
from tests.cache.small_disk import SmallDisk, small_disk

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]
PROCESSES = 8
ENDING_SECONDS = 30.0
"""Seconds that three uses of a process may take, whose parent was killed."""
LONGEST = 6.0
"""Seconds that a use may take on a busy machine, a second for a process that is stopped included."""
Use = Callable[[random.Random], None]


def work(use: Use, threads: int, seed: int, complaints: int) -> NoReturn:
    """Be a process that uses the cache until it is killed, and forks now and then; write what is wrong to a pipe."""
    warnings.simplefilter("ignore")
    faulthandler.register(signal.SIGUSR1)
    stopped = [False]
    signal.signal(signal.SIGCONT, lambda *_: stopped.__setitem__(0, True))

    def using(number: int, times: float = float("inf")) -> None:
        dice = random.Random(seed * 100 + number)
        try:
            while times > 0:
                began = time.monotonic()
                with contextlib.suppress(TimeoutError):
                    use(dice)
                took = time.monotonic() - began
                assert took < LONGEST or stopped[0], f"it took {took:.1f} s"
                stopped[0] = False
                times -= 1
                if number == 0 and dice.random() < 0.01:
                    if not (pid := os.fork()):
                        using(threads, 3)
                        os.kill(os.getpid(), signal.SIGKILL)
                    os.waitpid(pid, 0)
        except BaseException as exc:  # whatever it is: the parent tells of it
            os.write(complaints, f"{type(exc).__name__}: {exc}"[:300].encode() + b"\n")

    for number in range(1, threads):
        threading.Thread(target=using, args=(number,), daemon=True).start()
    using(0)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed by now")


class Round:
    """Processes that work at one time, each the leader of a group of processes that it forks."""

    def __init__(self, use: Use, threads: int, disk: SmallDisk, dice: random.Random) -> None:
        self.running: list[int] = []
        self._killed: list[int] = []
        self._reading, complaints = os.pipe()
        for _ in range(PROCESSES):
            seed = dice.getrandbits(40)
            if not (pid := os.fork()):
                os.setpgid(0, 0)
                disk.enter(200_000)
                work(use, threads, seed, complaints)
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)  # here, too: it may be stopped before it does so
            self.running.append(pid)
        os.close(complaints)

    def kill(self, pid: int) -> None:
        """Kill a process; one that it has just forked goes on."""
        self.running.remove(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._killed.append(pid)

    def complaints(self) -> str:
        """Kill what is left, and return what all have written: what killed ones had forked ends, or says where not."""
        for pid in [*self.running]:
            self.kill(pid)
        found, end = b"", time.monotonic() + ENDING_SECONDS
        with open(self._reading, "rb", buffering=0) as file:
            while select.select([file], [], [], max(0, end - time.monotonic()))[0]:
                if not (data := file.read(1 << 16)):
                    return found.decode()
                found += data
            for number in (signal.SIGUSR1, signal.SIGKILL):  # the first prints its stacks
                for pid in self._killed:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, number)
                time.sleep(0.5)
        return f"{found.decode()}a forked process hangs"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder for the disk."""
    return tmp_path / "disk"


# ---- item caches

ITEMS = 400


def value_of(number: int) -> bytes | None:
    """What stands under a number, and under no other: None, empty, small, or large enough for the mapping."""
    if number % 50 < 2:
        return (None, b"")[number % 50]
    return (b"%d|" % number) * ((40_000 if number % 97 == 7 else 20 + number * 37 % 6000) // 4)


def use_items(cache: FileCache, dice: random.Random) -> None:
    number = dice.randrange(ITEMS)
    what, right = dice.random(), value_of(number)
    if 0.4 <= what < 0.8:
        cache.put(number, right)
    found = cache.get(number, right) if what < 0.8 else cache.get_and_cache(number, value_of)
    assert found == right, f"{number}: {found!r}"


@pytest.mark.parametrize("rounds", [6, pytest.param(30, marks=pytest.mark.nightly)])
def test_items_survive_kills_and_full_disks(folder: Path, rounds: int) -> None:
    """In a process that is small, since it forks often."""
    started("spawn", "items and kills", _items_survive, (folder, soak.rounds(rounds)), 590.0)


def _items_survive(folder: Path, rounds: int) -> None:
    dice = random.Random(soak.seed(1))
    with small_disk(folder, 3 * 1024 * 1024) as disk, FileCache(ITEMS, dir=folder) as cache:
        for _ in range(rounds):
            disk.repair()
            if dice.random() < 0.5:
                disk.fill()
            one = Round(functools.partial(use_items, cache), 4, disk, dice)
            for pid in dice.sample(one.running, dice.randrange(3)):
                os.kill(pid, signal.SIGSTOP)
            time.sleep(dice.random() * 0.05)
            assert one.complaints() == ""
        disk.repair()
        found = [cache.get(number, "nothing") for number in range(ITEMS)]
        assert [value for number, value in enumerate(found) if value not in ("nothing", value_of(number))] == []
        assert sum(value != "nothing" for value in found) > ITEMS // 4
        assert cache.stats()["damaged"] == 0, "no entry without its bytes"
        cache.put(0, None)
        assert cache.get_and_cache(5, value_of) == value_of(5)
        cache.close()
        assert os.listdir(folder) == []
    soak.count("item caches: rounds of kills", rounds)


# ---- CachedFS

SMALL, LARGE = 60, 4
DISK = 2 * 1024 * 1024
ROUND = 0.8
"""Seconds."""


def content(number: int, generation: int) -> bytes:
    """What a file has in one of its generations; its start says which."""
    size = 30_000 + 999 * number if number >= SMALL else 500 + number * 97
    return struct.pack("=QQ", number, generation) + random.Random(number << 32 | generation).randbytes(size)


class Files:
    """The files of a store, and their generations, in memory that all processes share."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.generations = memoryview(mmap.mmap(-1, 8 * (SMALL + LARGE))).cast("Q")
        for number in range(SMALL + LARGE):
            self.write(number, 0)

    def write(self, number: int, generation: int) -> None:
        aside = self.folder / f".{number}"
        aside.write_bytes(content(number, generation))
        aside.rename(self.folder / str(number))
        self.generations[number] = generation  # from now on the old one is wrong

    def check(self, number: int, data: bytes, least: int) -> None:
        found, generation = struct.unpack_from("=QQ", data)
        assert found == number, f"{found} in place of {number}"
        assert generation >= least, f"{number}: generation {generation} where there was {least}"
        assert data == content(number, generation), f"{number}: wrong bytes"


class Harm:
    """What can happen to the cache's folder, and the disk that it is on."""

    def __init__(self, disk: SmallDisk, cache: Path, backup: Path) -> None:
        self.disk = disk
        self.cache = cache
        self.backup = backup

    def happen(self, dice: random.Random) -> str:
        """Let something happen to all of it; return its name."""
        disk = self.disk
        ways = (disk.fill, disk.shrink, disk.read_only, self.delete, self.move, self.restore)
        way = dice.choice(ways)
        with contextlib.suppress(OSError, shutil.Error):
            way()
        return way.__name__

    def delete(self) -> None:
        shutil.rmtree(self.cache, ignore_errors=True)

    def move(self) -> None:
        self.cache.rename(self.disk.folder / f"moved-{time.monotonic_ns()}")

    def restore(self) -> None:
        """As of some rounds ago."""
        if self.backup.exists():
            self.delete()
            shutil.copytree(self.backup, self.cache)

    def back_up(self) -> None:
        shutil.rmtree(self.backup, ignore_errors=True)
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(self.cache, self.backup)

    def repair(self) -> None:
        """Make it a disk that works; the folder stays as it is."""
        self.disk.repair()
        for moved in self.disk.folder.glob("moved-*"):
            shutil.rmtree(moved, ignore_errors=True)

    def damage(self, dice: random.Random) -> bool:
        """Damage a file of the cache, whichever; return whether there was one."""
        files = [Path(above, name) for above, _, names in os.walk(self.cache) for name in names]
        if not files:
            return False
        path, way = dice.choice(files), dice.randrange(5)
        with contextlib.suppress(OSError):
            if way == 0:
                os.truncate(path, dice.randrange(path.stat().st_size + 1))
            elif way == 1:
                os.replace(dice.choice(files), path)
            elif way == 2:
                path.write_bytes(dice.randbytes(dice.randrange(5000)))
            else:
                with path.open("r+b") as file:
                    file.seek(dice.randrange(path.stat().st_size + 1))
                    file.write(dice.randbytes(1 if way == 3 else 40))
            return True
        return False


def use_files(fs: CachedFS, files: Files, dice: random.Random) -> None:
    """Read something in one of the ways that there are."""
    numbers = [dice.randrange(SMALL + LARGE) for _ in range(dice.choice([1, 1, 1, 20]))]
    least = [files.generations[number] for number in numbers]
    names, what = [str(number) for number in numbers], dice.random()
    if what < 0.02:
        fs.set_order(names)
    elif what < 0.025:
        fs.verify()
    elif what < 0.03:
        fs.clear()
    elif what < 0.1:
        fs.status()
    if what < 0.5:
        found = list(fs.read_many(names))
    elif what < 0.8:
        found = [fs.read_bytes(name) for name in names]
    else:
        found = []
        for name in names:
            with contextlib.suppress(StaleFileError), fs.open_blob(name) as blob:  # it changed while it was open
                half = blob.size // 2
                found.append(b"".join(blob.pread_many([(half, 0), (blob.size - half, half)])))
                continue
            found.append(fs.read_bytes(name))
    for number, data, generation in zip(numbers, found, least, strict=True):
        files.check(number, data, generation)


def chaos(one: Round, files: Files, harm: Harm, dice: random.Random, counts: Counter[str]) -> None:
    """Let things happen to the processes of a round, and to what they use."""
    end = time.monotonic() + ROUND
    while time.monotonic() < end:
        time.sleep(0.02)
        what = dice.random()
        if what < 0.3:
            number = dice.randrange(SMALL + LARGE)
            files.write(number, files.generations[number] + 1)
            counts["files changed"] += 1
        elif what < 0.6:
            counts["files of the cache damaged"] += harm.damage(dice)
        elif what < 0.7:
            counts[f"disk: {harm.happen(dice)}"] += 1
            if dice.random() < 0.5:
                harm.repair()
        elif what < 0.8 and len(one.running) > 2:
            os.kill(dice.choice(one.running), signal.SIGSTOP)
            counts["processes stopped"] += 1
        elif what < 0.85:
            os.kill(dice.choice(one.running), signal.SIGCONT)
        elif what < 0.9 and len(one.running) > 2:
            one.kill(dice.choice(one.running))
            counts["processes killed"] += 1
    harm.repair()


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.nightly)])
def test_never_a_wrong_byte_whatever_happens_to_the_cache(folder: Path, rounds: int) -> None:
    """In a process that is small, since it forks often."""
    started("spawn", "chaos", _never_a_wrong_byte, (folder, soak.rounds(rounds)), 590.0)


@contextlib.contextmanager
def _cache(store: Path, folder: Path) -> Iterator[CachedFS]:
    options = {"memory_bytes": 100_000, "block_size": 4096, "whole_file_size": 8000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield CachedFS(Local(store), folder, max_bytes=DISK // 2, min_free=0, **options)  # type: ignore[arg-type]


def _never_a_wrong_byte(folder: Path, rounds: int) -> None:
    dice, counts = random.Random(soak.seed(5)), Counter[str]()
    files = Files(folder.with_name("store"))
    with small_disk(folder, DISK) as disk, _cache(files.folder, folder / "cache") as fs:
        harm = Harm(disk, folder / "cache", folder.with_name("backup"))
        for number in range(rounds):
            one = Round(functools.partial(use_files, fs, files), 3, disk, dice)
            try:
                chaos(one, files, harm, dice, counts)
            finally:
                complaints = one.complaints()
            assert complaints == ""
            if number % 10 == 1:
                harm.back_up()
            fs.verify()
            assert fs.verify() == [], "what was damaged is gone"
            status = fs.status()["disk"]
            entries = [path for path in harm.cache.glob("entries-1/??/*") if not path.name.startswith(".")]
            assert status["entries"] == len(entries)
            assert status["bytes"] >= sum(path.stat().st_blocks * 512 for path in entries)
            for at, generation in enumerate(files.generations):
                files.check(at, fs.read_bytes(str(at)), generation)
    for what, count in {"rounds of chaos": rounds, **counts}.items():
        soak.count(f"cache: {what}", count)
