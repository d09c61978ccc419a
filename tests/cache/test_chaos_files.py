"""Chaos around `CachedFS`: processes that are killed and stopped, files that are damaged, a disk that fails.

Rounds of eight processes of three threads read a store whose files change, through one cache on a small disk. Meanwhile
processes are stopped and killed, files of the cache are damaged, and the disk is filled, shrunk, made read-only,
emptied, moved and restored from an old copy. What is read is what the store had when the read began, or newer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from fsabs import Local, StaleFileError
from fsabs.cache import CachedFS
from fsabs.testing.children import started
from tests import soak

PROCESSES, THREADS = 8, 3
SMALL, LARGE = 60, 4
DISK = 2 * 1024 * 1024
ROUND = 0.8
"""Seconds."""
LONGEST_READ = 6.0
"""Seconds that a read may take on a busy machine, a second for a process that is stopped included."""
ENDING_SECONDS = 30.0
"""Seconds that three reads of a process may take, whose parent was killed."""


def content(number: int, generation: int) -> bytes:
    """What a file has in one of its generations; its start says which."""
    size = 30_000 + 999 * number if number >= SMALL else 500 + number * 97
    return struct.pack("=QQ", number, generation) + random.Random(number << 32 | generation).randbytes(size)


class Files:
    """The files of a store, and their generations, in memory that all processes share."""

    def __init__(self, folder: Path) -> None:
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


class Disk:
    """A small disk on which the cache's folder lies, and what can happen to it."""

    def __init__(self, mountpoint: Path, backup: Path) -> None:
        self.at, self.backup = mountpoint, backup
        mountpoint.mkdir()
        self.mounted = self._mount("-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(mountpoint))
        self.folder = mountpoint / "cache"

    def _mount(self, *arguments: str) -> bool:
        with contextlib.suppress(FileNotFoundError):  # no such program
            return not subprocess.run(["mount", *arguments], capture_output=True, timeout=30).returncode
        return False

    def harm(self, dice: random.Random) -> str:
        """Let something happen; returns its name."""
        ways: list[Callable[[], object]] = [
            self.fill,
            self.shrink,
            self.read_only,
            self.delete,
            self.move,
            self.restore,
        ]
        way = dice.choice(ways)
        with contextlib.suppress(OSError, shutil.Error):
            way()
        return way.__name__

    def fill(self) -> None:
        with open(self.at / "ballast", "wb", buffering=0) as file:
            for _ in range(DISK // 4096 if self.mounted else 0):
                file.write(bytes(4096))

    def shrink(self) -> None:
        self._mount("-o", f"remount,size={DISK // 2}", str(self.at))

    def read_only(self) -> None:
        self._mount("-o", "remount,ro", str(self.at))

    def delete(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def move(self) -> None:
        self.folder.rename(self.at / f"moved-{time.monotonic_ns()}")

    def restore(self) -> None:
        """As of some rounds ago."""
        if self.backup.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.copytree(self.backup, self.folder)

    def repair(self) -> None:
        """Make it a disk that works; the folder stays as it is."""
        if self.mounted:
            self._mount("-o", f"remount,rw,size={DISK}", str(self.at))
        (self.at / "ballast").unlink(missing_ok=True)
        for moved in self.at.glob("moved-*"):
            shutil.rmtree(moved, ignore_errors=True)

    def back_up(self) -> None:
        shutil.rmtree(self.backup, ignore_errors=True)
        with contextlib.suppress(OSError, shutil.Error):
            shutil.copytree(self.folder, self.backup)

    def damage(self, dice: random.Random) -> bool:
        """Damage a file of the cache, whichever."""
        files = [Path(above, name) for above, _, names in os.walk(self.folder) for name in names]
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

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.at)], check=True, timeout=30)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "disk", tmp_path / "backup")
    yield made
    made.close()


def use(fs: CachedFS, files: Files, dice: random.Random) -> None:
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


def child(fs: CachedFS, files: Files, seed: int, complaints: int) -> NoReturn:
    """A process that reads until it is killed; what is wrong it writes to a pipe."""
    warnings.simplefilter("ignore")
    faulthandler.register(signal.SIGUSR1)

    def reading(number: int, reads: float = float("inf")) -> None:
        dice = random.Random(seed * 100 + number)
        try:
            while reads > 0:
                began = time.monotonic()
                use(fs, files, dice)
                took = time.monotonic() - began
                assert took < LONGEST_READ or stopped[0], f"a read took {took:.1f} s"
                stopped[0] = False
                reads -= 1
                if number == 0 and dice.random() < 0.02 and not (pid := os.fork()):
                    reading(THREADS, 3)
                    os._exit(0)
                elif number == 0 and "pid" in locals() and pid:
                    os.waitpid(pid, 0)
                    pid = 0
        except BaseException as exc:
            os.write(complaints, f"{type(exc).__name__}: {exc}"[:300].encode() + b"\n")
            os._exit(1)

    stopped = [False]
    signal.signal(signal.SIGCONT, lambda *_: stopped.__setitem__(0, True))
    try:
        for number in range(1, THREADS):
            threading.Thread(target=reading, args=(number,), daemon=True).start()
        reading(0)
    finally:
        os._exit(1)


def one_round(fs: CachedFS, files: Files, disk: Disk, dice: random.Random, counts: Counter[str]) -> str:
    """Run the processes, and let things happen to them; returns their complaints."""
    reading, complaints = os.pipe()
    running, killed = list[int](), list[int]()
    for _ in range(PROCESSES):
        seed = dice.getrandbits(40)
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            child(fs, files, seed, complaints)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # here, too: it may be stopped before it does so
        running.append(pid)
    os.close(complaints)
    end = time.monotonic() + ROUND
    try:
        while time.monotonic() < end:
            time.sleep(0.02)
            what = dice.random()
            if what < 0.3:
                number = dice.randrange(SMALL + LARGE)
                files.write(number, files.generations[number] + 1)
                counts["files changed"] += 1
            elif what < 0.6:
                counts["files of the cache damaged"] += disk.damage(dice)
            elif what < 0.7:
                counts[f"disk: {disk.harm(dice)}"] += 1
                if dice.random() < 0.5:
                    disk.repair()
            elif what < 0.8 and len(running) > 2:
                os.kill(dice.choice(running), signal.SIGSTOP)
                counts["processes stopped"] += 1
            elif what < 0.85:
                os.kill(dice.choice(running), signal.SIGCONT)
            elif what < 0.9 and len(running) > 2:
                pid = running.pop(dice.randrange(len(running)))
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                killed.append(pid)
                counts["processes killed"] += 1
    finally:
        disk.repair()
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            counts["processes killed"] += 1
    return complained(reading, killed)


def complained(reading: int, killed: list[int]) -> str:
    """Return what the processes have written; those that killed ones had forked end by themselves, or say where not."""
    found, end = b"", time.monotonic() + ENDING_SECONDS
    with open(reading, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0, end - time.monotonic()))[0]:
            if not (data := file.read(1 << 16)):
                return found.decode()
            found += data
        for number in (signal.SIGUSR1, signal.SIGKILL):  # the first prints its stacks
            for pid in killed:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, number)
            time.sleep(0.5)
    return f"{found.decode()}a forked process hangs"


@pytest.mark.soak
@pytest.mark.timeout(120 + soak.rounds(4) * 2)
def test_never_a_wrong_byte_whatever_happens_to_the_cache(disk: Disk, tmp_path: Path) -> None:
    """In a process that is small, since it forks often."""
    started("spawn", "chaos", _chaos, (disk, tmp_path), 110.0 + soak.rounds(4) * 2)


def _chaos(disk: Disk, tmp_path: Path) -> None:
    dice, counts = random.Random(soak.seed(5)), Counter[str]()
    (tmp_path / "store").mkdir()
    files = Files(tmp_path / "store")
    rounds = soak.rounds(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fs = CachedFS(
            Local(tmp_path / "store"),
            disk.folder,
            max_bytes=DISK // 2,
            min_free=0,
            memory_bytes=100_000,
            block_size=4096,
            whole_file_size=8000,
        )
        for number in range(rounds):
            assert one_round(fs, files, disk, dice, counts) == ""
            if number % 10 == 3:
                disk.back_up()
            fs.verify()
            assert fs.verify() == [], "what was damaged is gone"
            status = fs.status()["disk"]
            entries = [path for path in disk.folder.glob("entries-1/??/*") if not path.name.startswith(".")]
            assert status["entries"] == len(entries)
            assert status["bytes"] >= sum(path.stat().st_blocks * 512 for path in entries)
            for at, generation in enumerate(files.generations):
                files.check(at, fs.read_bytes(str(at)), generation)
    soak.count("cache: rounds of chaos", rounds)
    for what, count in counts.items():
        soak.count(f"cache: {what}", count)
    print(dict(counts))
