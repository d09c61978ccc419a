"""CachedFS when things go wrong: a disk that is full or fails, damage, removal, what other users plant in its folder.

Never a wrong byte, never an error, one warning.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import gc
import os
import random
import shutil
import stat
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fsabs import S3, Local, Memory
from fsabs.cache import CachedFS
from fsabs.cache.disk import DiskCache
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import ReadOrder
from fsabs.testing.children import Child, forked
from tests import disks, scarce
from tests.cache.small_disk import SmallDisk, small_disk
from tests.cache.stores import entry, noise

FILES = 12
SIZE = 30_000
NAMES = [f"{number:02}.bin" for number in range(FILES)]
LIMITS = DiskLimits(10**7, 0)


@functools.cache
def content(name: str) -> bytes:
    return noise(SIZE, int(name[:2]))


@pytest.fixture
def store() -> Memory:
    memory = Memory()
    for name in NAMES:
        memory.write_bytes(name, content(name))
    return memory


@pytest.fixture
def shared(tmp_path: Path) -> Local:
    """A store that is the same one for all processes."""
    local = Local(tmp_path / "store", create=True)
    for name in NAMES:
        local.write_bytes(name, content(name))
    return local


def cached(store: Any, folder: object, **options: Any) -> CachedFS:
    known = {"memory_bytes": 0, "max_bytes": 10**8, "min_free": 0}
    return CachedFS(store, str(folder), **{**known, **options})


def blocks(store: Any, folder: object, **options: Any) -> CachedFS:
    return cached(store, folder, whole_file_size=0, block_size=8192, **options)


KINDS = (cached, blocks)
"""Files are kept whole, and by blocks."""


def all_right(fs: CachedFS) -> None:
    """Every way to every file gives what is in it."""
    for name, data in zip(NAMES, fs.read_many(NAMES), strict=True):
        assert data == content(name), name
        assert fs.read_bytes(name) == content(name), name
        with fs.open(name, "rb") as file:
            assert file.read() == content(name), name


@contextlib.contextmanager
def at_most_one_warning() -> Iterator[list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught
    ours = [one for one in caught if one.category is not ResourceWarning]
    assert len(ours) <= 1, [str(one.message) for one in ours]


def entry_files(folder: Path) -> list[Path]:
    """The files of all entries."""
    return sorted(path for path in folder.glob("entries-1/??/*") if path.is_file())


# ---- the disk


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "small", 200_000) as made, contextlib.ExitStack() as stack:
        if not made.mounted:
            stack.enter_context(scarce.file_size(200_000))
        yield made


def test_a_full_disk(store: Memory, disk: SmallDisk) -> None:
    fs = cached(store, disk.folder / "cache", max_bytes=10**7)
    with at_most_one_warning():
        for _ in range(2):
            all_right(fs)
    with at_most_one_warning():
        all_right(blocks(store, disk.folder / "cache"))
    assert fs.verify() == []
    disk.fill()  # by something else
    with at_most_one_warning():
        fs.clear()
        all_right(fs)


def test_a_folder_that_cant_be_written(store: Memory, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for folder in (tmp_path / "file/cache", "/proc/nonesuch/cache"):
        with at_most_one_warning() as caught:
            fs = cached(store, folder)
            all_right(fs)
            all_right(fs)
            assert fs.status()["disk"]["usable"] is False
        assert len(caught) == 1


def test_a_folder_that_can_be_made_later_is_used_then(
    store: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").write_bytes(b"in its way")
    with cached(store, tmp_path / "folder" / "cache") as fs:
        with pytest.warns(RuntimeWarning, match="fails, and is a miss"):
            assert fs.read_bytes(NAMES[0]) == content(NAMES[0])
        (tmp_path / "folder").unlink()
        monotonic = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + 11)
        for _ in range(2):
            assert fs.read_bytes(NAMES[0]) == content(NAMES[0])
        assert fs.status()["hits"] == 1


def fails(*arguments: object, **options: object) -> Any:
    raise OSError(errno.EIO, "the disk fails")


def test_a_disk_that_fails(store: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("open", "pread", "fstat", "write", "rename", "utime", "fstatvfs", "unlink"):
        fs = cached(store, tmp_path / call)
        all_right(fs)
        with monkeypatch.context() as patch, at_most_one_warning():
            patch.setattr(os, call, fails)
            all_right(fs)
            fs.write_bytes("new", b"x")
            assert fs.read_bytes("new") == b"x"


def test_a_read_only_cache_gives_what_it_has(store: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an image of a container: of a pass long ago, so that each hit would renew an entry's time."""
    all_right(cached(store, tmp_path / "cache"))
    for path in entry_files(tmp_path / "cache"):
        os.utime(path, (1e9, 1e9))
    monkeypatch.setattr(os, "utime", fails)
    fs = cached(store, tmp_path / "cache", memory_bytes=0)
    with at_most_one_warning() as caught:
        all_right(fs)
    status = fs.status()
    assert (status["hits"], status["misses"], len(caught)) == (3 * len(NAMES), 0, 0)


def test_a_disk_that_tells_nothing_of_its_room_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(str(tmp_path), DiskLimits(4096, 0))
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    monkeypatch.setattr(os, "fstatvfs", fails)
    with pytest.warns(RuntimeWarning, match="the disk fails"):
        assert not cache.put(entry(b"large", "url"), bytes(5000), ReadOrder())


def test_a_cache_on_a_network_mount_is_used_and_said_once(
    store: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disks.on(monkeypatch, "lustre")
    with at_most_one_warning() as caught:
        for _ in range(2):
            all_right(cached(store, tmp_path / "cache"))
    assert ["network filesystem" in str(one.message) for one in caught] == [True]
    assert len(entry_files(tmp_path / "cache")) == FILES


def test_nothing_rests_on_locks(shared: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lustre, GPFS and CIFS may grant every lock to everybody, as these do."""
    monkeypatch.setattr("fcntl.fcntl", lambda *arguments: 0)
    monkeypatch.setattr("fcntl.flock", lambda *arguments: None)
    fs = cached(shared, tmp_path / "cache", max_bytes=30 * 4096)
    busy = [Child(f"child {n}", functools.partial(all_right, fs), 60) for n in range(4)]
    all_right(fs)
    for child in busy:
        child.result()
    assert fs.verify() == []


# ---- damage


def _removed(folder: Path) -> None:
    shutil.rmtree(folder)


def _bits(folder: Path) -> None:
    """100 bits, of any file in the folder."""
    chance = random.Random(4)
    everything = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    for _ in range(100):
        path = chance.choice(everything)
        data = bytearray(path.read_bytes())
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        path.write_bytes(data)


def _halved(folder: Path) -> None:
    for path in entry_files(folder):
        os.truncate(path, path.stat().st_size // 2)


def _swapped(folder: Path) -> None:
    """Each entry in another one's place."""
    found = entry_files(folder)
    contents = [path.read_bytes() for path in found]
    for path, data in zip(found, contents[1:] + contents[:1], strict=True):
        path.write_bytes(data)


def _read_only(folder: Path) -> None:
    """As a disk that is mounted again read-only, for a user who isn't root: nothing can be made or removed."""
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o500)


def _foreign(folder: Path) -> None:
    """Files that are no entries, in the place of those that are, and directories."""
    for number, path in enumerate(entry_files(folder)):
        path.unlink()
        if number % 2:
            path.mkdir()
        else:
            path.symlink_to("/etc/hostname")


@pytest.mark.parametrize("harm", [_removed, _bits, _halved, _swapped, _read_only, _foreign])
def test_harm_under_a_running_process(shared: Local, tmp_path: Path, harm: Callable[[Path], None]) -> None:
    folder = tmp_path / "cache"
    running = [kind(shared, folder) for kind in KINDS]
    for fs in running:
        all_right(fs)
    harm(folder)
    with at_most_one_warning():
        for fs in running:
            all_right(fs)
            all_right(fs)

    def in_a_child() -> None:
        for kind in KINDS:
            all_right(kind(shared, folder))

    assert forked("a child", [in_a_child], 30) == [None]
    for fs in running:
        fs.close()
    with at_most_one_warning():
        for kind in KINDS:
            all_right(kind(shared, folder))


def test_space_is_exact_after_a_sweep(store: Memory, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    fs = cached(store, folder)
    all_right(fs)
    (folder / "entries-1/00").mkdir(exist_ok=True)
    (folder / "entries-1/00/.debris").write_bytes(bytes(100_000))
    with open(folder / "entries-1/usage", "ab") as log:  # of the release before
        log.write(struct.pack("=4q", 10**6, 17, 0, 0))
    fs.verify()
    found = fs.status()["disk"]
    taken = sum(path.stat().st_blocks * 512 for path in folder.glob("entries-1/??/*"))  # debris, too
    assert (found["bytes"], found["entries"]) == (taken, FILES)


# ---- other users, and what is not ours


def test_a_planted_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    victim, folder = tmp_path / "victim", tmp_path / "cache"
    (victim / "3f").mkdir(parents=True)
    name = f"{1:012x}-" + "0" * 38
    for path in (victim / "precious", victim / "3f" / name):
        path.write_bytes(b"of the victim")
    folder.mkdir()
    (folder / "entries-1").symlink_to(victim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cache = DiskCache(str(folder), LIMITS)
        assert not cache.put(entry(b"name", "url"), b"content", ReadOrder())
        assert cache.verify() == []
        cache.clear()
    assert sorted(path.name for path in victim.rglob("*")) == sorted(["3f", "precious", name])


def test_a_planted_fifo_is_a_miss_at_once(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), LIMITS)
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    [path] = tmp_path.glob("entries-1/??/*")
    path.unlink()
    os.mkfifo(path)

    def read() -> Any:
        one = entry(b"name", "url")
        return cache.get(one), cache.verify(), cache.put(one, b"content", ReadOrder())

    assert forked("reading", [read], 10) == [(None, [], True)]
    assert cache.get(entry(b"name", "url")) == b"content"
    assert stat.S_ISREG(path.stat().st_mode)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "entries-1").mkdir()
    (tmp_path / "entries-1").chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write"):
        assert not DiskCache(str(tmp_path), LIMITS).put(entry(b"name", "url"), b"content", ReadOrder())


def test_what_is_not_of_our_format_is_not_removed(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), DiskLimits(40_000, 0))
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    [path] = tmp_path.glob("entries-1/??/*")
    strange = [path.parent / "notes.txt", tmp_path / "entries-1" / "notes.txt", tmp_path / "notes.txt"]
    for one in strange:
        one.write_bytes(b"x" * 5000)
    for number in range(50):
        cache.put(entry(b"%d" % number, f"url {number}"), bytes(3000), ReadOrder([f"url {number}"]))
    assert cache.verify() == []
    cache.clear()
    assert all(one.exists() for one in strange)


def test_what_the_release_before_kept_is_read_and_its_logs_are_freed(tmp_path: Path) -> None:
    assert DiskCache(str(tmp_path), LIMITS).put(entry(b"name", "url"), b"content", ReadOrder())
    for name in ("usage", "marks", "leases"):
        (tmp_path / "entries-1" / name).write_bytes(bytes(5000))
    again = DiskCache(str(tmp_path), LIMITS)
    assert again.get(entry(b"name", "url")) == b"content"
    assert sorted(path.name for path in (tmp_path / "entries-1").iterdir() if path.is_file()) == ["claims", "count"]


def test_clear_leaves_a_folder_that_can_be_used_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        caches = [DiskCache(str(tmp_path / "a" / "cache"), LIMITS) for _ in range(3)]
        assert caches[0].put(entry(b"name", "url"), b"content", ReadOrder())
        assert caches[1].get(entry(b"name", "url")) == b"content"
        caches[0].clear()
        for cache in caches:
            assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
            assert cache.get(entry(b"name", "url")) == b"content"
    finally:
        os.umask(before)


def test_no_credentials_are_in_the_folder(moto: Any, tmp_path: Path) -> None:
    moto.create_bucket("credentials")
    endpoint = moto.endpoint.replace("://", "://user:PASSWORD@")
    options = {"endpoint": endpoint, "region": moto.region, "aws_access_key_id": "key"}
    with cached(S3("credentials", aws_secret_access_key="SECRET", **options), tmp_path / "cache", offline=True) as fs:
        fs.write_bytes("a", b"content")
        assert [fs.read_bytes("a") for _ in range(2)] == [b"content"] * 2
        assert fs.status()["hits"] == 1
    found = b"".join(bytes(path) + path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert b"s3://credentials/a" in found
    assert b"PASSWORD" not in found
    assert b"SECRET" not in found


# ---- descriptors


def test_nothing_is_left_open(store: Memory, tmp_path: Path) -> None:
    all_right(cached(store, tmp_path / "cache"))
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        with cached(store, tmp_path / "cache") as fs:
            assert fs.read_bytes("00.bin") == content("00.bin")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_fetch_that_ends_after_its_folder_was_removed_writes_into_no_other_file(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "cache"), LIMITS)
    claims = cache.claims()
    assert claims.claim(5)
    shutil.rmtree(tmp_path / "cache")
    cache.clear()  # finds another folder at its path, and leaves the one that is gone
    with contextlib.ExitStack() as stack:
        paths = [tmp_path / f"other {number}" for number in range(20)]
        others = [stack.enter_context(path.open("wb")) for path in paths]  # with the numbers of what was closed
        claims.release(5)
        assert {os.fstat(file.fileno()).st_size for file in others} == {0}


def test_a_process_without_descriptors_removes_no_entries(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), LIMITS)
    assert cache.put(entry(b"name", "url"), b"content", ReadOrder())
    with pytest.warns(RuntimeWarning, match="Too many open files"), scarce.no_descriptors():
        assert cache.get(entry(b"name", "url")) is None
    assert cache.get(entry(b"name", "url")) == b"content"


def test_evicted_entries_are_not_reported_as_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, opened = DiskCache(str(tmp_path), LIMITS), os.open
    for number in range(20):
        assert cache.put(entry(b"%d" % number, f"url {number}"), bytes(3000), ReadOrder())

    def evicted_meanwhile(path: Any, *arguments: Any, **options: Any) -> int:
        if isinstance(path, str) and "-" in path:
            (tmp_path / "entries-1" / path).unlink(missing_ok=True)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", evicted_meanwhile)
    assert cache.verify() == []
    assert entry_files(tmp_path) == []
