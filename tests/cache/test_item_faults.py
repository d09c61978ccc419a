"""The faults of other caches, each of which must not come back: kills, full disks, damage, locks, aliasing."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import pickle
import resource
import signal
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsabs.cache import FileCache, MultiprocessFileCache, ReadOnlyFileCache
from fsabs.cache.items import table as tables
from fsabs.cache.items.table import RAW
from fsabs.core.errors import CorruptFileError
from fsabs.testing.children import Child, forked, threaded


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[MultiprocessFileCache]:
    with MultiprocessFileCache(2000, dir=tmp_path) as made:
        yield made


def value_of(number: int) -> bytes:
    return b"%04d" % number * (10 + number % 50)


def at_write(call: int, act: Callable[[], None]) -> Iterator[None]:
    """Patch what writes: `act` is called in place of the `call`th write."""
    left, real = [call], {name: getattr(os, name) for name in ("writev", "pwrite")}

    def counted(name: str, *arguments: Any) -> Any:
        left[0] -= 1
        return act() if left[0] == -1 else real[name](*arguments)

    for name in real:
        setattr(os, name, functools.partial(counted, name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


writes = contextlib.contextmanager(at_write)


@pytest.mark.parametrize("call", range(3))
def test_a_put_that_is_killed_anywhere_serves_nothing_else(cache: MultiprocessFileCache, call: int) -> None:
    """pfio writes the index first: a killed worker's item has the bytes of the next one."""

    def put() -> None:
        with writes(call, lambda: os.kill(os.getpid(), signal.SIGKILL)):
            cache.put(5, b"five" * 100)

    cache.put(4, b"four")
    child = Child("putting", put, 20)
    if call < 2:
        with pytest.raises(AssertionError, match="died"):
            child.result()
    else:
        child.result()
    assert cache.get(5) == (b"five" * 100 if call == 2 else None)
    assert cache.put(6, b"six" * 100)
    assert cache.put(5, b"five" * 100) == (call < 2)
    assert cache.get(4) == b"four"
    assert cache.get(5) == b"five" * 100
    assert cache.get(6) == b"six" * 100


@pytest.mark.parametrize("failing", range(2))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_of_the_disk_is_told_once_and_leaves_no_lock(
    cache: MultiprocessFileCache, failing: int, code: int
) -> None:
    def fails() -> None:
        raise OSError(code, os.strerror(code))

    with writes(failing, fails), pytest.warns(RuntimeWarning):
        assert not cache.put(1, b"one")
    with writes(failing, fails), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not cache.put(1, b"one")
    assert cache.get(1) is None
    assert forked("putting", [lambda: cache.put(2, b"two")], 4) == [True]
    assert cache.put(1, b"one")
    assert (cache.get(1), cache.get(2)) == (b"one", b"two")
    assert cache.stats()["bytes"] == 6


def test_an_error_of_the_backend_or_the_codec_leaves_no_lock_and_no_claim(cache: MultiprocessFileCache) -> None:
    with pytest.raises(TypeError):
        cache.get_and_cache(1, lambda i: object())
    with pytest.raises(ZeroDivisionError):
        cache.get_and_cache(1, lambda i: 1 // 0)
    assert forked("asking", [lambda: cache.get_and_cache(1, lambda i: b"one")], 4) == [b"one"]


def all_right(cache: FileCache) -> int:
    found = [(number, cache.get(number)) for number in range(len(cache))]
    assert not [number for number, value in found if value not in (None, value_of(number))]
    return sum(value is not None for _, value in found)


def put_all(cache: FileCache, first: int, step: int) -> int:
    return sum(cache.put(number, value_of(number)) for number in range(first, len(cache), step))


def test_four_threads_get_their_own_items(cache: MultiprocessFileCache) -> None:
    """pfio: 93 wrong of 2000."""
    functions: list[Any] = [functools.partial(put_all, cache, first, 2) for first in (0, 1, 0, 1)]
    functions += [functools.partial(all_right, cache)] * 4
    assert sum(threaded("putting", functions, 30)[:4]) == len(cache)
    assert all_right(cache) == len(cache)


def test_puts_of_forked_children_do_not_alias(tmp_path: Path) -> None:
    """pfio's FileCache keeps the end of the file in each process."""
    with FileCache(2000, dir=tmp_path) as cache:
        stored = forked("putting", [functools.partial(put_all, cache, first, 2) for first in (0, 1, 0)], 30)
        assert sum(stored) >= len(cache), "of two that put an item at one moment both may have stored it"
        assert all_right(cache) == len(cache)


def test_preserving_over_itself_keeps_the_data(tmp_path: Path) -> None:
    with FileCache(2, dir=tmp_path) as cache:
        cache.put(0, b"zero")
        assert cache.preserve("kept")
        assert cache.preserve("kept", overwrite=True)
        assert cache.get(0) == b"zero"
    with FileCache(2, dir=tmp_path) as again:
        assert again.preload("kept")
        assert again.preserve("kept", overwrite=True)
        assert again.get(0) == b"zero"
        assert again.preserve("other")
    for name in ("kept", "other"):
        with ReadOnlyFileCache(2, dir=tmp_path) as last:
            last.preload(name)
            assert last.get(0) == b"zero"


@pytest.mark.parametrize("size", [0, 10, 5000, -1])
def test_a_short_file_is_not_preloaded(tmp_path: Path, size: int) -> None:
    with FileCache(200, dir=tmp_path) as cache:
        put_all(cache, 0, 1)
        cache.preserve("kept")
    kept = tmp_path / "kept"
    os.truncate(kept, size if size >= 0 else kept.stat().st_size - 1)
    with FileCache(200, dir=tmp_path) as again:
        with pytest.raises(CorruptFileError, match="bytes"):
            again.preload("kept")
        assert again.put(0, b"it goes on")
        assert again.get(0) == b"it goes on"


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_truncated_file_gives_no_half_items(tmp_path: Path, size: int) -> None:
    values = [os.urandom(size + n) for n in range(400)]
    with FileCache(400, dir=tmp_path) as cache:
        for number, value in enumerate(values):
            cache.put(number, value)
        assert [cache.get(n) for n in range(400)] == values
        assert [cache.get(n) for n in range(400)] == values, "by mapping, where they are large"
        (path,) = tmp_path.iterdir()
        os.truncate(path, path.stat().st_size // 2)
        with pytest.warns(RuntimeWarning, match="checksum"):
            found = [cache.get(n) for n in range(400)]
        assert all(value in (None, right) for value, right in zip(found, values, strict=True))
        assert 0 < sum(value is None for value in found) < 400
        lost = found.index(None)
        assert cache.put(lost, values[lost])
        assert cache.get(lost) == values[lost]


@pytest.mark.parametrize("codec", ["bytes", "memoryview", "numpy"])
def test_a_changed_byte_is_a_miss(tmp_path: Path, codec: str) -> None:
    import numpy as np

    with FileCache(3, dir=tmp_path, codec=codec) as cache:
        right = np.arange(100) if codec == "numpy" else b"x" * 800
        for key in (1, 2):
            cache.put(key, right)
        assert cache.preserve("kept")
    stored = np.arange(100).tobytes() if codec == "numpy" else b"x" * 800
    content = bytearray((tmp_path / "kept").read_bytes())
    first = content.index(stored)
    for offset in (first, content.index(stored, first + len(stored))):
        content[offset + 700] ^= 1
    (tmp_path / "kept").write_bytes(content)
    with ReadOnlyFileCache(3, dir=tmp_path, codec=codec) as again:
        again.preload("kept")
        with pytest.warns(RuntimeWarning, match="checksum"):
            assert again.get(1) is again.get(2) is None
        assert again.stats()["damaged"] == 2


def hold(cache: FileCache, held: threading.Event, release: threading.Event) -> None:
    table: Any = cache._table
    with table._lock:
        held.set()
        release.wait()


def test_a_fork_while_the_lock_is_held_is_no_deadlock(cache: MultiprocessFileCache) -> None:
    held, release = threading.Event(), threading.Event()
    thread = threading.Thread(target=hold, args=(cache, held, release))
    thread.start()
    held.wait()
    child = Child("putting", lambda: (cache.get(1), cache.put(1, b"one")), 4)
    time.sleep(0.05)
    release.set()
    assert child.result() == (None, True)
    thread.join()


def test_a_child_that_was_forked_while_its_killed_parent_held_the_lock_goes_on(cache: MultiprocessFileCache) -> None:
    """The lock must not live on in the descriptor that the child inherited."""
    reading, writing = os.pipe()

    def parent() -> None:
        held = threading.Event()
        threading.Thread(target=hold, args=(cache, held, threading.Event()), daemon=True).start()
        held.wait()
        me = os.getpid()
        if os.fork() == 0:
            signal.alarm(20)
            while os.getppid() == me:
                time.sleep(0.001)
            os.write(writing, b"%d" % cache.put(1, b"one"))
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    child = Child("holding", parent, 20)
    with pytest.raises(AssertionError, match="died"):
        child.result()
    os.close(writing)
    assert os.read(reading, 1) == b"1"
    os.close(reading)
    assert cache.get(1) == b"one"


def test_a_full_disk_is_a_miss(tmp_path: Path) -> None:
    """A limit on the size of files in place of a disk: writes end in the middle, then fail."""

    def fill() -> tuple[int, int]:
        with FileCache(100, dir=tmp_path) as cache, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            table: Any = cache._table
            resource.setrlimit(resource.RLIMIT_FSIZE, (table.header.data_start + 10_500,) * 2)
            stored = [cache.put(n, bytes([n]) * 1000) for n in range(50)]
            assert stored == [n < 10 for n in range(50)]
            assert [cache.get(n) for n in range(50)] == [bytes([n]) * 1000 if n < 10 else None for n in range(50)]
            assert cache.get_and_cache(70, lambda i: b"y" * 1000) == b"y" * 1000
            return len(told), cache.stats()["bytes"]

    assert forked("filling", [fill], 20) == [(1, 10_000)]


def test_a_disk_with_no_room_for_the_index_is_an_error_at_once(tmp_path: Path) -> None:
    def make() -> tuple[int, str]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        with pytest.raises(OSError) as caught:
            FileCache(1_000_000, dir=tmp_path)
        return caught.value.errno, caught.value.operation  # type: ignore[attr-defined,return-value]

    assert forked("making", [make], 20) == [(errno.EFBIG, "create")]
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError) as caught:
        FileCache(10, dir=tmp_path / "file")
    assert caught.value.filename == str(tmp_path / "file")
    with pytest.raises(OSError):
        FileCache(10, dir="/proc/fsabs")


def test_files_that_were_removed_are_still_a_cache(cache: MultiprocessFileCache, tmp_path: Path) -> None:
    cache.put(1, b"one")
    (path,) = tmp_path.iterdir()
    path.unlink()
    assert cache.get(1) == b"one"
    assert cache.put(2, b"two")
    assert forked("sharing", [lambda: (cache.get(2), cache.put(3, b"three"))], 20) == [(b"two", True)]
    assert cache.get(3) == b"three"


def test_an_entry_that_stands_at_anothers_number_is_not_there(tmp_path: Path) -> None:
    """A table whose entries were swapped: each has its right checksum, but for the number."""
    with FileCache(10, dir=tmp_path) as cache:
        for number in range(10):
            cache.put(number, b"item %d" % number)
        cache.preserve("kept")
    path = tmp_path / "kept"
    data = bytearray(path.read_bytes())
    at, size = tables.SLOTS_START, tables.SLOT_SIZE
    data[at + 7 * size : at + 8 * size] = data[at + 3 * size : at + 4 * size]
    path.write_bytes(data)
    for kind in (ReadOnlyFileCache, FileCache):
        other = kind(10, dir=tmp_path)
        other.preload("kept")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert other.get(7) is None, kind
        assert other.get(3) == b"item 3"
        other.close()


def test_no_item_is_there_where_the_table_is_zero() -> None:
    numbers = [0, 1, 2**20, 2**31 - 1, 2**31, 2**39]
    assert all(tables.salt_of(number, RAW) != 0 for number in numbers)
    assert len({tables.salt_of(number, RAW) for number in range(100_000)}) == 100_000


@pytest.mark.parametrize("do_pickle", [False, True])
@pytest.mark.parametrize("kind", [FileCache, ReadOnlyFileCache])
def test_what_pfio_preserved_is_read(tmp_path: Path, kind: Any, do_pickle: bool) -> None:
    items = {0: b"zero", 2: b"", 3: b"three" * 1000}
    encoded = {number: pickle.dumps(data) if do_pickle else data for number, data in items.items()}
    table, body = b"", b""
    for number in range(5):  # as pfio.cache.FileCache writes it
        data = encoded.get(number)
        table += struct.pack("Qq", 5 * 16 + len(body), len(data)) if data is not None else struct.pack("Qq", 0, -1)
        body += data or b""
    (tmp_path / "pfios").write_bytes(table + body)
    cache = kind(5, do_pickle=do_pickle, dir=tmp_path)
    assert cache.preload("pfios")
    assert [cache.get(number) for number in range(5)] == [items.get(number) for number in range(5)]
    assert cache.frozen
    cache.close()
    (tmp_path / "pfios").write_bytes(table + body[:-1])
    with pytest.raises(CorruptFileError):
        kind(5, dir=tmp_path).preload("pfios")
