"""A cache that is smaller than the data: it keeps a useful part, lets in what is read often, and costs little."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fsabs.cache import content, eviction, policy
from fsabs.cache.content import MemoryCache
from fsabs.cache.policy import ReadOrder
from tests.cache.stores import Store, cached, noise

pytestmark = pytest.mark.quick

FILES, SIZE = 200, 3000


class Clock:
    """A clock that goes on by a second with each read; another one goes on when it is asked."""

    def __init__(self) -> None:
        self.now = 1e9
        self.asked = 0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        self.asked += 1
        return self.asked


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Chance is seeded, and time is counted by reads."""
    clock, dice = Clock(), Random(11)
    for module in (content, policy, eviction):
        monkeypatch.setattr(module, "time", clock)
    random = SimpleNamespace(sample=dice.sample, randrange=dice.randrange)
    monkeypatch.setattr(content, "random", random)
    return clock


class Simulated:
    """A cache of `room` entries, read through."""

    def __init__(self, clock: Clock, room: int) -> None:
        self._clock = clock
        self._cache = MemoryCache(room * 10_000)

    def read(self, name: str) -> bool:
        """Return whether it was a hit."""
        self._clock.now += 1.0
        if self._cache.get(name.encode()) is not None:
            return True
        self._cache.put(name.encode(), name, bytes(9000), ReadOrder())
        return False


@pytest.mark.parametrize("share", [0.1, 0.4, 0.9])
def test_shuffled_epochs_keep_a_constant_part_of_the_data(clock: Clock, share: float) -> None:
    """Twelve passes, of which the first fills the cache."""
    dice, names = Random(1), [f"file {number}" for number in range(500)]
    cache = Simulated(clock, int(500 * share))
    hits = [sum(cache.read(name) for name in dice.sample(names, 500)) for _ in range(12)]
    assert min(hits[1:]) >= 0.8 * 500 * share, hits
    assert sum(hits[1:]) / 11 >= 0.88 * 500 * share, hits


def test_what_is_read_over_and_over_gets_in(clock: Clock) -> None:
    """A validation set that is read ten times a pass, and an index that is read with each batch of 20."""
    dice, names = Random(2), [f"file {number}" for number in range(2000)]
    validation = [f"validation {number}" for number in range(50)]
    cache, hits, reads = Simulated(clock, 200), Counter[str](), Counter[str]()
    for epoch in range(16):
        for at, name in enumerate(dice.sample(names, 2000)):
            cache.read(name)
            often = ["index"] * (at % 20 == 0) + validation * (at % 200 == 199)
            for one in often:
                hits[one[:5]] += cache.read(one) and epoch >= 12
                reads[one[:5]] += epoch >= 12
    assert hits["index"] / reads["index"] > 0.95
    assert hits["valid"] / reads["valid"] > 0.75


@pytest.mark.parametrize("size", [300, 1000])
def test_another_data_set_takes_the_place_of_the_one_before(clock: Clock, size: int) -> None:
    dice, cache = Random(3), Simulated(clock, 200)
    for _ in range(5):
        for number in dice.sample(range(size), size):
            cache.read(f"old {number}")
    hits = [sum(cache.read(f"new {number}") for number in dice.sample(range(size), size)) for _ in range(5)]
    assert hits[3] >= 0.8 * 200, "three passes at the latest take the place of all that was there"


@pytest.fixture
def names(store: Store) -> list[str]:
    found = [f"x{number:03}" for number in range(FILES)]
    for number, name in enumerate(found):
        store.inner.write_bytes(name, noise(SIZE, number))
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls that look for and write an entry."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Any:
        call = getattr(os, name)

        def count(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return call(*args, **options)

        return count

    for name in ("access", "open", "utime", "write", "rename", "unlink", "fstatvfs", "scandir"):
        monkeypatch.setattr(os, name, counted(name))
    return counts


@pytest.mark.parametrize("batch", [1, 20])
def test_what_a_full_cache_refuses_is_not_looked_for(
    store: Store, folder: str, names: list[str], calls: Counter[str], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "VAIN_REST", 1e6)
    monkeypatch.setattr(content, "random", SimpleNamespace(sample=Random(4).sample, randrange=lambda _: 1))
    dice = Random(1)
    fs = cached(store, folder, max_bytes=40 * 4096, memory_bytes=0)
    for _ in range(3):
        assert len(list(fs.read_many(dice.sample(names, FILES)))) == FILES
    before, missed = fs.status(), store.reads
    calls.clear()
    order = dice.sample(names, FILES)
    for start in range(0, FILES, batch):
        wanted = order[start : start + batch]
        found = list(fs.read_many(wanted)) if batch > 1 else [fs.read_bytes(wanted[0])]
        assert [noise(SIZE, int(name[1:])) for name in wanted] == found
    asked = calls.copy()
    status, missed = fs.status(), store.reads - missed
    assert missed > FILES / 2
    assert status["misses"] - before["misses"] == missed
    assert asked.total() <= 3 * (FILES - missed) + 20, asked
    assert status["disk"]["entries"] == before["disk"]["entries"]


def test_what_has_room_again_is_stored_at_once(store: Store, folder: str, names: list[str]) -> None:
    fs = cached(store, folder, max_bytes=40 * 4096)
    for _ in range(3):
        assert len(list(fs.read_many(names))) == FILES
    fs.clear()
    assert fs.read_bytes(names[-1]) == noise(SIZE, FILES - 1)
    assert len(list(fs.read_many(names[-20:]))) == 20
    store.opened.clear()
    assert len(list(fs.read_many(names[-20:]))) == 20
    assert not store.reads


def test_what_is_pinned_is_found_in_a_full_cache(store: Store, folder: str, names: list[str]) -> None:
    fs = cached(store, folder, max_bytes=40 * 4096)
    for _ in range(3):
        assert len(list(fs.read_many(names))) == FILES
    assert fs.pin([names[-1]]) == SIZE
    store.opened.clear()
    assert len(list(fs.read_many(names))) == FILES
    assert not store.opened[names[-1]]
