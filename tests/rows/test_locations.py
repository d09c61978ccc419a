"""Rows of the files that a list, braces or directories of partitions name."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import fsabs
from fsabs.readers.data import ArchiveDataReader, JsonLinesDataReader, ParquetDataReader, Task, shards_of
from fsabs.readers.data.base import AbstractDataReader
from fsabs.readers.data.factory import reader_of

pytestmark = pytest.mark.quick


def rows(reader: AbstractDataReader) -> list[Any]:
    return [row for shard in shards_of(reader) for row in reader.read_at(shard.name, range(shard.start, shard.end))]


def write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)


@pytest.fixture
def partitioned(tmp_path: Path) -> Path:
    null = "__HIVE_DEFAULT_PARTITION__"
    for number, part in enumerate(["year=2023/city=a", "year=2023/city=b%20c", f"year=2024/city={null}"]):
        write(tmp_path / part / "0.parquet", pa.table({"x": [10 * number, 10 * number + 1]}))
    return tmp_path


def test_partitions_are_columns(partitioned: Path) -> None:
    reader = ParquetDataReader(partitioned)
    assert rows(reader) == pq.read_table(partitioned, partitioning="hive").to_pylist()
    assert rows(reader)[2] == {"x": 10, "year": 2023, "city": "b c"}
    assert reader.schema.names == ["x", "year", "city"]
    chosen = ParquetDataReader(partitioned, columns=["city", "x"])
    assert rows(chosen)[4] == {"city": None, "x": 20}
    assert list(rows(ParquetDataReader(partitioned, columns=["year"]))[0]) == ["year"]
    shard = shards_of(reader)[1]
    assert list(ParquetDataReader(partitioned).read_records(Task(0, shard.name, 1, 2))) == [rows(reader)[3]]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([("year", ">=", 2024)], [20, 21]),
        (pc.field("year") > 2023, [20, 21]),
        ([("city", "=", "a"), ("x", ">", 5)], []),
        ([("city", "=", "b c")], [10, 11]),
    ],
)
def test_filters_know_partitions(partitioned: Path, filters: Any, expected: list[int]) -> None:
    assert [row["x"] for row in rows(ParquetDataReader(partitioned, filters=filters))] == expected


def test_a_column_of_the_file_is_kept(tmp_path: Path) -> None:
    day = datetime.date(2024, 1, 2)
    write(tmp_path / "day=2024-01-02" / "0.parquet", pa.table({"x": [1], "day": [day]}))
    assert rows(ParquetDataReader(tmp_path)) == [{"x": 1, "day": day}]


def test_inner_values_may_be_missing_in_some_files(tmp_path: Path) -> None:
    for number, nullable in enumerate([False, True]):
        kind = pa.struct([pa.field("a", pa.list_(pa.field("element", pa.int64(), nullable)), nullable)])
        values = [{"a": [1]}, {"a": [None] if nullable else [2]}]
        write(tmp_path / f"{number}.parquet", pa.table({"s": pa.array(values, kind)}))
    assert [row["s"]["a"] for row in rows(ParquetDataReader(tmp_path))] == [[1], [2], [1], [None]]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    for name in ["train-08", "train-09", "train-10", "train-11", "more/x", "more/y"]:
        path = tmp_path / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f'"{name}"\n')
    return tmp_path


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (["/train-{09..11}.jsonl"], ["train-09", "train-10", "train-11"]),
        (["/train-{11..10}.jsonl", "/more"], ["train-11", "train-10", "more/x", "more/y"]),
        (["/{train-08,more/*}.jsonl"], ["train-08", "more/x", "more/y"]),
        (["/train-1*.jsonl", "/more/y.jsonl"], ["train-10", "train-11", "more/y"]),
        (["/more/{x,y}.jsonl"], ["more/x", "more/y"]),
    ],
)
def test_lists_and_braces(lines: Path, location: Sequence[str], expected: list[str], scheme: str) -> None:
    given = [f"{scheme}{lines}{one}" for one in location]
    reader = reader_of(given[0] if len(given) == 1 else given, "raise")
    assert isinstance(reader, JsonLinesDataReader)
    assert rows(reader) == expected
    assert all(shard.name.startswith(f"{scheme}{lines}/") for shard in shards_of(reader))
    shard = shards_of(reader)[-1]
    assert list(JsonLinesDataReader(given).read_records(Task(0, shard.name, 0, 1))) == expected[-1:]


def test_lists_that_can_not_be(lines: Path) -> None:
    with pytest.raises(ValueError, match="not in one store"):
        JsonLinesDataReader(["memory://a/x.jsonl", "memory://b/x.jsonl"])
    with pytest.raises(ValueError, match="named twice"):
        JsonLinesDataReader([lines / "train-08.jsonl", lines / "train-0*.jsonl"]).create_shards()
    with pytest.raises(ValueError, match="no directory or URL"):
        JsonLinesDataReader([])
    with pytest.raises(FileNotFoundError, match="train-99"):
        JsonLinesDataReader(str(lines / "train-{08,99}.jsonl")).create_shards()


def test_a_name_with_braces_is_a_name(tmp_path: Path) -> None:
    (tmp_path / "{a,b}.jsonl").write_text("1\n")
    assert rows(JsonLinesDataReader(tmp_path / "{a,b}.jsonl")) == [1]


def test_archives_in_braces(tmp_path: Path) -> None:
    for number in range(3):
        with fsabs.from_url(tmp_path).open_container(f"{number}.zip", "w") as archive:
            archive.write_bytes("0.txt", b"%d" % number)
    reader = reader_of(f"{tmp_path}/{{0..2}}.zip", "raise")
    assert isinstance(reader, ArchiveDataReader)
    assert [row["txt"] for row in rows(reader)] == [b"0", b"1", b"2"]
