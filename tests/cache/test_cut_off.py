"""A shared cache file that is cut off, removed or damaged under its users; and tables that are mostly empty."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from fsabs.cache import FileCache, disk, layout
from fsabs.cache.engine import Engine, Outcome
from fsabs.testing.children import forked
from tests.cache.stores import CONTENTS, NAMES, Store, cached

CUTS = [0, 1000, layout.STATE_AT + 8, 2048, layout.ITEMS_START + 100]


@pytest.mark.parametrize("size", CUTS)
def test_a_file_that_is_cut_off_is_a_miss_and_is_replaced(
    store: Store, folder: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a child, since what it was once was the end of the process: SIGBUS."""
    monkeypatch.setattr(disk, "_warned", set())

    def child() -> list[str]:
        fs = cached(store, folder)
        assert list(fs.read_many(NAMES)) == CONTENTS
        os.truncate(os.path.join(folder, disk.FILE_NAME), size)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                assert list(fs.read_many(NAMES)) == CONTENTS
                assert fs.read_bytes(NAMES[0]) == CONTENTS[0]
                assert fs.status()["disk"]["max_bytes"] == 10**8
                assert fs.verify() == []
        store.opened.clear()
        assert list(fs.read_many(NAMES)) == CONTENTS
        assert store.reads == 0, "the new file keeps what was read since"
        return [str(one.message) for one in caught if one.category is RuntimeWarning]

    [told] = forked("a user of a cut-off cache", [child], 30)
    assert len(told) == 1
    assert "cut off" in told[0]


def test_a_file_that_was_removed_is_replaced_once_that_is_noticed(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    assert list(fs.read_many(NAMES)) == CONTENTS
    os.unlink(os.path.join(folder, disk.FILE_NAME))
    os.rmdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        status = fs.status()["disk"]
        assert not status["usable"]
    for _ in range(2):
        assert list(fs.read_many(NAMES)) == CONTENTS
    store.opened.clear()
    assert list(cached(store, folder).read_many(NAMES)) == CONTENTS
    assert store.reads == 0


def test_another_users_file_is_not_trusted(store: Store, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(store, folder).read_bytes(NAMES[0])
    store.opened.clear()
    disk.open_disk(folder, disk.Limits(10**8, 0)).close()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    monkeypatch.setattr(disk, "_warned", set())
    with pytest.warns(RuntimeWarning, match="another user"):
        assert cached(store, folder).read_bytes(NAMES[0]) == CONTENTS[0]
    assert store.reads == 1


RUBBISH = [(1 << 63, 100), (4096, 1 << 62), (1 << 62, 1 << 62), ((1 << 64) - 1, (1 << 64) - 1), (0, 4096)]


@pytest.mark.parametrize(("offset", "length"), RUBBISH)
def test_an_entry_that_points_nowhere_is_dropped(tmp_path: Path, offset: int, length: int) -> None:
    with FileCache(10, dir=tmp_path) as cache:
        for number in range(10):
            cache.put(number, b"%d" % number * 1000)
        file = cache._engine
        assert file is not None
        os.pwrite(file.fd, struct.pack("@QQ", offset, length), layout.ITEMS_START + 3 * layout.ENTRY_SIZE)
        used = file.state().used
        with pytest.warns(RuntimeWarning, match="checksum"):
            assert cache.get(3) is None
        assert file.state().used == used, "where it points to is others' space"
        assert cache.put(3, b"again")
        assert [cache.get(n) for n in range(10)] == [b"again" if n == 3 else b"%d" % n * 1000 for n in range(10)]


@pytest.mark.parametrize(("offset", "length"), RUBBISH)
def test_a_key_that_points_nowhere_is_dropped(tmp_path: Path, offset: int, length: int) -> None:
    def fresh() -> Engine:
        file = Engine.shared(str(tmp_path / "cache"), slots=64)
        for number in range(10):
            assert file.put_key(b"%d" % number, b"value" * number) in (Outcome.STORED, Outcome.PRESENT)
        at = next(at for at, entry in file.probe(layout.key_hash(b"3")) if entry.hash == layout.key_hash(b"3"))
        os.pwrite(file.fd, struct.pack("@QQ", offset, length), at)
        return file

    def by_reading(file: Engine) -> None:
        assert file.read_key(b"3") is None
        assert file.damaged == 1

    def by_repair(file: Engine) -> None:
        assert len(file.entries()) == 9
        assert len(file.rubbish()) == 1
        file.repair()

    ways: list[Callable[[Engine], None]] = [by_reading, by_repair]
    for way in ways:
        file = fresh()
        way(file)
        assert file.rubbish() == []
        assert len(file.entries()) == 9
        assert [file.read_key(b"%d" % n) for n in range(10) if n != 3] == [
            (1, b"value" * n) for n in range(10) if n != 3
        ]
        file.close()


def test_the_empty_part_of_a_table_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Engine.shared(str(tmp_path / "cache"), slots=1 << 22)
    for number in range(100):
        file.put_key(b"%d" % number, b"value")
    read: list[int] = []

    def counting(size: int, offset: int) -> bytes:
        read.append(size)
        return os.pread(file.fd, size, offset)

    monkeypatch.setattr(file, "read_at", counting)
    assert len(file.entries()) == 100
    assert sum(read) <= 100 * 64 * 1024, "of 128 MiB"
    assert max(read) <= 1024 * 1024
    file.close()


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="regular file"):
        Engine.preserved(str(tmp_path / "pipe"))
    os.mkfifo(tmp_path / "fsabs-0.live")
    FileCache(10, dir=tmp_path).close()
