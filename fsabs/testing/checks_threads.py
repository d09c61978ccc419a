"""Checks of threads: one FS, one open file and one iterator, used from many at once."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Iterator
from typing import Any

from ..core.files import ReadFile
from ..core.fs import FS
from .asserts import assert_same, assert_tree, listed
from .children import threaded
from .kit import check
from .subjects import Subject
from .trees import TREE, noise

_THREADS = 8
_DATA = noise(1_000_003)


def _positioned(file: ReadFile, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        size, offset = chance.randrange(1, 60_000), chance.randrange(len(_DATA))
        assert_same(file.raw.blob.pread(size, offset), _DATA[offset : offset + size])
    ranges = [(chance.randrange(1, 5000), chance.randrange(len(_DATA))) for _ in range(10)]
    expected = [_DATA[offset : offset + size] for size, offset in ranges]
    assert file.raw.blob.pread_many(ranges) == expected


@check("threads")
def many_threads_read_one_file(subject: Subject) -> None:
    with subject.make({"data.bin": _DATA}) as fs, fs.open("data.bin", "rb") as file:
        threaded(
            "reading by position", [functools.partial(_positioned, file, n) for n in range(_THREADS)], subject.timeout
        )
        assert file.tell() == 0

        def read_in_turn() -> list[bytes]:
            return list(iter(lambda: file.read(10_007), b""))

        found = threaded("reading one file in turn", [read_in_turn] * _THREADS, subject.timeout)
        pieces = sorted(piece for part in found for piece in part)
        expected = sorted(_DATA[at : at + 10_007] for at in range(0, len(_DATA), 10_007))
        assert pieces == expected


@check("threads")
def many_threads_use_one_fs(subject: Subject) -> None:
    with subject.make({**TREE, "data.bin": _DATA}) as fs:

        def use(seed: int) -> None:
            for name in random.Random(seed).sample(list(TREE), 8):
                assert fs.read_bytes(name) == TREE[name]
                assert fs.stat(name).size == len(TREE[name])
            offset = seed * 1000
            with fs.open("data.bin", "rb") as file:
                file.seek(offset)
                assert_same(file.read(5000), _DATA[offset : offset + 5000])
            assert list(fs.read_many(TREE)) == list(TREE.values())
            assert listed(fs, recursive=True) == names

        names = listed(fs, recursive=True)
        threaded("using one FS", [functools.partial(use, n) for n in range(_THREADS)], subject.timeout)


@check("threads")
def many_threads_share_an_iterator(subject: Subject) -> None:
    files = {f"{n:03}.bin": b"%d" % n for n in range(200)}
    with subject.make(files) as fs:
        shared: list[tuple[Iterator[Any], list[Any]]] = [
            (fs.list(), list(files)),
            (fs.read_many(files), list(files.values())),
            (fs.glob("*"), list(files)),
        ]
        for iterator, expected in shared:
            takers = [functools.partial(_take_all, iterator)] * 4
            found = threaded("sharing an iterator", takers, subject.timeout)
            together = sorted(item for part in found for item in part)
            assert together == sorted(expected)


def _take_all(iterator: Iterator[Any]) -> list[Any]:
    return list(iterator)


@check("threads", needs=("live", "write"))
def many_threads_write_one_fs(subject: Subject) -> None:
    files = {f"{n}.bin": noise(100_000 * n) for n in range(_THREADS)}
    barrier = threading.Barrier(_THREADS)
    with subject.make({}) as fs:

        def write(name: str, data: bytes) -> None:
            barrier.wait(subject.timeout)
            _write_in_pieces(fs, name, data)

        functions = [functools.partial(write, name, data) for name, data in files.items()]
        threaded("writing to one FS", functions, subject.timeout)
        assert_tree(fs, files)
    assert_same(subject.contents(fs), files)


def _write_in_pieces(fs: FS, name: str, data: bytes) -> None:
    with fs.open(name, "wb", 4096) as file:
        for offset in range(0, len(data), 30_000):
            file.write(data[offset : offset + 30_000])
