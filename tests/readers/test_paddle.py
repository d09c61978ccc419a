"""Paddle's readers and decorators: the same instances, errors where they are read, no thread left behind."""

from __future__ import annotations

import _thread
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fsabs
from fsabs.core.errors import CorruptFileError
from fsabs.readers import encode
from fsabs.readers.paddle import (
    ComposeNotAligned,
    batch,
    buffered,
    cache,
    chain,
    compose,
    creator,
    firstn,
    map_readers,
    multiprocess_reader,
    shuffle,
    xmap_readers,
)
from fsabs.readers.prefetch import read_ahead
from fsabs.readers.recordio import RecordWriter
from fsabs.readers.sharded import convert
from tests.containers.forks import all_end_well, forked


def count(number: int) -> Callable[[], Iterator[int]]:
    """A reader of 0, 1, ..."""
    return lambda: iter(range(number))


def failing(after: int) -> Callable[[], Iterator[int]]:
    """A reader that yields so many and fails."""

    def read() -> Iterator[int]:
        yield from range(after)
        raise KeyError("what went wrong")

    return read


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = _thread._count()
    yield
    gc.collect()  # what was dropped may have waited for it
    deadline = time.monotonic() + 5
    while _thread._count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two sets of shards."""
    convert(tmp_path, count(1000), 3, "a")
    convert(tmp_path, lambda: iter(["b", ("tuple", 1)]), 1, "b")
    return tmp_path


# ---- creator.RecordIO


@pytest.mark.quick
def test_what_was_converted_comes_back(folder: Path) -> None:
    reader = creator.RecordIO(f"{folder}/a-*-of-*")
    by_shard = [number for shard in range(3) for number in range(shard, 1000, 3)]
    assert list(reader()) == by_shard
    assert list(reader()) == by_shard  # each call begins anew


def test_all_ways_to_name_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    b = ["b", ("tuple", 1)]
    fs = fsabs.from_url(folder)
    url = fs.url("b-00000-of-00000")
    for one in (f"{folder}/b-00000-of-00000", folder / "b-00000-of-00000", url):
        assert list(creator.RecordIO(one)()) == b
    twice: list[Any] = [f"{folder}/b-*, {url}", [folder / "b-*", url]]
    for two in twice:
        assert list(creator.RecordIO(two)()) == b + b
    assert list(creator.RecordIO("b-*,b-00000-of-00000", fs=fs)()) == b + b
    for reader in (creator.RecordIO(folder), creator.RecordIO(f"{folder}/"), creator.recordio([""], fs=fs)):
        assert len(list(reader())) == len(b) + 1000
    (folder / "b-00000-of-00000").rename(folder / "b,c")
    assert list(creator.RecordIO([f"{folder}/b,c"])()) == b
    monkeypatch.chdir(folder)
    nothing: list[Any] = ["none-*", "none", "a-*,none-*", []]
    for none in nothing:
        with pytest.raises((FileNotFoundError, ValueError)):
            creator.RecordIO(none)
    with pytest.raises(FileNotFoundError) as found:
        creator.RecordIO(f"{folder}/none-*")
    assert found.value.filename == fs.url("none-*")


def test_a_record_that_is_no_instance_is_named(folder: Path) -> None:
    fs = fsabs.from_url(folder)
    with RecordWriter(fs, "c") as writer:
        for record in (encode(0), encode(1), b"\x80\x05.", encode(3)):
            writer.write(record)
    items = creator.RecordIO(folder / "c")()
    assert [next(iter(items)) for _ in range(2)] == [0, 1]
    with pytest.raises(CorruptFileError, match=r"record 2: .*/c'"):
        next(iter(items))
    assert list(creator.RecordIO(folder / "c", decode=len)()) == [4, 4, 3, 4]


def test_pickles_only_when_asked(folder: Path) -> None:
    convert(folder, lambda: iter([{1}]), 1, "p", allow_pickle=True)
    with pytest.raises(CorruptFileError, match="allow_pickle"):
        list(creator.RecordIO(folder / "p-*")())
    assert list(creator.RecordIO(folder / "p-*", allow_pickle=True)()) == [{1}]


def test_damage_reaches_the_reader_or_is_skipped(folder: Path) -> None:
    path = folder / "a-00001-of-00002"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match="a-00001-of-00002"):
        list(creator.RecordIO(f"{folder}/a-*")())
    skipping = creator.RecordIO(f"{folder}/a-*", on_error="skip")
    assert sorted(skipping()) == [number for number in range(1000) if number % 3 != 1]


def test_what_is_dropped_ends(folder: Path) -> None:
    readers = (
        creator.RecordIO(f"{folder}/a-*", buf_size=1),
        buffered(count(10**9), 3),
        xmap_readers(abs, lambda: itertools.count(), 3, 3),
    )
    for reader in readers:
        items = iter(reader())
        assert next(items) == 0
        del items


# ---- decorators


@pytest.mark.quick
def test_batch() -> None:
    assert list(batch(count(5), 2)()) == [[0, 1], [2, 3], [4]]
    assert list(batch(count(5), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(batch(count(4), 2, drop_last=True)()) == [[0, 1], [2, 3]]
    assert list(batch(count(0), 2)()) == []
    with pytest.raises(ValueError):
        batch(count(1), 0)


def test_shuffle() -> None:
    reader = shuffle(count(100), 10, seed=3)
    found = list(reader())
    assert found == list(reader()) != list(range(100))
    assert [sorted(found[at : at + 10]) for at in range(0, 100, 10)] == list(batch(count(100), 10)())
    assert sorted(shuffle(count(100), 1000)()) == list(range(100))
    with pytest.raises(ValueError):
        shuffle(count(1), 0)


@pytest.mark.quick
def test_chain_map_firstn_and_compose() -> None:
    assert list(chain(count(2), count(3))()) == [0, 1, 0, 1, 2]
    assert list(map_readers(lambda a, b: a * b, count(4), count(9))()) == [0, 1, 4, 9]
    pairs = map_readers(lambda number: (number, -number), count(3))
    assert list(compose(pairs, count(3))()) == [(0, 0, 0), (1, -1, 1), (2, -2, 2)]
    with pytest.raises(ComposeNotAligned):
        list(compose(count(3), count(2))())
    assert list(compose(count(3), count(2), check_alignment=False)()) == [(0, 0), (1, 1)]
    taken: list[int] = []

    def note(number: int) -> int:
        taken.append(number)
        return number

    assert list(firstn(map_readers(note, count(10)), 3)()) == taken == [0, 1, 2]
    with pytest.raises(ValueError):
        firstn(count(1), -1)


def test_buffered_is_ahead_but_not_further() -> None:
    taken: list[int] = []
    full = threading.Event()

    def read() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            if number == 5:
                full.set()
            yield number

    items = iter(buffered(read, 5)())
    assert next(items) == 0
    assert full.wait(20)
    assert len(taken) <= 7  # one was given, five wait, and one may be on its way
    assert list(items) == list(range(1, 100))
    with pytest.raises(ValueError):
        buffered(read, 0)


@pytest.mark.parametrize("order", [False, True])
def test_xmap(order: bool) -> None:
    def slow(number: int) -> int:
        time.sleep(0.0003 * (number % 3))
        return 2 * number

    for threads in (1, 4):
        found = list(xmap_readers(slow, count(200), threads, 3, order)())
        assert (found if order else sorted(found)) == [2 * number for number in range(200)]
    for wrong in ((0, 1), (1, 0)):
        with pytest.raises(ValueError):
            xmap_readers(slow, count(1), *wrong)


def test_xmap_takes_no_more_than_it_may() -> None:
    taken: list[int] = []
    held = threading.Event()

    def wait(number: int) -> int:
        if number == 0:
            held.wait(30)
        return number

    def read() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            if number == 6:
                held.set()
            yield number

    items = iter(xmap_readers(wait, read, 3, 4, order=True)())
    assert next(items) == 0
    assert len(taken) < 20
    assert list(items) == list(range(1, 1000))


@pytest.mark.quick
@pytest.mark.parametrize("order", [False, True])
def test_errors_of_threads_are_raised_where_the_items_are_read(order: bool) -> None:
    for reader in (buffered(failing(3), 2), xmap_readers(abs, failing(3), 2, 2, order)):
        with pytest.raises(KeyError, match="what went wrong"):
            list(reader())
    items = iter(buffered(failing(3), 10)())
    assert list(itertools.islice(items, 3)) == [0, 1, 2]  # what came before it comes first
    with pytest.raises(KeyError):
        next(items)
    assert list(items) == []
    with pytest.raises(ZeroDivisionError):
        list(xmap_readers(lambda number: 1 // (number - 50), count(100), 3, 5, order)())


def test_a_child_does_not_wait_for_its_parents_threads() -> None:
    items = read_ahead(count(100), 2)
    assert next(items) == 0

    def check() -> bool:
        with pytest.raises(RuntimeError, match="fork"):
            for _ in items:
                continue
        return list(read_ahead(count(100), 2)) == list(range(100))

    assert all_end_well(forked(check))
    assert list(items) == list(range(1, 100))


# ---- readers of other things, and of many processes


def test_rows_of_arrays_and_lines_of_files(tmp_path: Path) -> None:
    rows = np.arange(6).reshape(3, 2)
    assert [row.tolist() for row in creator.np_array(rows)()] == rows.tolist()
    assert list(creator.np_array(np.array(2.5))()) == [2.5]
    (tmp_path / "lines").write_bytes("one\ntwö\r\n\nlast".encode())
    reader = creator.text_file(tmp_path / "lines")
    assert list(reader()) == list(reader()) == ["one", "twö", "", "last"]
    assert list(creator.text_file("lines", fs=fsabs.from_url(tmp_path))()) == ["one", "twö", "", "last"]
    with pytest.raises(FileNotFoundError):
        next(iter(creator.text_file(tmp_path / "none")()))


def test_a_cache_reads_once_and_only_what_was_read_to_the_end_counts() -> None:
    calls = []

    def read() -> Iterator[int]:
        calls.append(1)
        yield from range(5)

    reader = cache(read)
    assert list(itertools.islice(reader(), 2)) == [0, 1]
    assert [list(reader()) for _ in range(3)] == [[0, 1, 2, 3, 4]] * 3
    assert len(calls) == 2


def test_readers_in_processes() -> None:
    for queue_size in (1, 7, 1000):
        reader = multiprocess_reader([count(100), count(3), count(0)], queue_size=queue_size)
        for _ in range(2):
            assert sorted(reader()) == sorted([*range(100), *range(3)])
    with pytest.raises(ValueError, match="no readers"):
        multiprocess_reader([])
    with pytest.raises(ValueError, match="queue_size"):
        multiprocess_reader([count(1)], queue_size=0)


def test_a_process_is_no_further_ahead_than_it_may_and_ends_with_its_iterator(tmp_path: Path) -> None:
    def read() -> Iterator[int]:
        for number in range(100_000):
            (tmp_path / "at").write_text(str(number))
            yield number

    items = iter(multiprocess_reader([read], queue_size=50)())
    next(items)
    assert multiprocessing.active_children()
    time.sleep(0.1)  # in which it could do thousands
    assert int((tmp_path / "at").read_text() or 0) <= 50 + 25
    del items
    gc.collect()
    assert not multiprocessing.active_children()


def test_errors_of_processes_are_raised_here() -> None:
    class Odd(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(f"{first} and {second}")

    def odd() -> Iterator[int]:
        yield 1
        raise Odd(1, 2)

    wrong: list[tuple[Any, Any, str]] = [
        (failing(40), KeyError, "what went wrong"),
        (odd, RuntimeError, "Odd: 1 and 2"),
        (lambda: iter([None]), ValueError, "None"),
        (lambda: iter([lambda: None]), (AttributeError, pickle.PicklingError), "lambda"),
    ]
    for reader, error, said in wrong:
        with pytest.raises(error, match=said):
            list(multiprocess_reader([reader])())


def test_a_killed_process_is_an_error_and_the_others_end() -> None:
    def killed() -> Iterator[int]:
        yield from range(64)
        os.kill(os.getpid(), signal.SIGKILL)

    def endless() -> Iterator[int]:
        return itertools.count()

    items = multiprocess_reader([killed, endless])()
    with pytest.raises(ChildProcessError, match="reader 0.*-9|-9.*reader 0"):
        for _ in items:
            pass
    assert not multiprocessing.active_children()
