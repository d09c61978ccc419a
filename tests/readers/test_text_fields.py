"""A long field of a CSV file: the limit of Python's `csv` is no damage."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import fsabs
from fsabs.readers import data

pytestmark = pytest.mark.quick


def test_a_field_over_the_limit_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,short\n2," + "x" * 200_000 + "\n")
    with pytest.raises(OSError, match=r"csv\.field_size_limit") as caught:
        data.TextDataReader(str(tmp_path / "a.csv")).create_shards()
    assert not isinstance(caught.value, fsabs.CorruptFileError)
    before = csv.field_size_limit(300_000)
    try:
        reader = data.TextDataReader(str(tmp_path / "a.csv"))
        assert sum(shard.count for shard in reader.create_shards()) == 2
    finally:
        csv.field_size_limit(before)
