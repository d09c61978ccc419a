"""Batches through a cache: one call of the store, what it brings along, and one fetch for all that want it."""

from __future__ import annotations

import os
import random
import tarfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fsabs import FS, Local, Memory
from fsabs.cache import CachedFS, disk, eviction
from fsabs.cache.eviction import DiskLimits
from fsabs.cache.policy import ReadOrder
from fsabs.cache.single_flight import MISSING, SingleFlight, no_claims
from fsabs.core import identity
from fsabs.core.layers import LayerFS
from fsabs.disk.folders import Folder
from fsabs.testing.children import started
from tests.cache.stores import BLOCK, cached, entry, noise
from tests.counting import Counting

MEMBERS = {f"{number // 100:02}/{number:04}.png": noise(300 + number % 300, number) for number in range(1000)}


def in_zip(folder: Path) -> str:
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        for name, data in MEMBERS.items():
            archive.writestr(name, data)
    return "a.zip"


def in_tar(folder: Path) -> str:
    import io

    with tarfile.open(folder / "a.tar", "w") as archive:
        for name, data in MEMBERS.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return "a.tar"


@pytest.mark.parametrize("make", [in_zip, in_tar])
@pytest.mark.parametrize("batch", [1, 32, 256])
def test_a_cold_epoch_of_small_members_fetches_the_archive_once(
    tmp_path: Path, folder: str, make: Any, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In random order: whole members that lie in the gaps of a request are admitted, and not fetched again."""
    monkeypatch.setattr(identity, "TICK", -1)
    name = make(tmp_path)
    store = Counting(Local(tmp_path))
    with store.open_container(name) as container:
        store.requests.clear()  # of its index
        fs = cached(container, folder)
        wanted = list(MEMBERS)
        random.Random(1).shuffle(wanted)
        for start in range(0, len(wanted), batch):
            names = wanted[start : start + batch]
            found = list(fs.read_many(names)) if batch > 1 else [fs.read_bytes(names[0])]
            assert found == [MEMBERS[name] for name in names]
        size = (tmp_path / name).stat().st_size
        assert store.fetched <= 1.1 * size
        asked = store.fetched
        again = cached(container, folder)
        assert dict(zip(wanted, again.read_many(wanted), strict=True)) == MEMBERS
        assert store.fetched == asked, "all of it is cached"


def test_what_is_brought_along_is_of_its_own_version(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that is replaced: nothing of the old one is returned for the new one."""
    monkeypatch.setattr(identity, "TICK", -1)
    in_zip(tmp_path)
    os.utime(tmp_path / "a.zip", (1e9, 1e9))
    names = list(MEMBERS)[:200:10]
    with Counting(Local(tmp_path)).open_container("a.zip") as container:
        assert list(cached(container, folder).read_many(names)) == [MEMBERS[name] for name in names]
    other = {name: noise(len(data), 9) for name, data in MEMBERS.items()}
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        for name, data in other.items():
            archive.writestr(name, data)
    os.utime(tmp_path / "b.zip", (1e9, 1e9))
    (tmp_path / "b.zip").replace(tmp_path / "a.zip")
    with Counting(Local(tmp_path)).open_container("a.zip") as container:
        assert list(cached(container, folder).read_many(other)) == list(other.values())


def test_blocks_of_many_ranges_come_by_one_request_and_those_in_gaps_are_admitted(folder: str) -> None:
    memory = Memory()
    data = noise(64 * BLOCK)
    memory.write_bytes("large.bin", data)
    store = Counting(memory)
    with cached(store, folder).open_blob("large.bin") as blob:
        ranges = [(100, 0), (10, BLOCK + 5), (50, 4 * BLOCK), (0, 7), (3, 40 * BLOCK), (BLOCK, 41 * BLOCK - 7)]
        assert blob.pread_many(ranges) == [data[offset : offset + size] for size, offset in ranges]
        assert store.requests == [(5 * BLOCK, 0), (2 * BLOCK, 40 * BLOCK)]
        assert blob.pread(3 * BLOCK, 2 * BLOCK) == data[2 * BLOCK : 5 * BLOCK]
        assert len(store.requests) == 2, "blocks 2 and 3 lay in a gap"
        many = [(BLOCK // 2, number * BLOCK + 9) for number in range(63)]
        assert blob.pread_many(many) == [data[offset : offset + size] for size, offset in many]


def test_files_of_a_store_that_takes_requests_come_by_one_call(folder: str) -> None:
    memory = Memory()
    contents = {f"{number:03}": noise(500 + number, number) for number in range(100)}
    for name, data in contents.items():
        memory.write_bytes(name, data)
    memory.write_bytes("large", noise(50_000))

    class Many(LayerFS):
        default_concurrency = 8
        capabilities = Memory.capabilities._replace(stat_is_request=True)
        calls: list[list[str]] = []  # noqa: RUF012

        def _read_many_versioned(
            self, wanted: Sequence[str], concurrency: int | None
        ) -> Iterator[tuple[bytes, str | None]]:
            self.calls.append(list(wanted))
            return self.inner._read_many_versioned(wanted, concurrency)

    store = Many(memory)
    fs = cached(store, folder)
    everything = [*contents, "large"]
    assert list(fs.read_many(everything)) == [*contents.values(), noise(50_000)]
    assert store.calls == [everything], "no file was asked for before"
    blocks = -(-50_000 // BLOCK)
    assert fs.status()["disk"]["entries"] == 100 + blocks, "and nothing is written but the contents"
    memory.write_bytes("007", b"new")
    assert list(fs.read_many(everything))[7] == b"new"
    assert store.calls[1:] == [["007"]], "what is missing, and nothing else"
    with cached(store, folder).open_blob("large") as blob:
        assert blob.pread(100, 30_000) == noise(50_000)[30_000:30_100]
    assert len(store.calls) == 2


# ---- one fetch for all


def test_threads_that_miss_overlapping_batches_fetch_each_value_once() -> None:
    flights, fetched, stored = SingleFlight(no_claims), [], {}
    lock = threading.Lock()

    def fetch_all(keys: list[bytes], found: list[Any]) -> None:
        def fetch(numbers: Sequence[int]) -> Iterable[str]:
            for number in numbers:
                with lock:
                    fetched.append(keys[number])
                time.sleep(0.001)
                stored[keys[number]] = f"value of {keys[number]!r}"
                yield stored[keys[number]]

        found += flights.fetch(keys, lambda number: stored.get(keys[number], MISSING), fetch)

    batches = [[b"%d" % (at % 30) for at in range(start, start + 20)] for start in range(0, 40, 5)]
    results: list[list[Any]] = [[] for _ in batches]
    threads = [threading.Thread(target=fetch_all, args=pair) for pair in zip(batches, results, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert results == [[f"value of {key!r}" for key in keys] for keys in batches]
    assert sorted(fetched) == sorted({key for keys in batches for key in keys})


def test_a_fetch_that_fails_is_begun_anew_by_one_that_waited() -> None:
    flights, calls, started = SingleFlight(no_claims), [], threading.Event()

    def fetch(numbers: Sequence[int]) -> Iterable[str]:
        calls.append(list(numbers))
        if len(calls) == 1:
            started.set()
            time.sleep(0.2)
            raise ConnectionResetError
        return ["value" for _ in numbers]

    found: list[Any] = []

    def wait() -> None:
        started.wait(10)
        found.extend(flights.fetch([b"a"], lambda _: MISSING, fetch))

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(ConnectionResetError):
        flights.fetch([b"a", b"a"], lambda _: MISSING, fetch)
    for thread in threads:
        thread.join(10)
    assert found == ["value"] * 3


def test_a_value_that_is_fetched_twice_in_one_batch_is_fetched_once() -> None:
    assert SingleFlight(no_claims).fetch([b"a", b"b", b"a"], lambda _: MISSING, lambda numbers: list(numbers)) == [
        0,
        1,
        0,
    ]


def test_a_stopped_process_costs_a_batch_one_wait() -> None:
    """And not one for each of its entries."""

    class Taken:
        """Claims of a process that is stopped."""

        ignored = False

        def claim(self, token: int) -> bool:
            return self.ignored

        def give_up(self, token: int) -> None:
            self.ignored = True

        def release(self, token: int) -> None:
            pass

    calls: list[list[int]] = []

    def fetch(numbers: Sequence[int]) -> Iterable[int]:
        calls.append(sorted(numbers))
        return list(numbers)

    began = time.monotonic()
    keys = [b"%d" % number for number in range(30)]
    taken = Taken()
    flights = SingleFlight(lambda: taken, 0.3)  # type: ignore[arg-type,return-value]
    assert flights.fetch(keys, lambda _: MISSING, fetch) == list(range(30))
    assert time.monotonic() - began < 5
    assert calls == [list(range(30))]


# ---- a full cache


def test_a_full_cache_refuses_without_looking_at_its_files(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    full = disk.open_disk(folder, DiskLimits(300 * 4096, 0))
    for number in range(300):
        assert full.put(entry(b"%d" % number, f"url {number}"), bytes(100), ReadOrder())
    scanned, scan = [], eviction.members

    def counting(root: Folder, number: int, *, hidden: bool = False) -> Iterator[Any]:
        scanned.append(number)
        time.sleep(0.0005)
        return scan(root, number, hidden=hidden)

    monkeypatch.setattr(eviction, "members", counting)
    began, cpu = len(scanned), time.monotonic()
    for number in range(300, 800):
        assert not full.put(entry(b"%d" % number, f"url {number}"), bytes(100), ReadOrder())
        if time.monotonic() - cpu > 5:
            break
    assert len(scanned) - began <= 2 * 256, "after one search in vain there is none for a while"
    order = ReadOrder(f"url {number}" for number in range(800, 900))
    assert all(full.put(entry(b"%d" % number, f"url {number}"), bytes(100), order) for number in range(800, 900))


def warnings_of_caches(path: str, folder: str) -> list[list[str]]:
    """The warnings of a cache around memory, a zip, a network's files, and twice around local files."""

    def warned(inner: FS) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            CachedFS(inner, folder)
        return [str(one.message) for one in caught]

    found = [warned(Memory()), warned(Local(path).open_zip("a.zip"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fsabs.disk.folders.filesystem_of", lambda path, table=None: "nfs4" if path != folder else "ext4")
        found.append(warned(Local(path)))
    return [*found, warned(Local(path)), warned(Local(path))]


def test_a_cache_around_local_files_says_once_that_it_does_not_pay(tmp_path: Path, folder: str) -> None:
    in_zip(tmp_path)
    arguments = (str(tmp_path), folder)
    *others, first, second = started("spawn", "warning", warnings_of_caches, arguments, 60)  # none has warned there
    assert others == [[], [], []]
    assert [message for message in first if "around local files makes small ones slower" in message] == first != []
    assert second == []
