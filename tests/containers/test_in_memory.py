"""Small archives of a store: how many requests an epoch takes, and what is fetched for a few members."""

from __future__ import annotations

import pickle
import random
import tarfile
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsabs import FS, Local
from tests.containers.forks import all_end_well, forked
from tests.containers.tarballs import tarball
from tests.containers.zips import zipped
from tests.counting import Counting

pytestmark = pytest.mark.quick

MEMBERS = {f"{number:04}.bin": random.Random(number).randbytes(4000) for number in range(3000)}
SIZE = 12_000_000
SHUFFLED = random.Random(7).sample(sorted(MEMBERS), len(MEMBERS))


@pytest.fixture
def store(tmp_path: Path) -> Counting:
    (tmp_path / "a.zip").write_bytes(zipped(MEMBERS))
    return Counting(Local(tmp_path))


@pytest.fixture
def archive(store: Counting) -> Iterator[FS]:
    with store.open_container("a.zip") as archive:
        archive.stat(SHUFFLED[0])
        store.requests.clear()  # of its index
        yield archive


@pytest.mark.parametrize(("batch", "most"), [(1, 47), (16, 129), (3000, 1)])
def test_a_shuffled_epoch_takes_few_requests(store: Counting, archive: FS, batch: int, most: int) -> None:
    for start in range(0, len(SHUFFLED), batch):
        names = SHUFFLED[start : start + batch]
        assert list(archive.read_many(names)) == [MEMBERS[name] for name in names]
    assert len(store.requests) <= most
    assert store.fetched < 1.1 * SIZE
    store.requests.clear()
    assert archive.read_bytes(SHUFFLED[0]) == MEMBERS[SHUFFLED[0]]
    with archive.open(SHUFFLED[1], "rb") as file:
        assert file.read() == MEMBERS[SHUFFLED[1]]
        file.seek(7)
        assert file.read(100) == MEMBERS[SHUFFLED[1]][7:107]
    assert not store.requests


def test_a_few_members_cost_their_own_bytes(store: Counting, archive: FS) -> None:
    for name in SHUFFLED[:40]:
        archive.read_bytes(name)
    assert len(store.requests) == 40
    assert store.fetched < 40 * 5000


@pytest.mark.parametrize(("names", "requests"), [(SHUFFLED[:120], 120), (sorted(MEMBERS)[:120], 1)])
def test_a_few_members_at_once_cost_their_own_bytes(
    store: Counting, archive: FS, names: list[str], requests: int
) -> None:
    """Neighbours are one request, which is no reason to fetch the rest."""
    assert list(archive.read_many(names)) == [MEMBERS[name] for name in names]
    assert len(store.requests) <= requests
    assert store.fetched < 2 * 120 * 4000  # with gaps between neighbours


def test_a_tiny_archive_is_asked_for_each_of_its_first_members(tmp_path: Path) -> None:
    """So that a replaced one is noticed."""
    (tmp_path / "a.zip").write_bytes(zipped({"x": b"content"}))
    store = Counting(Local(tmp_path))
    with store.open_container("a.zip") as archive:
        archive.stat("x")
        store.requests.clear()
        for _ in range(2):
            archive.read_bytes("x")
        assert len(store.requests) == 2
        for _ in range(100):
            archive.read_bytes("x")
        assert len(store.requests) <= 4


def test_large_members_are_never_fetched_twice(tmp_path: Path) -> None:
    members = {f"{number:02}.bin": bytes(100_000) for number in range(40)}
    (tmp_path / "a.zip").write_bytes(zipped(members))
    store = Counting(Local(tmp_path))
    with store.open_container("a.zip") as archive:
        for name in random.Random(1).sample(sorted(members), 40):
            archive.read_bytes(name)
    assert store.fetched < 1.1 * 4_000_000


def requests_of_an_epoch(store: Counting, archive: FS, names: list[str]) -> int:
    store.requests.clear()
    assert sum(map(len, archive.read_many(names))) >= SIZE
    return len(store.requests)


def test_what_is_held_has_a_limit(tmp_path: Path) -> None:
    """An archive of more than 32 MiB is not held, nor one with which all would be more than 64 MiB."""
    names = [f"{number:04}" for number in range(3000)]
    for name, size in (("large", 12_000), ("a", 10_000), ("b", 10_000), ("c", 10_000)):
        (tmp_path / f"{name}.zip").write_bytes(zipped(dict.fromkeys(names, bytes(size))))
    random.Random(1).shuffle(names)
    store = Counting(Local(tmp_path))
    with store.open_container("large.zip") as large:
        assert requests_of_an_epoch(store, large, names[::3]) > 500
    with store.open_container("b.zip") as second, store.open_container("c.zip") as third:
        first = store.open_container("a.zip")
        assert requests_of_an_epoch(store, first, names) < 400
        assert requests_of_an_epoch(store, second, names) < 400
        assert requests_of_an_epoch(store, third, names) > 1000
        assert requests_of_an_epoch(store, first, names) == 0
        del first  # without being closed: its place is free
        assert requests_of_an_epoch(store, third, names) < 400


def test_children_inherit_what_is_held_and_pickles_leave_it_out(store: Counting, archive: FS) -> None:
    expected = [MEMBERS[name] for name in SHUFFLED]
    list(archive.read_many(SHUFFLED))
    store.requests.clear()
    assert all_end_well(forked(lambda: list(archive.read_many(SHUFFLED)) == expected and not store.requests))
    pickled = pickle.dumps(archive)
    assert len(pickled) < 10_000
    with pickle.loads(pickled) as copy:
        assert list(copy.read_many(SHUFFLED)) == expected


def test_threads_fetch_it_once(store: Counting, archive: FS) -> None:
    wrong: list[str] = []

    def read(names: list[str]) -> None:
        wrong.extend(name for name in names if archive.read_bytes(name) != MEMBERS[name])

    threads = [threading.Thread(target=read, args=(SHUFFLED[at::8],)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert sum(size > SIZE for size, _ in store.requests) == 1


def test_a_tar_too(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tarball(MEMBERS))
    store = Counting(Local(tmp_path))
    with store.open_container("a.tar") as archive:
        archive.stat(SHUFFLED[0])
        store.requests.clear()
        for name in SHUFFLED:
            assert archive.read_bytes(name) == MEMBERS[name]
    assert len(store.requests) <= 70


def test_an_archive_in_one_that_is_held_takes_no_more(store: Counting, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "outer.tar", "w") as tar:
        tar.add(tmp_path / "a.zip", "a.zip")
        tar.add(tmp_path / "a.zip", "b.zip")
    with store.open_container("outer.tar") as outer:
        for at in range(0, 200 * 100_000, 100_000):  # of the outer one, here and there
            with outer.open_blob("b.zip") as blob:
                blob.pread(100, at % SIZE)
        store.requests.clear()
        with outer.open_container("b.zip") as archive:
            tracemalloc.start()
            for name in SHUFFLED:
                assert archive.read_bytes(name) == MEMBERS[name]
            assert tracemalloc.get_traced_memory()[1] < SIZE / 2
            tracemalloc.stop()
        assert not store.requests
