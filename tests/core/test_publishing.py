"""No writer publishes but by a close that nothing went wrong before: rounds of failed, interrupted, dropped and
inherited writers on local files, S3, HDFS and in zips, after each of which the store has what it had.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

import fsabs
from fsabs import FS
from fsabs.containers.zip import Zip
from fsabs.testing.children import Child
from fsabs.testing.faulty import Fault, FaultyFS, Raise
from tests import soak
from tests.servers.hdfs import HdfsCluster
from tests.servers.moto import MotoServer
from tests.servers.shared import unique

ROUNDS = 30
MODES = ("wb", "xb", "w", "x")
BIG = 1 << 20


class _InterruptError(Exception):
    """What a signal's handler raises."""


@contextlib.contextmanager
def _interrupted_soon(chance: random.Random) -> Iterator[None]:
    def interrupt(number: int, frame: object) -> None:
        raise _InterruptError

    before = signal.signal(signal.SIGALRM, interrupt)
    passed, interval = signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, 3e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, passed, interval)  # the watchdog's


def _pieces(chance: random.Random, mode: str) -> Iterator[Any]:
    for _ in range(chance.randrange(1, 5)):
        size = chance.choice((1, 1000, 300_000, BIG))
        yield b"n" * size if "b" in mode else "n" * size


def _write(file: IO[Any], chance: random.Random, mode: str) -> None:
    for piece in _pieces(chance, mode):
        file.write(piece)
        if chance.random() < 0.3:
            file.flush()


def fails_in_its_block(fs: FS, name: str, mode: str, chance: random.Random) -> None:
    with pytest.raises(ZeroDivisionError), fs.open(name, mode) as file:
        _write(file, chance, mode)
        raise ZeroDivisionError


def fails_to_write(fs: FS, name: str, mode: str, chance: random.Random) -> None:
    """A write or the flush of a close fails; closing the file then does not make it whole."""
    full = FaultyFS(fs, Fault("write", Raise(OSError(errno.ENOSPC, "full")), at=chance.randrange(1, 4)))
    file = full.open(name, mode)
    with pytest.raises(OSError, match="full"):
        for _ in range(5):
            file.write(b"n" * BIG if "b" in mode else "n" * BIG)
        file.close()
    with contextlib.suppress(OSError):
        file.close()


def is_interrupted(fs: FS, name: str, mode: str, chance: random.Random) -> None:
    with contextlib.suppress(_InterruptError), _interrupted_soon(chance), fs.open(name, mode) as file:
        for _ in range(1000):
            file.write(b"n" * 100_000 if "b" in mode else "n" * 100_000)
        raise _InterruptError  # it was raised where exceptions are dropped, as in a callback of the garbage collector


def is_dropped(fs: FS, name: str, mode: str, chance: random.Random) -> None:
    file = fs.open(name, mode)
    _write(file, chance, mode)
    del file
    gc.collect()


def is_aborted(fs: FS, name: str, mode: str, chance: random.Random) -> None:
    file: Any = fs.open(name, mode)
    _write(file, chance, mode)
    file.abort()
    file.close()


def is_inherited(fs: FS, name: str, mode: str, chance: random.Random) -> None:
    """A child closes, drops and leaves the file; its parent then throws it away."""
    file: Any = fs.open(name, mode)
    _write(file, chance, mode)

    def ends_it() -> None:
        nonlocal file
        with contextlib.suppress(OSError):
            file.close()
        file = None
        gc.collect()

    Child("a child", ends_it, 20).result()
    file.abort()


# An interrupt may leave a file or a socket to the garbage collector.
pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]
ENDINGS = (fails_in_its_block, fails_to_write, is_interrupted, is_dropped, is_aborted, is_inherited)


def _rounds(fs: FS) -> None:
    chance, rounds = random.Random(soak.seed(1)), soak.rounds(ROUNDS)
    for number in range(rounds):
        ending, mode = chance.choice(ENDINGS), chance.choice(MODES)
        name = f"f{number}"
        if mode[0] == "w" and chance.random() < 0.7:
            fs.write_bytes(name, b"old")
        before = {name: fs.read_bytes(name) for name in fs.list("")}
        ending(fs, name, mode, chance)
        found = {name: fs.read_bytes(name) for name in fs.list("")}
        assert found == before, (number, ending.__name__, mode)
        for done in found:
            fs.remove(done)
    soak.count("writers that end badly", rounds)


@pytest.mark.quick
def test_on_local_files(tmp_path: Path) -> None:
    _rounds(fsabs.from_url(tmp_path))
    assert not os.listdir(tmp_path)


def test_on_s3(moto: MotoServer) -> None:
    bucket = unique("publishing")
    moto.create_bucket(bucket)
    _rounds(fsabs.from_url(f"s3://{bucket}/", **moto.options))


@pytest.mark.timeout(180)
def test_on_hdfs(hdfs: HdfsCluster) -> None:
    _rounds(fsabs.from_url(f"{hdfs.url}/{unique('publishing')}", create=True))


@pytest.mark.quick
def test_in_a_zip(tmp_path: Path) -> None:
    """A member that is not whole is in no archive; an archive whose member was lost is not stored."""
    fs = fsabs.from_url(tmp_path)
    chance, rounds = random.Random(soak.seed(1)), soak.rounds(ROUNDS)
    for number in range(rounds):
        ending, mode = chance.choice(ENDINGS), chance.choice(MODES)
        archive = Zip(fs, "a.zip", "w")
        archive.write_bytes("whole", b"1")
        ending(archive, "lost", mode, chance)
        busy = False
        try:
            archive.close()
        except OSError as exc:
            busy = exc.errno == errno.EBUSY
        assert busy or ending is not is_dropped, number
        assert not busy or ending in (is_dropped, is_interrupted), (number, ending.__name__)
        found = list(Zip(fs, "a.zip").list()) if fs.exists("a.zip") else None
        assert found == (None if busy else ["whole"]), (number, ending.__name__, mode)
        if found:
            fs.remove("a.zip")
    soak.count("writers that end badly", rounds)
