"""CachedFS: limits, eviction, the known order, filling it ahead, pins, and looking after it."""

from __future__ import annotations

import math
import pickle
import random
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fsabs import TreeCounts
from fsabs.backends.local import Local
from fsabs.cache import CachedFS, eviction
from fsabs.cache.content import MemoryCache
from fsabs.cache.disk import DiskCache, open_disk
from fsabs.cache.eviction import Candidate, Count, DiskLimits, Occupancy, Victims
from fsabs.cache.policy import Passes, ReadOrder, key_of
from fsabs.testing.children import forked
from tests.cache.stores import CONTENTS, NAMES, Store, cached, entry, noise

pytestmark = pytest.mark.quick

# ---- room


def entry_files(folder: str) -> list[Path]:
    return [path for path in Path(folder).glob("entries-1/??/*") if path.is_file()]


def on_disk(folder: str) -> int:
    return sum(path.stat().st_blocks * 512 for path in entry_files(folder))


def test_the_limit_holds_and_what_is_there_stays(store: Store, folder: str) -> None:
    limit = 60 * 4096
    fs = cached(store, folder, max_bytes=limit)
    for number in range(300):
        store.inner.write_bytes(f"x{number}", noise(3000, number))
    for number in range(300):
        assert fs.read_bytes("00.bin") == CONTENTS[0]
        assert fs.read_bytes(f"x{number}") == noise(3000, number)
        assert fs.status()["disk"]["bytes"] == on_disk(folder) <= limit
    assert store.opened["00.bin"] == 1, "used all the time, it was never evicted"
    assert len(entry_files(folder)) == 60


def epochs(fs: CachedFS, names: list[str], count: int, ordered: bool) -> list[int]:
    """Hits of shuffled epochs."""
    chance, hits = random.Random(7), []
    for _ in range(count):
        wanted = chance.sample(names, len(names))
        if ordered:
            fs.set_order(wanted)
        before = fs.status()["hits"]
        for name in wanted:
            fs.read_bytes(name)
        hits.append(fs.status()["hits"] - before)
    return hits


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_shuffled_epochs_hit_what_there_is_room_for(store: Store, folder: str, share: float, ordered: bool) -> None:
    names = [f"x{number}" for number in range(100)]
    for name in names:
        store.inner.write_bytes(name, noise(1000))
    fs = cached(store, folder, max_bytes=int(100 * share) * 4096)
    hits = epochs(fs, names, 4, ordered)
    assert hits[0] == 0
    assert min(hits[1:]) >= 0.98 * share * 100


def test_what_was_not_read_for_a_whole_pass_goes(store: Store, folder: str) -> None:
    """Another data set takes the place of the one before, after a pass over it."""
    sets = [[f"{which}{number}" for number in range(100)] for which in "ab"]
    for name in (*sets[0], *sets[1]):
        store.inner.write_bytes(name, noise(1000))
    fs = cached(store, folder, max_bytes=50 * 4096)
    assert epochs(fs, sets[0], 3, False)[-1] >= 49
    assert epochs(fs, sets[1], 6, False)[-1] >= 45


@pytest.mark.parametrize("limits", [{"max_bytes": 10 * 4096}, {"max_bytes": 2000 * 4096}])
def test_a_limit_that_is_changed_counts(store: Store, folder: str, limits: dict[str, int]) -> None:
    names = [f"x{number}" for number in range(100)]
    for name in names:
        store.inner.write_bytes(name, noise(1000))
    assert list(cached(store, folder, max_bytes=50 * 4096).read_many(names))
    fs = cached(store, folder, **limits)
    for _ in range(2):
        assert list(fs.read_many(names))
    fs.read_bytes(NAMES[0])
    assert on_disk(folder) <= limits["max_bytes"]
    assert len(entry_files(folder)) >= min(100, limits["max_bytes"] // 4096) * 0.9


def test_a_file_larger_than_the_cache(store: Store, folder: str) -> None:
    fs = cached(store, folder, max_bytes=20_000, whole_file_size=100_000)
    for _ in range(2):
        assert fs.read_bytes("large.bin") == noise(50_000)
        assert fs.read_bytes("00.bin") == CONTENTS[0]
    assert store.opened == {"large.bin": 2, "00.bin": 1}


def test_the_floor_of_free_space(store: Store, folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    free = 10**9
    monkeypatch.setattr("fsabs.cache.eviction.free", lambda folder: free)
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


def test_pinned_files_stay(store: Store, folder: str) -> None:
    fs = cached(store, folder, max_bytes=40 * 4096)
    assert fs.pin(["large.bin", "00.bin"]) == 51_000
    with pytest.raises(FileNotFoundError, match=r"\[pin\]: .*none.bin"):
        fs.pin(["none.bin"])
    with pytest.raises(TypeError, match="several paths"):
        fs.pin("00.bin")
    store.inner.mkdir("folder")
    with pytest.raises(IsADirectoryError, match=r"\[pin\]: .*folder"):
        fs.pin(["folder"])
    fetching = fs.prefetch(["folder"])
    fetching.wait()
    assert fetching.failed == 1
    opened = Counter(store.opened)
    for number in range(200):
        store.inner.write_bytes(f"x{number}", noise(3000, number))
        fs.read_bytes(f"x{number}")
    assert fs.read_bytes("large.bin") == noise(50_000)
    assert fs.read_bytes("00.bin") == CONTENTS[0]
    assert (store.opened["large.bin"], store.opened["00.bin"]) == (opened["large.bin"], opened["00.bin"])
    assert sum(not path.stat().st_mode & 0o200 for path in entry_files(folder)) == 14
    fs.unpin(["large.bin", "00.bin"])
    assert all(path.stat().st_mode & 0o200 for path in entry_files(folder))


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


def test_what_is_needed_later_than_all_that_is_there_is_refused_without_a_look_at_each() -> None:
    order = ReadOrder([f"{number:03}" for number in range(200)])
    looks = 0

    def sample() -> list[Candidate]:
        nonlocal looks
        looks += 1
        time.sleep(0.05)
        return [Candidate(key_of(f"{number:03}"), 0.0, number) for number in range(50, 100)]

    victims = Victims(sample, Passes())
    assert [victims.next(need, order) for need in range(100, 150)] == [None] * 50
    assert looks == 1
    assert victims.next(20, order) == Candidate(key_of("099"), 0.0, 99)
    assert [victims.next(99, order) for _ in range(10)] == [None] * 10
    assert looks <= 3
    order.reached("060")  # and what is before it isn't needed any more
    time.sleep(0.5)
    found = victims.next(150, order)
    assert found is not None
    assert found.name <= 60


def test_a_memory_keeps_what_it_has() -> None:
    memory, order = MemoryCache(3000, Passes()), ReadOrder()
    for name in (b"a", b"b", b"c"):
        assert memory.put(name, name.decode(), bytes(1000), order)
    assert not memory.put(b"d", "d", bytes(1000), order)
    assert not memory.put(b"f", "f", bytes(3001), order)
    assert (len(memory), memory.size) == (3, 3000)
    memory.clear()
    assert (len(memory), memory.size) == (0, 0)
    assert memory.put(b"a", "a", bytes(3000), order)


def test_a_memory_with_an_order() -> None:
    memory, order = MemoryCache(3000, Passes()), ReadOrder(["now", "soon", "later", "last"])
    order.reached("now")
    for url in ("last", "soon", "now"):
        assert memory.put(url.encode(), url, bytes(1000), order)
    assert memory.put(b"later", "later", bytes(1000), order), "what was read in this epoch gives way"
    assert b"now" not in memory
    assert not memory.put(b"unknown", "unknown", bytes(1000), order)
    order = ReadOrder(["now", "next", "soon", "later", "last"])
    order.reached("now")
    assert memory.put(b"next", "next", bytes(1000), order), "what is needed last gives way"
    assert b"last" not in memory


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


def test_passes_are_recognised_by_a_sample() -> None:
    passes = Passes()
    for key in range(100_000):
        passes.read(key * 2654435761)
    assert passes.before == -math.inf
    before = passes.begun
    for key in range(30_000):
        passes.read(key * 2654435761)
    assert passes.before == before


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
    for number in range(200):
        store.inner.write_bytes(f"p{number:03}", noise(1000, number))
    wanted = [f"p{number:03}" for number in range(200)]
    fs = cached(store, folder)
    ahead = fs.prefetch(wanted, max_bytes=20_000)
    deadline = time.monotonic() + 5
    while ahead.wait(0.01).files < 20 and time.monotonic() < deadline:
        pass
    time.sleep(0.1)
    assert ahead.wait(0).files == 20, "it waits for the reader"
    assert not ahead.done
    for name, number in zip(wanted, range(200), strict=True):
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


# ---- the cache itself


def test_status_verify_and_clear(store: Store, folder: str) -> None:
    import json

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


@pytest.mark.parametrize(
    "options",
    [
        {"max_bytes": -1},
        {"max_bytes": "much"},
        {"min_free": "10%"},
        {"block_size": 1},
        {"memory_bytes": 1.5},
        {"check_interval": -1},
        {"max_age": -1.0},
    ],
)
def test_options_that_cant_be(store: Store, folder: str, options: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        cached(store, folder, **options)
    with pytest.raises(TypeError):
        cached(store, folder, max_byte=1)


def test_repr_and_pickle(store: Store, folder: str) -> None:
    fs = cached(store.inner, folder)
    assert repr(fs) == f"CachedFS({store.inner!r})"
    fs.set_order(NAMES)
    again = pickle.loads(pickle.dumps(fs))
    assert list(again.read_many(NAMES)) == CONTENTS
    with fs.open("large.bin", "rb") as file, fs.open("00.bin", "rb") as small:
        file.read(10), small.read(10)
        assert pickle.loads(pickle.dumps(file)).read() == noise(50_000)[10:]
        assert pickle.loads(pickle.dumps(small)).read() == CONTENTS[0][10:]


def test_an_open_file_is_pickled_without_its_content(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a").write_bytes(CONTENTS[0])
    with cached(Local(tmp_path), folder).open("a", "rb") as file:
        data = pickle.dumps(file)
        assert CONTENTS[0] not in data
        assert pickle.loads(data).read() == CONTENTS[0]


def test_without_a_cache_directory_there_is_the_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSABS_CACHE_DIR", "")
    fs = CachedFS(store)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert list(fs.read_many(NAMES)) == CONTENTS
    assert store.reads == 20
    assert fs.status()["disk"] is None
    assert fs.verify() == []
    fs.clear()


@pytest.mark.parametrize("damage", [b"", b"\1" * 10, b"fsabsCN1" + bytes(36), bytes(44), None])
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


def test_what_can_go_is_found_as_long_as_there_is_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four epochs, each of other files in a known order: most of the one before go for them, although samples are small
    and the first one in vain is the last one.
    """
    monkeypatch.setattr(eviction, "CANDIDATES", 32)
    monkeypatch.setattr(eviction, "ORDERED_REST", 1e6)
    count, refused = 400, []
    cache = DiskCache(str(tmp_path), DiskLimits(count * 4096, 0))
    for epoch in range(4):
        order = ReadOrder(f"{epoch} {number}" for number in range(count))
        keys = [entry(f"{epoch} {number}".encode(), f"{epoch} {number}") for number in range(count)]
        refused.append(count - sum(cache.put(key, bytes(100), order) for key in keys))
    assert refused[0] == 0
    assert sum(refused) <= 3 * count // 4, refused


@pytest.mark.parametrize("pinned", [False, True])
def test_a_cache_that_can_free_nothing_refuses_quickly(
    store: Store, folder: str, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    """Something else has filled the disk, or more is pinned than the limit: nothing is counted for each file."""
    if pinned:
        with cached(store, folder) as earlier:
            earlier.pin(NAMES[:10])
    sweeps = 0

    def counted(self: Occupancy, sweep: Callable[[Occupancy], Count] = Occupancy.sweep) -> Count:
        nonlocal sweeps
        sweeps += 1
        return sweep(self)

    monkeypatch.setattr(Occupancy, "sweep", counted)
    monkeypatch.setattr(eviction, "REST", 1e6), monkeypatch.setattr(eviction, "VAIN_REST", 1e6)
    fs = cached(store, folder, max_bytes=20_000) if pinned else cached(store, folder, min_free=10**17)
    for _ in range(5):
        assert [fs.read_bytes(name) for name in NAMES[10:]] == CONTENTS[10:]
    assert store.reads == 50 + 10 * pinned
    assert sweeps <= 6


def test_what_shares_a_folder_shares_its_memory_and_its_end(store: Store, folder: str) -> None:
    """A job opens an FS for each archive: `memory_bytes` are those of its process."""
    caches = [cached(store, folder, memory_bytes=5000, check_interval=0.0) for _ in range(3)]
    for number, fs in enumerate(caches):
        for name in NAMES[4 * number : 4 * number + 4]:
            fs.read_bytes(name)
    memories = {id(memory): memory for memory in (fs._files.contents().memory for fs in caches)}
    assert 4000 <= sum(memory.size for memory in memories.values()) <= 5000
    assert {fs.status()["memory"]["bytes"] for fs in caches} == {sum(memory.size for memory in memories.values())}
    caches[0].clear()
    store.opened.clear()
    assert caches[2].read_bytes(NAMES[8]) == CONTENTS[8]
    assert store.reads == 1, "it is emptied for all that share it"
