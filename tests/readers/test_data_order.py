"""The order of an epoch: every sample once, shuffled as asked, a function of (seed, epoch); and its intervals."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs.readers.data import Shard
from fsabs.readers.data.order import Epoch, EpochOrder, Interval, drop, length, take, union

pytestmark = pytest.mark.quick

COUNTS = st.lists(st.integers(0, 40), max_size=8)


def shards(counts: Sequence[int]) -> list[Shard]:
    return [Shard(f"s{number}", 3 * number, count) for number, count in enumerate(counts)]


def walk(epoch: Epoch, intervals: Sequence[Interval], taken: int = 0) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in epoch.pieces(drop(intervals, taken)):
        numbers, records = epoch.locate(start, end)
        found += zip(numbers.tolist(), records.tolist(), strict=True)
    return found


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.none() | st.integers(), st.none() | st.integers(1, 9), st.integers(0, 20), st.data())
def test_every_record_once_and_any_suffix(
    counts: list[int], seed: int | None, block: int | None, buffer: int, data: st.DataObject
) -> None:
    order = EpochOrder(shards(counts), seed, block, buffer)
    everything = [(at, record) for at, one in enumerate(shards(counts)) for record in range(one.start, one.end)]
    assert order.total == len(everything)
    epoch = order.epoch(data.draw(st.integers(0, 3)))
    whole = [(0, order.total)] if order.total else []
    found = walk(epoch, whole)
    assert sorted(found) == everything
    if seed is None:
        assert found == everything
    taken = data.draw(st.integers(0, order.total))
    assert walk(epoch, whole, taken) == found[taken:]
    workers = data.draw(st.integers(1, 12))
    bounds = [length(whole) * number // workers for number in range(workers + 1)]
    parts = [walk(epoch, list(take(drop(whole, low), high - low))) for low, high in itertools.pairwise(bounds)]
    assert [one for piece in parts for one in piece] == found
    assert sorted(epoch.shards_in_turn([whole])) == [at for at, count in enumerate(counts) if count]


def test_what_is_shuffled() -> None:
    many = shards([50] * 20)
    plain = walk(EpochOrder(many, 1).epoch(0), [(0, 1000)])
    assert [record for _, record in plain[:50]] == list(range(many[plain[0][0]].start, many[plain[0][0]].end))
    assert [number for number, _ in plain[::50]] != list(range(20))
    mixed = walk(EpochOrder(many, 1, 5, 100).epoch(0), [(0, 1000)])
    assert mixed != walk(EpochOrder(many, 1, 5, 100).epoch(1), [(0, 1000)])
    assert mixed != walk(EpochOrder(many, 2, 5, 100).epoch(0), [(0, 1000)])
    assert len({number for number, _ in mixed[:100]}) > 8  # a buffer holds blocks of many shards
    falls = sum(a > b for (_, a), (_, b) in itertools.pairwise(mixed))
    assert 400 < falls < 600  # as of a random sequence


def test_the_order_stays_what_it_is() -> None:
    """A state that another version has saved goes on in the same order."""
    order = EpochOrder(shards([3, 0, 4]), 7, 2, 4)
    assert walk(order.epoch(5), [(0, 7)]) == [(2, 9), (2, 8), (0, 0), (2, 7), (0, 1), (2, 6), (0, 2)]
    whole = EpochOrder(shards([3, 0, 4]), 7, None, 4)
    assert walk(whole.epoch(5), [(0, 7)]) == [(0, 2), (0, 1), (2, 6), (0, 0), (2, 7), (2, 9), (2, 8)]


def test_sizes_that_can_not_be() -> None:
    for wrong in ({"block_size": 0}, {"buffer_size": -1}):
        with pytest.raises(ValueError):
            EpochOrder([], 1, **wrong)


def test_intervals() -> None:
    some = [(0, 5), (7, 8), (10, 20)]
    assert length(some) == 16
    assert list(drop(some, 5)) == [(7, 8), (10, 20)]
    assert list(drop(some, 99)) == list(take(some, 0)) == []
    assert list(take(some, 7)) == [(0, 5), (7, 8), (10, 11)]
    assert union([[(5, 7)], [(0, 5), (9, 10)]]) == [(0, 7), (9, 10)]
    with pytest.raises(ValueError, match="position 4"):
        union([[(0, 5)], [(4, 6)]])
