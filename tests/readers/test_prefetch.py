"""Reading ahead: in order, within a bound, after a fork, with the errors where they belong."""

from __future__ import annotations

import _thread
import gc
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import fsabs
from fsabs import FS
from fsabs.cache import CachedFS
from fsabs.core.fs import StrPath
from fsabs.readers.prefetch import Ahead, TakesOrder, prefetch, read_batches_ahead
from fsabs.spi import LayerFS


class Watching(LayerFS):
    """Notes what is read, and is told the order."""

    def __init__(self, inner: FS) -> None:
        super().__init__(inner)
        self.read: list[str] = []
        self.batches: list[int] = []
        self.orders: list[list[StrPath]] = []

    def _read_many(self, wanted: Sequence[str], *how: Any) -> Iterator[Any]:
        self.batches.append(len(wanted))
        for key in wanted:
            self.read.append(key)
            yield from self.inner._read_many((key,), *how)

    def set_order(self, paths: Sequence[StrPath]) -> None:
        self.orders.append(list(paths))


NAMES = [f"{number:03}" for number in range(100)]


@pytest.fixture
def fs(tmp_path: Path) -> Watching:
    for name in NAMES:
        (tmp_path / name).write_bytes(name.encode() * 10)
    return Watching(fsabs.from_url(tmp_path))


@pytest.mark.quick
def test_contents_in_order(fs: Watching) -> None:
    order = NAMES[::-1]
    assert list(prefetch(fs, order)) == [name.encode() * 10 for name in order]
    assert [[fs.url(path) for path in told] for told in fs.orders] == [[fs.url(name) for name in order]]
    assert fs.batches[:3] == [4, 16, 64]
    assert list(prefetch(LayerFS(fs), [])) == []


def test_a_cache_below_a_layer_and_a_subfs_is_told(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x").write_bytes(b"x")
    below = CachedFS(fsabs.from_url(tmp_path), tmp_path / "cache")
    assert isinstance(below, TakesOrder)
    watching = Watching(below)
    sub = LayerFS(watching).subfs("d")
    assert list(prefetch(sub, ["x"])) == [b"x"]
    assert [below.url(path) for path in watching.orders[0]] == [sub.url("x")]
    below.close()


def test_the_bound(fs: Watching) -> None:
    contents = prefetch(fs, NAMES, max_bytes=30 * 20)
    for taken, _ in enumerate(contents, 1):
        assert len(fs.read) <= taken + 21
        deadline = time.monotonic() + 20
        while len(fs.read) < min(taken + 5, 100):  # it is ahead
            assert time.monotonic() < deadline
            time.sleep(0.001)
    assert max(fs.batches) <= 10
    assert len(list(prefetch(fs, NAMES, max_bytes=1))) == 100  # a file at a time, but every file
    with pytest.raises(ValueError):
        prefetch(fs, NAMES, max_bytes=0)


def test_an_error_comes_in_its_place(fs: Watching) -> None:
    contents = prefetch(fs, ["000", "none", "001"])
    assert next(contents) == b"000" * 10
    with pytest.raises(FileNotFoundError, match="none"):
        next(contents)


def test_no_thread_is_left(fs: Watching) -> None:
    before = _thread._count()
    contents = prefetch(fs, NAMES, max_bytes=100)
    next(contents)
    contents.close()
    dropped = prefetch(fs, NAMES, max_bytes=100)
    next(dropped)
    del dropped
    gc.collect()
    deadline = time.monotonic() + 5
    while _thread._count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_it_goes_on_in_a_child_and_after_pickling(fs: Watching) -> None:
    contents = prefetch(fs.inner, NAMES, max_bytes=300)
    assert [next(contents) for _ in range(30)][-1] == b"029" * 10
    copied = pickle.loads(pickle.dumps(contents))
    child = os.fork()
    if not child:
        rest = list(contents)
        os._exit(0 if rest == [name.encode() * 10 for name in NAMES[30:]] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert list(contents) == list(copied) == [name.encode() * 10 for name in NAMES[30:]]


def test_ahead_of_anything() -> None:
    assert list(Ahead(lambda: iter(range(1000)), 10)) == list(range(1000))

    def failing() -> Iterator[int]:
        yield 1
        raise KeyError("x")

    items = Ahead(failing, 10)
    assert next(items) == 1
    with pytest.raises(KeyError):
        next(items)
    with pytest.raises(StopIteration):
        next(items)


def doubled(numbers: Sequence[int]) -> list[int]:
    return [2 * number for number in numbers]


def without_first(numbers: Sequence[int]) -> list[int]:
    return list(numbers)[1:]


def test_lists_are_handed_over_as_lists_and_counted() -> None:
    taken = read_batches_ahead(doubled, range(10_000), int.bit_length, max_bytes=10_000)
    assert taken.take(3) == [0, 2, 4]
    assert next(taken) == 6
    assert pickle.loads(pickle.dumps(taken)).take(2) == taken.take(2) == [8, 10]
    assert taken.take(20_000) == list(range(12, 20_000, 2))
    assert taken.take(1) == []
    with pytest.raises(RuntimeError, match="3 items were read, and not 4"):
        read_batches_ahead(without_first, range(10), int.bit_length, max_bytes=10).take(10)


@pytest.mark.quick
def test_threads_share_what_is_read() -> None:
    for room in (1, 50, 10**9):
        ahead = Ahead(lambda: iter(range(3000)), room)
        with ThreadPoolExecutor(4) as pool:
            taken = list(pool.map(lambda _, ahead=ahead: list(ahead), range(4)))
        assert sorted(number for found in taken for number in found) == list(range(3000))
        assert all(found == sorted(found) for found in taken)
