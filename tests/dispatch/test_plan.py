"""How shards become tasks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsabs.dispatch.jobs import ShardTable, checked_shards
from fsabs.readers.data import Shard

pytestmark = pytest.mark.quick


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 60))
def test_tasks_are_the_shards(counts: list[int], records_per_task: int) -> None:
    shards = [Shard(f"s{number}", 3, count) for number, count in enumerate(counts)]
    table = ShardTable(shards, records_per_task)
    pieces = [table.piece(number) for number in range(table.tasks)]
    found = [(piece.name, number) for piece in pieces for number in range(piece.start, piece.end)]
    assert found == [(shard.name, number) for shard in shards for number in range(shard.start, shard.end)]
    assert all(0 < piece.end - piece.start <= records_per_task for piece in pieces)


def test_shards_without_records_are_left_out_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="1 shards have no records and are left out, 'b' first"):
        assert checked_shards([("a", 0, 1), ("b", 0, 0)], "training") == [Shard("a", 0, 1)]
    assert checked_shards([("a", 0, 10), ("a", 10, 2)], "training") == [Shard("a", 0, 10), Shard("a", 10, 2)]
