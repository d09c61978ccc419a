"""CachedFS: a cache that is full, and admits nothing new, costs next to nothing."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from fsabs.cache import eviction, policy
from tests.cache.stores import Store, cached, noise

pytestmark = pytest.mark.quick

FILES, SIZE, BATCH = 200, 3000, 20
LIMIT = 40 * 4096
"""Bytes of a cache that holds a fifth of the files."""


@pytest.fixture(autouse=True)
def _rests_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often a full cache looks for what may go depends on no clock here."""
    monkeypatch.setattr(eviction, "VAIN_REST", 1e6)


@pytest.fixture
def names(store: Store) -> list[str]:
    found = [f"x{number:03}" for number in range(FILES)]
    for number, name in enumerate(found):
        store.inner.write_bytes(name, noise(SIZE, number))
    return found


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Calls that look for, claim and write an entry, and look for room."""
    counts: Counter[str] = Counter()

    def counted(name: str) -> Any:
        call = getattr(os, name)

        def count(*args: Any, **options: Any) -> Any:
            counts[name] += 1
            return call(*args, **options)

        return count

    for name in ("access", "utime", "pwrite", "write", "rename", "unlink", "fstatvfs"):
        monkeypatch.setattr(os, name, counted(name))
    return counts


@pytest.mark.parametrize("batch", [1, BATCH])
def test_a_pass_that_does_not_fit_asks_the_disk_once_for_a_batch(
    store: Store, folder: str, names: list[str], calls: Counter[str], batch: int
) -> None:
    dice = Random(1)
    fs = cached(store, folder, max_bytes=LIMIT)
    for _ in range(4):
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
    renewed = FILES - missed  # the times of those that were read
    a_look = 6 * batch + 20  # at what may go, and the batch before it, where a pass ends
    assert asked.total() <= 2 * FILES / batch + renewed + a_look, asked
    assert status["disk"]["evicted"] == before["disk"]["evicted"]
    assert status["disk"]["entries"] == before["disk"]["entries"]


def test_what_has_room_again_is_stored_at_once(store: Store, folder: str, names: list[str]) -> None:
    fs = cached(store, folder, max_bytes=LIMIT)
    for _ in range(2):
        assert len(list(fs.read_many(names))) == FILES
    fs.clear()
    assert fs.read_bytes(names[-1]) == noise(SIZE, FILES - 1)
    assert len(list(fs.read_many(names[-BATCH:]))) == BATCH
    store.opened.clear()
    assert len(list(fs.read_many(names[-BATCH:]))) == BATCH
    assert not store.reads


def test_another_data_set_takes_the_place_of_one_that_is_not_read_any_more(
    store: Store, folder: str, names: list[str]
) -> None:
    """Its passes are counted, though nothing of it was ever stored."""
    dice = Random(2)
    fs = cached(store, folder, max_bytes=LIMIT)
    old, new = names[: FILES // 2], names[FILES // 2 :]
    for _ in range(2):
        assert len(list(fs.read_many(old))) == len(old)
    for _ in range(6):
        assert len(list(fs.read_many(dice.sample(new, len(new))))) == len(new)
    store.opened.clear()
    assert len(list(fs.read_many(new))) == len(new)
    assert store.reads < len(new)


def test_what_is_pinned_is_found_in_a_full_cache(store: Store, folder: str, names: list[str]) -> None:
    fs = cached(store, folder, max_bytes=LIMIT)
    pinned = max(names, key=lambda name: policy.key_of(store._url(name)))
    for _ in range(3):
        assert len(list(fs.read_many(names))) == FILES
    assert fs.pin([pinned]) == SIZE
    store.opened.clear()
    assert len(list(fs.read_many(names))) == FILES
    assert not store.opened[pinned]
