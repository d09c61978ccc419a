"""Names of shards: the order of the names is that of the numbers, however many shards there are."""

from __future__ import annotations

import pytest

from fsabs import Memory
from fsabs.readers import sharded
from fsabs.readers.locate import shard_name
from fsabs.readers.sharded import convert_lines

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("count", [1, 99, 100_000, 100_001, 1_000_001])
def test_names_sort_by_their_numbers(count: int) -> None:
    names = [shard_name("data", number, count - 1) for number in sorted({0, 1, 9, 10, count // 10, count - 1})]
    assert names == sorted(names)
    assert len(names[0].split("-")[1]) >= 5
    assert shard_name("data", 7, 99) == "data-00007-of-00099"


def test_missing_shards_of_a_large_set_are_named_as_the_others_are() -> None:
    with Memory() as fs:
        fs.write_bytes("data-100000-of-100000", b"")
        missing = sharded.verify(fs).missing
    assert (missing[0], missing[-1]) == ("memory:///data-000000-of-100000", "memory:///data-099999-of-100000")


def test_more_files_of_lines_than_names_that_sort_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded, "MOST_SHARDS", 3)
    with Memory() as fs:
        assert len(convert_lines(fs, lambda: iter(range(6)), 2, "lines")) == 3
        with pytest.raises(ValueError, match="more than 3 files of 2 records: raise line_count"):
            convert_lines(fs, lambda: iter(range(7)), 2, "lines")
