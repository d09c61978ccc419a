"""CachedFS: limits, eviction, the known order, filling it ahead, pins, and looking after it."""

from __future__ import annotations

import json
import math
import os
import pickle
import signal
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fsabs import TreeCounts
from fsabs.backends.local import Local
from fsabs.backends.memory import Memory
from fsabs.cache import CachedFS, eviction
from fsabs.cache.content import GROUP, GROUP_BYTES, MemoryCache, in_groups
from fsabs.cache.disk import DiskCache, EntryKey, open_disk
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import ReadOrder, key_of
from fsabs.testing.children import Child, forked
from tests.cache.stores import CONTENTS, NAMES, Far, Store, cached, entry, noise

pytestmark = pytest.mark.quick

# ---- room


def entry_files(folder: str | Path) -> list[Path]:
    return [path for path in Path(folder).glob("entries-1/??/[!.]*") if path.is_file()]


def on_disk(folder: str | Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in entry_files(folder))


def filled(store: Store, count: int, size: int = 1000, prefix: str = "x") -> list[str]:
    """Write files into a store; return their names."""
    names = [f"{prefix}{number:03}" for number in range(count)]
    for number, name in enumerate(names):
        store.inner.write_bytes(name, noise(size, number))
    return names


def test_the_limit_holds_and_what_is_there_stays(store: Store, folder: str) -> None:
    limit = 30 * 4096
    fs = cached(store, folder, max_bytes=limit)
    for number, name in enumerate(filled(store, 100, 3000)):
        assert fs.read_bytes("00.bin") == CONTENTS[0]
        assert fs.read_bytes(name) == noise(3000, number)
        assert fs.status()["disk"]["bytes"] == on_disk(folder) <= limit
    assert store.opened["00.bin"] == 1, "used all the time, it was never evicted"
    assert len(entry_files(folder)) == 30


def epochs(fs: CachedFS, names: list[str], count: int, ordered: bool) -> list[int]:
    """Hits of shuffled epochs."""
    chance, hits = Random(7), []
    for _ in range(count):
        wanted = chance.sample(names, len(names))
        if ordered:
            fs.set_order(wanted)
        before = fs.status()["hits"]
        for name in wanted:
            fs.read_bytes(name)
        hits.append(fs.status()["hits"] - before)
    return hits


@pytest.mark.parametrize(("share", "ordered"), [(0.25, True), (0.5, False), (0.9, True)])
def test_shuffled_epochs_hit_what_there_is_room_for(store: Store, folder: str, share: float, ordered: bool) -> None:
    fs = cached(store, folder, max_bytes=int(100 * share) * 4096)
    hits = epochs(fs, filled(store, 100), 4, ordered)
    assert hits[0] == 0
    assert min(hits[1:]) >= 0.98 * share * 100


def test_what_was_not_read_for_long_goes(store: Store, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data set of yesterday's job."""
    monkeypatch.setattr(eviction, "VAIN_REST", 0)
    first, second = (filled(store, 100, prefix=prefix) for prefix in "ab")
    fs = cached(store, folder, max_bytes=50 * 4096)
    assert epochs(fs, first, 3, False)[-1] >= 45
    for path in entry_files(folder):
        os.utime(path, (time.time() - 86400,) * 2)
    assert epochs(fs, second, 2, False)[-1] >= 45


@pytest.mark.parametrize("entries", [10, 2000])
def test_a_limit_that_is_changed_counts(store: Store, folder: str, entries: int) -> None:
    names = filled(store, 100)
    assert list(cached(store, folder, max_bytes=50 * 4096).read_many(names))
    fs = cached(store, folder, max_bytes=entries * 4096)
    for _ in range(2):
        assert list(fs.read_many(names))
    fs.read_bytes(NAMES[0])
    assert on_disk(folder) <= entries * 4096
    assert len(entry_files(folder)) >= min(100, entries) * 0.9


def test_a_file_larger_than_the_cache(store: Store, folder: str) -> None:
    fs = cached(store, folder, max_bytes=20_000, whole_file_size=100_000)
    for _ in range(2):
        assert fs.read_bytes("large.bin") == noise(50_000)
        assert fs.read_bytes("00.bin") == CONTENTS[0]
    assert store.opened == {"large.bin": 2, "00.bin": 1}


def test_the_floor_of_free_space(store: Store, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 10**9
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bavail=free, f_frsize=1))
    fs = cached(store, folder, min_free=10**6)
    assert list(fs.read_many(NAMES)) == CONTENTS
    free = 10**6
    other = cached(store, folder, min_free=10**6 + 1)
    store.inner.write_bytes("new", noise(1000, 99))
    assert [other.read_bytes("new") for _ in range(2)] == [noise(1000, 99)] * 2
    assert other.status()["disk"]["evicted"] > 0, "the disk is full: what is here has to give way"


def test_a_disk_below_the_floor_is_said_once(store: Store, folder: str) -> None:
    fs = cached(store, folder, min_free=10**15)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert [list(fs.read_many(NAMES)) for _ in range(2)] == [CONTENTS] * 2
        assert fs.warm().files > len(CONTENTS)
    (message,) = [str(one.message) for one in said if "stores nothing" in str(one.message)]
    assert message.endswith("less than min_free, 1,000,000,000,000,000 bytes, of the disk is free")
    assert fs.status()["disk"]["entries"] == 0


@pytest.mark.parametrize("why", ["full", "full of what is needed earlier", "pinned", "below the floor"])
def test_a_cache_that_can_free_nothing_refuses_without_a_look_at_each_file(
    store: Store, folder: str, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """After one search there is none for a while: 200 times as long as that has taken, or 5 with an order."""
    there, names = filled(store, 100, prefix="there"), filled(store, 200)
    with cached(store, folder) as earlier:
        assert list(earlier.read_many(there))
        if why == "pinned":
            earlier.pin(there)
    fs = cached(store, folder, **({"min_free": 10**17} if why == "below the floor" else {"max_bytes": 100 * 4096}))
    if "earlier" in why:
        fs.set_order([*there, *names])
    else:
        assert len(list(fs.read_many(names))) == 200
    scanned, scandir = 0, os.scandir

    def slow(path: Any) -> Any:
        nonlocal scanned
        scanned += 1
        time.sleep(0.002)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", slow)
    for name in names:
        fs.read_bytes(name)
    assert scanned <= 3 * 256, "a sweep looks at 256 folders"


def test_what_can_go_is_found_as_long_as_there_is_some(tmp_path: Path) -> None:
    """Four epochs, each of other files in a known order: most of the one before go for them."""
    count, refused = 400, []
    cache = DiskCache(str(tmp_path), DiskLimits(count * 4096, 0))
    for epoch in range(4):
        order = ReadOrder(f"{epoch} {number}" for number in range(count))
        keys = [entry(f"{epoch} {number}".encode(), f"{epoch} {number}") for number in range(count)]
        refused.append(count - sum(cache.put(key, bytes(100), order) for key in keys))
    assert refused[0] == 0
    assert sum(refused) <= 3 * count // 4, refused


def test_what_is_needed_last_goes_first(store: Store, folder: str) -> None:
    """20 files, room for 10: of an order that is known, those that come next are here when they are needed."""
    fs = cached(store, folder, max_bytes=10 * 4096)
    fs.set_order(NAMES)
    prefetched = NAMES[1:11]
    assert fs.prefetch(prefetched).wait(10).files == 10
    fs.read_bytes(NAMES[0])
    assert fs.prefetch(NAMES[15:]).wait(10).files == 5
    store.opened.clear()
    for name in prefetched:
        fs.read_bytes(name)
    assert store.reads == 0


def test_a_memory_keeps_what_it_has_or_what_comes_next() -> None:
    memory, order = MemoryCache(30_000), ReadOrder()
    for name in (b"a", b"b", b"c"):
        assert memory.put(name, name.decode(), bytes(9000), order)
    assert not memory.put(b"d", "d", bytes(9000), order)
    assert not memory.put(b"f", "f", bytes(30_001), order)
    assert len(memory) == 3
    assert 27_000 < memory.size <= 30_000
    memory.clear()
    assert (len(memory), memory.size) == (0, 0)
    assert memory.put(b"a", "a", bytes(29_000), order)
    memory.clear()
    order = ReadOrder(["now", "soon", "later", "last"])
    order.reached("now")
    for url in ("last", "soon", "now"):
        assert memory.put(url.encode(), url, bytes(9000), order)
    assert memory.put(b"later", "later", bytes(9000), order), "what was read in this epoch gives way"
    assert b"now" not in memory
    assert not memory.put(b"unknown", "unknown", bytes(9000), order)
    order = ReadOrder(["now", "next", "soon", "later", "last"])
    order.reached("now")
    assert memory.put(b"next", "next", bytes(9000), order), "what is needed last gives way"
    assert b"last" not in memory


@pytest.mark.parametrize("kind", [Store, Far])
def test_the_status_counts_the_memory_that_small_files_take(tmp_path: Path, kind: type[Store]) -> None:
    store = kind(Memory())
    names = filled(store, 3000, 10)
    fs = CachedFS(store, tmp_path, min_free=0)
    list(fs.read_many(names[:10]))
    tracemalloc.start()
    try:
        for start in range(0, len(names), 100):
            list(fs.read_many(names[start : start + 100]))
        store.opened.clear()
        store.many.clear()
        store.ranges.clear()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    status = fs.status()
    said = status["memory"]["bytes"] + status["files"]["bytes"]
    assert 0.7 * taken <= said <= 1.5 * taken


def test_a_memory_that_two_threads_put_one_item_into_counts_it_once() -> None:
    memory = MemoryCache(10_000)

    class Overtaken(ReadOrder):
        """While one thread looks for the item's place in the order, another one puts it."""

        def need(self, key: int) -> float:
            memory.put(b"x", "", bytes(6000), ReadOrder())
            return super().need(key)

    assert not memory.put(b"x", "", bytes(6000), Overtaken())
    assert not memory.put(b"y", "", bytes(6000), ReadOrder())
    assert len(memory) == 1
    assert 6000 < memory.size < 10_000


def test_an_order_of_two_epochs() -> None:
    order = ReadOrder(["a", "b", "c", "b", "c", "a"])
    order.reached("a")
    assert [order.need(key_of(url)) for url in "abc"] == [5, 1, 2]
    order.reached("b")
    order.reached("b")  # once more for the same epoch: another block of it
    assert order.cursor == 1
    order.reached("c")
    order.reached("b")
    assert order.cursor == 3
    assert [order.need(key_of(url)) for url in "abc"] == [5, math.inf, 4]
    resumed = ReadOrder(["a", "b", "c"], 2)
    assert [resumed.need(key_of(url)) for url in "abc"] == [math.inf, math.inf, 2]


# ---- what is stored together

SIZE = 50_000


def entries(prefix: str, count: int, size: int = SIZE) -> list[tuple[EntryKey, bytes]]:
    names = [f"{prefix}{at}" for at in range(count)]
    return [(entry(name.encode(), f"memory://{name}"), noise(size, at)) for at, name in enumerate(names)]


def test_groups_end_by_number_and_by_size() -> None:
    assert [len(group) for group in in_groups(range(2 * GROUP + 1), lambda one: 1)] == [GROUP, GROUP, 1]
    assert [len(group) for group in in_groups(range(5), lambda one: GROUP_BYTES // 2)] == [2, 2, 1]
    assert list(in_groups([], lambda one: 1)) == []


def test_groups_of_several_processes_stay_within_the_limit(tmp_path: Path) -> None:
    """All ask for room at one moment, when there is room for one group."""
    limits, processes = DiskLimits(30 * 53_248, 0), 4
    open_disk(str(tmp_path), limits).status()
    begin, writing = os.pipe()

    def put(number: int) -> int:
        disk = open_disk(str(tmp_path), limits)
        wanted = [entries(f"{number} {at} ", 20) for at in range(5)]
        os.close(writing)
        os.read(begin, 1)  # until the parent closes it
        return sum(sum(disk.put_many(group, ReadOrder())) for group in wanted)

    children = [Child(f"writer {n}", lambda n=n: put(n), 30) for n in range(processes)]  # type: ignore[misc]
    os.close(writing)
    admitted = [child.result() for child in children]
    os.close(begin)
    assert limits.max_bytes is not None
    assert on_disk(tmp_path) <= 1.05 * limits.max_bytes + processes * 4 * 1024 * 1024
    assert sum(admitted) >= 20
    open_disk(str(tmp_path), limits).put_many(entries("more", 20), ReadOrder())
    assert 0.5 * limits.max_bytes <= on_disk(tmp_path) <= limits.max_bytes
    status = open_disk(str(tmp_path), limits).status()
    assert (status["entries"], status["bytes"]) == (len(entry_files(tmp_path)), on_disk(tmp_path))


class StopsAt:
    """`os.write`, which lets a number of writes pass, and then does something else."""

    def __init__(self, count: int, act: Callable[[], int]) -> None:
        self.left = count
        self.act = act
        self.write = os.write

    def __call__(self, fd: int, data: Any) -> int:
        self.left -= 1
        return self.write(fd, data) if self.left >= 0 else self.act()


def test_what_is_there_or_fails_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = open_disk(str(tmp_path), DiskLimits(10**7, 0))
    group = entries("x", 5)
    assert disk.put_many([*group, group[0]], ReadOrder()) == [True] * 6
    assert disk.put_many(group, ReadOrder()) == [True] * 5
    assert disk.status()["entries"] == 5

    def full() -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", StopsAt(3, full))  # head and content of one, and the head of the next
        with pytest.warns(RuntimeWarning, match="No space left"):
            found = disk.put_many(entries("y", 3), ReadOrder())
    assert found == [True, False, False]
    status = disk.status()
    assert (status["entries"], status["bytes"]) == (6, on_disk(tmp_path))


def test_a_process_that_is_killed_in_a_group_leaves_what_it_had_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = open_disk(str(tmp_path), DiskLimits(10**7, 0))
    assert all(disk.put_many(entries("before", 3), ReadOrder()))

    def killed() -> None:
        monkeypatch.setattr(os, "write", StopsAt(5, end))  # the head of a third one is written
        disk.put_many(entries("killed", 5), ReadOrder())

    def end() -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    with pytest.raises(AssertionError, match="died"):
        Child("writing", killed, 30).result()
    status = disk.status()
    assert (status["entries"], status["bytes"]) == (5, on_disk(tmp_path))
    assert not [*tmp_path.glob("entries-1/??/.*")], "what a process was writing that is dead is removed"


@pytest.mark.parametrize("damage", [b"", bytes(44), None])
def test_a_damaged_count_is_made_anew(tmp_path: Path, damage: bytes | None) -> None:
    """What a sweep has counted is a hint: the directory is what counts."""
    limits = DiskLimits(20 * 8192, 0)
    cache = open_disk(str(tmp_path), limits)
    for number in range(10):
        assert cache.put(entry(b"%d" % number, f"url {number}"), bytes(5000), ReadOrder())
    assert cache.status()["bytes"] == 10 * 8192
    count = tmp_path / "entries-1" / "count"
    count.unlink() if damage is None else count.write_bytes(damage)
    assert forked("another process", [lambda: DiskCache(str(tmp_path), limits).status()["bytes"]], 20) == [10 * 8192]
    count.unlink() if damage is None else count.write_bytes(damage)
    for number in range(10, 40):
        cache.put(entry(b"%d" % number, f"url {number}"), bytes(5000), ReadOrder())
    assert cache.status()["entries"] == 20


def test_what_is_replaced_needs_no_room(tmp_path: Path) -> None:
    """The stat of a file, as it was last, is kept for `offline` in a full cache, too."""
    cache = DiskCache(str(tmp_path), DiskLimits(10 * 4096, 0))
    for number in range(10):
        assert cache.put(entry(b"%d" % number, f"url {number}"), bytes(100), ReadOrder())
    assert not cache.put(entry(b"new", "new"), bytes(100), ReadOrder(), replace=True)
    assert cache.put(entry(b"3", "url 3"), b"replaced", ReadOrder(), replace=True)
    assert cache.put(entry(b"4", "url 4"), b"another", ReadOrder())
    assert [cache.get(entry(b"%d" % number, f"url {number}")) for number in (3, 4)] == [b"replaced", bytes(100)]
    assert cache.status()["bytes"] == 10 * 4096


# ---- pins


def pinned_files(folder: str) -> int:
    return sum(not path.stat().st_mode & 0o200 for path in entry_files(folder))


def test_pinned_files_stay(store: Store, folder: str) -> None:
    fs = cached(store, folder, max_bytes=40 * 4096)
    assert fs.pin(["large.bin", "00.bin"]) == 51_000
    with pytest.raises(FileNotFoundError, match=r"\[pin\]: .*none.bin"):
        fs.pin(["none.bin"])
    with pytest.raises(TypeError, match="several paths"):
        fs.pin("00.bin")
    with pytest.raises(IsADirectoryError, match=r"\[pin\]: .*dir"):
        fs.pin(["dir"])
    store.opened.clear()
    for name in filled(store, 100, 3000):
        fs.read_bytes(name)
    assert fs.read_bytes("large.bin") == noise(50_000)
    assert fs.read_bytes("00.bin") == CONTENTS[0]
    assert (store.opened["large.bin"], store.opened["00.bin"]) == (0, 0)
    assert pinned_files(folder) == 14
    fs.unpin(["large.bin", "00.bin"])
    assert pinned_files(folder) == 0


def test_a_pin_returns_what_is_kept(store: Store, folder: str) -> None:
    store.inner.write_bytes("huge", noise(400_000))
    fs = cached(store, folder, max_bytes=100_000)
    assert 0 < fs.pin(["huge"]) <= 100_000
    fs.unpin(["huge"])
    fs.clear()
    assert cached(store, f"{folder}/other", max_bytes=0).pin(["00.bin"]) == 0


def test_what_is_only_in_memory_is_stored_when_it_is_pinned(store: Store, folder: str) -> None:
    fs = cached(store, folder, max_bytes=40_960, memory_bytes=10**6)
    names = filled(store, 30, 3000)
    assert list(map(fs.read_bytes, names))
    assert fs.pin(names[-1:]) == 3000, "the cache was full, and kept what it had"
    store.opened.clear()
    assert cached(store, folder, max_bytes=40_960).read_bytes(names[-1]) == noise(3000, 29)
    assert not store.reads


def test_a_pin_takes_the_place_of_that_of_an_earlier_version(store: Store, folder: str) -> None:
    """Each would hold its room for ever else, until nothing more fits."""
    fs = cached(store, folder, max_bytes=150_000)
    for seed in range(6):
        store.inner.write_bytes("large.bin", noise(50_000, seed))
        assert fs.pin(["large.bin"]) == 50_000
    store.inner.write_bytes("large.bin", b"another")
    fs.unpin(["large.bin"])
    assert pinned_files(folder) == 0, "of whichever version"


def test_a_pin_stays_when_the_file_is_read_anew(store: Store, folder: str) -> None:
    """By a process that knows nothing of it, and asks for the content in place of the version."""
    far = Far(store.inner)
    assert cached(far, folder, check_interval=60.0).pin(["00.bin"]) == 1000
    assert list(cached(far, folder, check_interval=60.0).read_many(["00.bin"])) == CONTENTS[:1]
    assert far.opened == {"00.bin": 2}
    assert pinned_files(folder) == 1


def test_what_was_chosen_for_eviction_and_then_pinned_stays(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path), DiskLimits(20 * 4096, 0))
    order = ReadOrder(["new 0", "new 1", *(f"url {number}" for number in range(20))])
    for number in range(20):
        assert cache.put(entry(b"%d" % number, f"url {number}"), bytes(3000), order)
    assert cache.put(entry(b"new 0", "new 0"), bytes(3000), order)
    assert cache.get(entry(b"19", "url 19")) is None, "what is needed last goes first"
    assert cache.pin(entry(b"18", "url 18"))
    assert cache.put(entry(b"new 1", "new 1"), bytes(3000), order)
    assert cache.get(entry(b"18", "url 18")) == bytes(3000)


# ---- filling


def test_warm_fetches_a_tree_and_tells_how_far_it_is(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    fs.read_bytes("00.bin")
    told: list[tuple[int, int]] = []
    filled = fs.warm(progress=lambda files, size: told.append((files, size)))
    assert filled == TreeCounts(23, bytes=70_007, fetched=69_007)
    assert told[-1] == (23, 70_007)
    assert len(told) == 23
    store.opened.clear()
    assert list(fs.read_many(NAMES)) == CONTENTS
    assert fs.read_bytes("large.bin") == noise(50_000)
    assert store.reads == 0
    assert fs.warm("dir", progress=lambda files, size: None) == TreeCounts(1, bytes=7)
    assert fs.warm("large.bin", progress=lambda files, size: None) == TreeCounts(1, bytes=50_000)
    with pytest.raises(FileNotFoundError):
        fs.warm("no such")


def test_prefetch_reads_ahead_in_order_and_within_its_bound(store: Store, folder: str) -> None:
    wanted = filled(store, 200)
    fs = cached(store, folder)
    ahead = fs.prefetch(wanted, max_bytes=20_000)
    deadline = time.monotonic() + 5
    while ahead.wait(0.01).files < 20 and time.monotonic() < deadline:
        pass
    assert ahead.wait(0.1).files == 20, "it waits for the reader"
    assert not ahead.done
    for number, name in enumerate(wanted):
        assert fs.read_bytes(name) == noise(1000, number)
    assert ahead.wait(5).files == 200
    assert ahead.failed == 0
    assert set(store.opened.values()) == {1}


def test_prefetch_passes_over_what_it_cant_fetch_and_can_be_cancelled(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    ahead = fs.prefetch(["00.bin", "no such", "01.bin", "large.bin", "dir"])
    assert (ahead.wait(5).files, ahead.wait(5).bytes) == (3, 52_000)
    assert ahead.failed == 2, "what is not there, and a directory"
    stopped = fs.prefetch(NAMES * 100, max_bytes=1)
    assert forked("a child", [stopped.cancel], 10) == [None]
    assert not stopped.done, "a child has none, and ends none"
    stopped.cancel()
    assert stopped.done
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(stopped)


def test_prefetch_with_no_room_goes_with_the_reader(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    ahead = fs.prefetch(NAMES[:4], max_bytes=0)
    for name in NAMES[:4]:
        fs.read_bytes(name)
    assert ahead.wait(5).files == 4
    assert ahead.done


def test_a_prefetch_that_nobody_follows_ends(store: Store, folder: str) -> None:
    fs = cached(store, folder)
    first = fs.prefetch(NAMES, max_bytes=3000)
    assert first.wait(0.2).files == 3
    assert not first.done, "it waits for the reader"
    second = fs.prefetch(NAMES[10:], max_bytes=3000)
    assert first.wait(10).files == 3
    assert first.done
    fs.close()
    assert second.wait(10).files <= 4
    assert second.done


# ---- the cache itself


def test_status_verify_and_clear(store: Store, folder: str) -> None:
    fs = cached(store, folder, memory_bytes=10_000)
    assert list(fs.read_many(NAMES)) == CONTENTS
    status = fs.status()
    assert json.loads(json.dumps(status)) == status
    assert (status["disk"]["entries"], status["misses"]) == (20, 20)
    assert 0 < status["memory"]["bytes"] <= 10_000
    assert fs.verify() == []
    [path] = [path for path in entry_files(folder) if CONTENTS[7] in path.read_bytes()]
    path.write_bytes(path.read_bytes()[:-4] + b"XXXX")
    [damaged] = fs.verify()
    assert store.url("07.bin") in damaged
    assert fs.verify() == []
    fs.clear()
    assert fs.status()["disk"]["entries"] == 0
    assert list(fs.read_many(NAMES)) == CONTENTS


def test_options_that_cant_be(store: Store, folder: str) -> None:
    wrong: list[tuple[str, Any]] = [("max_bytes", -1), ("max_bytes", "much"), ("min_free", "10%"), ("block_size", 1)]
    wrong += [("memory_bytes", 1.5), ("check_interval", -1), ("max_age", -1.0)]
    for name, value in wrong:
        with pytest.raises(ValueError, match=name):
            cached(store, folder, **{name: value})
    with pytest.raises(TypeError):
        cached(store, folder, max_byte=1)


def test_repr_and_pickle(store: Store, tmp_path: Path, folder: str) -> None:
    fs = cached(store.inner, folder)
    assert repr(fs) == f"CachedFS({store.inner!r})"
    fs.set_order(NAMES)
    again = pickle.loads(pickle.dumps(fs))
    assert list(again.read_many(NAMES)) == CONTENTS
    with fs.open("large.bin", "rb") as file:
        file.read(10)
        assert pickle.loads(pickle.dumps(file)).read() == noise(50_000)[10:]
    (tmp_path / "a").write_bytes(CONTENTS[0])
    with cached(Local(tmp_path), folder).open("a", "rb") as file:
        data = pickle.dumps(file)
        assert CONTENTS[0] not in data, "an open file is pickled without its content"
        assert pickle.loads(data).read() == CONTENTS[0]


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """There is no cache directory, and nothing is said of that."""
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("kind", [Store, Far])
def test_without_a_cache_directory_there_is_the_memory(store: Store, kind: type[Store]) -> None:
    store = kind(store.inner)
    fs = CachedFS(store)
    for _ in range(2):
        assert list(fs.read_many(NAMES)) == CONTENTS
    assert store.reads == 20
    assert kind is Store or store.asked == 0, "what was asked for is remembered, too"
    assert fs.status()["disk"] is None
    assert fs.verify() == []
    fs.clear()


def test_what_shares_a_folder_shares_its_memory_and_its_end(store: Store, folder: str) -> None:
    """A job opens an FS for each archive: `memory_bytes` are those of its process."""
    caches = [cached(store, folder, memory_bytes=7500, check_interval=0.0) for _ in range(3)]
    for number, fs in enumerate(caches):
        for name in NAMES[4 * number : 4 * number + 4]:
            fs.read_bytes(name)
    memory = caches[0].status()["memory"]
    assert memory["items"] == 5
    assert [fs.status()["memory"] for fs in caches] == [memory] * 3
    caches[0].clear()
    store.opened.clear()
    assert caches[2].read_bytes(NAMES[8]) == CONTENTS[8]
    assert store.reads == 1, "it is emptied for all that share it"
