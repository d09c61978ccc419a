"""The faults of other item caches, each of which must not come back: kills, full disks, damage, locks, aliasing."""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import pickle
import resource
import signal
import stat
import struct
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest

from fsabs.cache import FileCache, ReadOnlyFileCache
from fsabs.cache.frames import checksum
from fsabs.cache.items import table as tables
from fsabs.cache.items.table import RAW
from fsabs.core.errors import CorruptFileError
from fsabs.testing.children import Child, forked, threaded

ITEMS = 500


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[FileCache]:
    with FileCache(ITEMS, dir=tmp_path) as made:
        yield made


def file_of(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def value_of(number: int) -> bytes:
    return b"%04d" % number * (10 + number % 50)


@contextlib.contextmanager
def writes(call: int, act: Callable[[], None]) -> Iterator[None]:
    """Have `act` called in place of the `call`th write of the block."""
    left, real = [call], {name: getattr(os, name) for name in ("writev", "pwrite")}

    def counted(name: str, *arguments: Any) -> Any:
        left[0] -= 1
        return act() if left[0] == -1 else real[name](*arguments)

    with pytest.MonkeyPatch.context() as patch:
        for name in real:
            patch.setattr(os, name, functools.partial(counted, name))
        yield


# ---- kills, and a disk that is full or fails


@pytest.mark.parametrize("call", range(3))
def test_a_put_that_is_killed_anywhere_serves_nothing_else(cache: FileCache, call: int) -> None:
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
    assert [cache.get(number) for number in (4, 5, 6)] == [b"four", b"five" * 100, b"six" * 100]


@pytest.mark.parametrize(("failing", "code"), [(0, errno.ENOSPC), (1, errno.EIO)])
def test_an_error_of_the_disk_is_told_once_and_leaves_no_lock(cache: FileCache, failing: int, code: int) -> None:
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


def test_an_error_of_the_backend_or_the_codec_leaves_no_lock_and_no_claim(cache: FileCache) -> None:
    with pytest.raises(TypeError):
        cache.get_and_cache(1, lambda i: object())
    with pytest.raises(ZeroDivisionError):
        cache.get_and_cache(1, lambda i: 1 // 0)
    assert forked("asking", [lambda: cache.get_and_cache(1, lambda i: b"one")], 4) == [b"one"]


def test_a_full_disk_is_a_miss(tmp_path: Path) -> None:
    """A limit on the size of files in place of a disk: writes end in the middle, then fail."""

    def fill() -> tuple[int, int]:
        with FileCache(100, dir=tmp_path) as cache, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_of(tmp_path).stat().st_size + 10_500,) * 2)
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


def test_files_that_were_removed_are_still_a_cache(cache: FileCache, tmp_path: Path) -> None:
    cache.put(1, b"one")
    file_of(tmp_path).unlink()
    assert cache.get(1) == b"one"
    assert cache.put(2, b"two")
    assert forked("sharing", [lambda: (cache.get(2), cache.put(3, b"three"))], 20) == [(b"two", True)]
    assert cache.get(3) == b"three"
    with pytest.raises(FileNotFoundError):
        cache.preserve("kept")


def test_a_constructor_that_fails_closes_its_descriptor_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    close = os.close

    def noted(fd: int) -> None:
        closed.append(fd)
        close(fd)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", interrupted)
        patch.setattr(os, "close", noted)
        with pytest.raises(KeyboardInterrupt):
            FileCache(10, dir=tmp_path)
    assert len(closed) == len(set(closed))
    with FileCache(10, dir=tmp_path) as cache:
        assert cache.put(0, b"x")
    assert os.listdir(tmp_path) == []


def test_an_item_that_is_made_while_its_cache_is_closed_writes_into_no_other_file(tmp_path: Path) -> None:
    cache, files = FileCache(10, dir=tmp_path / "items"), list[BinaryIO]()
    with contextlib.ExitStack() as stack:

        def make(number: int) -> bytes:
            cache.close()
            paths = [tmp_path / f"other {number}" for number in range(20)]
            files.extend(stack.enter_context(path.open("wb")) for path in paths)  # with the numbers of what was closed
            return b"made"

        assert cache.get_and_cache(3, make) == b"made"
        assert {os.fstat(file.fileno()).st_size for file in files} == {0}


# ---- aliasing, and locks


def all_right(cache: FileCache) -> int:
    found = [(number, cache.get(number)) for number in range(len(cache))]
    assert not [number for number, value in found if value not in (None, value_of(number))]
    return sum(value is not None for _, value in found)


def put_all(cache: FileCache, first: int, step: int) -> int:
    return sum(cache.put(number, value_of(number)) for number in range(first, len(cache), step))


def test_four_threads_get_their_own_items(cache: FileCache) -> None:
    """pfio: 93 wrong of 2000."""
    functions: list[Any] = [functools.partial(put_all, cache, first, 2) for first in (0, 1, 0, 1)]
    functions += [functools.partial(all_right, cache)] * 4
    assert sum(threaded("putting", functions, 30)[:4]) == len(cache)
    assert all_right(cache) == len(cache)


def test_puts_of_forked_children_do_not_alias(cache: FileCache) -> None:
    """pfio's FileCache keeps the end of the file in each process."""
    stored = forked("putting", [functools.partial(put_all, cache, first, 2) for first in (0, 1, 0)], 30)
    assert sum(stored) >= len(cache), "of two that put an item at one moment both may have stored it"
    assert all_right(cache) == len(cache)


def test_a_fork_while_the_lock_is_held_is_no_deadlock(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    writev, me = os.writev, os.getpid()
    begun, go_on = threading.Event(), threading.Event()

    def slow(*arguments: Any) -> int:
        if os.getpid() == me:
            begun.set()
            go_on.wait()
        return writev(*arguments)

    monkeypatch.setattr(os, "writev", slow)
    thread = threading.Thread(target=cache.put, args=(0, b"zero"))
    thread.start()
    begun.wait()
    assert forked("putting", [lambda: (cache.get(1), cache.put(1, b"one"))], 10) == [(None, True)]
    go_on.set()
    thread.join()
    assert (cache.get(0), cache.get(1)) == (b"zero", b"one")


# ---- damage


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_truncated_file_gives_no_half_items(tmp_path: Path, size: int) -> None:
    values = [os.urandom(size + n) for n in range(200)]
    with FileCache(200, dir=tmp_path) as cache:
        for number, value in enumerate(values):
            cache.put(number, value)
        for _ in range(2):
            assert [cache.get(n) for n in range(200)] == values, "by mapping then, where they are large"
        path = file_of(tmp_path)
        os.truncate(path, path.stat().st_size // 2)
        with pytest.warns(RuntimeWarning, match="checksum"):
            found = [cache.get(n) for n in range(200)]
        assert all(value in (None, right) for value, right in zip(found, values, strict=True))
        assert 0 < sum(value is None for value in found) < 200
        lost = found.index(None)
        assert cache.put(lost, values[lost])
        assert cache.get(lost) == values[lost]


@pytest.mark.parametrize("codec", ["bytes", "memoryview", "numpy"])
def test_a_changed_byte_is_a_miss(tmp_path: Path, codec: str) -> None:
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


RUBBISH = [(1 << 63, 100), (4096, 1 << 62), (1 << 62, 1 << 62), ((1 << 64) - 1, (1 << 64) - 1), (0, 4096)]


@pytest.mark.parametrize(("offset", "length"), RUBBISH)
def test_an_entry_that_points_nowhere_is_dropped(tmp_path: Path, offset: int, length: int) -> None:
    with FileCache(10, dir=tmp_path) as cache:
        for number in range(10):
            cache.put(number, b"%d" % number * 1000)
        with file_of(tmp_path).open("r+b") as file:
            file.seek(tables.SLOTS_START + 3 * tables.SLOT_SIZE)
            file.write(struct.pack("@QQ", offset, length))
        with pytest.warns(RuntimeWarning, match="checksum"):
            assert cache.get(3) is None
        assert cache.put(3, b"again")
        assert [cache.get(n) for n in range(10)] == [b"again" if n == 3 else b"%d" % n * 1000 for n in range(10)]


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
        with kind(10, dir=tmp_path) as other, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other.preload("kept")
            assert other.get(7) is None, kind
            assert other.get(3) == b"item 3"


def test_no_item_is_there_where_the_table_is_zero() -> None:
    numbers = [0, 1, 2**20, 2**31 - 1, 2**31, 2**39]
    assert all(tables.salt_of(number, RAW) != 0 for number in numbers)
    assert len({tables.salt_of(number, RAW) for number in range(20_000)}) == 20_000


def damaged(whole: bytes, damage: str) -> bytes:
    """Return a preserved cache with some damage."""
    if damage == "version":
        head = whole[:8] + struct.pack("@I", 99) + whole[12 : tables.HEADER.size]
        return head + struct.pack("@I", checksum(head)) + whole[tables.HEADER.size + 4 :]
    return {
        "empty": b"",
        "short": whole[:90],
        "header alone": whole[:5000],
        "magic": b"PK\x03\x04" + whole[4:],
        "bit": whole[:20] + bytes([whole[20] ^ 1]) + whole[21:],
        "cut": whole[:-1],
    }[damage]


@pytest.mark.parametrize("damage", ["empty", "short", "header alone", "magic", "bit", "version", "cut"])
def test_what_is_no_whole_cache_is_not_preloaded(tmp_path: Path, damage: str) -> None:
    with FileCache(200, dir=tmp_path) as made:
        put_all(made, 0, 1)
        made.preserve("kept")
    path = tmp_path / "kept"
    path.write_bytes(damaged(path.read_bytes(), damage))
    with FileCache(200, dir=tmp_path) as again:
        with pytest.raises(CorruptFileError) as caught:
            again.preload("kept")
        assert caught.value.filename == str(path)
        assert again.put(0, b"it goes on")
        assert again.get(0) == b"it goes on"


def test_what_is_no_preserved_file_is_not_opened(cache: FileCache, tmp_path: Path) -> None:
    """A cache in use, a folder, and a pipe, which is not waited for."""
    cache.put(3, b"three")
    live = file_of(tmp_path).name
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "fsabs-0.live")
    refusals = {live: CorruptFileError, "folder": PermissionError, "pipe": PermissionError}
    with ReadOnlyFileCache(ITEMS, dir=tmp_path) as kept:
        for name, kind in refusals.items():
            with pytest.raises(kind) as caught:
                kept.preload(name)
            assert caught.value.filename == str(tmp_path / name)
    FileCache(10, dir=tmp_path).close()


# ---- preserving


def test_preserving_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileCache(10, dir=tmp_path) as first:
        first.put(1, b"first")
        assert first.preserve("kept")
    old, new = (ReadOnlyFileCache(10, dir=tmp_path) for _ in range(2))
    old.preload("kept")
    with FileCache(10, dir=tmp_path) as second:
        second.put(1, b"second")
        assert not second.preserve("kept"), "it is there"

        def fails(*_: object) -> None:
            raise OSError(28, "no space")

        with monkeypatch.context() as patched, pytest.raises(OSError, match="no space") as caught:
            patched.setattr(os, "replace", fails)
            second.preserve("kept", overwrite=True)
        assert caught.value.filename == str(tmp_path / "kept")
        assert second.put(2, b"it goes on")
        for _ in range(2):  # then over itself
            assert second.preserve("kept", overwrite=True)
            assert second.get(2) == b"it goes on"
        assert second.preserve("other")
    assert old.get(1) == b"first", "who has the old one open goes on with it"
    for name in ("kept", "other"):
        new.preload(name)
        assert [new.get(number) for number in (1, 2)] == [b"second", b"it goes on"]
    for cache in (old, new):
        cache.close()
    assert sorted(os.listdir(tmp_path)) == ["kept", "other"]


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


# ---- other users


def test_items_that_others_may_have_written_are_not_unpickled(tmp_path: Path) -> None:
    with FileCache(5, dir=tmp_path, do_pickle=True) as cache:
        cache.put(0, ["item"])
        cache.preserve("kept")
    (tmp_path / "kept").chmod(0o666)
    for kind in (FileCache, ReadOnlyFileCache):
        with kind(5, dir=tmp_path, do_pickle=True) as again, pytest.raises(PermissionError, match="private"):
            again.preload("kept")
    (tmp_path / "kept").chmod(0o600)
    (tmp_path / "kept").rename(tmp_path / "elsewhere")
    (tmp_path / "kept").symlink_to("elsewhere")
    with ReadOnlyFileCache(5, dir=tmp_path, do_pickle=True) as again, pytest.raises(OSError):
        again.preload("kept")


def test_without_a_cache_directory_items_lie_in_a_folder_of_this_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with FileCache(5) as cache:
        status = os.stat(cache.dir)
        assert cache.dir != str(tmp_path)
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o700)
    os.chmod(cache.dir, 0o777)
    with pytest.raises(PermissionError):
        FileCache(5)
