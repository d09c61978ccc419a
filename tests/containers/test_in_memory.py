"""Small archives of a store: how many requests an epoch takes, and what is fetched for a few members."""

from __future__ import annotations

import pickle
import random
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsabs import FS, Local
from fsabs.containers import in_memory
from fsabs.containers.in_memory import SmallArchive
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


@pytest.mark.parametrize(("batch", "most"), [(1, 47), (16, 129), (256, 1), (3000, 1)])
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
    assert not store.requests


def test_a_few_members_cost_their_own_bytes(store: Counting, archive: FS) -> None:
    for name in SHUFFLED[:40]:
        archive.read_bytes(name)
    assert len(store.requests) == 40
    assert store.fetched < 40 * 5000


def test_a_few_members_at_once_cost_their_own_bytes(store: Counting, archive: FS) -> None:
    assert len(list(archive.read_many(SHUFFLED[:120]))) == 120
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


def test_neighbours_are_one_request(store: Counting, archive: FS) -> None:
    """Which is no reason to fetch the rest."""
    names = sorted(MEMBERS)
    for start in range(0, 400, 50):
        assert list(archive.read_many(names[start : start + 50])) == [MEMBERS[name] for name in names[start:][:50]]
    assert len(store.requests) == 8
    assert store.fetched < 0.2 * SIZE


def test_large_members_are_never_fetched_twice(tmp_path: Path) -> None:
    members = {f"{number:02}.bin": bytes(100_000) for number in range(40)}
    (tmp_path / "a.zip").write_bytes(zipped(members))
    store = Counting(Local(tmp_path))
    with store.open_container("a.zip") as archive:
        for name in random.Random(1).sample(sorted(members), 40):
            archive.read_bytes(name)
    assert store.fetched < 1.1 * 4_000_000


def test_a_large_archive_is_never_held(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "MAX_BYTES", SIZE - 1)
    with store.open_container("a.zip") as archive:
        for name in SHUFFLED:
            archive.read_bytes(name)
    assert len(store.requests) >= 3000


def test_what_all_take_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first stays, and its place is free when it is closed."""
    monkeypatch.setattr(in_memory, "MAX_TOTAL", SIZE + SIZE // 2)
    for name in "abc":
        (tmp_path / f"{name}.zip").write_bytes(zipped(MEMBERS))
    store = Counting(Local(tmp_path))

    def requests(archive: FS) -> int:
        store.requests.clear()
        assert list(archive.read_many(SHUFFLED)) == [MEMBERS[name] for name in SHUFFLED]
        return len(store.requests)

    with store.open_container("b.zip") as second:
        with store.open_container("a.zip") as first:
            assert requests(first) < 10
            assert requests(second) > 500
            assert requests(first) == 0
        assert requests(second) < 10
    third = store.open_container("c.zip")
    assert requests(third) < 10
    del third  # without being closed
    with store.open_container("a.zip") as first:
        assert requests(first) < 10


def test_a_pickle_takes_no_content_along(archive: FS) -> None:
    list(archive.read_many(SHUFFLED))
    pickled = pickle.dumps(archive)
    assert len(pickled) < 10_000
    with pickle.loads(pickled) as copy:
        assert list(copy.read_many(SHUFFLED)) == [MEMBERS[name] for name in SHUFFLED]


def test_a_forked_child_has_what_its_parent_has(store: Counting, archive: FS) -> None:
    list(archive.read_many(SHUFFLED))
    store.requests.clear()

    def check() -> bool:
        found = list(archive.read_many(SHUFFLED)) == [MEMBERS[name] for name in SHUFFLED]
        return found and not store.requests

    assert all_end_well(forked(check), forked(check))


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
        for name in ("a.zip", "b.zip"):
            tar.add(tmp_path / "a.zip", name)
    with store.open_container("outer.tar") as outer:
        before = len(in_memory._in_memory)
        with outer.open_container("a.zip") as archive:
            assert list(archive.read_many(SHUFFLED)) == [MEMBERS[name] for name in SHUFFLED]
        for at in range(0, 200 * 100_000, 100_000):  # of the outer one, here and there
            with outer.open_blob("b.zip") as blob:
                blob.pread(100, at % SIZE)
        assert len(in_memory._in_memory) == before + 1
        store.requests.clear()
        with outer.open_container("b.zip") as archive:
            for name in SHUFFLED:
                assert archive.read_bytes(name) == MEMBERS[name]
            assert len(in_memory._in_memory) == before + 1
        assert not store.requests


def test_every_way_to_read_gives_the_same(store: Counting, tmp_path: Path) -> None:
    expected = (tmp_path / "a.zip").read_bytes()
    with store.open("a.zip", "rb") as file, SmallArchive(store, "a.zip", file.raw.blob) as blob:
        for _ in range(2):
            buffer = bytearray(9000)
            assert blob.pread_into(memoryview(buffer), 5) == 9000
            assert buffer == expected[5:9005]
            assert blob.pread(100, 7) == expected[7:107]
            assert blob.pread_many([(3, 1), (0, 9), (5, SIZE)]) == [expected[1:4], b"", expected[SIZE:][:5]]
            assert blob.read_all() == expected
            for at in range(0, SIZE, 200_000):
                blob.pread(10, at)
        stream = blob._stream(10)
        assert stream is not None
        assert b"".join(stream) == expected[10:]
    with pytest.raises(ValueError, match="closed"):
        blob.pread(1, 0)
