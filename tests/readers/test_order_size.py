"""The order of a billion records is computed where it is asked for: neither memory nor time grows with the records."""

from __future__ import annotations

import tracemalloc

import pytest

from fsabs.readers.data import Shard
from fsabs.readers.data.order import EpochOrder, RandomOrder

pytestmark = pytest.mark.quick

RECORDS = 1_000_000_000
SHARDS = [Shard(f"s{number}", 0, RECORDS // 500) for number in range(500)]


@pytest.mark.parametrize(
    "order",
    [EpochOrder(SHARDS, 1, 100), EpochOrder(SHARDS, 1, 100, 10_000), RandomOrder(SHARDS, 1)],
    ids=["blocks", "blocks in buffers", "records"],
)
@pytest.mark.parametrize("position", [0, 700_000_001])
def test_a_billion_records_take_no_table(order: EpochOrder, position: int) -> None:
    tracemalloc.start()
    try:
        epoch = order.epoch(3)
        pieces = epoch.pieces([(position, RECORDS)])
        found = [epoch.locate(*next(pieces)) for _ in range(3)]
        assert len({(shard, record) for one in found for shard, record in zip(*map(list, one), strict=True)}) > 200
        turns = epoch.shards_in_turn([[(position, RECORDS)]])
        assert sorted(turns) == list(range(500))
        assert tracemalloc.get_traced_memory()[1] < 60 << 20
    finally:
        tracemalloc.stop()
